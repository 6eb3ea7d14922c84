"""The commands of the engine: python -m alignment run | audit | dump | compare | weights | bench."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alignment.flags import (
    HEEDED,
    NOT_BENCHED,
    RESULT,
    audit_parser,
    bench_parser,
    dump_parser,
    parse_steps,
    run_parser,
    shown,
    weights_parser,
)
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import ensure_writable_dir

if TYPE_CHECKING:
    from alignment.project import Project
    from alignment.steps.result import StepResult
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
    parser = run_parser(project, result, prog or "python -m alignment run")
    args = parser.parse_args(argv)
    # The frameworks are imported only now, so that --help and a wrong flag answer at once.
    from alignment.bench import commands, edited
    from alignment.bench.fault import faults_of, injected
    from alignment.bench.ranks import refuse_without_ranks
    from alignment.project import load_ports, load_project
    from alignment.steps import STEPS, ranks

    file, port = project or args.project, "" if project is not None else args.port
    if not port and len(ports := load_ports(file)) > 1:
        return _every_port(args, argv, list(ports))
    known = load_project(file, port)
    if args.inject == "list":
        faults: dict[str, Any] = {**faults_of(known), **commands.edits_of(known).faults}
        if not faults:
            raise UserError(f"{known.name} has no known faults")
        print("\n".join(f"{f.name:32} {f.area:11} step {f.step}  {f.location}" for f in faults.values()))
        return 0
    if args.ranks is None:
        if args.inject not in commands.edits_of(known).faults:
            refuse_without_ranks(known, args.inject)
        every = sorted(STEPS)
    else:
        ranks.check_count(args.ranks, args.device)
        every = [*sorted(STEPS), ranks.NUMBER]
    steps = parse_steps(args.steps, every)
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
        return _faults(known, args.inject, steps, args.padiff, args.result_dir, file, args.ranks)
    if args.port_weights and not args.weights:
        raise UserError("--port-weights goes with --weights, the original from which the file was converted")
    recipe = _recipe(args.config, steps, known) if args.config is not None else None
    known.use(args.device)
    ensure_writable_dir(args.result_dir)
    command = [*(prog or "python -m alignment run").split(), *argv]
    if args.inject in commands.edits_of(known).faults:
        call = vars(args) | {"project": file, "steps": steps, "every": every, "flags": list(argv), "command": command}
        return edited.align_copy(call, commands.edits_of(known).faults[args.inject].edits)
    with injected(known, args.inject) as broken:
        args.command = command
        return _align(args, steps, every, broken, file, list(argv), recipe)


def _every_port(args: argparse.Namespace, argv: Sequence[str], ports: Sequence[str]) -> int:
    """``run`` for each port of a project file, and one table of them all."""
    from alignment.report import ports as report

    for name in ("inject", "bench_faults", "port_weights", "ranks"):
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
    """``run`` in an edited copy of a project: see ``alignment.bench.edited.align_copy``."""
    from alignment.project import load_project

    args = argparse.Namespace(**call)
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
    from alignment.steps.recipe import in_small
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
    from alignment.aligned import Wanted, align
    from alignment.names import NameMap, read_map
    from alignment.steps import ranks
    from alignment.steps.context import Context

    names = NameMap() if args.names is None else read_map(args.names)
    named = recipe.model if recipe is not None and recipe.model in project.models else ""
    context = Context(
        project,
        model=args.model or named,
        data_path=args.data_path,
        weights_from=args.weights,
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
    if args.data_path is not None and project.lacks("data"):
        context.check()
        raise UserError(f"--data-path {args.data_path}: {project.lacks('data')}, so no pictures are read")

    def on_ranks(context: Context) -> StepResult:
        return ranks.run(context, file, args.ranks, args.inject)

    ranked = on_ranks if args.ranks else None
    wanted = Wanted(steps, every, args.result_dir, flags, args.localize, ranked, args.inject or "", command=args.command)
    return align(context, wanted).status


def _refuse_unheeded(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Raise ``UserError`` where a flag of ``bench`` would go unheeded."""
    modes = ("false_alarms", "mutants", "source_faults", "rewrites", "functional_faults", "layer_faults", "together")
    mode = next((mode for mode in modes if getattr(args, mode) not in (None, False)), "faults")
    for flag, heeding in HEEDED.items():
        if mode not in heeding and getattr(args, flag) != parser.get_default(flag):
            others = " or ".join(f"--{other.replace('_', '-')}" for other in heeding)
            raise UserError(f"--{flag} goes with {others}")


