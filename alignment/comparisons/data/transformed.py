"""One transform at a time: calls of one function of both data parts with equal arguments.

They are measured once a whole batch differs, as the layers of a network are: a batch alone cannot say which transform is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import arrays_of, measured_sides, part
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Observed
from alignment.localize.hypotheses.pictures import PIXELS, in_every_case, pixels
from alignment.project import Side
from alignment.tolerance import PICTURE_RTOL

REPEATS = 20  # of equal calls, to see whether their results are: a coin agrees with itself so often once in a million
AGAIN = "/again"
GLOBAL = Kind.GLOBAL_GENERATOR, "two identical calls give different pictures: random numbers from a global generator"


@dataclass(frozen=True)
class Transform:
    """One call as both sides made it.

    Attributes:
        args: what both were given.
        ours, right: the pictures.
        random: whether an equal call of the port gave another picture.
    """

    args: tuple[Any, ...]
    ours: np.ndarray
    right: np.ndarray
    random: bool

    @property
    def differs(self) -> bool:
        return differ(self.ours, self.right)

    def observed(self, given: Any, rtol: float = PICTURE_RTOL) -> Observed:
        """The case for hypotheses about ``given``."""
        return Observed(given, self.ours, self.right, rtol)


def differ(ours: np.ndarray, right: np.ndarray) -> bool:
    return ours.shape != right.shape or ours.dtype != right.dtype or bool((ours != right).any())


def difference(location: str, ours: np.ndarray, right: np.ndarray, hint: Hint, cases: Sequence[Observed] = ()) -> Finding:
    """A finding about two arrays that differ; without a hint, what two pictures have to do with each other in all cases."""
    if ours.shape != right.shape or ours.dtype != right.dtype:
        measured = f"{ours.dtype} {ours.shape} in the port, {right.dtype} {right.shape} in the reference"
    else:
        gap = np.abs(ours.astype(np.float64) - right)
        measured = f"{int((gap > 0).sum())} of {gap.size} values differ, by {gap.max():.3g} at most"
    if not hint[0] and (ours.ndim == 3 or ours.shape != right.shape):
        hint = in_every_case(PIXELS, cases or [pixels(ours, right)])
    return Finding("data", location, *hint, measured)


def found(location: str, calls: Sequence[Transform], hint: Hint = NO_HINT) -> Finding:
    """The finding, unless the port gives different pictures for equal arguments: then that is the mistake."""
    first = next((one for one in calls if one.differs), calls[0])
    hint = GLOBAL if any(one.random for one in calls) else hint
    return difference(location, first.ours, first.right, hint, [pixels(one.ours, one.right) for one in calls])


class Transformed:
    """Calls in stages; a stage is right if all of its calls are.

    Args:
        stages: in the order of computation, their calls: the arguments by name.
    """

    function = ""

    def __init__(self, stages: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> None:
        self.stages = stages

    def call(self, context: Context, side: Side, args: tuple[Any, ...]) -> np.ndarray | None:
        """What a side gives; None where it does not show this."""
        return np.asarray(getattr(part(side), self.function)(*args))

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        made = {}
        for prefix, side in measured_sides(context, role).items():
            for stage, calls in self.stages.items():
                for name, args in calls.items():
                    key = f"{prefix}{stage}/{name}"
                    if (array := self.call(context, side, args)) is None:
                        continue
                    made[key] = array
                    for _ in range(-(-REPEATS // len(calls)) if role == "port" else 0):
                        again = self.call(context, side, args)
                        if again is not None and not np.array_equal(again, array, equal_nan=True):
                            made[f"{key}{AGAIN}"] = again
                            break
        return made

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        for stage, calls in self._measured(port, reference):
            row = Quantity(stage, [len(calls)])
            rows.append(row.fail("pictures differ") if any(one.differs or one.random for one in calls) else row)
        return rows

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        for stage, calls in self._measured(port, reference):
            if any(one.differs or one.random for one in calls):
                return self.explain_stage(stage, calls, reference)
        return None

    def explain_stage(self, stage: str, calls: Sequence[Transform], reference: Measurement) -> Finding:
        """Place and cause of a stage that is wrong, after stages that are right."""
        raise NotImplementedError

    def _measured(self, port: Measurement, reference: Measurement) -> Iterator[tuple[str, list[Transform]]]:
        ours, right = arrays_of(port), arrays_of(reference)
        for stage, calls in self.stages.items():
            made = []
            for name, args in calls.items():
                key = f"{stage}/{name}"
                if key not in ours or key not in right:  # it is then looked at with the samples
                    continue
                again = ours.get(f"{key}{AGAIN}")
                one = ours[key] if again is None or differ(ours[key], right[key]) else again
                made.append(Transform(args, one, right[key], again is not None))
            yield stage, made
