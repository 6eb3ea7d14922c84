"""The learning-rate range test: train while the learning rate grows."""

from __future__ import annotations

import dataclasses

import numpy as np
from torch.optim.lr_scheduler import LambdaLR

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.lr_range import RangeTest
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import Stopwatch
from mobilenetv3_ref.train.distributed import Ranks
from mobilenetv3_ref.train.engine import build_run, figures, micro_batches, update


def find_learning_rates(config: TrainConfig, ranks: Ranks, rates: np.ndarray) -> RangeTest:
    """Make one update at each learning rate; ends early where the run diverges. Nothing is saved.

    Args:
        config: of the run, whose schedule is put aside.
        ranks: this process among the others.
        rates: growing learning rates, at least 20.
    """
    config = dataclasses.replace(config, lr=float(rates[0]), scale_lr_from=None, lr_unit="update", resume=None)
    run = build_run(config, ranks)
    epochs = -(-len(rates) // run.updates_per_epoch)
    run.config = config = dataclasses.replace(config, epochs=max(epochs, config.warmup_epochs + 1))
    run.schedule = LambdaLR(run.optimizer, lambda number: float(rates[min(number, len(rates) - 1)] / rates[0]))
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
        shown = figures(run, Stopwatch(batch=1.0))
        losses.append(shown["loss"])
        accuracies.append(shown["top1"])
        if losses[-1] > 4 * min(losses):
            break
        if run.iteration == run.updates_per_epoch:
            run.epoch, run.iteration = run.epoch + 1, 0
    done = len(losses)
    return RangeTest(rates[:done], np.array(losses), np.array(accuracies), done < len(rates))
