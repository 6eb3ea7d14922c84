"""Optimizers, schedules and the training step."""

from mobilenetv3_paddle.train.optimizer import RMSProp, build_optimizer
from mobilenetv3_paddle.train.schedule import build_schedule
from mobilenetv3_paddle.train.step import accumulate_gradients, apply_update, train_step

__all__ = ["RMSProp", "accumulate_gradients", "apply_update", "build_optimizer", "build_schedule", "train_step"]
