"""Learning-rate schedules, torch's own."""

from __future__ import annotations

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
