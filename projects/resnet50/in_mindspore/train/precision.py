"""Mixed precision as switches: one path through the step, whatever the level."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, amp, nn

from mobilenetv3_common.errors import UserError
from projects.resnet50.in_mindspore.train.optimizer import Optimizer, times, trainable

LEVELS = ("O0", "O1", "O2", "O3")
FIRST_SCALE, FACTOR, WINDOW = 2.0**16, 2, 2000  # of a loss scale that adapts
NORMALISATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm)
HEAVY = tuple(kind for kind in amp.get_white_list() if isinstance(kind, type) and issubclass(kind, nn.Cell))


class Precision:
    """How a step computes, by the levels of ``mindspore.amp.auto_mixed_precision``; weights stay float32.

    O0 is float32; at O1 convolutions and dense layers compute in float16, at O2 all layers but normalisations, at O3 all.
    (That function itself wraps layers in others, which changes the names of their parameters, and rewrites source text at O1.)

    Args:
        level: one of ``LEVELS``.
        dtype: ``"float16"``; on a CPU MindSpore's convolutions have no bfloat16.
        device: ``"cpu"``.
        loss_scale: that stays as it is (``amp.StaticLossScaler``), at every level; None: one that adapts
            (``amp.DynamicLossScaler``), at all levels but O0.

    Raises:
        UserError: another level or type.
    """

    def __init__(self, level: str = "O0", dtype: str = "float16", device: str = "cpu", loss_scale: float | None = None) -> None:
        if level not in LEVELS:
            raise UserError(f"--amp-level {level}: MindSpore's levels are {', '.join(LEVELS)}")
        if level != "O0" and dtype != "float16":
            raise UserError(f"--amp-dtype {dtype}: MindSpore has no convolution in it on a CPU; use --amp-dtype float16")
        self.level, self.dtype = level, dtype
        self.scaler: Any = None
        if loss_scale is not None:
            self.scaler = amp.StaticLossScaler(loss_scale)
        elif level != "O0":
            self.scaler = amp.DynamicLossScaler(FIRST_SCALE, FACTOR, WINDOW)

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled, so that an infinite gradient means a skipped update and not a diverged run."""
        return self.scaler is not None

    @property
    def factor(self) -> float:
        """Of the loss at present."""
        return float(self.scaler.scale_value.asnumpy()) if self.scales else 1.0

    def prepare(self, model: nn.Cell, optimizer: Optimizer | None = None) -> None:
        """Give every layer its type, once; the weights stay float32."""
        if getattr(model, "computes_at", "O0") == self.level:
            return
        model.computes_at = self.level
        for _, cell in model.cells_and_names():
            if not [*cell.cells()]:
                cell.to_float(mindspore.float16 if self.is_half(cell) else mindspore.float32)
                if self.level == "O2" and isinstance(cell, NORMALISATIONS):
                    cell.register_forward_hook(_in_half)

    def is_half(self, cell: nn.Cell) -> bool:
        """Whether a layer computes in half precision."""
        return {"O0": False, "O1": isinstance(cell, HEAVY), "O2": not isinstance(cell, NORMALISATIONS), "O3": True}[self.level]

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # ``prepare`` has told the layers

    def full(self, logits: Tensor) -> Tensor:
        """Half-precision logits in float32, for the loss; others as they are."""
        return logits.astype(mindspore.float32) if logits.dtype == mindspore.float16 else logits

    def scale(self, loss: Tensor) -> Tensor:
        return times(loss, self.factor) if self.scales else loss

    def unscale(self, model: nn.Cell) -> None:
        """Divide the gradients by the scale, before they are clipped or looked at."""
        for parameter in trainable(model) if self.scales else ():
            if parameter._grad is not None:
                parameter._grad = times(parameter._grad, 1.0 / self.factor)

    def step(self, model: nn.Cell, update: Callable[[], None]) -> None:
        """Update, unless scaling found an infinite gradient; then adapt the scale."""
        held = [parameter._grad for parameter in trainable(model) if parameter._grad is not None] if self.scales else []
        finite = all(bool(np.isfinite(gradient.asnumpy()).all()) for gradient in held)
        if finite:
            update()
        if self.scales:
            self.scaler.adjust(Tensor(finite))

    def state(self) -> dict[str, float]:
        """The scaler's state as numbers; empty where nothing adapts."""
        if not isinstance(self.scaler, amp.DynamicLossScaler):
            return {}
        return {name: float(getattr(self.scaler, name).asnumpy()) for name in ("scale_value", "counter")}

    def load(self, state: dict[str, float]) -> None:
        """The reverse."""
        for name, value in state.items() if isinstance(self.scaler, amp.DynamicLossScaler) else ():
            held = getattr(self.scaler, name)
            held.assign_value(Tensor(value, held.dtype))


def _in_half(_cell: nn.Cell, _inputs: tuple, output: Tensor) -> Tensor:
    return output.astype(mindspore.float16)
