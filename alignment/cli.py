"""The command behind tools/align.py and scripts/0N_test_*.py."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.image import IMAGE_BACKENDS

MODELS = ("mobilenet_v3_small", "mobilenet_v3_large")
ROOT = Path(__file__).resolve().parents[1]


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description="Prove that the Paddle model is the PyTorch model, step by step of the reproduction guide. "
        "Exit status: 0 all steps passed, 1 a step failed, 2 the input cannot be used."
    )
    p.add_argument("--model", choices=MODELS, default="mobilenet_v3_small")
    p.add_argument("--steps", default=None, metavar="1-6", help="e.g. 1-6, 3 or 1,4 (default: all)")
    p.add_argument(
        "--data-path",
        type=Path,
        default=ROOT / "lite_data",
        metavar="DIR",
        help="ImageNet layout or list files (default: lite_data)",
    )
    p.add_argument(
        "--weights",
        metavar="FILE|torchvision",
        help="a .pth, .pdparams or .safetensors file, or 'torchvision' ('torchvision-v2' for large) for the published file "
        "(default: calibrated weights, made once)",
    )
    p.add_argument("--device", default="cpu", help="cpu or gpu (default: cpu)")
    p.add_argument("--image-backend", choices=IMAGE_BACKENDS, default="pil", help="decoder of pictures (default: pil)")
    p.add_argument("--seed", type=int, default=0, help="of fake data, sample order and augmentation (default: 0)")
    p.add_argument("--result-dir", type=Path, default=ROOT / "result", metavar="DIR", help="where results go (default: result)")
    p.add_argument(
        "--localize",
        action="store_true",
        help="make the table over all modules even where every step passes (a failure is always localised)",
    )
    p.add_argument("--inject", metavar="NAME", help="break the port by one known fault first ('list' names them), to see it found")
    p.add_argument(
        "--bench-faults",
        action="store_true",
        help="inject every known fault (of --steps) into the small model in turn and count what is found",
    )
    p.add_argument(
        "--padiff",
        type=Path,
        metavar="DIR",
        help="with --bench-faults: ask PaDiff too, from where pip install --no-deps --target DIR padiff==0.2.0 pyyaml put it",
    )
    return p


NOT_BENCHED = ("model", "data_path", "weights", "device", "image_backend", "seed", "localize")  # the benchmark has its own


def parse_steps(text: str | None, known: list[int]) -> list[int]:
    """``"1-3,5"`` to [1, 2, 3, 5]; None to all known steps.

    Raises:
        UserError: not of that form, or a step that does not exist.
    """
    if text is None:
        return known
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None:
            raise UserError(f"--steps {text!r}: expected numbers and ranges such as 1-6 or 1,4")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or first not in known or last not in known:
            raise UserError(f"--steps {text!r}: the steps are {known[0]} to {known[-1]}")
        chosen.update(range(first, last + 1))
    return sorted(chosen)


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    # Both frameworks are imported only now, so that --help and a wrong flag answer at once.
    from alignment.faults import FAULTS, injected
    from alignment.steps import STEPS
    from alignment.steps.context import require_device

    if args.inject == "list":
        print("\n".join(f"{fault.name:32} {fault.area:11} step {fault.step}  {fault.location}" for fault in FAULTS.values()))
        return 0
    steps = parse_steps(args.steps, sorted(STEPS))
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, found {args.seed}")
    require_device(args.device)
    if args.padiff and not args.bench_faults:
        raise UserError("--padiff goes with --bench-faults")
    unheeded = [flag for flag in NOT_BENCHED if getattr(args, flag) != parser().get_default(flag)] if args.bench_faults else []
    if unheeded:
        raise UserError(
            f"--{unheeded[0].replace('_', '-')} does not go with --bench-faults, which breaks the small model on lite_data"
        )
    ensure_writable_dir(args.result_dir)
    if args.bench_faults:
        return _bench(args, steps)
    with injected(args.inject) as side:
        return _align(args, steps, side, sys.argv[1:] if argv is None else argv)


def _align(args: argparse.Namespace, steps: list[int], paddle: Any, flags: list[str]) -> int:
    from alignment import report
    from alignment.diagnosis import diagnose
    from alignment.sides import PaddleSide, RefSide
    from alignment.steps import NAMES, STEPS, run_step
    from alignment.steps.context import Context
    from alignment.steps.data import check_pictures

    context = Context(
        model=args.model,
        data_path=args.data_path,
        weights=args.weights,
        seed=args.seed,
        device=args.device,
        image_backend=args.image_backend,
        paddle=paddle if args.inject else PaddleSide(args.device),
        ref=RefSide(args.device),
    )
    check_pictures(context, splits=("train", "val") if 2 in steps else ("val",))
    parameters = sum(v.size for k, v in context.state.items() if not k.endswith(("running_mean", "running_var")))
    data_path = _shown(args.data_path)
    print(f"{args.model}, {parameters:,} parameters, {context.weights_name} weights, data {data_path}, {args.device}")
    if args.inject:
        print(f"injected on purpose: {args.inject}")
    results = []
    for number in steps:
        print(f"step {number} {NAMES[number]} ...", end="", flush=True)
        results.append(run_step(number, context))
        print(f" {'passed' if results[-1].passed else 'FAILED'} in {results[-1].seconds:.1f} s", flush=True)
    passed = all(result.passed for result in results)
    if not passed:
        print("localising ...", end="", flush=True)
    localization = diagnose(context, results, always=args.localize)
    if not passed:
        print(f" {localization.seconds:.1f} s")
    report.write_results(args.result_dir, context, results, localization, flags)
    drawn = report.plot(args.result_dir / "alignment.png", args.model, results)
    print(f"\n{report.table(results)}\n")
    if args.localize and localization.layers:
        print(f"{localization.table()}\n")
    proven = f"The Paddle {args.model} is the PyTorch {args.model}."
    partly = f"Passed, as far as step(s) {', '.join(map(str, steps))} can tell; the others were not run."
    print("\n".join(report.explanation(results, localization) or [proven if steps == sorted(STEPS) else partly]))
    picture = ", picture alignment.png" if drawn else ""
    print(f"results: {_shown(args.result_dir / 'report.html')}, alignment.json, records and logs beside it{picture}")
    return 0 if passed else 1


def _bench(args: argparse.Namespace, steps: list[int]) -> int:
    """Every fault of these steps; exit status 0 where all are detected, 95 % located and 80 % named."""
    import json

    from alignment import fault_bench
    from alignment.faults import FAULTS
    from mobilenetv3_common.files import atomic_open

    known = [args.inject] if args.inject else [name for name, fault in FAULTS.items() if fault.step in steps]
    if args.inject and args.inject not in FAULTS:
        raise UserError(f"--inject {args.inject}: no such fault; --inject list names them")
    done = 0

    def progress(outcome: Any) -> None:
        nonlocal done
        done += 1
        found = outcome.found.line() if outcome.found else "not detected"
        print(f"{done:3}/{len(known)} {outcome.fault.name}: {found}", flush=True)

    outcomes = fault_bench.run_all(known, progress, args.padiff)
    with atomic_open(args.result_dir / "faults.json", "w") as file:
        json.dump([outcome.as_json() for outcome in outcomes], file, indent=1)
        file.write("\n")
    print(f"\n{fault_bench.table(outcomes)}\nresults: {_shown(args.result_dir / 'faults.json')}")
    count = len(outcomes)
    enough = all(o.detected for o in outcomes) and sum(o.located for o in outcomes) >= 0.95 * count
    return 0 if enough and sum(o.hinted for o in outcomes) >= 0.8 * count else 1


def _shown(path: Path) -> str:
    """A path as short as it can be written from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
