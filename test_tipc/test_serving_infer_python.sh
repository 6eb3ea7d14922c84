#!/usr/bin/env bash
# Export, start the service, and ask it: bash test_tipc/test_serving_infer_python.sh CONFIG MODE
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
DEFAULT_CONFIG=serving_infer_python.txt
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES serving_infer
need serving --max-batch

# In place of tools/infer.py: the service on a free port, every picture posted to it, and a clean end.
infer_all() {
    local engine precision
    for engine in $(alternatives --engine); do
        for precision in $(alternatives --precision); do
            run "serve_$2_${engine}_$precision" "$PYTHON test_tipc/ask_service.py --images $(value --img-path) -- \
$PYTHON $(value serving) --model-dir $1 --engine $engine --precision $precision$(flags --max-batch) --port 0"
        done
    done
}
train_chain
finish
