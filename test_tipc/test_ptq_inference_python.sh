#!/usr/bin/env bash
# Post-training quantisation: bash test_tipc/test_ptq_inference_python.sh CONFIG MODE
# Trains briefly (or takes the weights of whole_infer), exports with int8, and infers in both precisions.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
DEFAULT_CONFIG=train_ptq_infer_python.txt
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES
need --int8 --calibration-data
extra_export() { flags --int8 --calibration-data; }
train_chain
finish
