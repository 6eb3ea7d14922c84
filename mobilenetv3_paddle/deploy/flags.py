"""Command-line flags that several tools share."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mobilenetv3_common.config_file import whole, within
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import IMAGE_BACKENDS
from mobilenetv3_common.picture_format import PREDICTION, Rules
from mobilenetv3_common.published import V2_RESIZE, pretrained_file
from mobilenetv3_common.train_config import MODELS
from mobilenetv3_common.train_config.pictures import normalised
from mobilenetv3_common.weights_file import TAKE
from mobilenetv3_paddle.deploy.engines import AUTO, DEFAULT_ENGINE, ENGINES, PRECISIONS


def add_weights_flags(p: argparse.ArgumentParser) -> None:
    """Which weights, and what to know about them where they do not say it: the arguments of ``load_trained``."""
    p.add_argument(
        "--pretrained", default="torchvision", metavar="FILE",
        help="the weights: .safetensors, .pdparams, .pth or another trainer's checkpoint; torchvision or torchvision-v2 fetches "
        "ImageNet's published ones once (default: torchvision)",
    )  # fmt: skip
    p.add_argument(
        "--checkpoint-weights", choices=TAKE, default="auto",
        help="of a training checkpoint: its moving average, or the weights themselves (default: averaged where it has them)",
    )  # fmt: skip
    p.add_argument(
        "--model", choices=MODELS, help="architecture of published weights (default: mobilenet_v3_small, of v2 mobilenet_v3_large)"
    )
    p.add_argument("--classes", metavar="FILE", help="class names, one a line (default: the weights' own, or ImageNet's)")
    p.add_argument("--num-classes", type=whole, metavar="N", help="classes that the weights must have (default: any number)")
    p.add_argument("--width-mult", type=float, metavar="X", help="width multiplier, where the weights do not say it")
    p.add_argument("--image-backend", choices=IMAGE_BACKENDS, help="decoder (default: the one of training, or pil)")
    p.add_argument("--resize-size", type=int, metavar="N", help="shorter side in pixels before the crop")
    p.add_argument("--crop-size", type=int, metavar="N", help="pixels of the network's input")
    p.add_argument("--mean", metavar="X,X,X", help="of red, green and blue, each from 0 to 1 (default: the weights' own)")
    p.add_argument("--std", metavar="X,X,X", help="standard deviation of red, green and blue (default: the weights' own)")


def positive(kind: type) -> Callable[[str], Any]:
    """A flag's type: a number above 0 that is neither infinite nor none (``nan``)."""

    def read(text: str) -> Any:
        value = whole(text) if kind is int else kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"must be above 0 and finite, found {text}")
        return value

    read.__name__ = kind.__name__
    return read


def add_picture_flags(p: argparse.ArgumentParser) -> None:
    """How pictures are read in prediction."""
    p.add_argument(
        "--exif-orientation", action=argparse.BooleanOptionalAction, default=True,
        help="turn a picture upright as its camera noted it; training does not (default: on)",
    )  # fmt: skip


def rules_of(args: argparse.Namespace) -> Rules:
    """What these flags say about reading pictures."""
    return replace(PREDICTION, orient=args.exif_orientation)


def load_weights(args: argparse.Namespace) -> Any:
    """The ``mobilenetv3_paddle.deploy.trained.Trained`` that these flags name; Paddle is imported now."""
    from mobilenetv3_paddle.deploy.trained import load_trained

    model = args.model or ("mobilenet_v3_large" if args.pretrained == "torchvision-v2" else "mobilenet_v3_small")
    path = pretrained_file(args.pretrained, model)
    resize_size = args.resize_size or (V2_RESIZE if args.pretrained == "torchvision-v2" else None)
    trained = load_trained(
        path, args.width_mult, args.classes, args.image_backend, resize_size, args.crop_size, args.checkpoint_weights,
        **normalised(args.mean, args.std),
    )  # fmt: skip
    if trained.differs:
        print(f"note: {path}: {trained.differs}", file=sys.stderr)
    if args.model not in (None, trained.model):
        raise UserError(f"--model {args.model}: {path} holds {trained.model}; leave --model out")
    if args.num_classes not in (None, len(trained.classes)):
        raise UserError(f"--num-classes {args.num_classes}: {path} has {len(trained.classes)} classes; leave --num-classes out")
    return trained


def add_engine_flags(p: argparse.ArgumentParser, threads: str = "") -> None:
    """Which exported model, and what runs it; ``threads`` says what else there is to know about their number."""
    p.add_argument("--model-dir", required=True, metavar="DIR", help="folder that tools/export_model.py made")
    p.add_argument(
        "--engine", choices=(*ENGINES, AUTO), default=DEFAULT_ENGINE,
        help=f"auto: the fastest, with its precision, as the export measured it (default: {DEFAULT_ENGINE})",
    )  # fmt: skip
    p.add_argument("--precision", choices=PRECISIONS, default="fp32", help="bf16 of openvino, int8 of onnxruntime (default: fp32)")
    p.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="(default: cpu)")
    p.add_argument("--threads", type=within(0), default=0, metavar="N", help=f"of the engine (default: one a core){threads}")
