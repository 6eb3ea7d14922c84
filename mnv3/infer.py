"""Run an exported model on pictures: python tools/infer.py --model-dir exported --img-path lite_data/val

--benchmark prints a report instead of the classes: environment, times of preprocessing, inference and postprocessing with
their percentiles, and memory. Neither torch nor, with ONNX Runtime, Paddle is needed. A picture that cannot be used is named on
standard error, the others are predicted, and the exit status is 2.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mnv3.predict import PREDICTED, predicted_rows
from mobilenetv3_common.config_file import Parser, within
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.json_output import add_output_flags, outputs_of
from mobilenetv3_common.terminal import printable
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.flags import add_engine_flags, add_picture_flags, rules_of


def parser() -> Parser:
    p = Parser(description=__doc__)
    add_engine_flags(p)
    add_picture_flags(p)
    p.add_argument("--img-path", required=True, nargs="+", metavar="FILE_OR_DIR", help="pictures, folders, or - (standard input)")
    p.add_argument("--batch-size", type=within(1), default=1, metavar="N", help="pictures at a time (default: 1)")
    p.add_argument("--warmup", type=within(0), default=3, metavar="N", help="runs before the first that counts (default: 3)")
    p.add_argument("--repeats", type=within(1), default=1, metavar="N", help="passes over the pictures (default: 1)")
    p.add_argument("--topk", type=within(1), default=5, metavar="N", help="classes to name (default: 5)")
    p.add_argument("--accuracy", action="store_true", help="folders are named after their class: print top-1 and top-5, too")
    p.add_argument("--benchmark", action="store_true", help="print the report instead of the classes")
    add_output_flags(p, "classes and report", "picture, rank, class, probability")
    return p


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    from mobilenetv3_paddle.deploy.bundle import read_bundle
    from mobilenetv3_paddle.deploy.predictor import Predictor, find_pictures
    from mobilenetv3_paddle.deploy.report import environment, inference_report

    outputs = outputs_of(vars(args), table=True)
    pictures = find_pictures(args.img_path)
    bundle = read_bundle(args.model_dir)
    engine = create_engine(bundle, args.engine, args.precision, args.threads, args.device)
    predictor = Predictor(engine, bundle.preset, bundle.classes, bundle.image_backend, rules_of(args))
    for _ in range(args.warmup):
        predictor.predict_usable(pictures[: args.batch_size], args.topk, lambda _: None)
    predictor.times.clear()
    rows: list[dict] = []
    bad: dict[str, None] = {}
    for _ in range(args.repeats):
        rows = []
        for path, found in predictor.predict_files(pictures, args.batch_size, args.topk, lambda error: bad.setdefault(error.line)):
            rows.append({"picture": str(path), "predictions": [vars(p) for p in found]})
    for line in bad:
        print(f"error: {line}", file=sys.stderr)
    if not rows:
        return 2
    figures = accuracy(rows, bundle.classes) if args.accuracy else {}
    about = environment(engine, bundle, args.threads, args.device)
    report = inference_report(predictor.times, args.batch_size, len(rows) * args.repeats)
    with outputs.for_people():
        tell(rows, {"environment": about, **report} if args.benchmark else {}, figures)
    outputs.write({"environment": about, **report, "accuracy": figures, "pictures": rows}, PREDICTED, predicted_rows(rows))
    return 2 if bad else 0


def tell(rows: list[dict], report: dict[str, dict], figures: dict[str, float]) -> None:
    """Print the report, or the classes where there is none, and the accuracy."""
    if report:
        for title, part in report.items():
            print(f"---- {title} ----")
            for name, value in part.items():
                print(f"{name:16}: {value}")
    else:
        for row in rows:
            print(printable(row["picture"]))
            for found in row["predictions"]:
                print(f"  {100 * found['probability']:6.2f} %  {printable(found['name'])}")
    if figures:
        print(f"top-1: {figures['top1']:.4f}, top-5: {figures['top5']:.4f}, pictures: {figures['pictures']}")


def accuracy(rows: list[dict], classes: tuple[str, ...]) -> dict[str, float]:
    """Top-1 and top-5 of predictions, where each picture's folder is named after its class.

    Raises:
        UserError: a folder is none of the classes, or fewer than five classes were named a picture.
    """
    ranks = []
    for row in rows:
        label = Path(row["picture"]).parent.name
        names = [found["name"] for found in row["predictions"]]
        if label not in classes:
            raise UserError(f"--accuracy: {row['picture']} lies in a folder that is no class of the model ({label})")
        if len(names) < min(5, len(classes)):
            raise UserError("--accuracy needs --topk 5 or more")
        ranks.append(names.index(label) if label in names else len(names))
    return {"top1": sum(r < 1 for r in ranks) / len(ranks), "top5": sum(r < 5 for r in ranks) / len(ranks), "pictures": len(ranks)}


if __name__ == "__main__":
    sys.exit(main())
