"""Learning-rate schedules, Paddle's own, with torch's meaning."""

from __future__ import annotations

import paddle
from paddle.optimizer.lr import CosineAnnealingDecay, ExponentialDecay, LambdaDecay, LinearWarmup, LRScheduler, StepDecay

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
    else:
        schedule = LambdaDecay(lr, lambda _: 1.0)
    if config.warmup > 0:
        schedule = LinearWarmup(schedule, config.warmup, start_lr=config.warmup_decay * lr, end_lr=lr)
    optimizer.set_lr_scheduler(schedule)
    return schedule
