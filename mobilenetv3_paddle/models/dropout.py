"""Dropout whose masks come from a stream that both frameworks share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
from paddle import nn

Uniform = Callable[[tuple[int, ...]], np.ndarray]


class SharedDropout(nn.Layer):
    """Dropout that keeps an element where ``uniform(shape)`` is at least ``p``.

    Args:
        p: share of elements dropped in training, 0 to below 1.
        uniform: numbers in [0, 1) of a given shape, e.g. ``mobilenetv3_common.sampling.DropoutStream``.
    """

    def __init__(self, p: float, uniform: Uniform) -> None:
        super().__init__()
        self.p, self.uniform = p, uniform

    def forward(self, input: paddle.Tensor) -> paddle.Tensor:
        if not self.training or self.p == 0:
            return input
        kept = paddle.to_tensor(self.uniform(tuple(input.shape)) >= self.p)
        return input * kept.astype(input.dtype) / (1.0 - self.p)


def share_dropout(model: nn.Layer, uniform: Uniform) -> int:
    """Replace every dropout of a model, in place; returns how many there were."""
    found = [
        (parent, name, child)
        for parent in model.sublayers(include_self=True)
        for name, child in parent.named_children()
        if isinstance(child, nn.Dropout)
    ]
    for parent, name, dropout in found:
        setattr(parent, name, SharedDropout(dropout.p, uniform))
    return len(found)
