#!/usr/bin/env bash
# Train, evaluate, export and infer: bash test_tipc/test_train_inference_python.sh CONFIG MODE
# gpu_list holds one run for each alternative: "0" one process, "0,1" two. Without a GPU they run on the CPU.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES
train_chain
finish