@exit_on_user_error
def bench(argv: Sequence[str]) -> int:
    """Faults, false alarms, or edits of the source."""
    parser = bench_parser()
    args = parser.parse_args(argv)
    if args.ranks is not None:
        for flag in ("steps", "padiff", "models", "options", "localize"):
            if getattr(args, flag):
                raise UserError(f"--{flag} does not go with --ranks")
    _refuse_unheeded(parser, args)
    from alignment.bench import commands
    from alignment.bench.mutants import Sample
    from alignment.project import load_project
    from alignment.steps import STEPS
    from alignment.steps.ranks import NUMBER as RANKS
    from alignment.steps.ranks import check_count

    if args.mutants:
        ensure_writable_dir(args.result_dir)
        chosen = parse_steps(args.steps, [*sorted(STEPS), RANKS]) if args.steps else []
        sample = Sample(args.mutants, args.count, args.seed, chosen, args.suite, args.localize)
        return commands.run_mutants(args.project, sample, args.jobs, args.resume, args.result_dir)
    if args.layer_faults:
        from alignment.bench import layer_faults

        ensure_writable_dir(args.result_dir)
        return layer_faults.run(args.project, args.seeds, args.result_dir, args.padiff)
    project = load_project(args.project)
    if args.ranks is not None:
        from alignment.bench import ranks

        if args.false_alarms:
            check_count(args.ranks)
            return ranks.false_alarms(project, args.project, args.ranks, args.seeds)
    elif args.false_alarms:
        from alignment.bench import false_alarms

        steps = parse_steps(args.steps or "1,4,5", sorted(STEPS))
        options = [dict(false_alarms.parse_option(text) for text in args.options)] if args.options else None
        return false_alarms.run_all(project, args.models, options, args.seeds, steps, args.localize, args.precision or "")
    if args.precision:
        from alignment.bench import low_precision

        return low_precision.run_all(project, args.precision, args.inject)
    ensure_writable_dir(args.result_dir)
    if args.functional_faults:
        from alignment.bench import functional

        return functional.run(args.project, project, commands.edits_of(project), args.inject, args.result_dir)
    steps = parse_steps(args.steps, sorted(STEPS))
    if args.together is not None:
        from alignment.bench import together

        return together.run(project, args.layers, args.together, args.count, args.seed, args.result_dir)
    if args.source_faults:
        return commands.run_source_faults(args.project, project, args.inject, steps, args.jobs, args.result_dir)
    if args.rewrites:
        return commands.run_rewrites(args.project, project, steps, args.jobs)
    return _faults(project, args.inject, steps, args.padiff, args.result_dir, args.project, args.ranks)


def _faults(
    project: Project, name: str | None, steps: list[int], padiff: Path | None, result_dir: Path, file: Path, count: int | None
) -> int:
    """Every fault of these steps, or of ``count`` ranks; exit status 0 where all are detected, 95 % located and 80 % named."""
    from alignment.bench import faults_found, ranks
    from alignment.bench.fault import fault_named, faults_of
    from alignment.steps.ranks import check_count

    if count is not None:
        check_count(count)
        return ranks.faults(project, file, count, name, result_dir)
    ranks.refuse_without_ranks(project, name)
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
    if wanted is live:
        from alignment.audit.command import audit as audited

        return audited(args, argv)
    heeded = (*dumps, "training", "report", "json")
    for name, value in vars(args).items():
        if name not in heeded and value != parser.get_default(name):
            raise UserError(f"--{name.replace('_', '-')} does not go with dumps")
    from alignment.dumps.command import audit as compared

    return compared(args, argv)


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
