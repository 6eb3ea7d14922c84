"""The learning-rate range test: train while the learning rate grows, and see where the loss begins to fall and where it is least.

L. N. Smith, Cyclical learning rates for training neural networks, 2017; item hp.01 of the accuracy checklist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.parts import Ranks
from mobilenetv3_common.run import Meter, build_run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import averages, micro_batches, update
from mobilenetv3_common.training_backend import Builder, TrainingBackend

START = 0.1  # share of the whole fall at which the loss has begun to fall


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
        """Loss as a mean over neighbouring updates, weighted by a Gaussian whose width is a 25th of the updates."""
        width = max(1.0, len(self.rates) / 25)
        reach = np.arange(-int(3 * width), int(3 * width) + 1)
        kernel = np.exp(-0.5 * (reach / width) ** 2)
        inner = slice(len(reach) // 2, len(reach) // 2 + len(self.losses))
        return np.convolve(self.losses, kernel)[inner] / np.convolve(np.ones(len(self.losses)), kernel)[inner]

    def interval(self) -> tuple[float, float]:
        """The learning rates at which the loss has begun to fall, and at which it is least.

        Raises:
            UserError: the loss did not fall, or still fell at the highest rate.
        """
        low, _, high = self._places()
        return float(self.rates[low]), float(self.rates[high])

    def suggested(self) -> float:
        """A learning rate to train with: midway, as a ratio, between where the loss falls fastest and where it is least.

        Raises:
            UserError: as ``interval``.
        """
        _, steepest, high = self._places()
        return float(np.sqrt(self.rates[steepest] * self.rates[high]))

    def _places(self) -> tuple[int, int, int]:
        """Numbers of the updates at which the loss has begun to fall, falls fastest, and is least."""
        loss, edge = self.smoothed(), max(3, len(self.rates) // 10)
        least = int(np.argmin(loss))
        base = float(np.median(loss[:edge]))
        fall = base - loss[least]
        if least < 3 or fall < 0.01 * abs(base):
            raise UserError(
                f"the loss did not fall between learning rates {self.rates[0]:g} and {self.rates[-1]:g}: "
                "give a wider range with --from and --to, or more --updates"
            )
        if least >= len(loss) - 2:
            raise UserError(f"the loss still falls at learning rate {self.rates[-1]:g}: give a higher --to")
        low = next(i for i in range(least, -1, -1) if i == 0 or loss[i - 1] > base - START * fall)
        steepest = low + int(np.argmin(np.gradient(loss)[low : least + 1]))
        return low, steepest, least


def mean_of(tests: Sequence[RangeTest]) -> RangeTest:
    """Several range tests over the same rates, of different seeds, as one: as far as the shortest came."""
    done = min(len(test.rates) for test in tests)
    losses, accuracies = (np.mean([getattr(test, name)[:done] for test in tests], axis=0) for name in ("losses", "accuracies"))
    return RangeTest(tests[0].rates[:done], losses, accuracies, any(test.diverged for test in tests))


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
    backend: TrainingBackend, config: TrainConfig, ranks: Ranks, rates: np.ndarray, builder: Builder | None = None
) -> RangeTest:
    """Make one update at each learning rate; ends early where the run diverges. Nothing is saved.

    Args:
        backend: what computes.
        config: of the run, whose schedule is put aside.
        ranks: all of which call this.
        rates: growing learning rates, at least 20.
        builder: makes the network for a number of classes; that of ``config.model`` where None.
    """
    config = replace(config, lr=float(rates[0]), scale_lr_from=None, lr_unit="update", resume=None)
    run = build_run(backend, config, ranks, builder)
    epochs = -(-len(rates) // run.updates_per_epoch)
    run.config = config = replace(run.config, epochs=max(epochs, config.warmup_epochs + 1))
    run.schedule = backend.follow_rates(run.optimizer, rates)
    run.train_mode()
    losses: list[float] = []
    accuracies: list[float] = []
    with contextlib.closing(micro_batches(run)) as batches:
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
