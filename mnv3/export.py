"""Export trained weights for the inference engines: python tools/export_model.py --pretrained output/best.safetensors

Writes Paddle's inference format, ONNX, and deploy.json with preprocessing, class names and digests, and checks every engine
against the network on the spot. --int8 adds a quantised ONNX model, calibrated on pictures; --engine auto measures which
engine is the fastest on this machine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.called import as_called
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import gone_on_failure
from mobilenetv3_paddle.deploy.flags import add_weights_flags, load_weights, positive

if TYPE_CHECKING:
    from mobilenetv3_paddle.deploy.bundle import Bundle

FORMATS = ("paddle", "onnx", "pdmodel")


def parser() -> Parser:
    p = Parser(description=__doc__)
    add_weights_flags(p)
    p.add_argument("--output-dir", default="exported", metavar="DIR", help="(default: exported)")
    p.add_argument(
        "--formats",
        default="paddle,onnx",
        metavar="LIST",
        help="paddle always, onnx, and pdmodel of Paddle 2 (default: paddle,onnx)",
    )
    p.add_argument("--int8", action="store_true", help="also make a quantised ONNX model")
    p.add_argument(
        "--int8-keep",
        choices=("none", "auto"),
        default="none",
        help="auto: measure each layer alone in int8, and try to leave those that lose most in float32 (default: none)",
    )
    p.add_argument(
        "--int8-report",
        metavar="DIR",
        help="with --int8-keep auto: say what each layer costs in int8, and write the page int8.html there",
    )
    p.add_argument(
        "--calibration-data",
        nargs="+",
        metavar="FILE_OR_DIR",
        help="hundreds of pictures like those in use: every second one calibrates int8, the others test it and the engines",
    )
    p.add_argument(
        "--engine", choices=("auto",), help="measure every engine here and keep the fastest whose predictions agree (default: off)"
    )
    p.add_argument("--triton", metavar="DIR", help="also write a model repository for Triton")
    p.add_argument("--triton-batch", type=positive(int), default=32, metavar="N", help="largest batch (default: 32)")
    return p


def _int8(bundle: Bundle, pictures: Sequence[Path], keep: str, report: Path | None) -> list[str]:
    """Add int8, and the page about its layers where one is asked for; gives what was found, in lines."""
    from mobilenetv3_paddle.deploy import int8_page
    from mobilenetv3_paddle.deploy.quantize import quantize

    result = quantize(bundle, pictures, keep, explain=report is not None)
    if report is None:
        return [result.line()]
    return [result.line(), *int8_page.lines(result), f"page: {int8_page.write(report, bundle, result)}"]


def _fastest(bundle: Bundle, pictures: Sequence[Path]) -> list[str]:
    """Measure the engines; gives what was found, in lines."""
    from mobilenetv3_paddle.deploy.fastest import measure

    found = measure(bundle, pictures)
    best = f"{found[0].engine} {found[0].precision}"
    return [*(one.line() for one in found), f"--engine auto: {best} is the fastest here, on {bundle.fastest['processor']}"]


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    formats = tuple(filter(None, args.formats.split(",")))
    if unknown := set(formats) - set(FORMATS):
        raise UserError(f"--formats {args.formats}: {', '.join(sorted(unknown))} is unknown; use {', '.join(FORMATS)}")
    if args.int8 and not args.calibration_data:
        raise UserError("--int8 needs --calibration-data: pictures such as the model will see")
    if args.int8_keep == "auto" and not args.int8:
        raise UserError("--int8-keep auto chooses among layers of int8: give --int8 too")
    if args.int8_report and args.int8_keep != "auto":
        raise UserError("--int8-report explains what --int8-keep auto measures: give --int8 --int8-keep auto too")
    if args.triton and "onnx" not in formats:
        raise UserError("--triton runs ONNX: give --formats paddle,onnx")
    if args.int8 and "onnx" not in formats:
        raise UserError("--int8 is made from ONNX: give --formats paddle,onnx")
    if args.engine and not args.calibration_data:
        raise UserError("--engine auto needs --calibration-data: pictures by which the engines are judged")
    os.environ.setdefault("GLOG_minloglevel", "2")
    from mobilenetv3_paddle.deploy.export import export
    from mobilenetv3_paddle.deploy.predictor import find_pictures

    pictures = find_pictures(args.calibration_data) if args.int8 or args.engine else []
    if args.int8:
        from mobilenetv3_paddle.deploy.quantize import check_enough

        check_enough(pictures)
    trained = load_weights(args)
    told: list[str] = []

    def also(bundle: Bundle) -> None:
        if args.int8:
            told.extend(_int8(bundle, pictures, args.int8_keep, report))
        if args.engine:
            told.extend(_fastest(bundle, pictures[1::2] if args.int8 else pictures))

    with gone_on_failure(args.int8_report) if args.int8_report else contextlib.nullcontext() as report:
        bundle, differences = export(trained, args.output_dir, formats, also)
    for engine, difference in differences.items():
        apart = f"{difference.probability:.1e} at most, logits by {difference.logits:.1e} (relative L2)"
        print(f"{engine}: probabilities differ from the network's by {apart}")
    print("\n".join(told), end="\n" if told else "")
    for name in bundle.files:
        print(f"{Path(args.output_dir) / name}: {(bundle.folder / name).stat().st_size:,} bytes")
    if args.triton:
        from mobilenetv3_paddle.deploy.triton import write_repository

        print(f"{write_repository(bundle, args.triton, args.triton_batch)}: a model for Triton")
    size = bundle.preset.crop_size
    print(f"{bundle.model}, {len(bundle.classes)} classes, input {size} x {size}: {args.output_dir}")
    print(as_called(f"next: python tools/serve.py --model-dir {shlex.quote(str(args.output_dir))}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
