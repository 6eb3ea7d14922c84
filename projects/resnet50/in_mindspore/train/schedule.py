"""Learning-rate schedules, with torch's meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mobilenetv3_common.train_config import ScheduleConfig
from projects.resnet50.in_mindspore.train.optimizer import Optimizer


@dataclass
class Schedule:
    """Sets an optimizer's learning rate, by closed formula.

    (``nn.cosine_decay_lr`` and its kin give float32 rates for whole epochs, and MindSpore's schedules count the updates
    themselves: neither can be asked for the rate of any unit.)

    Args:
        optimizer: whose rate at this moment is the base.
        config: how it moves.

    Attributes:
        number: units so far.
    """

    optimizer: Optimizer
    config: ScheduleConfig
    number: int = 0

    def __post_init__(self) -> None:
        self.base = self.optimizer.lr
        self.optimizer.lr = self.rate(self.number)

    def step(self) -> None:
        """One unit is over."""
        self.number += 1
        self.optimizer.lr = self.rate(self.number)

    def rate(self, number: int) -> float:
        """The rate of a unit."""
        warmup = self.config.warmup
        if number < warmup:
            begin = self.config.warmup_decay
            return self.base * (begin + (1.0 - begin) * number / warmup)
        return RATES[self.config.name](number - warmup, self.base, self.config)


def follow_rates(optimizer: Optimizer, rates: np.ndarray) -> Schedule:
    """Replace an optimizer's schedule by given learning rates, one a unit; ``rates[0]`` is the optimizer's own rate."""
    schedule = Schedule(optimizer, ScheduleConfig())
    schedule.rate = lambda number: float(rates[min(number, len(rates) - 1)])  # type: ignore[method-assign]
    return schedule


def learning_rate(optimizer: Optimizer) -> float:
    """The rate of the next update."""
    return optimizer.lr


def schedule_state(optimizer: Optimizer, schedule: Schedule) -> dict[str, int]:
    """Where a schedule stands, as a checkpoint's ``meta`` holds it."""
    return {"schedule": schedule.number}


def load_schedule_state(optimizer: Optimizer, schedule: Schedule, meta: dict[str, int]) -> None:
    """The reverse."""
    schedule.number = meta["schedule"]
    optimizer.lr = schedule.rate(schedule.number)


def build_schedule(optimizer: Optimizer, config: ScheduleConfig) -> Schedule:
    """Attach a schedule to an optimizer; call its ``step`` after each unit. ``optimizer.lr`` tells the rate."""
    return Schedule(optimizer, config)


def _cosine(share: float, lr: float, least: float) -> float:
    return least + (lr - least) * (1.0 + math.cos(math.pi * share)) / 2.0


def _polynomial(number: int, lr: float, config: ScheduleConfig) -> float:
    left = 1.0 - min(number / (config.total - config.warmup), 1.0)
    return config.lr_min + (lr - config.lr_min) * left**config.power


def _onecycle(number: int, lr: float, config: ScheduleConfig) -> float:
    peak, last = config.rise * config.total - 1.0, config.total - 1
    if number <= peak:
        return _cosine(1.0 - number / peak, lr, lr / config.start_div)
    return _cosine((number - peak) / (last - peak), lr, config.lr_min)


def _restarted(number: int, lr: float, config: ScheduleConfig) -> float:
    length = config.restart
    while number >= length:
        number, length = number - length, length * config.restart_factor
    return _cosine(number / length, lr, config.lr_min)


def _multistep(number: int, lr: float, config: ScheduleConfig) -> float:
    return lr * config.gamma ** sum(number + config.warmup >= milestone for milestone in config.milestones)


RATES = {
    "constant": lambda number, lr, config: lr,
    "step": lambda number, lr, config: lr * config.gamma ** (number // config.step_size),
    "exponential": lambda number, lr, config: lr * config.gamma**number,
    "cosine": lambda number, lr, config: _cosine(number / (config.total - config.warmup), lr, config.lr_min),
    "multistep": _multistep,
    "polynomial": _polynomial,
    "onecycle": _onecycle,
    "restarts": _restarted,
}
