#!/usr/bin/env bash
# Export to ONNX, and infer with ONNX Runtime: bash test_tipc/test_paddle2onnx.sh CONFIG MODE
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
source "$(dirname "${BASH_SOURCE[0]}")/train_chain.sh"
DEFAULT_CONFIG=paddle2onnx_infer_python.txt
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES paddle2onnx_infer
train_chain
finish
