"""Convert weights between torch and Paddle: .pth, .pdparams and .safetensors, strictly and both ways.

The direction follows from the names in the input: torch's weights become Paddle's and the other way round. Checkpoints of
other trainers are read too, under the names of torchvision, timm, PaddleClas or MMPretrain; the network is read off the
tensors. With --port and --reference it converts between any two models that can be named, MODULE:CALLABLE or
FILE.py:CALLABLE; .ckpt is MindSpore's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.architecture import Architecture, model_of
from mobilenetv3_common.class_names import MAX_CLASSES
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.foreign_names import SOURCES
from mobilenetv3_common.train_config import MODELS
from mobilenetv3_common.weights_file import TAKE

WIDEST = 4  # width multiplier of weights whose network no file says


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument(
        "input", nargs="?", help="weights of either framework: .pth, .pdparams, .safetensors, a trainer's checkpoint"
    )
    parser.add_argument("output", nargs="?", help=".pth or .safetensors for torch, .pdparams or .safetensors for Paddle")
    parser.add_argument("--model", choices=MODELS, help="architecture of the weights (default: read from the file)")
    parser.add_argument("--num-classes", type=int, metavar="N", help="of the last layer (default: read from the file)")
    parser.add_argument("--width-mult", type=float, metavar="X", help="width multiplier of the paper (default: read from the file)")
    parser.add_argument("--reduced-tail", action="store_true", help="the last blocks are half as wide (torchvision's reduced_tail)")
    parser.add_argument(
        "--from", dest="source", choices=("auto", *SOURCES), default="auto", help="whose names the weights have (default: detected)"
    )
    parser.add_argument(
        "--bn-eps", type=float, metavar="X", help="epsilon of BatchNorm in training (default: that of --from's models)"
    )
    parser.add_argument(
        "--checkpoint-weights", choices=TAKE, default="auto",
        help="of a training checkpoint: its moving average, or the weights themselves (default: averaged where it has them)",
    )  # fmt: skip
    pair = parser.add_argument_group("any two models")
    for side in ("port", "reference"):
        pair.add_argument(f"--{side}", metavar="MODULE:CALLABLE", help=f"what makes the {side}")
        pair.add_argument(f"--{side}-args", metavar="JSON", help="its keyword arguments")
    pair.add_argument("--names", type=Path, metavar="FILE.yaml", help="map of names, as an audit writes it (default: detected)")
    pair.add_argument("--model-input", metavar="SHAPE", help="input on which the models are run if names differ, e.g. 2x3x224x224")
    pair.add_argument("--to", choices=("port", "reference"), help="whose weights are written (default: those of the other side)")
    pair.add_argument("--list", action="store_true", help="print which tensor is which")
    args = parser.parse_args(argv)
    if args.port or args.reference:
        return _any_pair(args)
    if args.names or args.list or args.to or args.model_input or args.port_args or args.reference_args:
        raise UserError("--names, --list, --to, --model-input and arguments go with --port and --reference")
    if args.input is None or args.output is None:
        raise UserError("give an input and an output file")
    for flag, value in (("--num-classes", args.num_classes), ("--width-mult", args.width_mult), ("--bn-eps", args.bn_eps)):
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag} must be above 0 and finite, found {value}")
    return _mobilenet(args)


def _mobilenet(args: argparse.Namespace) -> int:
    """Convert a MobileNetV3's weights, of whatever trainer, into those of this project's network in the other framework."""
    from mobilenetv3_common import weights
    from mobilenetv3_common.pretrained import FIRST, prepared
    from mobilenetv3_common.weights_file import read_weights
    from mobilenetv3_paddle.models import foreign

    if not args.output.endswith(weights.FORMATS):
        raise UserError(f"{args.output}: unknown kind of weights file; use one of {', '.join(weights.FORMATS)}")
    read = read_weights(args.input, args.checkpoint_weights)
    state = prepared(read, args.input, source=args.source, eps=args.bn_eps)
    to_torch = _to_torch(args, weights.is_paddle_state(read.state), any(name.endswith(FIRST) for name in read.state))
    found = foreign.fitting({name: array.shape for name, array in state.items()})
    entries = foreign.entries(_architecture(args, state, found), args.input)
    state = weights.canonical_state(state, [weights.Entry(e.canonical, e.canonical, e.shape) for e in entries], args.input)
    weights.write_state(args.output, weights.with_counters(state) if to_torch else weights.own_state(state, entries, args.input))
    framework = "torch" if to_torch else "Paddle"
    print(f"{args.input} -> {args.output}: {len(entries)} tensors for {framework}, all keys and shapes equal")
    counters = {int(v) for k, v in read.state.items() if k.endswith(weights.COUNTER)} - {0}
    if counters:
        print(f"num_batches_tracked ({max(counters)}) is not kept: Paddle has no such counter, and the way back writes 0")
    return 0


def _to_torch(args: argparse.Namespace, of_paddle: bool, own_names: bool) -> bool:
    """Whether torch's weights are written: the other framework's than the file's; under other names, what the output's suffix says.

    Raises:
        UserError: the output is of the kind of the framework whose weights the file holds already.
    """
    torchs, paddles = args.output.endswith((".pth", ".pt")), args.output.endswith(".pdparams")
    if own_names and (paddles if of_paddle else torchs):
        here, kinds = ("Paddle's", ".pth or .safetensors") if of_paddle else ("torch's", ".pdparams or .safetensors")
        raise UserError(f"{args.input} holds {here} weights already; give the output one of the kinds {kinds}")
    return torchs or (of_paddle and not paddles)


def _architecture(args: argparse.Namespace, state: Mapping[str, Any], found: Architecture | None) -> Architecture:
    """The network that the weights belong to: what the file says, and the flags in its place.

    Raises:
        UserError: the file is another model's than --model says.
    """
    if args.model and found and found.model != args.model:
        raise UserError(f"--model {args.model}: {args.input} holds {found.model}; leave --model out")
    given = {"model": args.model, "num_classes": args.num_classes, "width_mult": args.width_mult}
    for name, most in (("num_classes", MAX_CLASSES), ("width_mult", WIDEST)):  # of a network that is made in memory
        flag, value, known = f"--{name.replace('_', '-')}", given[name], getattr(found, name, None)
        if value is not None and known is not None and abs(value - known) > 0.05 * known:
            raise UserError(f"{flag} {value}: {args.input} has {known:g}; leave {flag} out")
        if value is not None and value > most:
            raise UserError(f"{flag} must be at most {most:,}, found {value}")
    changes = {name: value for name, value in given.items() if value is not None} | (
        {"reduced_tail": True} if args.reduced_tail else {}
    )
    return replace(found or Architecture(model_of(state) or MODELS[0], 1000), **changes)


def _any_pair(args: argparse.Namespace) -> int:
    """Convert between two models that are named."""
    if not (args.port and args.reference):
        raise UserError("--port and --reference go together")
    if (args.input is None or args.output is None) and not (args.list and args.input is None):
        raise UserError("give an input and an output file, or --list alone")
    from alignment.audit.convert import convert, sides_of
    from alignment.audit.pair import ModelMaker, arguments

    port = ModelMaker("--port", args.port, arguments("--port-args", args.port_args))
    reference = ModelMaker("--reference", args.reference, arguments("--reference-args", args.reference_args))
    sides = sides_of(port, reference, args.names, args.model_input)
    if args.list:
        print("\n".join(["port <-> reference", *sides.rows()]))
    if args.input is not None:
        print(convert(sides, args.input, args.output, args.to, args.checkpoint_weights))
    return 0


if __name__ == "__main__":
    sys.exit(main())
