"""The learning-rate range test's reading: where accuracy begins to rise, and where it no longer does.

L. N. Smith, Cyclical learning rates for training neural networks, 2017; item hp.01 of the accuracy checklist.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mobilenetv3_common.errors import UserError

START, END = 0.1, 0.95  # shares of the whole rise


@dataclass(frozen=True)
class RangeTest:
    """A run in which the learning rate grew with every update.

    Attributes:
        rates: learning rate of each update, growing.
        losses: its training loss.
        accuracies: its training top-1, 0..1.
        diverged: whether the run ended early because something was not finite or the loss had grown fourfold.
    """

    rates: np.ndarray
    losses: np.ndarray
    accuracies: np.ndarray
    diverged: bool

    def smoothed(self) -> np.ndarray:
        """Accuracy as a moving average over a tenth of the updates, without the bias of its start."""
        window = max(3, len(self.rates) // 10)
        weights = np.convolve(np.ones(len(self.rates)), np.ones(window))[: len(self.rates)]
        return np.convolve(self.accuracies, np.ones(window))[: len(self.rates)] / weights

    def interval(self) -> tuple[float, float]:
        """The learning rates at which accuracy begins to rise and no longer rises.

        Raises:
            UserError: accuracy did not rise.
        """
        accuracy = self.smoothed()
        peak = int(np.argmax(accuracy))
        base = float(np.median(accuracy[: max(3, len(accuracy) // 10)]))
        rise = accuracy[peak] - base
        if peak < 3 or rise < 0.02:
            raise UserError(
                f"accuracy did not rise between learning rates {self.rates[0]:g} and {self.rates[-1]:g}: "
                "give a wider range with --from and --to, or more --updates"
            )
        # From the peak backwards: noise before the rise begins does not count.
        low = next(i for i in range(peak, -1, -1) if i == 0 or accuracy[i - 1] < base + START * rise)
        high = next(i for i in range(low, peak + 1) if accuracy[i] >= base + END * rise)
        return float(self.rates[low]), float(self.rates[max(high, low + 1)])


def growing_rates(low: float, high: float, updates: int) -> np.ndarray:
    """``updates`` learning rates from ``low`` to ``high``, each the same multiple of the one before.

    Raises:
        UserError: not 0 < low < high, or fewer than 20 updates.
    """
    if not 0 < low < high < float("inf"):
        raise UserError(f"--from must be above 0 and below --to, found {low:g} and {high:g}")
    if updates < 20:
        raise UserError(f"--updates must be at least 20, found {updates}")
    return np.geomspace(low, high, updates)
