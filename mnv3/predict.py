"""Name what is on pictures: python tools/predict.py --img-path PICTURE_OR_FOLDER [--pretrained WEIGHTS]

WEIGHTS is a checkpoint of tools/train.py, which knows its preprocessing and class names, or any .pdparams, .safetensors or
.pth of a MobileNetV3. Exit status 0; 2 where something cannot be used. A damaged picture is named, the others are predicted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser, within
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.json_output import add_output_flags, outputs_of
from mobilenetv3_paddle.deploy.flags import add_picture_flags, add_weights_flags, load_weights, rules_of

PREDICTED = ("picture", "rank", "class", "probability")  # head of a CSV file of predictions


def predicted_rows(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows of that file, of ``{"picture": path, "predictions": [...]}`` each."""
    return [
        (row["picture"], rank, one["name"], f"{one['probability']:.6f}")
        for row in rows
        for rank, one in enumerate(row["predictions"], start=1)
    ]


def parser() -> Parser:
    p = Parser(description=__doc__)
    p.add_argument("--img-path", required=True, nargs="+", metavar="FILE_OR_DIR", help="pictures, folders, or - (standard input)")
    add_weights_flags(p)
    add_picture_flags(p)
    p.add_argument("--topk", type=within(1), default=5, metavar="N", help="classes to name (default: 5)")
    add_output_flags(p, "the predictions", "picture, rank, class, probability")
    p.add_argument("--save-dir", type=Path, metavar="DIR", help="write every picture with its classes beside it into this folder")
    p.add_argument("--batch-size", type=within(1), default=16, metavar="N", help="pictures at a time (default: 16)")
    p.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="(default: cpu)")
    return p


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    # Paddle is imported only now, so that --help and a wrong flag answer at once.
    from mobilenetv3_common.files import ensure_writable_dir
    from mobilenetv3_paddle.deploy.engines import DygraphEngine
    from mobilenetv3_paddle.deploy.predictor import Predictor, find_pictures
    from mobilenetv3_paddle.train.distributed import started

    args.outputs = outputs_of(vars(args), table=True)
    pictures = find_pictures(args.img_path)
    if args.save_dir:
        ensure_writable_dir(args.save_dir)
    with started(args.device):
        trained = load_weights(args)
        predictor = Predictor(DygraphEngine(trained.layer), trained.preset, trained.classes, trained.image_backend, rules_of(args))
        return predict_all(predictor, pictures, args)


def predict_all(predictor: Any, pictures: list[Path], args: Any) -> int:
    """Predict in batches, and print; a picture that cannot be used is named on standard error, and makes the status 2."""
    from mobilenetv3_common.terminal import printable
    from mobilenetv3_paddle.deploy.annotate import save_annotated

    rows: list[dict] = []
    bad: list[str] = []

    def refused(error: UserError) -> None:
        bad.append(error.line)
        print(f"error: {error.line}", file=sys.stderr)

    for path, found in predictor.predict_files(pictures, args.batch_size, args.topk, refused):
        rows.append({"picture": str(path), "predictions": [vars(p) for p in found]})
        if not args.outputs.printed:
            print(printable(path))
            for p in found:
                print(f"  {100 * p.probability:6.2f} %  {printable(p.name)}")
        if args.save_dir:
            save_annotated(predictor.decode(path), found, args.save_dir / f"{len(rows):04d}_{printable(path.stem)[:50]}.png")
    args.outputs.write(rows, PREDICTED, predicted_rows(rows))
    return 2 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
