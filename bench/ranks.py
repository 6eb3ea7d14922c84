"""Known faults of synchronisation, each made in real ranks; and does a correct port ever fail there?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from alignment.comparisons.comparison import explained
from alignment.comparisons.context import Context
from alignment.comparisons.ranks.ranks import NUMBER, RanksTrial, lacks_ranks
from alignment.faults import fault_named, faults_of
from alignment.project import Project
from bench.faults_found import Outcome, enough, write
from mobilenetv3_common.errors import UserError


def _trial(project: Project, ranks: int, seeds: Sequence[int] = (0,)) -> RanksTrial:
    context = Context(project)
    if lacking := lacks_ranks(context):
        raise UserError(f"{project.name} cannot be run on ranks: {lacking}")
    return RanksTrial(context, ranks, seeds)


def faults(project: Project, file: Path, ranks: int, name: str | None, result_dir: Path) -> int:
    """Make every fault of the ranks in turn; exit status 0 where all are detected, 95 % located and 80 % named.

    Args:
        project: sound.
        file: the project's, which each rank loads.
        ranks: how many.
        name: this fault alone.
        result_dir: gets faults_ranks.json.

    Raises:
        UserError: there is no such fault, or the project has no training on ranks.
    """
    known = [fault_named(project, name)] if name else [f for f in faults_of(project).values() if f.step == NUMBER]
    if not known:
        raise UserError(f"{project.name} has no known faults of ranks")
    trial = _trial(project, ranks)
    outcomes = []
    for fault, (_, result) in zip(known, trial.run(file, [fault.name for fault in known]), strict=True):
        place = explained(result) or result.raised
        outcomes.append(Outcome(fault, NUMBER if result.failed else None, place, result.seconds))
        found = place.line() if place else "not detected"
        print(f"{len(outcomes):3}/{len(known)} {fault.name}: {found}", flush=True)
    write(result_dir / "faults_ranks.json", outcomes)
    print("\n" + "\n".join(_table(outcomes)))
    return 0 if enough(outcomes) else 1


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    tell = {True: "yes", False: "NO"}
    lines = [f"{'fault':36} {'detected':8} {'located':7} {'hint':4} {'seconds':>7}  found at"]
    for o in outcomes:
        place = f"{o.found.location} [{o.found.kind or 'no hint'}]" if o.found else "-"
        lines.append(f"{o.fault.name:36} {tell[o.detected]:8} {tell[o.located]:7} {tell[o.hinted]:4} {o.seconds:7.1f}  {place}")
    counts = [sum(getattr(o, name) for o in outcomes) for name in ("detected", "located", "hinted")]
    words = "detected {}, located exactly {}, right hint {} of {}, {:.0f} s"
    return [*lines, words.format(*counts, len(outcomes), sum(o.seconds for o in outcomes))]


def false_alarms(project: Project, file: Path, ranks: int, seeds: int) -> int:
    """Run the sound port from many seeds in one launch; returns 1 where anything differs."""
    begun = time.perf_counter()
    trial = _trial(project, ranks, range(seeds))
    ((_, result),) = trial.run(file)
    failed = [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
    for line in failed[:20]:
        print(f"  {line}")
    worst = max((q.float64_diff for q in result.quantities if q.float64_diff is not None), default=None)
    print("largest difference in exact mode: " + ("none" if worst is None else f"{worst:.1e}"))
    runs = f"{len(trial.expected)} runs of {seeds} seeds on {ranks} ranks, {len(result.quantities)} comparisons"
    print(f"{len(failed)} false alarms in {runs}, {time.perf_counter() - begun:.0f} s")
    return 1 if failed else 0
