#!/usr/bin/env bash
# The same chain with automatic mixed precision: bash test_tipc/test_train_amp_inference_python.sh CONFIG MODE
# Paddle has no mixed precision on a CPU. There the reference trains in bfloat16, and Paddle evaluates, exports and infers
# with the weights, which both read.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
DEFAULT_CONFIG=train_amp_infer_python.txt
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES
[ "$(value --amp-level)" != null ] || [[ "$(value "$(value trainer)")" == *--amp* ]] || die "$CONFIG: --amp-level is null: that is the chain of test_train_inference_python.sh"
extra_train() {
    [ $HAS_GPU -eq 1 ] || printf ' --framework ref --amp-dtype bfloat16'
}
train_chain
finish
