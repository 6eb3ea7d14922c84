"""The commands of the engine: python -m alignment run | compare | weights | bench."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.image import IMAGE_BACKENDS

if TYPE_CHECKING:
    from alignment.project import Project

RESULT = Path("result")
# The benchmark has its own model, data and weights.
NOT_BENCHED = ("model", "data_path", "weights", "device", "image_backend", "seed", "localize")


def run_parser(project: Path | None = None, result: Path = RESULT, prog: str | None = None) -> argparse.ArgumentParser:
    """The flags of ``run``; with a project given, those of a command of its own."""
    p = argparse.ArgumentParser(
        prog=prog,
        description="Prove that a port is its reference, step by step of the reproduction guide. "
        "Exit status: 0 all steps passed, 1 a step failed, 2 the input cannot be used.",
    )
    if project is None:
        p.add_argument("project", type=Path, help="a Python file that defines PROJECT, e.g. projects/mobilenetv3/project.py")
    p.add_argument("--model", default="", metavar="NAME", help="one of the project's models (default: its first)")
    p.add_argument("--steps", default=None, metavar="1-6", help="e.g. 1-6, 3 or 1,4 (default: all)")
    p.add_argument(
        "--data-path", type=Path, metavar="DIR", help="ImageNet layout or list files (default: the project's own sample pictures)"
    )
    p.add_argument(
        "--weights",
        metavar="FILE|NAME",
        help="a .pth, .pdparams or .safetensors file, whose class count and width are taken over, or the name of weights that "
        "the project fetches, e.g. torchvision (default: calibrated weights, made once)",
    )
    p.add_argument("--device", default="cpu", help="cpu or gpu (default: cpu)")
    p.add_argument("--image-backend", choices=IMAGE_BACKENDS, default="pil", help="decoder of pictures (default: pil)")
    p.add_argument("--seed", type=int, default=0, help="of fake data, sample order and augmentation (default: 0)")
    p.add_argument("--result-dir", type=Path, default=result, metavar="DIR", help=f"where results go (default: {shown(result)})")
    p.add_argument(
        "--localize",
        action="store_true",
        help="make the table over all modules even where every step passes (a failure is always localised)",
    )
    p.add_argument("--inject", metavar="NAME", help="break the port by one known fault first ('list' names them), to see it found")
    p.add_argument(
        "--bench-faults",
        action="store_true",
        help="inject every known fault (of --steps) into the project's first model in turn and count what is found",
    )
    p.add_argument(
        "--padiff",
        type=Path,
        metavar="DIR",
        help="with --bench-faults: ask PaDiff too, from where pip install --no-deps --target DIR padiff==0.2.0 pyyaml put it",
    )
    return p


def bench_parser() -> argparse.ArgumentParser:
    """The flags of ``bench``."""
    p = argparse.ArgumentParser(
        prog="python -m alignment bench",
        description="Measure the engine on a project: are its known faults found, and does a sound port ever fail? "
        "Exit status: 0 as it should be, 1 not, 2 the input cannot be used.",
    )
    p.add_argument("project", type=Path, help="a Python file that defines PROJECT")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--faults", action="store_true", help="inject every known fault in turn (the default)")
    what.add_argument("--false-alarms", action="store_true", help="run the steps on the sound port from many random weights")
    p.add_argument("--steps", default=None, metavar="1-6", help="of the faults, or of the false alarms (default: all; 1,4,5)")
    p.add_argument("--inject", metavar="NAME", help="this fault alone")
    p.add_argument("--padiff", type=Path, metavar="DIR", help="ask PaDiff about the faults too; DIR is where it is installed")
    p.add_argument("--result-dir", type=Path, default=RESULT, metavar="DIR", help=f"where faults.json goes (default: {RESULT})")
    p.add_argument("--models", nargs="+", metavar="NAME", help="false alarms: of these models (default: all)")
    p.add_argument(
        "--options", nargs="+", metavar="KEY=VALUE", help="false alarms: with these options (default: the variants of each model)"
    )
    p.add_argument("--seeds", type=int, default=20, help="false alarms: random weights of each (default: 20)")
    p.add_argument("--localize", action="store_true", help="false alarms: what does localisation find in the sound port?")
    return p


def weights_parser() -> argparse.ArgumentParser:
    """The flags of ``weights``."""
    p = argparse.ArgumentParser(
        prog="python -m alignment weights",
        description="Write the weights with which a project's model is aligned to a file, so that other tools can use them.",
    )
    p.add_argument("project", type=Path, help="a Python file that defines PROJECT")
    p.add_argument("--model", default="", metavar="NAME", help="one of the project's models (default: its first)")
    p.add_argument("--weights", metavar="FILE|NAME", help="as for run (default: calibrated weights)")
    p.add_argument(
        "--side", choices=("port", "reference"), default="reference", help="whose names and layout it has (default: reference)"
    )
    p.add_argument("--output", type=Path, required=True, metavar="FILE", help=".pth, .safetensors or .pdparams")
    return p


def parse_steps(text: str | None, known: Sequence[int]) -> list[int]:
    """``"1-3,5"`` to [1, 2, 3, 5]; None to all known steps.

    Raises:
        UserError: not of that form, or a step that does not exist.
    """
    if text is None:
        return list(known)
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
def run(argv: Sequence[str], project: Path | None = None, result: Path = RESULT, prog: str | None = None) -> int:
    """Align a project.

    Args:
        argv: the flags, and the project file where ``project`` is None.
        project: the project file of a command of its own.
        result: where that command's results go by default.
        prog: that command's name.
    """
    parser = run_parser(project, result, prog or "python -m alignment run")
    args = parser.parse_args(argv)
    # The frameworks are imported only now, so that --help and a wrong flag answer at once.
    from alignment.bench.fault import faults_of, injected
    from alignment.project import load_project
    from alignment.steps import STEPS

    known = load_project(project or args.project)
    if args.inject == "list":
        faults = faults_of(known)
        if not faults:
            raise UserError(f"{known.name} has no known faults")
        print("\n".join(f"{f.name:32} {f.area:11} step {f.step}  {f.location}" for f in faults.values()))
        return 0
    steps = parse_steps(args.steps, sorted(STEPS))
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, found {args.seed}")
    if args.padiff and not args.bench_faults:
        raise UserError("--padiff goes with --bench-faults")
    if args.bench_faults:
        unheeded = [flag for flag in NOT_BENCHED if getattr(args, flag) != parser.get_default(flag)]
        if unheeded:
            name = unheeded[0].replace("_", "-")
            raise UserError(f"--{name} does not go with --bench-faults, which breaks the project's first model on its own pictures")
        ensure_writable_dir(args.result_dir)
        return _faults(known, args.inject, steps, args.padiff, args.result_dir, project or args.project)
    known.use(args.device)
    ensure_writable_dir(args.result_dir)
    with injected(known, args.inject) as broken:
        return _align(args, steps, broken, list(argv))


def _align(args: argparse.Namespace, steps: list[int], project: Project, flags: list[str]) -> int:
    from alignment.localize.stages import locate
    from alignment.report import picture, results, table
    from alignment.steps import NAMES, STEPS, lacks, run_step
    from alignment.steps.context import Context
    from alignment.steps.data import check_pictures

    context = Context(
        project,
        model=args.model,
        data_path=args.data_path,
        weights_from=args.weights,
        seed=args.seed,
        device=args.device,
        image_backend=args.image_backend,
    )
    context.check()
    if args.data_path is not None and project.lacks("data"):
        raise UserError(f"--data-path {args.data_path}: {project.lacks('data')}, so no pictures are read")
    if context.has_pictures:
        check_pictures(context, splits=("train", "val") if 2 in steps and not lacks(2, context) else ("val",))
    print(_headline(context))
    if args.inject:
        print(f"injected on purpose: {args.inject}")
    done = []
    for number in steps:
        print(f"step {number} {NAMES[number]} ...", end="", flush=True)
        done.append(run_step(number, context))
        seconds = f" in {done[-1].seconds:.1f} s" if done[-1].ran else ""
        print(f" {done[-1].verdict}{seconds}", flush=True)
    if not any(result.ran for result in done):
        raise UserError(f"none of step(s) {', '.join(map(str, steps))} can run on {project.name}: {done[0].not_run}")
    failed = any(result.failed for result in done)
    if failed:
        print("localising ...", end="", flush=True)
    localization = locate(context, done, always=args.localize)
    if failed:
        print(f" {localization.seconds:.1f} s")
    results.write_results(args.result_dir, context, done, localization, sorted(STEPS), flags)
    drawn = picture.plot(args.result_dir / "alignment.png", context, done)
    print(f"\n{table.table(done)}\n")
    if args.localize and localization.layers:
        print(f"{localization.table()}\n")
    print("\n".join(table.explanation(done, localization) or [table.verdict(context, done, sorted(STEPS))]))
    beside = ", picture alignment.png" if drawn else ""
    print(f"results: {shown(args.result_dir / 'report.html')}, alignment.json, records and logs beside it{beside}")
    return 1 if failed else 0


def _headline(context) -> str:  # type: ignore[no-untyped-def]
    """The model, its size, its weights, the data and the device."""
    framework = context.reference.framework
    entries = framework.entries(context.fresh("reference"))
    parameters = sum(_size(entry.shape) for entry in entries if entry.role == "parameter")
    data = f"data {shown(context.data_path)}" if context.has_pictures else "no pictures"
    return f"{context.model}, {parameters:,} parameters, {context.weights.name} weights, {data}, {context.device}"


def _size(shape: Sequence[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


@exit_on_user_error
def bench(argv: Sequence[str]) -> int:
    """Faults, or false alarms."""
    args = bench_parser().parse_args(argv)
    from alignment.project import load_project
    from alignment.steps import STEPS

    project = load_project(args.project)
    if args.false_alarms:
        from alignment.bench import false_alarms

        for flag in ("inject", "padiff"):
            if getattr(args, flag):
                raise UserError(f"--{flag} does not go with --false-alarms")
        steps = parse_steps(args.steps or "1,4,5", sorted(STEPS))
        options = [dict(false_alarms.parse_option(text) for text in args.options)] if args.options else None
        return false_alarms.run_all(project, args.models, options, args.seeds, steps, args.localize)
    for flag in ("models", "options", "localize"):
        if getattr(args, flag):
            raise UserError(f"--{flag} goes with --false-alarms")
    ensure_writable_dir(args.result_dir)
    return _faults(project, args.inject, parse_steps(args.steps, sorted(STEPS)), args.padiff, args.result_dir, args.project)


def _faults(
    project: Project, name: str | None, steps: list[int], padiff: Path | None, result_dir: Path, file: Path | None = None
) -> int:
    """Every fault of these steps; exit status 0 where all are detected, 95 % located and 80 % named."""
    from alignment.bench import faults_found
    from alignment.bench.fault import fault_named, faults_of

    every = faults_of(project)
    known = [fault_named(project, name)] if name else [fault for fault in every.values() if fault.step in steps]
    if not known:
        raise UserError(f"{project.name} has no known faults of step(s) {', '.join(map(str, steps))}")

    def progress(number: int, outcome: faults_found.Outcome) -> None:
        found = outcome.found.line() if outcome.found else "not detected"
        print(f"{number:3}/{len(known)} {outcome.fault.name}: {found}", flush=True)

    outcomes = faults_found.run_all(project, known, progress, padiff, file)
    faults_found.write(result_dir / "faults.json", outcomes)
    print(f"\n{faults_found.table(outcomes)}\nresults: {shown(result_dir / 'faults.json')}")
    return 0 if faults_found.enough(outcomes) else 1


def shown(path: Path) -> str:
    """A path as short as it can be written from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)


