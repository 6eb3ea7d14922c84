"""Learning-rate schedules, torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from mobilenetv3_common.train_config import ScheduleConfig


def build_schedule(optimizer: torch.optim.Optimizer, config: ScheduleConfig) -> LRScheduler:
    """Attach a schedule to an optimizer; call its ``step`` after each unit.

    ``optimizer.param_groups[0]["lr"]`` tells the rate.
    """
    schedule: LRScheduler
    if config.name == "step":
        schedule = StepLR(optimizer, config.step_size, config.gamma)
    elif config.name == "exponential":
        schedule = ExponentialLR(optimizer, config.gamma)
    elif config.name == "cosine":
        schedule = CosineAnnealingLR(optimizer, config.total - config.warmup, config.lr_min)
    elif config.name == "multistep":
        schedule = MultiStepLR(optimizer, [milestone - config.warmup for milestone in config.milestones], config.gamma)
    elif config.name == "polynomial":
        lr = learning_rate(optimizer)
        schedule = LambdaLR(optimizer, lambda number: _polynomial(number, lr, config) / lr)
    elif config.name == "onecycle":
        lr = learning_rate(optimizer)
        fall = lr / config.start_div / config.lr_min if config.lr_min else float("inf")
        schedule = OneCycleLR(
            optimizer,
            lr,
            config.total,
            pct_start=config.rise,
            cycle_momentum=False,
            div_factor=config.start_div,
            final_div_factor=fall,
        )
    elif config.name == "restarts":
        schedule = CosineAnnealingWarmRestarts(optimizer, config.restart, config.restart_factor, config.lr_min)
    elif config.name == "constant":
        schedule = LambdaLR(optimizer, lambda _: 1.0)
    else:
        raise NotImplementedError(f"{__name__} has no schedule {config.name!r}")
    if config.warmup > 0:
        warmup = LinearLR(optimizer, start_factor=config.warmup_decay, total_iters=config.warmup)
        schedule = SequentialLR(optimizer, [warmup, schedule], milestones=[config.warmup])
    return schedule


def follow_rates(optimizer: torch.optim.Optimizer, rates: np.ndarray) -> LRScheduler:
    """Replace an optimizer's schedule by given learning rates, one a unit; ``rates[0]`` is the optimizer's own rate."""
    return LambdaLR(optimizer, lambda number: float(rates[min(number, len(rates) - 1)] / rates[0]))


def learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """The rate of the next update."""
    return float(optimizer.param_groups[0]["lr"])


def schedule_state(optimizer: torch.optim.Optimizer, schedule: LRScheduler) -> dict[str, Any]:
    """Where a schedule stands, as a checkpoint's ``meta`` holds it; the rates of the groups are the optimizer's."""
    return {"schedule": schedule.state_dict(), "lr": [group["lr"] for group in optimizer.param_groups]}


def load_schedule_state(optimizer: torch.optim.Optimizer, schedule: LRScheduler, meta: dict[str, Any]) -> None:
    """The reverse."""
    schedule.load_state_dict(meta["schedule"])
    for group, lr in zip(optimizer.param_groups, meta["lr"], strict=True):
        group["lr"] = lr


def _polynomial(number: int, lr: float, config: ScheduleConfig) -> float:
    """The rate of a polynomial schedule. (torch's ``PolynomialLR`` has no learning rate at the end.)"""
    left = 1.0 - min(number / (config.total - config.warmup), 1.0)
    return config.lr_min + (lr - config.lr_min) * left**config.power
