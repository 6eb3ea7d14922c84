"""Mixed precision as switches: one path through the step, whatever the level."""

from __future__ import annotations

import contextlib

import numpy as np
import paddle
from paddle import nn

from mobilenetv3_common.errors import UserError


class Precision:
    """How a step computes: float32 (O0), automatic mixed precision (O1), or half-precision weights with float32 masters (O2).

    Args:
        level: ``"O0"``, ``"O1"`` or ``"O2"``.
        dtype: ``"float16"``, whose gradients are scaled against underflow, or ``"bfloat16"``, which needs no scaling.
        device: ``"cpu"`` or ``"gpu"``.

    Raises:
        UserError: a level that the device does not have. (Paddle's ``auto_cast`` on a CPU warns and computes in float32.)
    """

    def __init__(self, level: str = "O0", dtype: str = "float16", device: str = "cpu") -> None:
        if level != "O0" and device == "cpu":
            raise UserError(
                f"--amp-level {level} needs a GPU: on a CPU Paddle would go on in float32 without saying so; use --amp-level O0"
            )
        self.level, self.dtype = level, dtype
        self.enabled = level != "O0"
        scales = self.enabled and dtype == "float16"
        self.scaler = paddle.amp.GradScaler(scales, 2.0**16, incr_every_n_steps=2000, decr_every_n_nan_or_inf=1)
        self._as_number()

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled, so that an infinite gradient means a smaller scale and not a diverged run."""
        return bool(self.scaler.is_enable())

    def prepare(self, model: nn.Layer, optimizer: paddle.optimizer.Optimizer) -> None:
        """At O2, turn the weights into half precision and give the optimizer float32 masters, in place."""
        if self.level == "O2":
            paddle.amp.decorate(model, optimizer, level="O2", dtype=self.dtype, master_weight=True)

    def autocast(self) -> contextlib.AbstractContextManager:
        return paddle.amp.auto_cast(enable=self.enabled, level=self.level if self.enabled else "O1", dtype=self.dtype)

    def full(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Half-precision logits in float32, for the loss; others as they are."""
        return logits.astype("float32") if self.enabled else logits

    def scale(self, loss: paddle.Tensor) -> paddle.Tensor:
        return self.scaler.scale(loss)

    def unscale(self, optimizer: paddle.optimizer.Optimizer) -> None:
        """Divide the gradients by the scale, before they are clipped or looked at."""
        if self.scales:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: paddle.optimizer.Optimizer) -> None:
        """Update, unless scaling found an infinite gradient; then adapt the scale."""
        self.scaler.step(optimizer)
        self.scaler.update()

    def state(self) -> dict[str, float]:
        """The scaler's state as numbers; empty where nothing is scaled."""
        if not self.scales:
            return {}
        return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in self.scaler.state_dict().items()}

    def load(self, state: dict[str, float]) -> None:
        if self.scales and state:
            whole = {name: int(v) if float(v).is_integer() and name != "scale" else v for name, v in state.items()}
            self.scaler.load_state_dict({**whole, "scale": np.array([state["scale"]], dtype=np.float32)})
            self._as_number()

    def _as_number(self) -> None:
        """Paddle keeps the scale as an array of one number, and raises when it prints it at the first infinite gradient."""
        if self.scales:
            self.scaler._scale = self.scaler._scale.reshape([])
