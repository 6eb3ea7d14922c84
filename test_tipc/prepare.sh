#!/usr/bin/env bash
# Make what a chain needs: bash test_tipc/prepare.sh CONFIG MODE
# The lite modes use lite_data, which the repository holds, and need no network. whole_infer makes calibrated weights here, or
# fetches torchvision's with WEIGHTS=torchvision; whole_train_whole_infer needs ImageNet at the config's --data-path.
source "$(dirname "${BASH_SOURCE[0]}")/common_func.sh"
# shellcheck disable=SC2086
start "${1:-}" "${2:-}" $MODES paddle2onnx_infer serving_infer

"$PYTHON" -c 'import paddle' 2>/dev/null || die "$PYTHON has no Paddle: run 'make setup' and put .venv/bin first in PATH, or set PYTHON"
data=$(value train_infer_img_dir)
case "$LIKE" in
whole_train_whole_infer)
    [ -d "$(value --data-path)/train" ] || die "$(value --data-path) has no ImageNet (train/ and val/): see README.md, or use a lite mode"
    ;;
*)
    "$PYTHON" tools/prepare_lite_data.py --check || exit 2
    ;;
esac
[ -d "$data" ] || die "$CONFIG: train_infer_img_dir: there is no folder $data"
[[ "$CONFIG" == *"$OUTPUT/"* ]] || rm -rf "${OUTPUT:?}" # a completed config lies in it
mkdir -p "$OUTPUT"
if [ "$LIKE" = whole_infer ]; then
    weights=$(value pretrained_weights)
    mkdir -p "$(dirname "$weights")"
    [ -f "$weights" ] || "$PYTHON" -m alignment weights projects/mobilenetv3/project.py --model "$MODEL" \
        ${WEIGHTS:+--weights "$WEIGHTS"} --output "$weights" || exit 2
fi
echo "ready: $MODEL $MODE, results will be in $OUTPUT"
