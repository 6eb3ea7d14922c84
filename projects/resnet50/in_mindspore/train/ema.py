"""A moving average of the weights, to evaluate with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import mindspore
import numpy as np
from mindspore import Tensor, nn

from projects.resnet50.in_mindspore.train.optimizer import times


class MovingAverage:
    """Exponential moving average of every weight and statistic of a model (torchvision's ``ExponentialMovingAverage``).

    Args:
        model: whose weights are averaged; the first update copies them.
        decay: share of the old average, 0 to below 1; with 0 nothing is kept, and ``shadow`` stays empty.
    """

    def __init__(self, model: nn.Cell, decay: float) -> None:
        self.model, self.decay = model, decay
        self.shadow: dict[str, Tensor] = {}

    def update(self) -> None:
        if self.decay == 0:
            return
        new = {name: parameter.value().astype(mindspore.float32).copy() for name, parameter in self.model.parameters_and_names()}
        if self.shadow:
            new = {name: times(self.shadow[name], self.decay) + times(one, 1.0 - self.decay) for name, one in new.items()}
        self.shadow = new

    def arrays(self) -> dict[str, np.ndarray]:
        """The averaged weights, float32 under MindSpore's names; empty where there are none."""
        return {name: tensor.asnumpy().copy() for name, tensor in self.shadow.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse."""
        self.shadow = {name: Tensor(np.array(array)) for name, array in arrays.items()}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights inside the block, where there are any."""
        parameters = {name: parameter for name, parameter in self.model.parameters_and_names() if name in self.shadow}
        own = {name: parameter.asnumpy().copy() for name, parameter in parameters.items()}
        for name, tensor in self.shadow.items():
            parameters[name].assign_value(tensor.astype(parameters[name].dtype))
        try:
            yield
        finally:
            for name, array in own.items():
                parameters[name].assign_value(Tensor(array))
