"""Mixed precision as switches: one path through the step, whatever the level."""

from __future__ import annotations

import contextlib

from mindspore import nn

from mobilenetv3_common.errors import UserError
from projects.resnet50.in_mindspore.train.optimizer import Optimizer


class Precision:
    """How a step computes: in float32 (O0), the only level of a CPU.

    Args:
        level: ``"O0"``.
        dtype: of the other levels.
        device: ``"cpu"``.

    Raises:
        UserError: another level.
    """

    scales = False

    def __init__(self, level: str = "O0", dtype: str = "float16", device: str = "cpu") -> None:
        if level != "O0":
            raise UserError(f"--amp-level {level}: MindSpore trains in float32 on a CPU here; use --amp-level O0")
        self.level, self.dtype = level, dtype

    def prepare(self, model: nn.Cell, optimizer: Optimizer) -> None:
        """Nothing: the weights stay float32."""

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def state(self) -> dict[str, float]:
        """No scaler, no state."""
        return {}

    def load(self, state: dict[str, float]) -> None:
        """The reverse."""
