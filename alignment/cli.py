"""The commands of the engine: python -m alignment run | audit | dump | compare | weights | bench."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alignment.flags import (
    BROKEN,
    NOT_BENCHED,
    RESULT,
    audit_parser,
    command_name,
    dump_parser,
    parse_steps,
    run_parser,
    stands_for,
    weights_parser,
)
from mobilenetv3_common import __version__
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import ensure_writable_dir
from mobilenetv3_common.json_output import writable

if TYPE_CHECKING:
    from alignment.comparisons.result import StepResult
    from alignment.project import Project
    from mobilenetv3_common.train_config import TrainConfig


@exit_on_user_error
def run(argv: Sequence[str], project: Path | None = None, result: Path = RESULT, prog: str | None = None) -> int:
    """Align a project.

    Args:
        argv: the flags, and the project file where ``project`` is None.
        project: the project file of a command of its own.
        result: where that command's results go by default.
        prog: that command's name.
    """
    parser = run_parser(project, result, prog or command_name("run"))
    args = parser.parse_args(argv)
    # The frameworks are imported only now, so that --help and a wrong flag answer at once.
    from alignment.faults import edits_of, faults_of, injected
    from alignment.project import load_ports, load_project

    file, port = project or args.project, "" if project is not None else args.port
    if not port and len(ports := load_ports(file)) > 1:
        return _every_port(args, argv, list(ports))
    known = load_project(file, port)
    if args.inject == "list":
        faults: dict[str, Any] = {**faults_of(known), **edits_of(known).faults}
        if not faults:
            raise UserError(f"{known.name} has no known faults")
        print("\n".join(f"{f.name:32} {f.area:11} step {f.step}  {f.location}" for f in faults.values()))
        return 0
    every = _steps_of(known, args)
    steps = parse_steps(args.steps, every)
    _refuse(args, parser)
    if args.bench_faults:
        ensure_writable_dir(args.result_dir)
        return measures().faults(known, args.inject, steps, args.padiff, args.result_dir, file, args.ranks)
    recipe = _recipe(args.config, steps, known) if args.config is not None else None
    known.use(args.device)
    ensure_writable_dir(args.result_dir)
    command = [*(prog or command_name("run")).split(), *argv]
    if args.inject in edits_of(known).faults:
        call = vars(args) | {"project": file, "steps": steps, "every": every, "flags": list(argv), "command": command}
        return measures().align_copy(call, edits_of(known).faults[args.inject].edits)
    with injected(known, args.inject) as broken:
        args.command = command
        return _align(args, steps, every, broken, file, list(argv), recipe)


def _steps_of(project: Project, args: argparse.Namespace) -> list[int]:
    """The numbers of all steps that a project has: that of ranks where it is asked for, that of deployment where it says how.

    Raises:
        UserError: so many ranks cannot be had, or a fault needs them.
    """
    from alignment.comparisons import STEPS
    from alignment.comparisons.deploy import deployed
    from alignment.comparisons.ranks import ranks
    from alignment.faults import edits_of

    if args.ranks is not None:
        ranks.check_count(args.ranks, args.device)
    elif args.inject not in edits_of(project).faults:
        ranks.refuse_without_ranks(project, args.inject)
    further = {ranks.NUMBER: args.ranks is not None, deployed.NUMBER: project.deploy is not None}
    return [*sorted(STEPS), *(number for number, there in further.items() if there)]


def _refuse(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """See that the flags go together.

    Raises:
        UserError: they do not.
    """
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, found {args.seed}")
    if args.padiff and not args.bench_faults:
        raise UserError("--padiff goes with --bench-faults")
    unheeded = [flag for flag in NOT_BENCHED if getattr(args, flag) != parser.get_default(flag)] if args.bench_faults else []
    if unheeded:
        name = unheeded[0].replace("_", "-")
        raise UserError(f"--{name} does not go with --bench-faults, which breaks the project's first model on its own pictures")
    if args.bench_faults:
        return
    if args.port_weights and not args.weights:
        raise UserError("--port-weights goes with --weights, the original from which the file was converted")
    writable(args.json_file, "--json-file")
    if args.calibrate and args.port_weights:
        raise UserError("--calibrate changes the weights, and --port-weights compares files as they are: give one of the two")


def _every_port(args: argparse.Namespace, argv: Sequence[str], ports: Sequence[str]) -> int:
    """``run`` for each port of a project file, and one table of them all."""
    from alignment.report import ports as report

    for name in ("inject", "bench_faults", "port_weights", "ranks", "json", "json_file"):
        if getattr(args, name):
            raise UserError(f"--{name.replace('_', '-')} concerns one port: add --port with one of {', '.join(ports)}")
    ensure_writable_dir(args.result_dir)
    for name in ports:
        print(f"port {name}")
        status = run([*argv, "--port", name, "--result-dir", str(args.result_dir / name)])
        if status not in (0, 1):
            return status
        print()
    return report.write(args.result_dir, ports)


@exit_on_user_error
def align_edited(call: dict[str, Any]) -> int:
    """``run`` in an edited copy of a project: see ``bench.edited.align_copy``."""
    from alignment.project import load_project

    args = argparse.Namespace(**call)
    stands_for(*map(Path, call["copy_of"]))
    for name in ("project", "result_dir", "data_path", "names", "config"):
        if getattr(args, name) is not None:
            setattr(args, name, Path(getattr(args, name)))
    known = load_project(args.project, getattr(args, "port", ""))
    known.use(args.device)
    recipe = _recipe(args.config, args.steps, known) if args.config is not None else None
    return _align(args, args.steps, args.every, known, args.project, args.flags, recipe)


def _recipe(file: Path, steps: list[int], project: Project) -> TrainConfig:
    """The recipe of ``--config``.

    Raises:
        UserError: it cannot be read or used, or nothing that is run trains by it.
    """
    from alignment.comparisons.run.recipe import in_small
    from mobilenetv3_common.config_file import make_config
    from mobilenetv3_common.train_config import TrainConfig

    if not {5, 6} & set(steps):
        raise UserError(f"--config {file}: steps 5 and 6 train, and neither is among --steps")
    if lacking := project.lacks("train") or project.lacks("loss"):
        raise UserError(f"--config {file}: {lacking}, so {project.name} trains by no recipe")
    recipe = make_config(TrainConfig, file, {})
    in_small(recipe, recipe.model, epochs=2)  # what it refuses is said before the steps begin
    return recipe


def _align(
    args: argparse.Namespace,
    steps: list[int],
    every: list[int],
    project: Project,
    file: Path,
    flags: list[str],
    recipe: TrainConfig | None,
) -> int:
    from alignment.aligned import Request, align
    from alignment.comparisons import fake_data
    from alignment.comparisons.checked import check
    from alignment.comparisons.context import Context
    from alignment.comparisons.ranks import ranks
    from alignment.models.names import NameMap, read_map

    names = NameMap() if args.names is None else read_map(args.names)
    named = recipe.model if recipe is not None and recipe.model in project.models else ""
    fake = fake_data.read(args.input, args.fake_label)
    context = Context(
        project,
        model=args.model or named,
        fake=fake.data,
        fake_labels=fake.labels,
        data_path=args.data_path,
        weights_from=args.weights,
        take=args.checkpoint_weights,
        calibrate=args.calibrate,
        port_weights=args.port_weights,
        names=names.modules,
        links=names.links,
        seed=args.seed,
        device=args.device,
        image_backend=args.image_backend,
        recipe=recipe,
        recipe_name=str(args.config or ""),
        precision=args.precision or "",
    )
    fake_data.check(context)
    if args.data_path is not None and project.lacks("data"):
        check(context)
        raise UserError(f"--data-path {args.data_path}: {project.lacks('data')}, so no pictures are read")

    def on_ranks(context: Context) -> StepResult:
        return ranks.run(context, file, args.ranks, args.inject)

    about = {"injected": args.inject or "", "keep": args.keep, "command": args.command}
    wanted = Request(steps, every, args.result_dir, flags, args.localize, on_ranks if args.ranks else None, **about)
    return _printed(args, lambda: align(context, wanted).status)


def _printed(args: argparse.Namespace, aligned: Callable[[], int]) -> int:
    """Align; what people read goes to standard error where JSON is printed."""
    from alignment.report.results import print_json

    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        status = aligned()
    print_json(args, args.result_dir)
    return status


def measures() -> Any:
    """The commands of ``bench``, which measures the engine and stands beside it.

    Raises:
        UserError: it is not there: it is part of a checkout, not of the installed package.
    """
    try:
        return importlib.import_module("bench.cli")
    except ModuleNotFoundError as error:
        if error.name != "bench":
            raise
        raise UserError("bench/ measures the engine and is part of a checkout of the project: run this command in one") from error


@exit_on_user_error
def bench(argv: Sequence[str]) -> int:
    """Faults, false alarms, or edits of the source: an alias of ``python -m bench``."""
    return int(measures().bench(argv))


@exit_on_user_error
def weights(argv: Sequence[str]) -> int:
    """Write the weights with which a model is aligned to a file."""
    args = weights_parser().parse_args(argv)
    from alignment.comparisons.checked import check
    from alignment.comparisons.context import Context
    from alignment.project import load_project
    from mobilenetv3_common.weights import FORMATS, own_state, write_state

    if args.output.suffix not in FORMATS:
        raise UserError(f"--output {args.output}: unknown kind of weights file; use one of {', '.join(FORMATS)}")
    context = Context(load_project(args.project), model=args.model, weights_from=args.weights, take=args.checkpoint_weights)
    check(context)
    framework, network = context.sides[args.side].framework, context.networks.build(args.side)
    ensure_writable_dir(args.output.parent)
    write_state(args.output, own_state(framework.state(network), framework.entries(network), "the weights"))
    print(f"{args.output}: {context.material.weights.name} weights of {context.model}")
    return 0


@exit_on_user_error
def audit(argv: Sequence[str]) -> int:
    """Align two models that are named on the command line."""
    parser = audit_parser()
    args = parser.parse_args(argv)
    live, dumps = ("port", "reference"), ("port_dump", "reference_dump")
    wanted = dumps if any(getattr(args, name) for name in dumps) else live
    for name in wanted:
        if getattr(args, name) is None:
            raise UserError(f"--{name.replace('_', '-')} is missing: give --port and --reference, or a dump of each")
    files = [name for name in live if str(getattr(args, name)).endswith(".onnx")] if wanted is live else []
    if files:
        from alignment.frameworks import framework

        framework("onnx")  # says so where it is not installed
        from alignment.audit.exported import HEEDED
        from alignment.audit.exported import audit as exported

        _refuse_others(args, parser, HEEDED, "an .onnx file, which has inference alone and its own weights")
        return exported(args, argv, files)
    if args.float_layers is not None and wanted is live:
        raise UserError("--float-layers goes with a quantised .onnx file: leave it out")
    if wanted is live:
        from alignment.audit.command import audit as audited

        return audited(args, argv)
    _refuse_others(args, parser, (*dumps, "training", "names", "report", "json", "json_file"), "dumps")
    from alignment.dumps.command import audit as compared

    return compared(args, argv)


def _refuse_others(args: argparse.Namespace, parser: argparse.ArgumentParser, heeded: Sequence[str], what: str) -> None:
    """See that no flag is given that is not heeded; ``UserError`` where one is."""
    for name, value in vars(args).items():
        if name not in heeded and value != parser.get_default(name):
            raise UserError(f"--{name.replace('_', '-')} does not go with {what}")


@exit_on_user_error
def dump(argv: Sequence[str]) -> int:
    """Write what one model computes to a folder."""
    args = dump_parser().parse_args(argv)
    from alignment.dumps.command import dump as dumped

    return dumped(args)


def _compare(argv: Sequence[str]) -> int:
    from alignment.record_diff import main as compare

    return compare(list(argv))


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "run": (run, "align a project: run PROJECT [--steps 1-6] [...]"),
    "audit": (audit, "align two models: audit --port MODULE:CALLABLE --reference MODULE:CALLABLE [--input 2x3x224x224] [...]"),
    "dump": (dump, "one side of an audit where the other cannot be: dump MODULE:CALLABLE --out DIR [--reference-dump DIR]"),
    "compare": (_compare, "compare two record files strictly: compare A.npy B.npy"),
    "weights": (weights, "write the weights of an alignment to a file: weights PROJECT --output FILE"),
    "bench": (bench, "measure the engine on a project: bench PROJECT [--faults | --false-alarms]"),
}


def _folded(line: str, further: int = 0) -> str:
    return textwrap.fill(line, 80, subsequent_indent=" " * further, break_long_words=False, break_on_hyphens=False)


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    """One of the commands."""
    argv = sys.argv[1:] if argv is None else argv
    usage = "\n".join(
        [
            f"usage: {command_name('COMMAND')} ...",
            "",
            *(_folded(f"  {name:8} {help}", 11) for name, (_, help) in COMMANDS.items()),
            "",
            _folded(f"Exit status: 0 no mistake found, 1 a mistake found, 2 the input cannot be used, {BROKEN}."),
            "COMMAND --help says what they mean of one command.",
        ]
    )
    if not argv or argv[0] in ("-h", "--help"):
        print(usage)
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"alignment {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"error: unknown command {argv[0]!r}: use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    with _warned_once():
        return COMMANDS[argv[0]][0](argv[1:])


@contextlib.contextmanager
def _warned_once() -> Iterator[None]:
    """A warning of a model's code is printed once: models are made again and again, and frameworks reset Python's own count."""
    shown, plain = set(), warnings.showwarning

    def once(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        if (said := (str(message), category, filename, lineno)) not in shown:
            shown.add(said)
            plain(message, category, filename, lineno, file, line)

    warnings.showwarning = once
    try:
        yield
    finally:
        warnings.showwarning = plain


if __name__ == "__main__":
    sys.exit(main())
