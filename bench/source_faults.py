"""Known mistakes as edits of the port's source, run through the very steps that users run; and right rewrites, which must pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alignment.faults import Edit, Rewrite, SourceFault
from bench.edited import Attempt, Task, Workshop, edited, root_of
from mobilenetv3_common.files import atomic_open

ENOUGH = {"detected": 0.97, "located": 0.93, "named": 0.88}


@dataclass
class Outcome:
    """What became of one fault."""

    fault: SourceFault
    attempt: Attempt

    @property
    def detected(self) -> bool:
        """A step failed; a refusal or a traceback is no verdict on the port."""
        return self.attempt.outcome == "failed"

    @property
    def place(self) -> str:
        return self.attempt.finding["location"] if self.attempt.finding else ""

    @property
    def hint(self) -> str:
        return str(self.attempt.finding["kind"]) if self.attempt.finding else ""

    @property
    def located(self) -> bool:
        return self.detected and self.place == self.fault.location

    @property
    def named(self) -> bool:
        return self.detected and bool(self.hint) and self.hint in self.fault.hint.split("|")

    @property
    def false_hint(self) -> bool:
        """A hint was given that names another mistake."""
        return self.detected and bool(self.hint) and bool(self.fault.hint) and not self.named

    def as_json(self) -> dict:
        fault, attempt = self.fault, self.attempt
        verdicts = {"detected": self.detected, "located": self.located, "named": self.named, "false_hint": self.false_hint}
        expected = {"step": fault.step, "location": fault.location, "hint": fault.hint}
        said = {"outcome": attempt.outcome, "status": attempt.status, "step": attempt.step, "finding": attempt.finding}
        rest = {"problem": attempt.problem, "seconds": attempt.seconds}
        return {"name": fault.name, "area": fault.area, "expected": expected} | said | verdicts | rest


def run_faults(
    project: Path, faults: Sequence[SourceFault], steps: Sequence[int], jobs: int, progress: Callable[[int, Outcome], None]
) -> list[Outcome]:
    """Run the steps on each fault's copy of the project until one fails, and localise; in the order of the faults."""
    by_name = {fault.name: fault for fault in faults}
    outcomes: dict[str, Outcome] = {}
    for task, attempt in _attempts(project, {f.name: f.edits for f in faults}, steps, jobs):
        outcomes[task.key] = Outcome(by_name[task.key], attempt)
        progress(len(outcomes), outcomes[task.key])
    return [outcomes[fault.name] for fault in faults]


def run_rewrites(
    project: Path, rewrites: Sequence[Rewrite], steps: Sequence[int], jobs: int, progress: Callable[[str, Attempt], None]
) -> dict[str, Attempt]:
    """Run the steps on each rewrite's copy of the project: any that does not pass is a false alarm."""
    found = {}
    for task, attempt in _attempts(project, {r.name: r.edits for r in rewrites}, steps, jobs):
        found[task.key] = attempt
        progress(task.key, attempt)
    return found


def _attempts(project: Path, edits: Mapping[str, Sequence[Edit]], steps: Sequence[int], jobs: int):  # type: ignore[no-untyped-def]
    root = root_of(project)
    tasks = [Task(name, edited(root, changes)) for name, changes in edits.items()]  # a stale edit is an error before anything runs
    with Workshop(project, steps, jobs) as workshop:
        yield from workshop.run(tasks)


def table(outcomes: Sequence[Outcome]) -> str:
    """One row a fault, counts over the areas, and the sums."""
    tell = {True: "yes", False: "NO"}
    lines = [f"{'fault':36} {'area':11} {'step':4} {'detected':8} {'located':7} {'hint':5} {'seconds':>7}  found at"]
    for o in outcomes:
        said = f"{o.place} [{o.hint or 'no hint'}]" if o.attempt.finding else f"{o.attempt.outcome}: {o.attempt.problem}"
        hint = "FALSE" if o.false_hint else tell[o.named]
        lines.append(
            f"{o.fault.name:36} {o.fault.area:11} {o.attempt.step or '-':<4} {tell[o.detected]:8} {tell[o.located]:7} {hint:5} "
            f"{o.attempt.seconds:7.1f}  {said}"
        )
    lines += ["", f"{'area':11} {'faults':>6} {'detected':>8} {'located':>7} {'named':>5} {'false hints':>11}"]
    for area in dict.fromkeys(o.fault.area for o in outcomes):
        lines.append(_sums(area, [o for o in outcomes if o.fault.area == area]))
    return "\n".join([*lines, _sums("all", outcomes)])


def _sums(area: str, outcomes: Sequence[Outcome]) -> str:
    detected, located, named, false = (
        sum(getattr(o, what) for o in outcomes) for what in ("detected", "located", "named", "false_hint")
    )
    return f"{area:11} {len(outcomes):6} {detected:8} {located:7} {named:5} {false:11}"


def enough(outcomes: Sequence[Outcome]) -> bool:
    """Whether the shares of ``ENOUGH`` are reached, and no hint is false."""
    shares = {what: sum(getattr(o, what) for o in outcomes) / len(outcomes) for what in ENOUGH}
    return all(shares[what] >= least for what, least in ENOUGH.items()) and not any(o.false_hint for o in outcomes)


def write(file: Path, outcomes: Sequence[Outcome]) -> None:
    """The outcomes as JSON."""
    with atomic_open(file, "w") as out:
        json.dump([outcome.as_json() for outcome in outcomes], out, indent=1)
        out.write("\n")
