"""Mistakes of an activation: another function, another slope, another hard gate."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from alignment import formulas, tolerance
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close, common_factor
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis
from alignment.localize.hypotheses.passes import PROBE, by_input, of_pass

ACTIVATIONS = {
    "relu", "relu6", "hardswish", "hardsigmoid", "sigmoid", "silu", "gelu", "tanh", "leaky_relu", "elu", "selu", "celu", "mish",
    "softplus", "softsign", "hardtanh", "logsigmoid",
}  # fmt: skip
HARD_GATES = {"hardsigmoid", "hardswish"}
SLOPE, OFFSET = 1 / 6, 0.5  # of a hard gate, clip(slope * x + offset, 0, 1)
SOME = 8  # values on the slope that a line is drawn through

ACTIVATION = Family("activation", by_input)
GATE = Family("hard_gate", of_pass)


@ACTIVATION
def negative_slope(s: Subject) -> Hypotheses:
    slope = _factor_of_negatives(s, lambda x: x)
    if slope is not None and abs(slope - 1) >= tolerance.SAME:
        words = f"slope {slope:.4g} of the negative values, expected "
        words += f"{s.layer.settings['slope']:.4g}" if "slope" in s.layer.settings else s.expected_class
        yield Hypothesis(Kind.ACTIVATION, words, lambda x: np.where(x > 0, x, slope * x))


@ACTIVATION
def alpha(s: Subject) -> Hypotheses:
    found = _factor_of_negatives(s, np.expm1) if s.layer.kind == "elu" else None
    if found is not None:
        words = f"ELU with alpha {found:.4g}, expected {s.layer.settings['alpha']:.4g}"
        yield Hypothesis(Kind.ACTIVATION, words, lambda x: np.where(x > 0, x, found * np.expm1(np.minimum(x, 0))))


@ACTIVATION
def another_function(s: Subject) -> Hypotheses:
    for other, function in formulas.ACTIVATIONS.items():
        form = s.layer.settings.get("approximate") or "none"  # of GELU: the class alone does not say which of both
        expected = s.expected_class + (f" ({form})" if form != "none" else "")
        yield Hypothesis(Kind.ACTIVATION, f"activation swapped: it computes {other}, expected {expected}", function)


@ACTIVATION
def hard_gate_in_place(s: Subject) -> Hypotheses:
    for gated in (False, True):
        if s.layer.kind not in HARD_GATES and (line := _line(s, gated)) is not None:
            slope, offset = line
            shown = f"clip({slope:.4g} x + {offset:.4g}, 0, 1)"
            words = f"it computes {'x * ' if gated else ''}{shown}, expected {s.expected_class}"
            yield Hypothesis(Kind.ACTIVATION, words, functools.partial(_hard_gate, slope, offset, gated))


@ACTIVATION
def clipped(s: Subject) -> Hypotheses:
    """The input between two bounds, as far as the widest input that was tried reaches."""
    wide = s.probe(PROBE) or s
    if wide.input is None or wide.output is None or wide.input.shape != wide.output.shape:
        return
    low, high = float(wide.output.min()), float(wide.output.max())
    bounds = [f"{edge:.6g}" if abs(edge - end) > tolerance.CLOSE else "no bound"
              for edge, end in ((low, wide.input.min()), (high, wide.input.max()))]  # fmt: skip
    if bounds != ["no bound", "no bound"]:
        words = f"values between {bounds[0]} below and {bounds[1]} above, expected {s.expected_class}"
        yield Hypothesis(Kind.ACTIVATION, words, lambda x: np.clip(x, low, high))


def _factor_of_negatives(s: Subject, function: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """By what a function of the negative values is multiplied; None where something else was computed."""
    given, made = s.input, s.output
    if given is None or made is None or made.shape != given.shape or not (given < 0).any():
        return None
    if (given > 0).any() and not close(made[given > 0], given[given > 0]):
        return None
    return common_factor(made[given < 0], function(given[given < 0]))


def _line(s: Subject, gated: bool) -> tuple[float, float] | None:
    """Slope and offset of a hard sigmoid, measured where it lies between 0 and 1; of a hard swish where ``gated``."""
    given, made = s.input, s.output
    if given is None or made is None or made.shape != given.shape or not np.isfinite(made).all():
        return None
    x, y = given.astype(np.float64).ravel(), made.astype(np.float64).ravel()
    if gated:
        x, y = x[np.abs(x) > tolerance.READABLE], y[np.abs(x) > tolerance.READABLE]
        y = y / x
    inside = (y > 0.05) & (y < 0.95)
    if inside.sum() < SOME or np.ptp(x[inside]) == 0:
        return None
    a, b = np.polyfit(x[inside], y[inside], 1)
    return float(a), float(b)


def _hard_gate(slope: float, offset: float, gated: bool, x: np.ndarray) -> np.ndarray:
    return np.clip(slope * x + offset, 0, 1) * (x if gated else 1.0)


@GATE
def constants(s: Subject) -> Hypotheses:
    """Another slope or offset than relu6(x + 3) / 6 has, rounded to float32 or wrong."""
    x, out = s.input, s.output
    if s.layer.kind not in HARD_GATES or x is None or out is None or x.shape != out.shape:
        return
    x, out = x.astype(np.float64), out.astype(np.float64)
    factor = x if s.layer.kind == "hardswish" else np.ones_like(x)
    kept = np.abs(factor) > tolerance.READABLE
    gate = out[kept] / factor[kept]
    sloping = (gate > tolerance.CLOSE) & (gate < 1 - tolerance.CLOSE)
    if sloping.sum() < SOME:
        return
    slope, offset = (float(value) for value in np.polyfit(x[kept][sloping], gate[sloping], 1))
    exactly = max(abs(slope - SLOPE), abs(offset - OFFSET))
    if exactly > tolerance.EXACT_RTOL:
        words = f"slope {slope:.9g} and offset {offset:.9g}, expected {SLOPE:.9g} and {OFFSET:g}"
        made = factor * np.clip(slope * x + offset, 0, 1)
        rtol = min(tolerance.CLOSE, exactly / 100)
        yield Hypothesis(Kind.FLOAT32_CONSTANT if exactly < tolerance.CLOSE else Kind.ACTIVATION, words, lambda one: made, rtol)
