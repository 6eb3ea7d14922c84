"""Mistakes of modules that return several tensors: one that is detached, or wrong in a known way, and two that are exchanged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.kinds import Kind
from alignment.localize.blame import Subject, backward_quantities
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.changed import CHANGED
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis, Observed, seen
from alignment.models.outputs import output_title
from alignment.models.tracing import Answer

DETACHED = Family("detached_outputs")
MOST = 16  # outputs of one module that are looked at one by one


@DETACHED
def some_outputs(s: Subject) -> Iterator[Hypothesis]:
    """Outputs from which no gradient flows back in the port alone, while those of the others are right."""
    cotangents = list(s.pair.cotangents or ()) if s.path == "" else list(s.call.gradients)
    given = [number for number, cotangent in enumerate(cotangents) if cotangent is not None]
    if not 2 <= len(given) <= MOST:
        return

    def answers(chosen: list[int]) -> tuple[Answer, Answer]:
        only = [cotangent if number in chosen else None for number, cotangent in enumerate(cotangents)]
        return s.pair.port.answer(s.path, s.call, only), s.pair.reference.answer(s.path, s.call, only)

    cut = [number for number in given if _cut(*answers([number]))]
    if not cut or cut == given:
        return
    ours, theirs = (backward_quantities(answer) for answer in answers([number for number in given if number not in cut]))
    scale = max((norm(array) for array in theirs.values() if array is not None), default=0.0)
    if all(_equal(ours.get(name), array, scale) for name, array in theirs.items()):
        words = f"no gradient flows back from {_names(s, cut)} in the port: detached, or computed without a graph"
        yield seen(Kind.DETACHED, words)


def _cut(ours: Answer, theirs: Answer) -> bool:
    """Whether a gradient reaches something in the reference alone."""
    reached = [any(a is not None and a.any() for a in backward_quantities(answer).values()) for answer in (ours, theirs)]
    return not ours.error and not theirs.error and not reached[0] and reached[1]


def _equal(ours: np.ndarray | None, right: np.ndarray | None, scale: float) -> bool:
    """Whether two gradients agree to rounding; those of a softmax's keys are zero but for it, so the largest one counts."""
    if ours is None or right is None:
        return not any(array is not None and array.any() for array in (ours, right))
    return ours.shape == right.shape and distance(ours, right) <= tolerance.CLOSE * scale


def _observed(s: Subject) -> list[Observed]:
    ours, right = s.blame.ours.outputs, s.blame.theirs.outputs
    return [Observed(number, a, b) for number, (a, b) in enumerate(zip(ours, right, strict=False))]


OUTPUTS = Family("outputs", _observed)
ANOTHER_OUTPUT = Family("another_output")


@OUTPUTS
def exchanged(s: Subject) -> Iterator[Hypothesis]:
    """Two outputs in each other's place."""
    ours, right = s.blame.ours.outputs, s.blame.theirs.outputs
    wrong = [number for number, (a, b) in enumerate(zip(ours, right, strict=False)) if not close(a, b)]
    if len(ours) == len(right) <= MOST and len(wrong) == 2:
        places = {wrong[0]: wrong[1], wrong[1]: wrong[0]}
        yield Hypothesis(Kind.PERMUTED, f"{_names(s, wrong)} are exchanged", lambda number: right[places.get(number, number)])


@ANOTHER_OUTPUT
def changed(s: Subject) -> Iterator[Hypothesis]:
    """The first output is right, and another one changed in a known way."""
    number = s.blame.what.removeprefix("output ")
    if not number.isdecimal() or not 2 <= int(number) <= min(len(s.blame.ours.outputs), len(s.blame.theirs.outputs)):
        return
    place = int(number) - 1
    out, right = s.blame.ours.outputs[place], s.blame.theirs.outputs[place]
    name = _names(s, [place])
    if out.shape != right.shape:
        yield seen(Kind.SHAPE, f"{name} has shape {out.shape}, expected {right.shape}")
    elif out.dtype.kind == right.dtype.kind == "f":
        yield from (seen(one.kind, f"{name}: {one.words}") for one in CHANGED.confirmed(out, right))
    else:
        yield seen(Kind.UNKNOWN, f"{int((out != right).sum())} of {out.size} values of {name} are others")


def _names(s: Subject, numbers: list[int]) -> str:
    titles = [(number, output_title(number, s.call.output)) for number in numbers]
    return " and ".join(title if number else title.replace("output", "output 1", 1) for number, title in titles)
