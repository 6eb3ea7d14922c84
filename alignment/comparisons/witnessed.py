"""Shared code against values from outside, in whichever step a witness of the project speaks for (``alignment.witness``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.comparison import Compared
from alignment.comparisons.context import Context
from alignment.comparisons.result import NAMES, StepResult
from alignment.finding import SHARED, Finding
from alignment.kinds import Kind
from alignment.strangers import strangers
from alignment.witness import Told, Witness

WITNESS = "witness"  # how the names of their rows begin
SHOWN, FEW = 90, 8  # characters of a value that is shown, and numbers that are all shown
ALSO = 3  # further cases that are named


class Testimony:
    """What one witness tells: the values of the code under test stand in the port's place, the outside ones in the reference's."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.told: list[Told] = []
        self.raised = ""

    def measure(self, context: Context | None, role: str) -> Mapping[str, Any]:
        """The values by their number and circumstances."""
        if role == "port":
            with strangers("port") as raised:
                for one in self.witness.tell():
                    self.told.append(one)
            self.raised = raised.words
        return {f"{number}: {one.case}": one.computed if role == "port" else one.expected for number, one in enumerate(self.told)}

    def judge(self, port: Mapping[str, Any], reference: Mapping[str, Any]) -> Sequence[Quantity]:
        row = Quantity(f"{WITNESS}.{self.witness.place}", [len(self.told)])
        if self.raised:
            row.fail(f"raises {self.raised}")
        elif (found := self._first()) is not None:
            row.fail(f"{found[0].case}: {found[1]}")
        elif not self.told:
            row.fail("nothing was told")
        return [row]

    def explain(self, port: Mapping[str, Any], reference: Mapping[str, Any]) -> Finding | None:
        return headline([self])

    def failing(self) -> list[tuple[Told, str]]:
        """The values that are not as they must be, and how, the plainest cases first."""
        found = [(one, words) for one in self.told if (words := apart(one.computed, one.expected))]
        return sorted(found, key=lambda one: one[0].features)

    def _first(self) -> tuple[Told, str] | None:
        return next(iter(self.failing()), None)


def headline(heard: Sequence[Testimony]) -> Finding | None:
    """What several witnesses say of one mistake: the plainest case that fails, and the names of the others."""
    failing = [(one.witness, *found) for one in heard for found in one.failing()]
    if not failing:
        raised = next((one for one in heard if one.raised), None)
        if raised is None:
            return None
        place, words = raised.witness.place, "shared code raises where it must not"
        return Finding(_stage(raised.witness), place, Kind.RAISES, words, raised.raised)
    witness, told, words = min(failing, key=lambda one: one[1].features)
    place = told.place or witness.place
    by_itself = [one for testimony in heard for one in testimony.told if one.alone and one.place == place]
    if told.instead and by_itself and not any(one is other for one in by_itself for _, other, _ in failing):
        place = told.instead
    cases = dict.fromkeys(one.case.partition(":")[0] for _, one, _ in failing)
    others = [case for case in cases if case != told.case.partition(":")[0]]
    more = (
        f"; also seen: {', '.join(others[:ALSO])}{f' and {len(others) - ALSO} more' if len(others) > ALSO else ''}"
        if others
        else ""
    )
    measured = f"against {witness.source}; {SHARED}"
    return Finding(_stage(witness), place, told.kind or witness.kind, f"{told.case}: {words}{more}", measured)


def _stage(witness: Witness) -> Any:
    return NAMES[witness.step]


def of_all_steps(context: Context, results: Sequence[StepResult]) -> Finding | None:
    """The headline of all the project's witnesses; those of steps that were not run are heard now.

    A mistake in what every run does fails the witness of a special run first, as it belongs to an earlier step.
    """
    compared = [one.comparison for result in results for one in result.compared if isinstance(one, Compared)]
    heard = {one.witness.place: one for one in compared if isinstance(one, Testimony)}
    for witness in context.project.witnesses:
        if witness.place not in heard:
            heard[witness.place] = Testimony(witness)
            heard[witness.place].measure(context, "port")
    return headline(list(heard.values()))


def apart(computed: Any, expected: Any) -> str:
    """How two values differ in words; empty where they agree to rounding. NaN agrees with NaN alone."""
    for where, ours, theirs in _leaves(computed, expected):
        if not _agree(ours, theirs):
            return f"{where}{_parted(ours, theirs)}"
    return ""


def _parted(ours: Any, theirs: Any) -> str:
    """Two values that differ; of many numbers those that do so first."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs) == 1:
        return _parted(ours[0], theirs[0])
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and any(isinstance(one, np.ndarray) for one in theirs):
        first_apart = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if not _agree(*pair)), None)
        if first_apart is not None and len(ours) == len(theirs):
            return f"number {first_apart + 1} of {len(ours)}: {_parted(ours[first_apart], theirs[first_apart])}"
    a, b = (np.asarray(one) if isinstance(one, np.ndarray) else np.zeros(0) for one in (ours, theirs))
    if a.shape != b.shape or a.size <= FEW:
        return f"{_shown(ours)}, expected {_shown(theirs)}"
    apart_at = ~np.isclose(a.astype(float), b.astype(float), rtol=tolerance.WITNESS_RTOL, equal_nan=True)
    first = tuple(int(place) for place in np.argwhere(apart_at)[0]) if apart_at.any() else (0,) * a.ndim
    return f"{int(apart_at.sum())} of {a.size} numbers differ, first {a[first]:.6g}, expected {b[first]:.6g}, at {list(first)}"


def _leaves(computed: Any, expected: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(computed, Mapping) and isinstance(expected, Mapping):
        for name in dict.fromkeys([*expected, *computed]):
            yield from _leaves(computed.get(name, "missing"), expected.get(name, "missing"), f"{where}{name} is ")
        return
    yield where, computed, expected


def _agree(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and _ragged(ours, theirs):
        return len(ours) == len(theirs) and all(map(_agree, ours, theirs))
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape or a.dtype.kind not in "biuf" or b.dtype.kind not in "biuf":
        return a.shape == b.shape and bool(np.all(a == b))
    wide, other = a.astype(np.float64), b.astype(np.float64)
    size = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
    return bool(np.allclose(wide, other, rtol=tolerance.WITNESS_RTOL, atol=tolerance.WITNESS_RTOL * size, equal_nan=True))


def _ragged(*values: Sequence[Any]) -> bool:
    return any(isinstance(one, list | tuple | str | np.ndarray) or one is None for value in values for one in value)


def _shown(value: Any) -> str:
    text = np.array2string(value, threshold=8, precision=8) if isinstance(value, np.ndarray) else f"{_plain(value)}"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _plain(value: Any) -> Any:
    """Numbers of NumPy as Python's, which are printed without their type."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
    return value.item() if isinstance(value, np.generic) else value


def listen(context: Context, number: int, result: StepResult) -> StepResult:
    """Hear the witnesses of a step. Their rows come first: a step that shares a mistake cannot see it.

    Their findings come last: where the two sides differ, what was measured of both says more.
    """
    heard: list[Compared] = []
    rows: list[Quantity] = []
    for witness in (one for one in context.project.witnesses if one.step == number):
        testimony = Testimony(witness)
        port = testimony.measure(context, "port")
        heard.append(Compared(testimony, port, testimony.measure(context, "reference")))
        rows += testimony.judge(heard[-1].port, heard[-1].reference)
        result.witnessed += [topic for topic in witness.topics if topic not in result.witnessed]
    result.quantities = [*rows, *result.quantities]
    result.compared = [*result.compared, *heard] if any(not row.passed for row in rows) else result.compared
    return result
