#!/usr/bin/env bash
# Paddle Lite on ARM, which is not in this project: bash test_tipc/test_lite_arm_cpu_cpp.sh CONFIG says why.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
start "${1:-}" whole_infer whole_infer
die "$0: the config is none of this chain"
