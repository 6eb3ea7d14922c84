"""Settings of the loss, of distillation, of averages and of batch normalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mobilenetv3_common.class_weights import FORM as WEIGHTS_FORM
from mobilenetv3_common.train_config.model import MODELS
from mobilenetv3_common.train_config.section import BELOW_ONE, COUNT, SHARE, Section, option, require


@dataclass(frozen=True)
class RegularisationSettings(Section):
    """The loss, a teacher, clipping, the moving average of the weights and BatchNorm."""

    TITLE = "regularisation"

    label_smoothing: float = option(0.0, "share of the label spread over all classes, 0 to below 1", within=BELOW_ONE)
    class_weights: str | None = option(None, f"weights of the classes in the loss: {WEIGHTS_FORM}", metavar="WEIGHTS")
    teacher: str | None = option(
        None, "distil from these weights: a checkpoint, another file, torchvision or torchvision-v2", metavar="FILE"
    )
    teacher_model: str | None = option(
        None, f"architecture of --teacher ({', '.join(MODELS)}); by default that of its checkpoint, or --model"
    )
    distill_alpha: float = option(0.5, "share of the teacher in the loss", within=SHARE)
    distill_temperature: float = option(
        4.0, "both networks' logits are divided by this, the teacher's part multiplied by its square", within="(0, 1000]"
    )
    clip_norm: float | None = option(None, "clip the gradients' global norm to this, after unscaling", within="(0, inf)")
    ema_decay: float = option(0.0, "decay of the moving average of the weights, 0 for none", within=BELOW_ONE)
    ema_warmup: bool = option(
        False, "the moving average's decay grows with its step n, (1 + n) / (10 + n) at most: for runs of few updates"
    )
    ema_every: int = option(1, "updates between steps of the moving average", within=COUNT)
    sync_bn: bool = option(False, "BatchNorm over all ranks' samples")
    bn_momentum: float | None = option(
        None, "share of each batch in BatchNorm's statistics; by default the model's 0.01", within="(0, 1]"
    )
    freeze_bn: bool = option(False, "BatchNorm keeps its statistics and does not train")

    def check(self) -> None:
        require(not (self.sync_bn and self.freeze_bn), "--sync-bn and --freeze-bn exclude each other: leave one out", "both")
        fits = self.teacher_model in (None, *MODELS)
        require(fits, f"--teacher-model must be one of {', '.join(MODELS)}", self.teacher_model)
        require(self.teacher_model is None or self.teacher is not None, "--teacher-model needs --teacher", self.teacher_model)

    def average_decay(self, update: int) -> float:
        """Decay of the moving average at an update, counted from 1."""
        step = update // self.ema_every
        return min(self.ema_decay, (1 + step) / (10 + step)) if self.ema_warmup else self.ema_decay

    def first_weights_left(self, updates: int) -> float:
        """Share of the moving average after so many updates that is still the weights of its first step, 0..1."""
        steps = updates // self.ema_every
        if self.ema_decay == 0 or steps < 1:
            return 0.0
        if not self.ema_warmup:
            return self.ema_decay ** (steps - 1)
        decays = (self.average_decay(step * self.ema_every) for step in range(2, min(steps, 1000) + 1))
        return math.prod(decays) * self.ema_decay ** max(0, steps - 1000)
