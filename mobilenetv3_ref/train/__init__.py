"""Optimizers, schedules, the training step, and the whole run."""

from mobilenetv3_common.evaluation import Evaluation
from mobilenetv3_ref.train.backend import build_model
from mobilenetv3_ref.train.distributed import Ranks, average_statistics, started
from mobilenetv3_ref.train.ema import MovingAverage
from mobilenetv3_ref.train.engine import (
    Run,
    build_run,
    evaluate,
    evaluate_config,
    evaluate_run,
    evaluation_loader,
    find_learning_rates,
    micro_batches,
    save,
    train,
    update,
)
from mobilenetv3_ref.train.guard import Guard, first_offender
from mobilenetv3_ref.train.optimizer import build_optimizer
from mobilenetv3_ref.train.precision import Precision
from mobilenetv3_ref.train.schedule import build_schedule
from mobilenetv3_ref.train.state import load_model_arrays, load_pretrained, model_arrays
from mobilenetv3_ref.train.step import accumulate_gradients, apply_update, train_step

__all__ = [
    "Evaluation",
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
    "evaluate",
    "evaluate_config",
    "evaluate_run",
    "evaluation_loader",
    "find_learning_rates",
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
