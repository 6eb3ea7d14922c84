"""An array that is the right one changed in a known way, whatever made it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import HALVES, close, common_factor
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, always, seen


def _observed(out: np.ndarray, expected: np.ndarray) -> list[Observed]:
    return [Observed(expected, out, expected)]


CHANGED = Family("changed_array", _observed)  # asked about two finite arrays of one shape: the port's and the right one


@CHANGED
def scaled(out: np.ndarray, expected: np.ndarray) -> Hypotheses:
    ratio = common_factor(out, expected)
    if ratio is None or abs(ratio - 1) < tolerance.FLOAT32_CONSTANT:  # a factor of rounding's size is none
        return
    if np.size(expected) > 1 or _simple(ratio):  # any number is some multiple of any other
        shown = f"{ratio:.6g}" if f"{ratio:.6g}" != "1" else f"{ratio:.9g}"
        yield Hypothesis(Kind.SCALED, f"every value times {shown}", always(ratio * np.asarray(expected, np.float64)))


def _simple(ratio: float) -> bool:
    """Whether a number is a fraction as mistakes make them: 3, 1/4, 15/16."""
    return abs(float(Fraction(ratio).limit_denominator(64)) - ratio) <= tolerance.CLOSE * abs(ratio)


@CHANGED
def permuted(out: np.ndarray, expected: np.ndarray) -> Hypotheses:
    for axis in range(1, out.ndim):
        if out.shape[axis] > 1:
            rank = np.argsort(np.argsort(out, axis=axis), axis=axis)
            made = np.take_along_axis(np.sort(expected, axis=axis), rank, axis)
            yield Hypothesis(Kind.PERMUTED, f"the right values in another order along axis {axis}", always(made), tolerance.SAME)


# Four numbers of a box -> its two corners, and back.
_BOXES = {
    "two corners (xyxy)": (lambda a, b: (a, b), lambda p, q: (p, q)),
    "a corner and the size (xywh)": (lambda a, b: (a, a + b), lambda p, q: (p, q - p)),
    "the centre and the size (cxcywh)": (lambda a, b: (a - b / 2, a + b / 2), lambda p, q: ((p + q) / 2, q - p)),
}


@CHANGED
def boxes_in_another_form(out: np.ndarray, expected: np.ndarray) -> Hypotheses:
    if out.ndim < 2 or out.shape[-1] != 4:
        return
    halves = np.asarray(expected, np.float64)[..., :2], np.asarray(expected, np.float64)[..., 2:]
    for (ours, (_, write)), (theirs, (read, _)) in itertools.permutations(_BOXES.items(), 2):
        made = np.concatenate(write(*read(*halves)), -1)
        yield Hypothesis(Kind.BOX_FORM, f"boxes as {ours}, expected {theirs}", always(made))


@CHANGED
def few_elements(out: np.ndarray, expected: np.ndarray) -> Hypotheses:
    if np.size(expected) < 2:
        return
    different = ~np.isclose(out, expected, rtol=tolerance.SAME, atol=tolerance.EXACT_RTOL * float(np.abs(expected).max(initial=0)))
    where = [tuple(map(int, place)) for place in zip(*np.nonzero(different), strict=True)]
    columns = {place[-1] for place in where} if out.ndim > 1 else set()
    if 0 < len(where) <= max(1, out.size // 100):
        yield seen(Kind.FEW_ELEMENTS, f"{len(where)} of {out.size} values differ, first at {where[0]}")
    if len(columns) == 1 and out.shape[-1] > 8:
        yield seen(Kind.FEW_ELEMENTS, f"only index {columns.pop()} of the last axis differs")


@CHANGED
def half_precision(out: np.ndarray, expected: np.ndarray) -> Hypotheses:
    """Which half precision the values were rounded to, or were computed in: they are then all numbers of that type."""
    error = relative(distance(out, expected), norm(expected))
    if not tolerance.HALF_LEAST < error < tolerance.HALF_MOST:
        return
    for name, rounded in HALVES.items():
        whole = [np.array_equal(rounded(array), np.asarray(array, np.float32)) for array in (out, expected)]
        if np.unique(out).size > 8 and whole == [True, False]:
            how = "rounded to" if close(out, rounded(expected), tolerance.HALF_ROUNDED[name]) else "computed in"
            yield seen(Kind.HALF_PRECISION, f"{how} {name}: relative L2 {error:.1e}")
