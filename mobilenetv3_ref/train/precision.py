"""Mixed precision as switches: one path through the step, whatever the level."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from mobilenetv3_common.errors import UserError


class Precision:
    """How a step computes: float32 (O0), automatic mixed precision (O1), or half-precision weights with float32 masters (O2).

    Args:
        level: ``"O0"``, ``"O1"`` or ``"O2"``.
        dtype: ``"float16"``, whose gradients are scaled against underflow, or ``"bfloat16"``, which needs no scaling.
        device: ``"cpu"`` or ``"gpu"``.

    Raises:
        UserError: a level that the device does not have: on a CPU only bfloat16.
    """

    def __init__(self, level: str = "O0", dtype: str = "float16", device: str = "cpu") -> None:
        if level != "O0" and device == "cpu" and dtype == "float16":
            raise UserError(f"--amp-level {level} with float16 needs a GPU: use --amp-dtype bfloat16 or --amp-level O0")
        self.level, self.dtype = level, getattr(torch, dtype)
        self.enabled = level != "O0"
        self.device = "cuda" if device == "gpu" else "cpu"
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.enabled and dtype == "float16")
        self.masters: list[tuple[nn.Parameter, nn.Parameter]] = []

    @property
    def scales(self) -> bool:
        """Whether the loss is scaled, so that an infinite gradient means a smaller scale and not a diverged run."""
        return self.scaler.is_enabled()

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """At O2, turn the weights into half precision and give the optimizer float32 masters, in place."""
        if self.level != "O2":
            return
        norms = [layer for layer in model.modules() if isinstance(layer, (nn.BatchNorm2d, nn.SyncBatchNorm))]
        wide = {parameter for layer in norms for parameter in layer.parameters(recurse=False)}
        for group in optimizer.param_groups:
            for number, parameter in enumerate(group["params"]):
                if parameter in wide:
                    continue
                master = nn.Parameter(parameter.detach().clone())
                self.masters.append((parameter, master))
                group["params"][number] = master
        for parameter, _ in self.masters:
            parameter.data = parameter.data.to(self.dtype)

    def autocast(self) -> contextlib.AbstractContextManager:
        return torch.autocast(self.device, self.dtype, enabled=self.enabled)

    def full(self, logits: torch.Tensor) -> torch.Tensor:
        """Half-precision logits in float32, for the loss; others as they are."""
        return logits.float() if self.enabled else logits

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, before they are clipped or looked at."""
        for parameter, master in self.masters:
            master.grad, parameter.grad = parameter.grad.float(), None
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update, unless scaling found an infinite gradient; then adapt the scale."""
        self.scaler.step(optimizer)
        self.scaler.update()
        with torch.no_grad():
            for parameter, master in self.masters:
                parameter.copy_(master)

    def state(self) -> dict[str, float]:
        """The scaler's state as numbers; empty where nothing is scaled."""
        return self.scaler.state_dict()

    def load(self, state: dict[str, float]) -> None:
        if self.scales and state:
            self.scaler.load_state_dict(state)
