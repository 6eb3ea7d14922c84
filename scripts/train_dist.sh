#!/usr/bin/env bash
# Train on several machines; the same command on each, with its own NODE_RANK:
#   MASTER=10.0.0.1:8090 NNODES=2 NODE_RANK=0 NPROC=8 scripts/train_dist.sh CONFIG DATA_PATH [flags of tools/train.py]
# When a rank dies the launcher ends the others and names the log; the run then starts again from its last checkpoint, at
# most MAX_RESTARTS times (default 3); not where what it was given cannot be used (exit status 2). The output folder has to be
# one that every machine sees.
set -uo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 2 ] || [ -z "${MASTER:-}" ] || [ -z "${NNODES:-}" ] || [ -z "${NODE_RANK:-}" ]; then
    echo "usage: MASTER=IP:PORT NNODES=N NODE_RANK=I [NPROC=1] [MAX_RESTARTS=3] scripts/train_dist.sh CONFIG DATA_PATH [flags]" >&2
    exit 2
fi
config=$1 data=$2
shift 2
logs=${LOG_DIR:-output/log}
child=
mkdir -p "$logs" || exit 2
asked=0 # a stop of this script is one of the launcher, which would otherwise go on unseen
trap 'asked=143; [ -z "$child" ] || kill -TERM "$child"' TERM
trap 'asked=130; [ -z "$child" ] || kill -TERM "$child"' INT
trap 'asked=129; [ -z "$child" ] || kill -TERM "$child"' HUP
for ((try = 0; ; try++)); do
    "${PYTHON:-python}" -m paddle.distributed.launch --master "$MASTER" --nnodes "$NNODES" --rank "$NODE_RANK" \
        --nproc_per_node "${NPROC:-1}" --log_dir "$logs" \
        tools/train.py --config "$config" --data-path "$data" --resume auto "$@" 2> >(tee "$logs/launcher.err" >&2) &
    child=$!
    wait "$child"
    status=$?
    if [ $asked -ne 0 ]; then # a signal ended the wait, not the launcher
        wait "$child"
        exit $asked
    fi
    case $status in
    # The launcher ends with the status of the first rank, which it may itself have stopped because another one had failed.
    129 | 130 | 143)
        sleep 0.5 # tee may still be writing
        failed=$(sed -n 's/^Container rank [0-9]* status failed .* code \(-\{0,1\}[0-9][0-9]*\) log .*/\1/p' "$logs/launcher.err" | head -n 1)
        case ${failed:-143} in
        129 | 130 | 143 | -1 | -2 | -15) ;;
        *) status=$failed ;;
        esac
        ;;
    esac
    case $status in
    # 0: done. 129, 130 and 143: somebody asked it to stop; 15 is what Paddle's launcher then ends with.
    0 | 15 | 129 | 130 | 143) exit $status ;;
    esac
    # A loader worker that was lost (memory ran out) ends a run with 2, too, and is no fault of what it was given.
    if [ $status -eq 2 ] && ! tail -qn 3 "$logs"/workerlog.* 2>/dev/null | grep -q "error: a loader worker has ended"; then
        echo "what the run was given cannot be used, so it is not started again; logs: $logs/workerlog.*" >&2
        exit 2
    fi
    if [ $try -ge "${MAX_RESTARTS:-3}" ]; then
        echo "given up, exit status $status, restarts: $try; logs: $logs/workerlog.*" >&2
        exit $status
    fi
    echo "exit status $status, logs: $logs/workerlog.*; restart $((try + 1)) from the last checkpoint" >&2
    sleep "${RESTART_DELAY:-5}"
    [ $asked -eq 0 ] || exit $asked
done
