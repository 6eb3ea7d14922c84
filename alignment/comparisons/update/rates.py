"""Learning rates of a whole run by closed formula, and how those of both sides are held to it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, relative
from mobilenetv3_common.train_config import ScheduleConfig, TrainConfig


def expected_rates(config: TrainConfig, updates_per_epoch: int, pictures: int) -> np.ndarray:
    """The learning rate of every update of a whole run, by closed formula from the recipe alone.

    Args:
        config: the recipe.
        updates_per_epoch: of the run.
        pictures: of an update, over all micro-batches.
    """
    by_update = config.lr_unit == "update"
    units = np.arange(config.epochs * updates_per_epoch) // (1 if by_update else updates_per_epoch)
    per_epoch = updates_per_epoch if by_update else 1
    schedule = ScheduleConfig(
        config.lr_schedule,
        step_size=config.lr_step_epochs * per_epoch,
        gamma=config.lr_gamma ** (1 / per_epoch) if config.lr_schedule == "exponential" else config.lr_gamma,
        total=config.epochs * per_epoch,
        lr_min=config.lr_min,
        warmup=config.warmup_epochs * per_epoch,
        warmup_decay=config.warmup_decay,
        milestones=tuple(int(epoch) * per_epoch for epoch in (config.lr_milestones or "").split(",") if epoch),
        power=config.lr_power,
        restart=config.lr_restart_epochs * per_epoch,
        restart_factor=config.lr_restart_factor,
        rise=config.lr_rise,
        start_div=config.lr_start_div,
    )
    scale = (pictures / config.scale_lr_from) ** (0.5 if config.scale_lr_by == "sqrt" else 1.0) if config.scale_lr_from else 1.0
    return unit_rates(vars(schedule), config.lr * scale, units)


def unit_rates(schedule: Mapping, lr: float, units: np.ndarray) -> np.ndarray:
    """Learning rates at given units by closed formula.

    Args:
        schedule: the fields of a ``ScheduleConfig``, or others that it would refuse.
        lr: before the schedule.
        units: integers from 0.
    """
    name, warmup, decay = schedule["name"], schedule["warmup"], schedule["warmup_decay"]
    after = np.maximum(units - warmup, 0)
    if name == "step":
        rates = lr * schedule["gamma"] ** (after // schedule["step_size"])
    elif name == "exponential":
        rates = lr * schedule["gamma"] ** after
    elif name == "cosine":
        rates = _between(lr, schedule["lr_min"], after / max(schedule["total"] - warmup, 1))
    elif name == "multistep":
        rates = lr * schedule["gamma"] ** np.searchsorted(np.array(schedule["milestones"], dtype=float), units, side="right")
    elif name == "polynomial":
        left = 1 - np.minimum(after / max(schedule["total"] - warmup, 1), 1)
        rates = schedule["lr_min"] + (lr - schedule["lr_min"]) * left ** schedule["power"]
    elif name == "onecycle":
        peak, end = schedule["rise"] * schedule["total"] - 1, schedule["total"] - 1
        rising = _between(lr / schedule["start_div"], lr, units / max(peak, 1e-9))
        rates = np.where(units <= peak, rising, _between(lr, schedule["lr_min"], (units - peak) / max(end - peak, 1)))
    elif name == "restarts":
        starts, length = [0], schedule["restart"]
        while starts[-1] <= after.max(initial=0):
            starts.append(starts[-1] + length)
            length *= schedule["restart_factor"]
        cycle = np.searchsorted(starts, after, side="right") - 1
        rates = _between(lr, schedule["lr_min"], (after - np.array(starts)[cycle]) / np.diff([*starts, starts[-1] + length])[cycle])
    else:
        rates = np.full(len(units), float(lr))
    return np.where(units < warmup, lr * (decay + (1 - decay) * units / max(warmup, 1)), rates)


def _between(start: float, end: float, share: np.ndarray) -> np.ndarray:
    """Half a cosine from one rate to another, after shares of its way."""
    return end + (start - end) * (1 + np.cos(np.pi * share)) / 2


def judge_rates(name: str, ours: np.ndarray, theirs: np.ndarray, formula: np.ndarray) -> Quantity:
    """Learning rates of both sides and of the closed formula, all float64 (updates,), held to ``EXACT_RTOL`` of the largest."""
    quantity = Quantity(name, list(theirs.shape))
    largest = float(np.abs(theirs).max())
    quantity.mean_abs_diff, quantity.max_abs_diff = (float(f(np.abs(ours - theirs))) for f in (np.mean, np.max))
    quantity.float64_diff = relative(quantity.max_abs_diff, largest)
    for one, other, words in (
        (ours, theirs, "the port's learning rates diverge from the reference's"),
        (theirs, formula, "the reference's learning rates diverge from the closed formula"),
    ):
        wrong = ~(np.abs(one - other) <= tolerance.EXACT_RTOL * largest)
        if wrong.any():
            first = int(np.argmax(wrong))
            quantity.fail(f"{words} at update {first}: {one[first]:.6g}, expected {other[first]:.6g}")
    return quantity
