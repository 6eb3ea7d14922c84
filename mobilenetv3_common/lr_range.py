"""The learning-rate range test: train while the learning rate grows, and see where accuracy begins to rise and where it stops.

L. N. Smith, Cyclical learning rates for training neural networks, 2017; item hp.01 of the accuracy checklist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.framework import Builder, Framework
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.run import Meter, build_run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import averages, micro_batches, update

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


def find_learning_rates(
    framework: Framework, config: TrainConfig, ranks: Ranks, rates: np.ndarray, builder: Builder | None = None
) -> RangeTest:
    """Make one update at each learning rate; ends early where the run diverges. Nothing is saved.

    Args:
        framework: what computes.
        config: of the run, whose schedule is put aside.
        ranks: all of which call this.
        rates: growing learning rates, at least 20.
        builder: makes the network for a number of classes; that of ``config.model`` where None.
    """
    config = replace(config, lr=float(rates[0]), scale_lr_from=None, lr_unit="update", resume=None)
    run = build_run(framework, config, ranks, builder)
    epochs = -(-len(rates) // run.updates_per_epoch)
    run.config = config = replace(config, epochs=max(epochs, config.warmup_epochs + 1))
    run.schedule = framework.follow_rates(run.optimizer, rates)
    run.train_mode()
    batches = micro_batches(run)
    losses: list[float] = []
    accuracies: list[float] = []
    for _ in rates:
        try:
            update(run, [next(batches) for _ in range(config.accumulate)])
        except UserError as error:
            if "diverged" not in error.line:
                raise
            break
        shown = averages(run)
        run.meter = Meter()
        losses.append(shown["loss"])
        accuracies.append(shown["top1"])
        if losses[-1] > 4 * min(losses):
            break
        if run.iteration == run.updates_per_epoch:
            run.epoch, run.iteration = run.epoch + 1, 0
    done = len(losses)
    return RangeTest(rates[:done], np.array(losses), np.array(accuracies), done < len(rates))
