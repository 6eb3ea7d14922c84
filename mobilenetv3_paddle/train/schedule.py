"""Learning-rate schedules, Paddle's own, with torch's meaning."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import paddle
from paddle.optimizer.lr import (
    CosineAnnealingDecay,
    ExponentialDecay,
    LambdaDecay,
    LinearWarmup,
    LRScheduler,
    MultiStepDecay,
    OneCycleLR,
    PolynomialDecay,
    StepDecay,
)

from mobilenetv3_common.train_config import ScheduleConfig


def build_schedule(optimizer: paddle.optimizer.Optimizer, config: ScheduleConfig) -> LRScheduler:
    """Attach a schedule to an optimizer; call its ``step`` after each unit. ``optimizer.get_lr()`` tells the rate.

    (The ``get_lr()`` of Paddle's cosine scheduler is the rate of the step after, not the present one: never read that.)
    """
    lr = optimizer.get_lr()
    schedule: LRScheduler
    if config.name == "step":
        schedule = StepDecay(lr, config.step_size, config.gamma)
    elif config.name == "exponential":
        schedule = ExponentialDecay(lr, config.gamma)
    elif config.name == "cosine":
        schedule = CosineAnnealingDecay(lr, config.total - config.warmup, config.lr_min)
    elif config.name == "multistep":
        schedule = MultiStepDecay(lr, [milestone - config.warmup for milestone in config.milestones], config.gamma)
    elif config.name == "polynomial":
        schedule = PolynomialDecay(lr, end_lr=config.lr_min, power=config.power, decay_steps=config.total - config.warmup)
    elif config.name == "onecycle":
        schedule = OneCycleLR(lr, config.total, config.start_div, end_learning_rate=config.lr_min, phase_pct=config.rise)
    elif config.name == "restarts":
        schedule = LambdaDecay(lr, lambda number: _restarted(number, lr, config) / lr)
    elif config.name == "constant":
        schedule = LambdaDecay(lr, lambda _: 1.0)
    else:
        raise NotImplementedError(f"{__name__} has no schedule {config.name!r}")
    if config.warmup > 0:
        schedule = LinearWarmup(schedule, config.warmup, start_lr=config.warmup_decay * lr, end_lr=lr)
    optimizer.set_lr_scheduler(schedule)
    return schedule


def follow_rates(optimizer: paddle.optimizer.Optimizer, rates: np.ndarray) -> LRScheduler:
    """Replace an optimizer's schedule by given learning rates, one a unit; ``rates[0]`` is the optimizer's own rate."""
    schedule = LambdaDecay(float(rates[0]), lambda number: float(rates[min(number, len(rates) - 1)] / rates[0]))
    optimizer.set_lr_scheduler(schedule)
    return schedule


def learning_rate(optimizer: paddle.optimizer.Optimizer) -> float:
    """The rate of the next update."""
    return float(optimizer.get_lr())


def schedule_state(optimizer: paddle.optimizer.Optimizer, schedule: LRScheduler) -> dict[str, Any]:
    """Where a schedule stands, as a checkpoint's ``meta`` holds it."""
    return {"schedule": schedule.state_dict()}


def load_schedule_state(optimizer: paddle.optimizer.Optimizer, schedule: LRScheduler, meta: dict[str, Any]) -> None:
    """The reverse."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There are some unused values")  # of a warm-up: the schedule behind it reads them
        schedule.set_state_dict(meta["schedule"])


def _restarted(number: int, lr: float, config: ScheduleConfig) -> float:
    """The rate of a cosine with restarts. (A checkpoint of Paddle's ``CosineAnnealingWarmRestarts`` lacks its place.)"""
    length = config.restart
    while number >= length:
        number, length = number - length, length * config.restart_factor
    return config.lr_min + (lr - config.lr_min) * (1 + math.cos(math.pi * number / length)) / 2
