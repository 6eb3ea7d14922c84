"""What happens by one random number alone: a layer that is left out with some probability, on all samples or on none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, distance, norm, relative
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.models.tracing import Network
from alignment.raised import shown
from alignment.strangers import strangers

PASSES, MOST = 150, 8  # in which probabilities are looked for, and of how many events
CHANGES, PLACES, MODEL = "changes", "places", "model"
Outputs = list[np.ndarray]


class Events:
    """At which numbers what a pass in training mode gives changes, where it draws numbers by themselves.

    The masks of both sides are made of the same numbers, and one number alone may say the same for either rate in every pass: with
    ``rand() < 0.1`` nothing happens in most. So it is set to one value after another, the same for all such draws of a pass.

    Args:
        lanes: a network of each role in float32, whose numbers are shared.
    """

    def __init__(self, lanes: Mapping[str, Network]) -> None:
        self.lanes = lanes

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        """The numbers at which the outputs change, ascending, and the lines that draw; nothing where none is drawn by itself."""
        lane = self.lanes[role]
        drawn = lane.functions.alone  # of the passes that were compared
        if not drawn and context.mended:  # the reference's own parts draw in the port, unseen
            drawn = self.lanes["reference"].functions.alone
        if context.unshared_randomness or not drawn:
            return {}
        inputs, found = context.fake_inputs(4, small=True), dict[str, Value]()

        def passed(number: float) -> Outputs:
            lane.draws.alone = number
            lane.train_mode(True)
            try:
                return lane.outputs(inputs)
            finally:
                lane.draws.alone = None
                lane.reset()

        with strangers("port"):  # whatever it raises, the cases say
            changes = _changes(passed)
            name = type(lane.model).__name__
            found = {} if changes is None else {CHANGES: np.array(changes), PLACES: " ".join(drawn), MODEL: name}
        return found

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        """One row, of a model in which something happens by one number."""
        ours, theirs = (np.asarray(side.get(CHANGES, np.zeros(0))) for side in (port, reference))
        if not ours.size and not theirs.size:
            return []
        row = Quantity("events", [max(ours.size, theirs.size)])
        if not any(_alike(one, theirs) for one in (ours, 1 - ours[::-1])):
            row.fail(f"the outputs change at the numbers {_shown(ours)}, in the reference at {_shown(theirs)}")
        return [row]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        return next(self.findings(port, reference), None)

    def findings(self, port: Measurement, reference: Measurement) -> Iterator[Finding]:
        """That something happens more or less often than in the reference, or never."""
        for row in self.judge(port, reference):
            if row.passed:
                continue
            ours, theirs = (np.asarray(side.get(CHANGES, np.zeros(0))) for side in (port, reference))
            ours = min(ours, 1 - ours[::-1], key=lambda one: abs(one.sum() - theirs.sum()))  # from either end of the interval
            place, right = (shown_line(str(side.get(PLACES, ""))) for side in (port, reference))
            if not ours.size:
                kind, words = Kind.DROPOUT_MISSING, f"nothing is left out at random, where the reference draws a number ({right})"
            elif not theirs.size:
                kind, words = Kind.LAYER_EXTRA, "something is left out at random, by one number; in the reference nothing is"
            else:
                kind, words = (
                    Kind.DROPOUT_RATE,
                    f"one random number decides at {_shown(ours)}, expected {_shown(theirs)}",
                )
            name = port.get(MODEL) or reference[MODEL]
            yield Finding("forward", f"{name}.forward", kind, words, row.reason, place)


def shown_line(places: str) -> str:
    """The first of some lines, for people; empty where there is none."""
    file, _, line = places.partition(" ")[0].rpartition(":")
    return f"{shown(Path(file))}:{line}" if file else ""


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.all(np.abs(one - other) <= tolerance.PROBABILITIES_APART))


def _shown(numbers: np.ndarray) -> str:
    return ", ".join(f"{round(one, 3):g}" for one in numbers) or "none"


def _changes(passed: Callable[[float], Outputs]) -> list[float] | None:
    """The numbers at which what a function gives changes; None of one that changes everywhere, or too often."""
    left, kept = PASSES, dict[float, Outputs]()

    def given(number: float) -> Outputs:
        nonlocal left
        if number not in kept:
            left -= 1
            kept[number] = passed(number)
        return kept[number]

    found, waiting = list[float](), [(0.0, 1.0 - tolerance.PROBABILITY)]
    if not _same(given(0.0), given(0.0 + tolerance.PROBABILITY)) and not _same(given(0.5), given(0.5 + tolerance.PROBABILITY)):
        return None  # noise, in which each number counts
    while waiting:
        low, high = waiting.pop()
        if _same(given(low), given(high)) and (high - low < 0.5 or _same(given(low), given((low + high) / 2))):
            continue
        if left <= 0 or len(found) >= MOST:
            return None
        if high - low <= tolerance.PROBABILITY:
            found.append((low + high) / 2)
        else:
            waiting += [(low, (low + high) / 2), ((low + high) / 2, high)]
    return sorted(found)


def _same(one: Outputs, other: Outputs) -> bool:
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(
        a.shape == b.shape and relative(distance(a, b), norm(a)) <= tolerance.NOTHING_ELSE for a, b in pairs
    )
