#!/usr/bin/env bash
# Several processes, and two nodes: bash test_tipc/test_train_fleet_inference_python.sh CONFIG MODE
# With `ips:` naming this machine twice, two launchers stand for two machines; on real ones, run this on each with NODE_RANK set.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
DEFAULT_CONFIG=train_fleet_infer_python.txt
start "${1:-}" "${2:-}" lite_train_lite_infer lite_train_whole_infer whole_train_whole_infer
need ips
train_chain # one process, and several

IFS=',' read -ra nodes <<<"$(value ips)"
port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
master=${MASTER:-${nodes[0]}:$port}
folder=$OUTPUT/two_nodes
device=$([ $HAS_GPU -eq 1 ] && echo gpu || echo cpu)
trainer="$(value norm_train)$(flags --config --data-path --epochs --batch-size --pretrained) --device $device --output-dir $folder"
node() {
    printf '%s -m paddle.distributed.launch --master %s --nnodes %s --rank %s --nproc_per_node 1 --log_dir %s/launch_node_%s %s' \
        "$PYTHON" "$master" "${#nodes[@]}" "$1" "$OUTPUT" "$1" "$trainer"
}
if [ -n "${NODE_RANK:-}" ]; then
    run "train_node_$NODE_RANK" "$(node "$NODE_RANK")"
    trained=$?
else
    # All launchers at once; the step has succeeded when every one of them has.
    command=""
    for rank in "${!nodes[@]}"; do
        command+="{ $(node "$rank") & }; pids+=(\$!); "
    done
    run train_two_nodes "pids=(); $command status=0; for pid in \${pids[@]}; do wait \$pid || status=1; done; exit \$status"
    trained=$?
fi
if [ $trained -eq 0 ] && [ "${NODE_RANK:-0}" = 0 ]; then
    after_training "$folder/$(value train_model_name)" two_nodes
fi
finish
