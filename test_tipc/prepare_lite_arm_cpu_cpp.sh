#!/usr/bin/env bash
# Paddle Lite on ARM, which is not in this project: bash test_tipc/prepare_lite_arm_cpu_cpp.sh CONFIG says why.
source "$(dirname "${BASH_SOURCE[0]}")/test_lite_arm_cpu_cpp.sh"
