"""Measure side by side in one run: python tools/benchmark.py inference | service | loader | index | train | data | align.

inference: the network of Paddle (dygraph, Paddle Inference with its own kernels and with oneDNN), ONNX Runtime in fp32 and
int8, OpenVINO in fp32 and bfloat16 where it is installed, the engine that ``--engine auto`` chooses, and torch (eager,
channels_last, torch.compile), at batch 1, 8 and 32, with equally many threads.

service: tools/serve.py, asked by wrk (``apt install wrk``) over 32 connections for ``--seconds``, beside tools/infer.py in one
process at batch 1 and 8, on the photographs of lite_data's validation; each with one engine thread and with one per core.

loader: the training pipeline (random crop, flip, normalise) of each framework's loader, with Pillow and OpenCV, from a folder
and from tar shards, beside torchvision's own transforms in torch's loader and, where it is installed, in webdataset's, on the
same JPEGs with the same workers.

index: listing empty files with ImageNet's names (``--pictures 1281167``), from class folders and from a list file: the first and
the later times, and the memory that the list adds to a further process and to a loader worker over an epoch.

train: an update of the engine, alone and watched by the doctor (``--watch``), beside a bare loop of forward, loss, backward and
update on the same batches.

data: tools/doctor.py data on small pictures (``--pictures 50000``), beside decoding them by the same processes.

align: the seconds of each alignment step.

Medians over the repeats; the ratios are what to look at, since machines are noisy.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not tools/, where a file is called as the doctor's package is

import mobilenetv3_common.quiet_ctrl_c  # noqa: E402, F401
from mobilenetv3_common.config_file import Parser, within  # noqa: E402
from mobilenetv3_common.errors import UserError, exit_on_user_error  # noqa: E402
from mobilenetv3_common.index_cache import AT_LEAST  # noqa: E402
from mobilenetv3_common.json_output import add_output_flags, outputs_of  # noqa: E402
from mobilenetv3_common.train_config import MODELS  # noqa: E402
from mobilenetv3_paddle.deploy.report import processor_name  # noqa: E402
from tools.benchmarks import engines, loading, service, training  # noqa: E402

MEASURED = {
    "inference": engines.inference,
    "service": service.service,
    "loader": loading.loader,
    "index": loading.index,
    "train": training.train,
    "data": loading.data,
    "align": training.align,
}


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("what", choices=MEASURED)
    parser.add_argument("--repeats", type=within(1), default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--seconds", type=within(1), default=8, metavar="N", help="service: of each load (default: 8)")
    parser.add_argument("--workers", type=within(1), default=2, metavar="N", help="decoding processes (default: 2)")
    parser.add_argument("--pictures", type=within(1), default=640, metavar="N", help="loader, index, data: files (default: 640)")
    parser.add_argument("--batch-size", type=within(1), default=16, metavar="N", help="(default: 16)")
    parser.add_argument("--size", type=within(0), default=0, metavar="N", help="pixels of a side (default: train 224, data 64)")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0], help="architecture")
    parser.add_argument("--pretrained", metavar="FILE", help="inference, service: weights (default: calibrated random ones)")
    parser.add_argument(
        "--threads", type=within(0), default=0, metavar="N", help="inference, service: of the engines (default: see above)"
    )
    parser.add_argument("--plot", metavar="FILE.png", help="inference: draw the medians here")
    add_output_flags(parser, "the figures")
    args = parser.parse_args(argv)
    outputs = outputs_of(vars(args))
    least = 2 * args.workers * args.batch_size  # the first batches are not timed
    if args.what == "loader" and args.pictures < least:
        raise UserError(f"loader: --pictures must be at least {least} for --workers {args.workers}, found {args.pictures}")
    if args.what == "index" and args.pictures < AT_LEAST:
        raise UserError(f"index: --pictures must be at least {AT_LEAST}, found {args.pictures}: a shorter list is not stored")
    if args.plot and args.what != "inference":
        raise UserError("--plot draws inference alone")
    with outputs.for_people(), tempfile.TemporaryDirectory() as folder:
        found = MEASURED[args.what](Path(folder), args)
    if args.plot:
        engines.draw(args.plot, found, f"{args.model}, {processor_name()}")
    outputs.write(found, indent=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
