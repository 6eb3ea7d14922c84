"""Convert weights between torch and Paddle: .pth, .pdparams and .safetensors, strictly and both ways.

The direction follows from the names in the input: torch's weights become Paddle's and the other way round.
"""

from __future__ import annotations

import argparse
import sys

from mobilenetv3_common.errors import UserError, exit_on_user_error

MODELS = ("mobilenet_v3_small", "mobilenet_v3_large")


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="weights of either framework: .pth, .pdparams or .safetensors")
    parser.add_argument("output", help=".pth or .safetensors for torch, .pdparams or .safetensors for Paddle")
    parser.add_argument("--model", choices=MODELS, default="mobilenet_v3_small")
    parser.add_argument("--num-classes", type=int, default=1000)
    parser.add_argument("--width-mult", type=float, default=1.0)
    parser.add_argument("--reduced-tail", action="store_true")
    args = parser.parse_args(argv)
    if args.num_classes < 1 or args.width_mult <= 0:
        raise UserError("--num-classes must be at least 1 and --width-mult above 0")
    from alignment.weights import NameMap
    from mobilenetv3_common.weights import COUNTER, FORMATS, is_paddle_state, read_state, write_state
    from mobilenetv3_paddle.models import MODELS as BUILDERS

    if not args.output.endswith(FORMATS):
        raise UserError(f"{args.output}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    state = read_state(args.input)
    to_torch = is_paddle_state(state)
    if args.output.endswith(".pdparams" if to_torch else (".pth", ".pt")):
        here, kinds = ("Paddle's", ".pth or .safetensors") if to_torch else ("torch's", ".pdparams or .safetensors")
        raise UserError(f"{args.input} holds {here} weights already; give the output one of the kinds {kinds}")
    model = BUILDERS[args.model](num_classes=args.num_classes, width_mult=args.width_mult, reduced_tail=args.reduced_tail)
    names = NameMap(model)
    converted = names.with_counters(names.to_torch(state, args.input)) if to_torch else names.to_paddle(state, args.input)
    write_state(args.output, converted)
    framework = "torch" if to_torch else "Paddle"
    print(f"{args.input} -> {args.output}: {len(names.entries)} tensors for {framework}, all keys and shapes equal")
    counters = {int(v) for k, v in state.items() if k.endswith(COUNTER)} - {0}
    if counters:
        print(f"num_batches_tracked ({max(counters)}) is not kept: Paddle has no such counter, and the way back writes 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
