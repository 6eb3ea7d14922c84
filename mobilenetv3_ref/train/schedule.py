"""Learning-rate schedules, torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
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
    else:
        schedule = LambdaLR(optimizer, lambda _: 1.0)
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
