"""``bench --together N``: several known faults in one port at once, and whether one search finds all of them."""

from __future__ import annotations

import contextlib
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alignment.bench.fault import Fault, faults_of
from alignment.localize.finding import Finding
from alignment.localize.kinds import Kind
from alignment.localize.stages.every import every_mistake
from alignment.project import Project
from alignment.steps.context import Context
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

AREAS = ("models", "weights")  # what a search of the model alone owes
SHIFTING = frozenset({Kind.LAYER_MISSING, Kind.LAYER_EXTRA})  # planted last, since the others find their layers by name


@dataclass
class Outcome:
    """What came of some faults in one port.

    Attributes:
        faults: that were planted.
        found: by one search, each with all its places.
        seconds: that it took.
    """

    faults: Sequence[Fault]
    found: list[Finding]
    seconds: float

    def located(self, fault: Fault) -> bool:
        return any(fault.location in one.places for one in self.found)

    def named(self, fault: Fault) -> bool:
        return any(fault.location in one.places and one.kind == fault.hint for one in self.found)

    @property
    def complete(self) -> bool:
        """Whether every fault is found at its place."""
        return all(self.located(fault) for fault in self.faults)

    def as_json(self) -> dict:
        faults = [{"name": f.name, "located": self.located(f), "named": self.named(f)} for f in self.faults]
        return {"faults": faults, "found": [vars(one) for one in self.found], "seconds": round(self.seconds, 2)}


def drawn(project: Project, number: int, count: int, seed: int) -> list[list[Fault]]:
    """So many groups of different faults of the model at different places, at most one of them in the weights.

    Two faults at one place cannot be told apart, and one file of weights hides another.

    Raises:
        UserError: there are too few faults.
    """
    known = [fault for fault in faults_of(project).values() if fault.area in AREAS and fault.step in (1, 5)]
    rng, groups = np.random.default_rng(seed), []
    for _ in range(1000 * count):
        chosen = [known[i] for i in rng.choice(len(known), number, replace=False)] if len(known) >= number else []
        places = {fault.location for fault in chosen}
        if chosen and len(places) == number and sum(fault.area == "weights" for fault in chosen) <= 1:
            groups.append(chosen)
        if len(groups) == count:
            return groups
    raise UserError(f"--together {number}: {project.name} lists too few faults of its model for {count} groups of {number}")


def run_all(
    project: Project, number: int, count: int, seed: int, progress: Callable[[int, Outcome], None] = lambda number, outcome: None
) -> list[Outcome]:
    """Plant every group of ``drawn`` in the project's first model with its calibrated weights, and search once."""
    outcomes = []
    groups = drawn(project, number, count, seed)
    state = Context(project).weights.state
    for index, faults in enumerate(groups, start=1):
        start = time.perf_counter()
        with contextlib.ExitStack() as stack:
            broken = project
            for fault in sorted(faults, key=lambda fault: fault.hint in SHIFTING):
                broken = fault.make(stack, broken)
            outcome, _ = every_mistake(Context(broken, given_state=dict(state)))
        outcomes.append(Outcome(faults, outcome.every, time.perf_counter() - start))
        progress(index, outcomes[-1])
        gc.collect()  # networks and their hooks refer to one another
    return outcomes


def run(project: Project, number: int, count: int, seed: int, result_dir: Path) -> int:
    """The benchmark, printed and written to together.json; 0 where all faults are found in at least 90 % of the groups.

    Raises:
        UserError: a number is below 1, or there are too few faults.
    """
    for flag, value in (("together", number), ("count", count)):
        if value < 1:
            raise UserError(f"--{flag} must be at least 1, found {value}")

    def progress(index: int, outcome: Outcome) -> None:
        said = [
            f"{f.name} {'named' if outcome.named(f) else 'located' if outcome.located(f) else 'MISSED'}" for f in outcome.faults
        ]
        print(f"{index:3}/{count} {outcome.seconds:5.1f} s  {', '.join(said)}", flush=True)

    outcomes = run_all(project, number, count, seed, progress)
    with atomic_open(result_dir / "together.json", "w") as file:
        json.dump([outcome.as_json() for outcome in outcomes], file, indent=1)
        file.write("\n")
    complete = sum(outcome.complete for outcome in outcomes)
    pairs = [(outcome, fault) for outcome in outcomes for fault in outcome.faults]
    located, named = (sum(getattr(o, what)(f) for o, f in pairs) for what in ("located", "named"))
    print(f"all {number} found in one search: {complete} of {count}; of {len(pairs)} faults located {located}, named {named}")
    return 0 if complete >= 0.9 * count else 1