@exit_on_user_error
def weights(argv: Sequence[str]) -> int:
    """Write the weights with which a model is aligned to a file."""
    args = weights_parser().parse_args(argv)
    from alignment.project import load_project
    from alignment.steps.context import Context
    from mobilenetv3_common.weights import FORMATS, own_state, write_state

    if args.output.suffix not in FORMATS:
        raise UserError(f"--output {args.output}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    context = Context(load_project(args.project), model=args.model, weights_from=args.weights)
    context.check()
    framework, network = context.sides[args.side].framework, context.build(args.side)
    ensure_writable_dir(args.output.parent)
    write_state(args.output, own_state(framework.state(network), framework.entries(network), "the weights"))
    print(f"{args.output}: {context.weights.name} weights of {context.model}")
    return 0


def _compare(argv: Sequence[str]) -> int:
    from alignment.record_diff import main as compare

    return compare(list(argv))


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "run": (run, "align a project: run PROJECT [--steps 1-6] [...]"),
    "compare": (_compare, "compare two record files strictly: compare A.npy B.npy"),
    "weights": (weights, "write the weights of an alignment to a file: weights PROJECT --output FILE"),
    "bench": (bench, "measure the engine on a project: bench PROJECT [--faults | --false-alarms]"),
}


def main(argv: list[str] | None = None) -> int:
    """One of the commands."""
    argv = sys.argv[1:] if argv is None else argv
    usage = "\n".join(
        ["usage: python -m alignment COMMAND ...", "", *(f"  {name:8} {help}" for name, (_, help) in COMMANDS.items())]
    )
    if not argv or argv[0] in ("-h", "--help"):
        print(usage)
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        print(f"error: unknown command {argv[0]!r}: use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return COMMANDS[argv[0]][0](argv[1:])


if __name__ == "__main__":
    sys.exit(main())
