"""Optimizers, schedules and the training step."""

from mobilenetv3_ref.train.optimizer import build_optimizer
from mobilenetv3_ref.train.schedule import build_schedule
from mobilenetv3_ref.train.step import accumulate_gradients, apply_update, train_step

__all__ = ["accumulate_gradients", "apply_update", "build_optimizer", "build_schedule", "train_step"]
