"""Optimizers, schedules and the training step."""

from projects.resnet50.in_mindspore.train.optimizer import build_optimizer
from projects.resnet50.in_mindspore.train.schedule import build_schedule
from projects.resnet50.in_mindspore.train.step import accumulate_gradients, apply_update, train_step

__all__ = ["accumulate_gradients", "apply_update", "build_optimizer", "build_schedule", "train_step"]
