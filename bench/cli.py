"""The command ``python -m bench``: measures of the engine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alignment.flags import parse_steps, shown
from bench.edited import align_copy
from bench.flags import HEEDED, bench_parser
from mobilenetv3_common.counted import numbered
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import ensure_writable_dir

if TYPE_CHECKING:
    from alignment.project import Project

__all__ = ["align_copy", "bench", "faults"]


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
    if argv[:1] == ["ablate"]:
        from bench.ablate import ablate

        return ablate(argv[1:])
    if argv[:1] == ["real"]:
        from bench.real.command import real

        return real(argv[1:])
    if argv[:1] == ["patches"]:
        from bench.patches import patches

        return patches(argv[1:])
    if argv[:1] == ["planted"]:
        from bench.planted import planted

        return planted(argv[1:])
    parser = bench_parser()
    args = parser.parse_args(argv)
    if args.ranks is not None:
        for flag in ("steps", "padiff", "models", "options", "localize"):
            if getattr(args, flag):
                raise UserError(f"--{flag} does not go with --ranks")
    _refuse_unheeded(parser, args)
    from alignment.comparisons import STEPS
    from alignment.comparisons.ranks.ranks import NUMBER as RANKS
    from alignment.comparisons.ranks.ranks import check_count
    from alignment.faults import edits_of
    from alignment.project import load_project
    from bench import commands
    from bench.mutants import Sample

    if args.mutants:
        ensure_writable_dir(args.result_dir)
        chosen = parse_steps(args.steps, [*sorted(STEPS), RANKS]) if args.steps else []
        sample = Sample(args.mutants, args.count, args.seed, chosen, args.suite, args.localize)
        return commands.run_mutants(args.project, sample, args.jobs, args.resume, args.result_dir)
    if args.layer_faults:
        from bench import layer_faults

        ensure_writable_dir(args.result_dir)
        return layer_faults.run(args.project, args.seeds, args.result_dir, args.padiff)
    project = load_project(args.project)
    if args.ranks is not None:
        from bench import ranks

        if args.false_alarms:
            check_count(args.ranks)
            return ranks.false_alarms(project, args.project, args.ranks, args.seeds)
    elif args.false_alarms:
        from bench import false_alarms

        steps = parse_steps(args.steps or "1,4,5", sorted(STEPS))
        options = [dict(false_alarms.parse_option(text) for text in args.options)] if args.options else None
        return false_alarms.run_all(project, args.models, options, args.seeds, steps, args.localize, args.precision or "")
    if args.precision:
        from bench import low_precision

        return low_precision.run_all(project, args.precision, args.inject)
    ensure_writable_dir(args.result_dir)
    if args.functional_faults:
        from bench import functional

        return functional.run(args.project, project, edits_of(project), args.inject, args.result_dir)
    steps = parse_steps(args.steps, sorted(STEPS))
    if args.together is not None:
        from bench import together

        return together.run(project, args.layers, args.together, args.count, args.seed, args.result_dir)
    if args.source_faults:
        return commands.run_source_faults(args.project, project, args.inject, steps, args.jobs, args.result_dir)
    if args.rewrites:
        return commands.run_rewrites(args.project, project, steps, args.jobs)
    return faults(project, args.inject, steps, args.padiff, args.result_dir, args.project, args.ranks)


def faults(
    project: Project, name: str | None, steps: list[int], padiff: Path | None, result_dir: Path, file: Path, count: int | None
) -> int:
    """Every fault of these steps, or of ``count`` ranks; exit status 0 where all are detected, 95 % located and 80 % named."""
    from alignment.comparisons.ranks.ranks import check_count, refuse_without_ranks
    from alignment.faults import fault_named, faults_of
    from bench import faults_found, ranks

    if count is not None:
        check_count(count)
        return ranks.faults(project, file, count, name, result_dir)
    refuse_without_ranks(project, name)
    every = faults_of(project)
    known = [fault_named(project, name)] if name else [fault for fault in every.values() if fault.step in steps]
    if not known:
        raise UserError(f"{project.name} has no known faults of {numbered('step', steps)}")

    def progress(number: int, outcome: faults_found.Outcome) -> None:
        found = outcome.found.line() if outcome.found else "not detected"
        print(f"{number:3}/{len(known)} {outcome.fault.name}: {found}", flush=True)

    outcomes = faults_found.run_all(project, known, progress, padiff, file)
    faults_found.write(result_dir / "faults.json", outcomes)
    print(f"\n{faults_found.table(outcomes)}\nresults: {shown(result_dir / 'faults.json')}")
    return 0 if faults_found.enough(outcomes) else 1
