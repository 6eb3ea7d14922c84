"""Settings of the learning rate, and the schedule that the frameworks build from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config.section import COUNT, Section, option, require

SCHEDULES = ("constant", "step", "exponential", "cosine", "multistep", "polynomial", "onecycle", "restarts")
WHOLE_RUN = ("cosine", "polynomial", "onecycle")  # schedules whose every rate depends on the number of epochs


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves; one unit is one call of the schedule's ``step``.

    Attributes:
        name: ``"constant"``, ``"step"`` (x ``gamma`` every ``step_size``), ``"exponential"`` (x ``gamma`` every unit),
            ``"cosine"`` (down to ``lr_min`` over ``total`` units, warm-up included), ``"multistep"`` (x ``gamma`` at each of
            ``milestones``), ``"polynomial"`` (down to ``lr_min`` with ``power`` over ``total`` units, warm-up included),
            ``"onecycle"`` (cosines from lr / ``start_div`` up to lr over the share ``rise`` of ``total``, then down to
            ``lr_min``; it has no other warm-up) or ``"restarts"`` (a cosine down to ``lr_min`` over ``restart`` units, again
            over ``restart_factor`` times as many, and so on).
        warmup: units of linear warm-up from ``warmup_decay`` x lr to lr, 0 for none; the schedule proper begins after.
        milestones: units from the run's beginning, warm-up included, rising.
    """

    name: str = "constant"
    step_size: int = 30
    gamma: float = 0.1
    total: int = 1
    lr_min: float = 0.0
    warmup: int = 0
    warmup_decay: float = 0.01
    milestones: tuple[int, ...] = ()
    power: float = 1.0
    restart: int = 1
    restart_factor: int = 1
    rise: float = 0.3
    start_div: float = 25.0

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise UserError(f"unknown schedule {self.name!r}: use one of {', '.join(SCHEDULES)}")
        if self.step_size < 1 or self.warmup < 0 or not 0 < self.warmup_decay <= 1 or not 0 < self.gamma <= 1:
            raise UserError(f"step_size must be at least 1, warmup not negative, gamma and warmup_decay within 0..1, found {self}")
        if self.name in ("cosine", "polynomial") and self.total <= self.warmup:
            raise UserError(f"a {self.name} schedule of {self.total} units ends before its warm-up of {self.warmup}")
        if self.name == "multistep" and (not self.milestones or [*self.milestones] != sorted({*self.milestones})):
            raise UserError("a multistep schedule needs milestones that rise, as in --lr-milestones 30,60,80")
        if self.name == "multistep" and self.milestones[0] <= self.warmup:
            raise UserError("the first of --lr-milestones must lie after the warm-up: lower --warmup-epochs, or leave it out")
        if self.name == "onecycle" and self.warmup:
            raise UserError("a onecycle schedule has a warm-up of its own (--lr-rise, --lr-start-div): leave --warmup-epochs out")
        if self.name == "onecycle" and not 1 < self.rise * self.total <= self.total - 1:
            raise UserError(
                f"a onecycle schedule of {counted(self.total, 'step')} cannot rise over {self.rise:g} of them: it needs more than "
                "one step to rise and one to fall; change --lr-rise, train more epochs, or use --lr-unit update"
            )


@dataclass(frozen=True)
class LearningRateSettings(Section):
    """The learning rate and how it moves. A field's ``schedule`` is its name in ``ScheduleConfig``."""

    TITLE = "learning rate"

    lr: float = option(0.1, "learning rate", within="(0, inf)")
    scale_lr_from: int | None = option(None, "scale lr with the global batch: lr is for this many pictures an update", within=COUNT)
    scale_lr_by: str = option("linear", "how --scale-lr-from scales: by the batches' ratio or its root", ("linear", "sqrt"))
    lr_schedule: str = option("cosine", "how the learning rate moves", SCHEDULES, metavar="NAME")
    lr_unit: str = option("update", "what the schedule moves by", ("update", "epoch"))
    lr_step_epochs: int = option(30, "step schedule: epochs between steps", within=COUNT, schedule="step_size", in_epochs=True)
    lr_milestones: str | None = option(None, "multistep schedule: epochs after which the rate falls, e.g. 30,60,80", metavar="N,N")
    lr_gamma: float = option(
        0.1, "step, multistep and exponential schedule: factor, for every step or epoch", within="(0, 1]", schedule="gamma"
    )
    lr_min: float = option(
        0.0, "cosine, restarts, polynomial and onecycle schedule: learning rate at the end", within="[0, inf)", schedule="lr_min"
    )
    lr_power: float = option(
        1.0, "polynomial schedule: exponent of the share of the run that is left", within="(0, 16]", schedule="power"
    )
    lr_restart_epochs: int = option(
        10, "restarts schedule: epochs of the first cosine", within=COUNT, schedule="restart", in_epochs=True
    )
    lr_restart_factor: int = option(
        1, "restarts schedule: how many times as long each further cosine is", within="[1, 100]", schedule="restart_factor"
    )
    lr_rise: float = option(0.3, "onecycle schedule: share of the run in which the rate rises", within="(0, 1)", schedule="rise")
    lr_start_div: float = option(
        25.0, "onecycle schedule: it begins at lr divided by this", within="[1, 1e6]", schedule="start_div"
    )
    warmup_epochs: int = option(0, "epochs of linear warm-up", within="[0, 1e6]", schedule="warmup", in_epochs=True)
    warmup_decay: float = option(0.01, "share of lr at which the warm-up begins", within="(0, 1]", schedule="warmup_decay")

    def check(self) -> None:
        require(self.lr_min <= self.lr, f"--lr-min must be at most --lr ({self.lr:g})", self.lr_min)

    def scaled_lr(self, global_batch: int) -> float:
        """The learning rate for ``global_batch`` pictures an update, before the schedule."""
        if not self.scale_lr_from:
            return self.lr
        if self.scale_lr_by == "sqrt":
            return self.lr * math.sqrt(global_batch / self.scale_lr_from)
        return self.lr * global_batch / self.scale_lr_from

    @property
    def milestones(self) -> tuple[int, ...]:
        """``lr_milestones`` as numbers of epochs.

        Raises:
            UserError: it is no list of whole numbers above 0.
        """
        texts = [text.strip() for text in (self.lr_milestones or "").split(",") if text.strip()]
        fit = all(text.isascii() and text.isdecimal() and 0 < int(text[:10]) <= 10**6 for text in texts)
        require(fit, "--lr-milestones must be whole numbers of epochs with commas between, as in 30,60,80", self.lr_milestones)
        return tuple(map(int, texts))

    def schedule_for(self, epochs: int, updates_per_epoch: int) -> ScheduleConfig:
        """The schedule of a run in its unit; an exponential one decays by ``lr_gamma`` an epoch, whatever the unit."""
        per_epoch = updates_per_epoch if self.lr_unit == "update" else 1
        given: dict[str, Any] = {
            entry.metadata["schedule"]: getattr(self, entry.name) * (per_epoch if "in_epochs" in entry.metadata else 1)
            for entry in fields(LearningRateSettings)
            if "schedule" in entry.metadata
        }
        if self.lr_schedule == "exponential":
            given["gamma"] **= 1 / per_epoch
        milestones = tuple(epoch * per_epoch for epoch in self.milestones)
        return ScheduleConfig(name=self.lr_schedule, total=epochs * per_epoch, milestones=milestones, **given)
