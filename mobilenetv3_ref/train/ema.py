"""A moving average of the weights, to evaluate with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import nn


class MovingAverage:
    """Exponential moving average of every weight and statistic of a model (torchvision's ``ExponentialMovingAverage``).

    Args:
        model: whose weights are averaged; the first update copies them.
        decay: share of the old average, 0 to below 1; with 0 nothing is kept, and ``shadow`` stays empty.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.shadow: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        if self.decay == 0:
            return
        state = {name: tensor for name, tensor in self.model.state_dict().items() if tensor.is_floating_point()}
        if not self.shadow:
            self.shadow = {name: tensor.float().clone() for name, tensor in state.items()}
            return
        for name, tensor in state.items():
            self.shadow[name] = self.shadow[name] * self.decay + tensor.float() * (1.0 - self.decay)

    def arrays(self) -> dict[str, np.ndarray]:
        """The averaged weights, float32 under torch's names; empty where there are none."""
        return {name: tensor.cpu().numpy() for name, tensor in self.shadow.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse, onto the model's device."""
        device = next(self.model.parameters()).device
        self.shadow = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights inside the block, where there are any."""
        state = self.model.state_dict()
        own = {name: state[name].clone() for name in self.shadow}
        for name, tensor in self.shadow.items():
            state[name].copy_(tensor)
        try:
            yield
        finally:
            for name, tensor in own.items():
                state[name].copy_(tensor)
