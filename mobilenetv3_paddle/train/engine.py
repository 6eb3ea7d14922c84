"""Training in Paddle: the loop of ``mobilenetv3_common`` on this package's ``backend``."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from paddle import nn

from mobilenetv3_common import evaluation, lr_range, run, training
from mobilenetv3_common.evaluation import Evaluation, evaluate_run, evaluation_loader
from mobilenetv3_common.lr_range import RangeTest
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.run import Run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import micro_batches, save, update
from mobilenetv3_common.training_backend import Builder
from mobilenetv3_paddle.train import backend
from mobilenetv3_paddle.train.distributed import Ranks
from mobilenetv3_paddle.train.precision import Precision

__all__ = [
    "Run",
    "build_run",
    "evaluate",
    "evaluate_config",
    "evaluate_run",
    "evaluation_loader",
    "find_learning_rates",
    "micro_batches",
    "save",
    "train",
    "update",
]


def train(config: TrainConfig, builder: Builder | None = None, observer: Observer | None = None) -> int:
    """Train as the config says: see ``mobilenetv3_common.training.train``."""
    return training.train(backend, config, builder, observer)


def build_run(config: TrainConfig, ranks: Ranks, builder: Builder | None = None) -> Run:
    """Put a run together: see ``mobilenetv3_common.run.build_run``."""
    return run.build_run(backend, config, ranks, builder)


def evaluate(
    model: nn.Layer, loader: Iterable, num_classes: int, ranks: Ranks | None = None, precision: Precision | None = None
) -> Evaluation:
    """Evaluate a model, on this process alone and in float32 by default: see ``mobilenetv3_common.evaluation.evaluate``."""
    return evaluation.evaluate(backend, model, loader, num_classes, ranks or Ranks(), precision or Precision())


def evaluate_config(config: TrainConfig, ranks: Ranks, builder: Builder | None = None) -> tuple[Evaluation, tuple[str, ...]]:
    """Evaluate ``config.pretrained``: see ``mobilenetv3_common.evaluation.evaluate_config``."""
    return evaluation.evaluate_config(backend, config, ranks, builder)


def find_learning_rates(config: TrainConfig, ranks: Ranks, rates: np.ndarray, builder: Builder | None = None) -> RangeTest:
    """Make one update at each learning rate: see ``mobilenetv3_common.lr_range.find_learning_rates``."""
    return lr_range.find_learning_rates(backend, config, ranks, rates, builder)
