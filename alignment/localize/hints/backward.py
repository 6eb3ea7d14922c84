"""Gradients that are wrong for the right input and the right gradient of the output."""

from __future__ import annotations

from collections.abc import Iterator

from alignment.localize.blame import Subject
from alignment.localize.finding import Hint
from alignment.localize.hints.arrays import CLOSE, array_hint, common_factor
from alignment.localize.kinds import Kind


def backward(s: Subject) -> Iterator[Hint]:
    """Frozen, detached, scaled, or changed in a known way."""
    what, ours, theirs = s.blame.what, s.blame.ours, s.blame.theirs
    if what.startswith("gradient of its input"):
        a, b = ours.input_gradients[0], theirs.input_gradients[0]
    else:
        name = what.removeprefix("gradient of ")
        a, b = ours.gradients.get(name), theirs.gradients.get(name)
        if a is None and b is not None:
            yield Kind.FROZEN, f"{name} gets no gradient in the port: frozen, or not used"
        if a is not None and b is None:
            yield Kind.NOT_FROZEN, f"{name} gets a gradient in the port alone: it is frozen in the reference"
    if a is None and b is not None:
        yield Kind.DETACHED, "no gradient flows back through it in the port: detached, or computed without a graph"
    if a is None or b is None or a.shape != b.shape:
        return
    if b.any() and not a.any():
        yield Kind.DETACHED, "the gradient is all zero in the port"
    ratio = common_factor(a, b)
    if ratio is not None and abs(ratio - 1) > CLOSE:
        yield Kind.GRADIENT_SCALED, f"the gradient is {ratio:.6g} times the reference's"
    yield from array_hint(a, b)
