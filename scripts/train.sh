#!/usr/bin/env bash
# Train on this machine: scripts/train.sh CONFIG DATA_PATH [flags of tools/train.py]
# NPROC processes (default 1), one a GPU; a run that was cut off goes on from its last checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 2 ]; then
    echo "usage: [NPROC=1] scripts/train.sh CONFIG DATA_PATH [flags of tools/train.py]" >&2
    exit 2
fi
config=$1 data=$2
shift 2
python=${PYTHON:-python}
if [ "${NPROC:-1}" -eq 1 ]; then
    exec "$python" tools/train.py --config "$config" --data-path "$data" --resume auto "$@"
fi
exec "$python" -m paddle.distributed.launch --nproc_per_node "$NPROC" --log_dir "${LOG_DIR:-output/log}" \
    tools/train.py --config "$config" --data-path "$data" --resume auto "$@"
