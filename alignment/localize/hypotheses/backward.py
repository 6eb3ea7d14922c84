"""Gradients that are wrong for the right input and the right gradient of the output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import array_hint, explains, factor_hint
from alignment.localize.hypotheses.wiring import last_operation


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
        yield from _padding_row(s, a, b)
        if a is not None and b is None:
            yield Kind.NOT_FROZEN, f"{name} gets a gradient in the port alone: it is frozen in the reference"
    if a is None and b is not None:
        yield Kind.DETACHED, "no gradient flows back through it in the port: detached, or computed without a graph"
    if a is None or b is None or a.shape != b.shape:
        return
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        if np.isfinite(b).all():
            yield Kind.NOT_FINITE, f"{a.size - int(np.isfinite(a).sum())} of {a.size} values of the gradient are NaN or infinite"
        return
    if b.any() and not a.any():
        yield Kind.DETACHED, "the gradient is all zero in the port"
    if what == "gradient of its input":
        yield from _one_path(s, a, b)
    ratio = factor_hint(a, b)
    if ratio is not None:
        yield Kind.GRADIENT_SCALED, f"the gradient is {ratio:.6g} times the reference's"
    yield from array_hint(a, b)


def _padding_row(s: Subject, ours: np.ndarray | None, right: np.ndarray | None) -> Iterator[Hint]:
    """An embedding whose padding number learns, or another one's does not."""
    port = s.pair.port
    own, expected = (layer.settings.get("padding_idx") for layer in (port.framework.layer(port.modules[s.path]), s.layer))
    if "padding_idx" not in s.layer.settings or own == expected or ours is None or right is None or ours.shape != right.shape:
        return
    rows = set(np.flatnonzero((ours != right).reshape(len(ours), -1).any(1)).tolist())
    if rows and rows <= {own, expected}:
        yield Kind.PADDING_INDEX, f"padding_idx {own}, expected {expected}: only the gradient of that number's row differs"


def _one_path(s: Subject, ours: np.ndarray, right: np.ndarray) -> Iterator[Hint]:
    """The input reaches the output directly and through a child, and one of the two passes no gradient back."""
    last, cotangent = last_operation(s), s.cotangent
    if last is None or last.outer or cotangent is None or "the input" not in (last.a, last.b):
        return
    other = last.b if last.a == "the input" else last.a
    direct = cotangent * last.atoms[other] if last.sign == "*" else cotangent
    if direct.shape != right.shape:
        return
    if explains(direct, ours, right):
        yield (
            Kind.DETACHED,
            f"no gradient flows back through {other}: detached; it comes through the input's own place in {last.shown}",
        )
    if explains(right - direct, ours, right):
        yield Kind.DETACHED, f"no gradient flows back through the input's own place in {last.shown}: detached"
