#!/usr/bin/env bash
# Train, evaluate, export and infer: bash test_tipc/test_train_inference_python.sh CONFIG MODE
# gpu_list holds one run for each alternative: "0" one process, "0,1" two. Without a GPU they run on the CPU.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
# PaddlePaddle/models starts its other chains with this one's script.
[ -f "${1:-}" ] && grep -q '^trainer:amp_train' "$1" && exec bash "$(dirname "$0")/test_train_amp_inference_python.sh" "$@"
[ -f "${1:-}" ] && grep -q '^gpu_list:.*;' "$1" && exec bash "$(dirname "$0")/test_train_fleet_inference_python.sh" "$@"
DEFAULT_CONFIG=train_infer_python.txt
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES
train_chain
finish
