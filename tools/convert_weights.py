"""Convert weights between torch and Paddle: .pth, .pdparams and .safetensors, strictly and both ways.

The direction follows from the names in the input: torch's weights become Paddle's and the other way round. With --port and
--reference it converts between any two models that can be named, MODULE:CALLABLE or FILE.py:CALLABLE; .ckpt is MindSpore's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.train_config import MODELS


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("input", nargs="?", help="weights of either framework: .pth, .pdparams or .safetensors")
    parser.add_argument("output", nargs="?", help=".pth or .safetensors for torch, .pdparams or .safetensors for Paddle")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0], help="architecture of the weights")
    parser.add_argument("--num-classes", type=int, default=1000, metavar="N", help="of the last layer")
    parser.add_argument("--width-mult", type=float, default=1.0, metavar="X", help="width multiplier of the paper")
    parser.add_argument("--reduced-tail", action="store_true", help="the last blocks are half as wide (torchvision's reduced_tail)")
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
    if args.num_classes < 1 or args.width_mult <= 0:
        raise UserError("--num-classes must be at least 1 and --width-mult above 0")
    from mobilenetv3_common import weights
    from mobilenetv3_paddle.models import MODELS as BUILDERS

    if not args.output.endswith(weights.FORMATS):
        raise UserError(f"{args.output}: unknown kind of weights file; use one of {', '.join(weights.FORMATS)}")
    state = weights.read_state(args.input)
    to_torch = weights.is_paddle_state(state)
    if args.output.endswith(".pdparams" if to_torch else (".pth", ".pt")):
        here, kinds = ("Paddle's", ".pth or .safetensors") if to_torch else ("torch's", ".pdparams or .safetensors")
        raise UserError(f"{args.input} holds {here} weights already; give the output one of the kinds {kinds}")
    model = BUILDERS[args.model](num_classes=args.num_classes, width_mult=args.width_mult, reduced_tail=args.reduced_tail)
    entries = weights.paddle_entries({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    if to_torch:
        converted = weights.with_counters(weights.canonical_state(state, entries, args.input))
    else:
        converted = weights.own_state(state, entries, args.input)
    weights.write_state(args.output, converted)
    framework = "torch" if to_torch else "Paddle"
    print(f"{args.input} -> {args.output}: {len(entries)} tensors for {framework}, all keys and shapes equal")
    counters = {int(v) for k, v in state.items() if k.endswith(weights.COUNTER)} - {0}
    if counters:
        print(f"num_batches_tracked ({max(counters)}) is not kept: Paddle has no such counter, and the way back writes 0")
    return 0


def _any_pair(args: argparse.Namespace) -> int:
    """Convert between two models that are named."""
    if not (args.port and args.reference):
        raise UserError("--port and --reference go together")
    if (args.input is None or args.output is None) and not (args.list and args.input is None):
        raise UserError("give an input and an output file, or --list alone")
    from alignment.audit.convert import convert, sides_of
    from alignment.audit.pair import Maker, arguments

    port = Maker("--port", args.port, arguments("--port-args", args.port_args))
    reference = Maker("--reference", args.reference, arguments("--reference-args", args.reference_args))
    sides = sides_of(port, reference, args.names, args.model_input)
    if args.list:
        print("\n".join(["port <-> reference", *sides.rows()]))
    if args.input is not None:
        print(convert(sides, args.input, args.output, args.to))
    return 0


if __name__ == "__main__":
    sys.exit(main())
