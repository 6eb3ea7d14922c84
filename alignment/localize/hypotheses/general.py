"""Shapes that a mistake can have in any module."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment import formulas
from alignment.finding import Hint
from alignment.frameworks._low import LARGEST, narrowed
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import HALVES, array_hint, explains
from alignment.low_precision import Error


def random(s: Subject) -> Iterator[Hint]:
    """Two identical calls of the port's module that give different results."""
    again = s.pair.port.answer(s.path, s.call)
    if s.output is None or not again.outputs or again.outputs[0].shape != s.output.shape:
        return
    out, other = s.output, again.outputs[0]
    if not np.array_equal(out, other, equal_nan=out.dtype.kind == "f"):
        changed = float((out != other).mean())
        yield Kind.GLOBAL_GENERATOR, f"two identical calls differ in {changed:.0%} of the values: it draws from a global generator"


def general(s: Subject) -> Iterator[Hint]:
    """An exception, a wrong shape, values that are not finite, zero, the input, or the right ones changed in a known way."""
    out, expected, given = s.output, s.expected, s.input
    if s.blame.ours.error:
        yield Kind.RAISES, f"the port's layer cannot take the reference's input: {s.blame.ours.error}"
    if out is None or expected is None:
        return
    if not np.isfinite(out).all():
        yield from _overflow(s, out)
        if np.isfinite(expected).all():
            yield Kind.NOT_FINITE, f"{out.size - int(np.isfinite(out).sum())} of {out.size} values are NaN or infinite"
        return
    if out.shape != expected.shape:
        yield Kind.SHAPE, f"shape {out.shape}, expected {expected.shape}"
        return
    if not np.isfinite(expected).all():
        return
    if not out.any() and expected.any():
        yield Kind.ZERO, "all zero"
    if given is not None and explains(given, out, expected):
        yield Kind.DOES_NOTHING, "it gives its input back"
    yield from _in_half(s, out, expected)
    if s.blame.what == "output":
        yield from _applied(out, expected)
        yield from array_hint(out, expected)
        yield from _half_inside(s, out, expected)


def _applied(out: np.ndarray, expected: np.ndarray) -> Iterator[Hint]:
    """A function that is applied to the right output besides."""
    functions = {name: f for name, f in formulas.ACTIVATIONS.items() if name != "identity"}
    functions |= {"Softmax": lambda x: np.exp(formulas.log_softmax(x)), "LogSoftmax": formulas.log_softmax}
    with np.errstate(over="ignore", invalid="ignore"):
        for name, function in functions.items():
            if explains(function(expected.astype(np.float64)), out, expected):
                yield Kind.ACTIVATION_EXTRA, f"{name} is applied to the right output"


def _half_inside(s: Subject, out: np.ndarray, expected: np.ndarray) -> Iterator[Hint]:
    """What the layer is given, or holds, is rounded to half precision."""
    for name, rounded in HALVES.items():
        half = lambda a, r=rounded: r(a).astype(a.dtype) if a.dtype.kind == "f" else a  # noqa: E731
        answer = s.pair.reference.answer(s.path, s.call.changed(half))
        if answer.outputs and explains(answer.outputs[0], out, expected, 1e-3, 0.2):
            yield Kind.HALF_PRECISION, f"its input is rounded to {name}"


def _overflow(s: Subject, out: np.ndarray) -> Iterator[Hint]:
    """In low precision, values that are right and too large for it; the reference, with the same input, stays below."""
    truth = s.blame.right.outputs[0] if s.blame.right.outputs else None
    dtype = s.pair.dtype
    if dtype not in LARGEST or truth is None or truth.shape != out.shape or not np.isfinite(truth).all():
        return
    beyond = int((~np.isfinite(out)).sum())
    words = f"{beyond} of {out.size} values overflow {dtype}, whose largest number is {LARGEST[dtype]:g}"
    yield Kind.OVERFLOW, f"{words}; in float64 they are finite, at most {np.abs(truth).max():.3g}"


def _in_half(s: Subject, out: np.ndarray, expected: np.ndarray) -> Iterator[Hint]:
    """In low precision, weights and statistics rounded to it that the reference keeps in float32."""
    if not s.pair.draws or s.pair.truth is None or not s.weights():
        return
    rounded = s.pair.truth.answer_with(s.path, s.call, lambda array: narrowed(array, s.pair.dtype))
    truth = s.blame.right.outputs
    if not rounded.outputs or not truth or rounded.outputs[0].shape != out.shape:
        return
    lean = lambda a, b: max(Error.of(a, b)[1:])  # noqa: E731  (gains and shifts: the L2 error is that of rounding the result)
    if 4 * lean(out, rounded.outputs[0]) < min(lean(out, truth[0]), lean(expected, rounded.outputs[0])):
        words = f"it computes with weights and statistics in {s.pair.dtype}, which the reference keeps in float32"
        yield Kind.AUTOCAST_LIST, words
