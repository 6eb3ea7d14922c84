"""Dropout whose masks come from a stream that all frameworks share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mindspore import Tensor, nn

from projects.resnet50.in_mindspore.train.optimizer import times

Uniform = Callable[[tuple[int, ...]], np.ndarray]


class SharedDropout(nn.Cell):
    """Dropout that keeps an element where ``uniform(shape)`` is at least ``p``.

    Args:
        p: share of elements dropped in training, 0 to below 1.
        uniform: numbers in [0, 1) of a given shape, e.g. ``mobilenetv3_common.sampling.DropoutStream``.
    """

    def __init__(self, p: float, uniform: Uniform) -> None:
        super().__init__()
        self.p, self.uniform = p, uniform

    def construct(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = Tensor(self.uniform(tuple(x.shape)) >= self.p)
        return times(x * kept.astype(x.dtype), 1.0 / (1.0 - self.p))


def share_dropout(model: nn.Cell, uniform: Uniform) -> int:
    """Replace every dropout of a model, in place; returns how many there were."""
    found = [
        (parent, name, child)
        for _, parent in [*model.cells_and_names()]
        for name, child in parent._cells.items()
        if isinstance(child, nn.Dropout)
    ]
    for parent, name, dropout in found:
        setattr(parent, name, SharedDropout(1.0 - dropout.keep_prob if dropout.p is None else dropout.p, uniform))
    return len(found)
