"""Optimizer and schedule as data, for both frameworks."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError

OPTIMIZERS = ("sgd", "rmsprop", "adamw")
SCHEDULES = ("constant", "step", "exponential", "cosine")


@dataclass(frozen=True)
class OptimizerConfig:
    """One optimizer, in torch's terms.

    Attributes:
        name: ``"sgd"`` (with momentum), ``"rmsprop"`` (eps outside the root) or ``"adamw"``.
        lr: initial learning rate, above 0.
        momentum: of sgd and rmsprop, 0..1.
        alpha: smoothing constant of rmsprop, 0..1.
        beta1, beta2: of adamw, 0..1.
        eps: of rmsprop and adamw, above 0.
        weight_decay: L2 penalty added to the gradient (sgd, rmsprop), decoupled for adamw.
        norm_weight_decay: the same for BatchNorm weights and biases; ``weight_decay`` where None.
    """

    name: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    alpha: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-4
    norm_weight_decay: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UserError(f"unknown optimizer {self.name!r}: use one of {', '.join(OPTIMIZERS)}")
        if not self.lr > 0 or not self.eps > 0 or self.weight_decay < 0:
            raise UserError(f"lr and eps must be above 0 and weight_decay not negative, found {self}")

    def in_float32(self) -> OptimizerConfig:
        """Every number rounded to float32: what Paddle's kernels hold, whatever the type of the parameters."""
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}
        rounded: dict[str, Any] = {k: float(np.float32(v)) for k, v in numbers.items() if isinstance(v, float)}
        return replace(self, **rounded)


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves; one unit is one call of the schedule's ``step``.

    Attributes:
        name: ``"constant"``, ``"step"`` (x ``gamma`` every ``step_size``), ``"exponential"`` (x ``gamma`` every unit) or
            ``"cosine"`` (down to ``lr_min`` over ``total`` units, warm-up included).
        warmup: units of linear warm-up from ``warmup_decay`` x lr to lr, 0 for none; the schedule proper begins after.
    """

    name: str = "constant"
    step_size: int = 30
    gamma: float = 0.1
    total: int = 1
    lr_min: float = 0.0
    warmup: int = 0
    warmup_decay: float = 0.01

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise UserError(f"unknown schedule {self.name!r}: use one of {', '.join(SCHEDULES)}")
        if self.step_size < 1 or self.warmup < 0 or not 0 < self.warmup_decay <= 1 or not 0 < self.gamma <= 1:
            raise UserError(f"step_size must be at least 1, warmup not negative, gamma and warmup_decay within 0..1, found {self}")
        if self.name == "cosine" and self.total <= self.warmup:
            raise UserError(f"a cosine schedule of {self.total} units ends before its warm-up of {self.warmup}")
