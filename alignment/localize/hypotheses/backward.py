"""Gradients that are wrong for the right input and the right gradient of the output."""

from __future__ import annotations

import numpy as np

from alignment.kinds import Kind
from alignment.localize.blame import GRADIENT_OF, Subject
from alignment.localize.hypotheses.arrays import factor_hint
from alignment.localize.hypotheses.changed import CHANGED
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, always, seen
from alignment.localize.hypotheses.wiring import last_operation

OF_INPUT = f"{GRADIENT_OF}its input"


def _gradients(s: Subject) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The port's and the reference's gradient that is wrong."""
    what, ours, theirs = s.blame.what, s.blame.ours, s.blame.theirs
    if what.startswith(OF_INPUT):
        return ours.input_gradients[0], theirs.input_gradients[0]
    return ours.gradients.get(_name(s)), theirs.gradients.get(_name(s))


def _name(s: Subject) -> str:
    """Of the parameter whose gradient is wrong; empty where that of the input is."""
    return "" if s.blame.what.startswith(OF_INPUT) else s.blame.what.removeprefix(GRADIENT_OF)


def _both(s: Subject) -> tuple[np.ndarray, np.ndarray] | None:
    """Both gradients, where they are finite and of one shape."""
    a, b = _gradients(s)
    if a is None or b is None or a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    return a, b


def _observed(s: Subject) -> list[Observed]:
    return [Observed(b, a, b) for a, b in [both]] if (both := _both(s)) else []


BACKWARD = Family("backward", _observed)


@BACKWARD
def frozen(s: Subject) -> Hypotheses:
    (ours, right), name = _gradients(s), _name(s)
    if name and ours is None and right is not None:
        yield seen(Kind.FROZEN, f"{name} gets no gradient in the port: frozen, or not used")


@BACKWARD
def padding_row(s: Subject) -> Hypotheses:
    """An embedding whose padding number learns, or another one's does not."""
    own, expected = (layer.settings.get("padding_idx") for layer in (s.own_layer, s.layer))
    ours, right = _gradients(s) if _name(s) else (None, None)
    if "padding_idx" not in s.layer.settings or own == expected or ours is None or right is None or ours.shape != right.shape:
        return
    rows = set(np.flatnonzero((ours != right).reshape(len(ours), -1).any(1)).tolist())
    if rows and rows <= {own, expected}:
        words = f"padding_idx {own}, expected {expected}: only the gradient of this number's row differs"
        yield seen(Kind.PADDING_INDEX, words)


@BACKWARD
def not_frozen(s: Subject) -> Hypotheses:
    (ours, right), name = _gradients(s), _name(s)
    if name and ours is not None and right is None:
        yield seen(Kind.NOT_FROZEN, f"{name} gets a gradient in the port alone: it is frozen in the reference")


@BACKWARD
def detached(s: Subject) -> Hypotheses:
    ours, right = _gradients(s)
    if ours is None and right is not None:
        yield seen(Kind.DETACHED, "no gradient flows back through it in the port: detached, or computed without a graph")


@BACKWARD
def not_finite(s: Subject) -> Hypotheses:
    a, b = _gradients(s)
    if a is not None and b is not None and a.shape == b.shape and np.isfinite(b).all() and not np.isfinite(a).all():
        words = f"{a.size - int(np.isfinite(a).sum())} of {a.size} values of the gradient are NaN or infinite"
        yield seen(Kind.NOT_FINITE, words)


@BACKWARD
def zero(s: Subject) -> Hypotheses:
    if (both := _both(s)) and both[1].any():
        yield Hypothesis(Kind.DETACHED, "the gradient is all zero in the port", np.zeros_like, 0.0)


@BACKWARD
def one_path(s: Subject) -> Hypotheses:
    """The input reaches the output directly and through a child, and one of the two passes no gradient back."""
    both = _both(s) if s.blame.what == OF_INPUT else None
    last, cotangent = last_operation(s) if both else None, s.cotangent
    if both is None or last is None or last.outer or cotangent is None or "the input" not in (last.a, last.b):
        return
    other = last.b if last.a == "the input" else last.a
    direct = cotangent * last.atoms[other] if last.sign == "*" else cotangent
    if direct.shape != both[1].shape:
        return
    words = f"no gradient flows back through {other}: detached; it comes through the input's own place in {last.shown}"
    yield Hypothesis(Kind.DETACHED, words, always(direct))
    words = f"no gradient flows back through the input's own place in {last.shown}: detached"
    yield Hypothesis(Kind.DETACHED, words, lambda right: right - direct)


@BACKWARD
def scaled(s: Subject) -> Hypotheses:
    both = _both(s)
    ratio = factor_hint(*both) if both else None
    if ratio is not None:
        yield Hypothesis(Kind.GRADIENT_SCALED, f"the gradient is {ratio:.6g} times the reference's", lambda right: ratio * right)


@BACKWARD
def right_gradient_changed(s: Subject) -> Hypotheses:
    if both := _both(s):
        yield from CHANGED.confirmed(*both)
