"""What a step returns."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from alignment.compare import Quantity
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.strangers import strangers

NAMES = {1: "forward", 2: "data", 3: "metric", 4: "loss", 5: "backward", 6: "train", 8: "deploy"}
ROLES = ("port", "reference")
Curves = dict[str, dict[str, np.ndarray]]


class Explainable(Protocol):
    """A comparison with what it measured."""

    @property
    def late(self) -> bool:
        """Whether it is explained after what the model's modules show."""

    def explain(self) -> Finding | None:
        """Place and cause of what is wrong in the measurements."""


@dataclass
class StepResult:
    """The outcome of one step.

    Attributes:
        step: its number in the guide.
        name: ``"forward"``, ``"data"``, ``"metric"``, ``"loss"``, ``"backward"``, ``"train"`` or ``"ranks"``.
        quantities: one row a comparison, in the order of computation: the first that fails is the first to diverge.
        evidence: what shows that there was something to compare.
        problems: evidence that is missing; any makes the step fail.
        lacking: how many of the problems are evidence that is missing.
        blind: which evidence the weights do not leave, and what to do then; empty where they do.
        not_run: why the step, or a part of it, was not run; it then proves nothing of that.
        records: arrays of the port and of the reference for the two record files: what the guide's example has.
        further: the same of cases that the guide's example does not have, for two files of their own.
        curves: of step 6, for its picture: losses by role and precision, and the reference's envelope.
        raised: where the port raised, of a step that it ended.
        compared: the step's comparisons with what they measured, in the order in which data flows.
        stored: whether ``compared`` alone says what is wrong: it was measured elsewhere, or the values show the tensor.
        seconds: wall time.
        kept: when it was run, where it is an earlier run's, whose records and log are in their files already; empty otherwise.
        changed: source files that were changed since then: what the step says is of the source before.
        covers: what the comparison rests on besides the step's name, in words that coverage lists, e.g. ``"cosine schedule"``.
        called: public functions of the port that other processes of the step ran, ``module.Class.function``.
        witnessed: of which of these a value from outside both sides was held against the port (``alignment.witness``).
    """

    step: int
    name: str
    quantities: list[Quantity] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    lacking: int = 0
    blind: str = ""
    not_run: str = ""
    records: dict[str, dict[str, np.ndarray]] = field(default_factory=lambda: {role: {} for role in ROLES})
    further: dict[str, dict[str, np.ndarray]] = field(default_factory=lambda: {role: {} for role in ROLES})
    curves: Curves = field(default_factory=dict)
    raised: Finding | None = None
    compared: list[Explainable] = field(default_factory=list)
    stored: bool = False
    seconds: float = 0.0
    covers: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    witnessed: list[str] = field(default_factory=list)
    kept: str = ""
    changed: list[str] = field(default_factory=list)

    @property
    def ran(self) -> bool:
        """Whether anything was compared, or tried to."""
        return bool(self.quantities or self.problems) or not self.not_run

    @property
    def differs(self) -> bool:
        """Whether something has failed so far; a step may not have compared everything yet."""
        return bool(self.problems) or not all(q.passed for q in self.quantities)

    @property
    def failed(self) -> bool:
        """Whether the step was run and found a difference, or had nothing real to compare."""
        return self.ran and not self.passed

    @property
    def only_blind(self) -> bool:
        """Whether it failed for nothing but weights under which nothing real is compared: no difference was seen."""
        return bool(self.blind) and len(self.problems) == self.lacking and all(q.passed for q in self.quantities)

    @property
    def passed(self) -> bool:
        """Whether the step was run and everything agreed; a step that was not run has not passed."""
        return bool(self.quantities) and not self.differs

    @property
    def verdict(self) -> str:
        """``"passed"``, ``"FAILED"`` or ``"not run"``."""
        return ("passed" if self.passed else "FAILED") if self.ran else "not run"

    def require(self, name: str, value: Any, holds: bool, expected: str) -> None:
        """Note a piece of evidence; the step fails where it does not hold."""
        self.evidence[name] = value
        if not holds:
            self.lacking += 1
            self.problems.append(f"{name} is {value}, expected {expected}: there was nothing real to compare")

    def cover(self, *topics: str, outside: bool = False) -> None:
        """Note what was really compared, each topic once; to be called beside the comparison.

        Args:
            topics: in the words that coverage lists.
            outside: whether the port was also held against what neither side's code gives.
        """
        self.covers += [topic for topic in topics if topic not in self.covers]
        self.witnessed += [topic for topic in topics if outside and topic not in self.witnessed]

    def record(self, name: str, port: np.ndarray | None, reference: np.ndarray | None, *, further: bool = False) -> None:
        """Keep one array of each side for the records, or for the further ones."""
        records = self.further if further else self.records
        for role, array in zip(ROLES, (port, reference), strict=True):
            if array is not None:
                records[role][name] = array

    def extend(self, rows: Iterable[Quantity]) -> None:
        self.quantities.extend(rows)


class Enough(Exception):
    """A step of a run in haste has failed: nothing further of it is compared."""

    def __init__(self, result: StepResult) -> None:
        super().__init__(result.name)
        self.result = result


def nothing_real(results: Sequence[StepResult]) -> str:
    """One line for a person, where weights that were given make comparisons say nothing; empty where they do not."""
    words = next((result.blind for result in results if result.blind), "")
    return f"nothing real to compare here: {words}" if words else ""


def only_nothing_real(results: Sequence[StepResult]) -> bool:
    """Whether this is all that makes steps fail."""
    failed = [result for result in results if result.failed]
    return bool(failed) and all(result.only_blind for result in failed)


def guarded(number: int, step: Callable[[], StepResult]) -> StepResult:
    """A step in which the port raises has failed, whatever it raises; what is given is checked before the steps begin."""
    with strangers("port") as raised:
        try:
            return step()
        except Enough as enough:
            return enough.result
    place = raised.place
    problem = f"{type(raised.error).__name__}: {str(raised.error).strip() or 'no message'}{f' ({place})' if place else ''}"
    finding = Finding(NAMES[number], place, Kind.RAISES, "the port cannot run", raised.words) if place else None  # type: ignore[arg-type]
    evidence = {"traceback": "".join(traceback.format_exception(raised.error))}
    return StepResult(number, NAMES[number], problems=[problem], evidence=evidence, raised=finding)
