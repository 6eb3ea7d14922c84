"""Optimizers, schedules, the training step, and the whole run."""

from projects.resnet50.in_mindspore.train.backend import build_model
from projects.resnet50.in_mindspore.train.distributed import Ranks, average_statistics, started
from projects.resnet50.in_mindspore.train.ema import MovingAverage
from projects.resnet50.in_mindspore.train.engine import (
    Run,
    build_run,
    evaluate_config,
    evaluate_run,
    evaluation_loader,
    micro_batches,
    save,
    train,
    update,
)
from projects.resnet50.in_mindspore.train.guard import Guard, first_offender
from projects.resnet50.in_mindspore.train.optimizer import build_optimizer
from projects.resnet50.in_mindspore.train.precision import Precision
from projects.resnet50.in_mindspore.train.schedule import build_schedule
from projects.resnet50.in_mindspore.train.state import load_model_arrays, load_pretrained, model_arrays
from projects.resnet50.in_mindspore.train.step import accumulate_gradients, apply_update, train_step

__all__ = [
    "Guard",
    "MovingAverage",
    "Precision",
    "Ranks",
    "Run",
    "accumulate_gradients",
    "apply_update",
    "average_statistics",
    "build_model",
    "build_optimizer",
    "build_run",
    "build_schedule",
    "evaluate_config",
    "evaluate_run",
    "evaluation_loader",
    "first_offender",
    "load_model_arrays",
    "load_pretrained",
    "micro_batches",
    "model_arrays",
    "save",
    "started",
    "train",
    "train_step",
    "update",
]
