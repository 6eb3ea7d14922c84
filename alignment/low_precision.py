"""Judge what was computed in bfloat16 or float16: against the float64 truth, by what rounding does to the reference.

Kernels of different frameworks add up in different orders, and every result is rounded to eight or eleven bits, so single
elements say nothing. What can be judged are statistics over all elements of an array: how large the error is (relative L2), how
much of it is the right result of a channel once more (a gain), and how much is a constant of a channel (a shift). Rounding hits
elements up and down alike, so gains and shifts are far below the L2 error, and a mistake that drowns in it shows in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, relative, strict_problem
from alignment.frameworks._low import BITS, kind_of


class Error(NamedTuple):
    """The error of one array against the truth, each in units of the truth's L2 norm.

    Attributes:
        l2: all of it.
        gain: the part that is a multiple of the truth, channel by channel.
        shift: the part that is constant, channel by channel.
    """

    l2: float
    gain: float
    shift: float

    @classmethod
    def of(cls, array: np.ndarray, truth: np.ndarray) -> Error:
        right, error = channels(truth), channels(array)
        error = error - right
        squares = np.einsum("ij,ij->i", right, right)
        size = float(squares.sum()) ** 0.5
        products = np.einsum("ij,ij->i", error, right) ** 2
        gains = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
        shifts = error.sum(1) ** 2 / max(error.shape[1], 1)
        return cls(*(relative(float(part) ** 0.5, size) for part in ((error**2).sum(), gains.sum(), shifts.sum())))


def channels(array: np.ndarray) -> np.ndarray:
    """The channels of a batch (samples, channels, ...), a row each, float64; of an array of less, one row."""
    wide = np.asarray(array, np.float64)
    return wide.reshape(1, -1) if wide.ndim < 2 else np.moveaxis(wide, 1, 0).reshape(wide.shape[1], -1)


class Floor(NamedTuple):
    """What rounding does to the reference: the largest error of several draws."""

    l2: float
    gain: float
    shift: float

    @classmethod
    def of(cls, draws: Sequence[np.ndarray], truth: np.ndarray) -> Floor:
        errors = [Error.of(draw, truth) for draw in draws]
        return cls(*(max(getattr(error, name) for error in errors) for name in cls._fields))


class Pool(NamedTuple):
    """What a quantity's siblings say of rounding, since one quantity's few draws can be small by luck.

    Attributes:
        l2: their mean L2 floor.
        lean: how many times more than independent rounding of each element gives their gains and shifts are.
    """

    l2: float = 0.0
    lean: float = 1.0

    @classmethod
    def of(cls, floors: Mapping[str, Floor], truth: Mapping[str, np.ndarray]) -> Pool:
        real = {name: floor for name, floor in floors.items() if 0 < floor.l2 < tolerance.LOW_NOISE}
        if not real:
            return cls()
        leans = [max(f.gain, f.shift) / (f.l2 * independent(truth[name])) for name, f in real.items()]
        return cls(float(np.mean([f.l2 for f in real.values()])), max(1.0, float(np.quantile(leans, 0.9))))


def independent(array: np.ndarray) -> float:
    """The share of independent errors of the elements, in L2, that falls on gains, or on shifts."""
    rows = channels(array)
    return (1.0 / max(rows.shape[1], 1)) ** 0.5


def judge(
    name: str,
    port: np.ndarray | None,
    draws: Sequence[np.ndarray | None],
    truth: np.ndarray | None,
    dtype: str,
    pool: Pool | None = None,
    floor: Floor | None = None,
) -> Quantity:
    """Judge one array of the port.

    Args:
        name: of the quantity.
        port: what the port computed in low precision.
        draws: what the reference computed in low precision; then the same with all that it is given rounded at random.
        truth: what the reference computes in exact mode.
        dtype: ``"bfloat16"`` or ``"float16"``.
        pool: of the quantity's siblings.
        floor: of the draws, where it is known already.
    """
    reference = draws[0]
    some = truth if truth is not None else port
    quantity = Quantity(name, list(some.shape) if some is not None else [])
    problem = strict_problem(_wide(port), _wide(reference)) or strict_problem(_wide(port), _wide(truth), finite=False)
    if problem:
        return quantity.fail(f"{dtype}: {problem}")
    assert port is not None and reference is not None and truth is not None
    difference = np.abs(np.subtract(port, reference, dtype=np.float64))
    if difference.size == 0:
        return quantity
    quantity.mean_abs_diff, quantity.max_abs_diff = float(difference.mean()), float(difference.max())
    if floor is None:
        floor = Floor.of([draw for draw in draws if draw is not None and np.isfinite(draw).all()], truth)
    error, floor = Error.of(port, truth), bound(floor, reference, pool)
    quantity.port_error, quantity.reference_error = error.l2, floor.l2
    if floor.l2 >= tolerance.LOW_NOISE:
        quantity.noise = True
        quantity.note("zero but for rounding")
        quantity.port_error = quantity.reference_error = None
    for what in Error._fields:
        found, allowed = getattr(error, what), getattr(floor, what)
        if not found <= tolerance.LOW_FACTOR * allowed:
            times = relative(found, allowed)
            quantity.port_error, quantity.reference_error = found, allowed
            return quantity.fail(f"{dtype} {WORDS[what]} {found:.1e} is {times:.0f} x what rounding gives the reference")
    return quantity


WORDS = {"l2": "error", "gain": "error in size", "shift": "mean error"}


def bound(floor: Floor, reference: np.ndarray, pool: Pool | None = None) -> Floor:
    """A floor that no luck has made small: siblings' taken into account, and what rounding the reference's result gives."""
    pool = pool or Pool()
    kind = kind_of(reference)
    base = tolerance.LOW_BASE * 2.0 ** -BITS[kind] if kind in BITS else tolerance.BASE_FLOOR_32
    l2 = max(floor.l2, pool.l2, base)
    lean = pool.lean * l2 * independent(reference)
    return Floor(l2, max(floor.gain, lean), max(floor.shift, lean))


def _wide(array: np.ndarray | None) -> np.ndarray | None:
    """An array whose type is not compared."""
    return None if array is None else np.asarray(array, np.float64)
