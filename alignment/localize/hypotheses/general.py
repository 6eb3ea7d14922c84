"""Shapes that a mistake can have in any module."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alignment import formulas, tolerance
from alignment.frameworks._low import LARGEST, narrowed
from alignment.kinds import Kind
from alignment.localize.blame import Subject, other_weights
from alignment.localize.hypotheses.arrays import HALVES, close
from alignment.localize.hypotheses.changed import CHANGED
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, always, seen
from alignment.localize.hypotheses.passes import of_pass
from alignment.low_precision import Error

RANDOM = Family("random", of_pass)
GENERAL = Family("general", of_pass)


@RANDOM
def draws_by_itself(s: Subject) -> Hypotheses:
    """Two identical calls of the port's module that give different results."""
    again = s.pair.port.answer(s.path, s.call)
    if s.output is None or not again.outputs or again.outputs[0].shape != s.output.shape:
        return
    out, other = s.output, again.outputs[0]
    if not np.array_equal(out, other, equal_nan=out.dtype.kind == "f"):
        changed = float((out != other).mean())
        words = f"two identical calls differ in {changed:.0%} of the values: it draws from a global generator"
        yield seen(Kind.GLOBAL_GENERATOR, words)


@RANDOM
def draws_otherwise(s: Subject) -> Hypotheses:
    """In one pass through a module, other shares of values that are dropped, or another number of draws."""
    ours, theirs = (network.drawn(s.path, s.call) for network in (s.pair.port, s.pair.reference))
    if s.pair.truth is not None or sorted(map(str, ours)) == sorted(map(str, theirs)):
        return
    if not ours:
        yield seen(Kind.DROPOUT_MISSING, f"the port draws no random numbers here, expected {_draws(theirs)}")
    elif len(ours) != len(theirs) and not s.pair.port.draws.pieces:
        kind = Kind.CALL_EXTRA if len(ours) > len(theirs) else Kind.CALL_MISSING
        yield seen(kind, f"random numbers: {_draws(ours)}, expected {_draws(theirs)}")
    elif len(ours) == len(theirs) and None not in (*ours, *theirs):
        pairs = [(f"{mine:.6g}", f"{right:.6g}") for mine, right in zip(ours, theirs, strict=True)]
        if apart := dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]):
            words = "; ".join(f"{mine} of the values, expected {right}" for mine, right in apart)
            yield seen(Kind.DROPOUT_RATE, f"random numbers drop {words}")


def _draws(drawn: Sequence[float | None]) -> str:
    """How often numbers are drawn, and which shares of values they drop where that is known."""
    shares = ", ".join(dict.fromkeys(f"{one:.6g}" for one in drawn if one is not None))
    return f"{len(drawn)} draw{'' if len(drawn) == 1 else 's'}{f' (p = {shares})' if shares else ''}"


@GENERAL
def raises(s: Subject) -> Hypotheses:
    if s.blame.ours.error:
        yield seen(Kind.RAISES, f"the port's layer cannot take the reference's input: {s.blame.ours.error}")


@GENERAL
def overflows(s: Subject) -> Hypotheses:
    """In low precision, values that are right and too large for it; the reference, with the same input, stays below."""
    out, truth, dtype = s.output, s.blame.right.outputs[0] if s.blame.right.outputs else None, s.pair.dtype
    if out is None or s.expected is None or np.isfinite(out).all() or dtype not in LARGEST or truth is None:
        return
    if truth.shape == out.shape and np.isfinite(truth).all():
        beyond = int((~np.isfinite(out)).sum())
        words = f"{beyond} of {out.size} values overflow {dtype}, whose largest number is {LARGEST[dtype]:g}"
        yield seen(Kind.OVERFLOW, f"{words}; in float64 they are finite, at most {np.abs(truth).max():.3g}")


@GENERAL
def not_finite(s: Subject) -> Hypotheses:
    out, expected = s.output, s.expected
    if out is not None and expected is not None and not np.isfinite(out).all() and np.isfinite(expected).all():
        yield seen(Kind.NOT_FINITE, f"{out.size - int(np.isfinite(out).sum())} of {out.size} values are NaN or infinite")


@GENERAL
def other_shape(s: Subject) -> Hypotheses:
    out, expected = s.output, s.expected
    if out is not None and expected is not None and np.isfinite(out).all() and out.shape != expected.shape:
        yield seen(Kind.SHAPE, f"shape {out.shape}, expected {expected.shape}")


def _both(s: Subject) -> tuple[np.ndarray, np.ndarray] | None:
    """The port's output and the right one, where both are finite and of one shape."""
    out, expected = s.output, s.expected
    if out is None or expected is None or out.shape != expected.shape:
        return None
    return (out, expected) if np.isfinite(out).all() and np.isfinite(expected).all() else None


