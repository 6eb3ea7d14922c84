"""The learning-rate range test of a run on its first batch alone: at which rates does the loss fall, and where is it least?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mobilenetv3_common.lr_range import START, RangeTest

RATES = 30  # updates
LOWER, HIGHER = 1e2, 1e3  # times the configured rate: six updates a power of ten
WIDER = 1e6  # times further, where the loss does not fall between
FALL = 0.1  # of the loss above its floor, at least
DIVERGED = 4.0  # times the least loss

Sweep = Callable[[np.ndarray], RangeTest]


@dataclass(frozen=True)
class RateRange:
    """The rates at which the loss of the first batch falls.

    Attributes:
        test: losses of updates whose rate grew.
        begins: rate at which the loss had begun to fall; None where it never fell.
        best: rate at which it was least; None where it never fell.
    """

    test: RangeTest
    begins: float | None
    best: float | None


def find_range(base: float, floor: float, sweep: Sweep) -> RateRange:
    """Let the rate grow around the configured one, and where the loss does not fall there, above it or below it.

    Args:
        base: the configured rate, above 0.
        floor: the least loss that the batch can have.
        sweep: makes an update at each of the growing rates, from the starting weights.
    """
    low, high = base / LOWER, base * HIGHER
    made = fallen(sweep(np.geomspace(low, high, RATES)), floor)
    if made.begins is not None:
        return made
    low, high = (low / WIDER, low) if made.test.diverged else (high, high * WIDER)
    return fallen(sweep(np.geomspace(low, high, RATES)), floor)


def fallen(test: RangeTest, floor: float) -> RateRange:
    """Where the loss of a range test fell, as seen from the loss before any update."""
    if not len(test.losses):
        return RateRange(test, None, None)
    loss, first = test.smoothed(), float(test.losses[0])
    least = int(np.argmin(loss))
    fall = first - float(loss[least])
    if fall < FALL * (first - floor) or fall <= 0:
        return RateRange(test, None, None)
    low = next(i for i in range(least, -1, -1) if i == 0 or loss[i - 1] > first - START * fall)
    return RateRange(test, float(test.rates[low]), float(test.rates[least]))
