"""Training in MindSpore: the loop of ``mobilenetv3_common`` on this package's ``backend``."""

from __future__ import annotations

from mobilenetv3_common import evaluation, run, training
from mobilenetv3_common.evaluation import Evaluation, evaluate_run, evaluation_loader
from mobilenetv3_common.observer import Observer
from mobilenetv3_common.run import Run
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import micro_batches, save, update
from mobilenetv3_common.training_backend import Builder
from projects.resnet50.in_mindspore.train import backend
from projects.resnet50.in_mindspore.train.distributed import Ranks

__all__ = ["Run", "build_run", "evaluate_config", "evaluate_run", "evaluation_loader", "micro_batches", "save", "train", "update"]


def train(config: TrainConfig, builder: Builder | None = None, observer: Observer | None = None) -> int:
    """Train as the config says: see ``mobilenetv3_common.training.train``."""
    return training.train(backend, config, builder, observer)


def build_run(config: TrainConfig, ranks: Ranks, builder: Builder | None = None) -> Run:
    """Put a run together: see ``mobilenetv3_common.run.build_run``."""
    return run.build_run(backend, config, ranks, builder)


def evaluate_config(config: TrainConfig, ranks: Ranks, builder: Builder | None = None) -> tuple[Evaluation, tuple[str, ...]]:
    """Evaluate ``config.pretrained``: see ``mobilenetv3_common.evaluation.evaluate_config``."""
    return evaluation.evaluate_config(backend, config, ranks, builder)