@GENERAL
def zero(s: Subject) -> Hypotheses:
    if (both := _both(s)) and both[1].any():
        yield Hypothesis(Kind.ZERO, "all zero", lambda s: np.zeros(s.expected.shape), 0.0)


@GENERAL
def gives_input_back(s: Subject) -> Hypotheses:
    if (both := _both(s)) and s.input is not None and close(both[0], s.input) and _whatever_it_holds(s):
        yield Hypothesis(Kind.DOES_NOTHING, "it gives its input back", lambda s: s.input)


def _whatever_it_holds(s: Subject) -> bool:
    """Whether the port gives its input back with other weights, too: with ones and zeros a normalisation does."""
    if not s.weights():
        return True
    made = s.pair.port.answer_with(s.path, s.call, other_weights)
    return not made.outputs or s.input is None or close(made.outputs[0], s.input)


@GENERAL
def weights_in_low_precision(s: Subject) -> Hypotheses:
    """In low precision, weights and statistics rounded to it that the reference keeps in float32."""
    if not _both(s) or not s.pair.draws or s.pair.truth is None or not s.weights():
        return
    assert s.output is not None and s.expected is not None
    rounded = s.pair.truth.answer_with(s.path, s.call, lambda array: narrowed(array, s.pair.dtype))
    truth = s.blame.right.outputs
    if not rounded.outputs or not truth or rounded.outputs[0].shape != s.output.shape:
        return
    lean = lambda a, b: max(Error.of(a, b)[1:])  # noqa: E731  (gains and shifts: the L2 error is that of rounding the result)
    if 4 * lean(s.output, rounded.outputs[0]) < min(lean(s.output, truth[0]), lean(s.expected, rounded.outputs[0])):
        words = f"it computes with weights and statistics in {s.pair.dtype}, which the reference keeps in float32"
        yield seen(Kind.AUTOCAST_LIST, words)


@GENERAL
def function_applied(s: Subject) -> Hypotheses:
    """A function that is applied to the right output besides."""
    if s.blame.what != "output" or (both := _both(s)) is None:
        return
    right = both[1].astype(np.float64)
    functions = {name: f for name, f in formulas.ACTIVATIONS.items() if name != "identity"}
    functions |= {"Softmax": lambda x: np.exp(formulas.log_softmax(x)), "LogSoftmax": formulas.log_softmax}
    with np.errstate(over="ignore", invalid="ignore"):
        made = {name: function(right) for name, function in functions.items()}
    for name, array in made.items():
        yield Hypothesis(Kind.ACTIVATION_EXTRA, f"{name} is applied to the right output", always(array))


@GENERAL
def classes_along_another_axis(s: Subject) -> Hypotheses:
    """A loss of logits of three axes or more that takes another axis for the classes: the reference's loss of turned logits."""
    both, axes = _both(s), 0 if s.input is None else s.input.ndim
    if s.blame.what != "output" or both is None or not 3 <= axes <= 5 or both[1].ndim >= axes:
        return
    if any(array.ndim > 1 for array in s.weights().values()):
        return  # of a vector quantiser, for example, nothing are classes
    expected = getattr(s.pair.reference.modules[s.path], "axis", 1)  # Paddle's losses have it, torch's take the second
    for axis in range(1, axes) if isinstance(expected, int) else ():
        turned = lambda a, axis=axis: np.moveaxis(a, axis, expected) if a.dtype.kind == "f" and a.ndim == axes else a  # noqa: E731
        made = s.pair.reference.answer(s.path, s.call.changed(turned)).outputs if axis != expected % axes else []
        if made and made[0].shape == both[1].shape:
            words = f"the classes are taken along axis {axis}, expected axis {expected % axes}"
            yield Hypothesis(Kind.SOFTMAX_AXIS, words, always(made[0]))


@GENERAL
def right_output_changed(s: Subject) -> Hypotheses:
    if s.blame.what == "output" and (both := _both(s)):
        yield from CHANGED.confirmed(*both)


@GENERAL
def input_in_half_precision(s: Subject) -> Hypotheses:
    """What the layer is given is rounded to half precision."""
    if s.blame.what != "output" or _both(s) is None:
        return
    for name, rounded in HALVES.items():
        half = lambda a, r=rounded: r(a).astype(a.dtype) if a.dtype.kind == "f" else a  # noqa: E731
        made = s.pair.reference.answer(s.path, s.call.changed(half)).outputs
        if made:
            yield Hypothesis(Kind.HALF_PRECISION, f"its input is rounded to {name}", always(made[0]), tolerance.HALF_INPUT, 0.2)
