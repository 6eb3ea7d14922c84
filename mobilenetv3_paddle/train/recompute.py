"""Gradient checkpointing: what a block computed is not kept for the backward pass, but computed again there."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import paddle
from paddle import nn
from paddle.distributed.fleet.utils import recompute

from mobilenetv3_common.blocks import blocks_of
from mobilenetv3_common.weights import is_statistic


def recompute_blocks(model: nn.Layer) -> int:
    """Make a model keep the inputs of its blocks alone in training, in place (Chen et al., 2016).

    Blocks are those of ``mobilenetv3_common.blocks``. Gradients, running statistics and random numbers are those of a model
    without it.

    Returns:
        The number of blocks.

    Raises:
        UserError: the model has none.
    """
    blocks = blocks_of(model, nn.Sequential)
    for block in blocks:
        block.forward = types.MethodType(_recomputed, block)
    return len(blocks)


def _recomputed(self: nn.Layer, *inputs: paddle.Tensor) -> Any:
    plain = functools.partial(type(self).forward, self)
    if not (self.training and paddle.is_grad_enabled()):
        return plain(*inputs)
    passes: Iterator[contextlib.AbstractContextManager[None]] = iter([contextlib.nullcontext(), statistics_kept(self)])

    def run(*given: paddle.Tensor) -> Any:
        with next(passes):
            return plain(*given[:-1])

    trains = paddle.zeros([])  # Paddle warns of the first block, none of whose inputs has a gradient
    trains.stop_gradient = False
    return recompute(run, *inputs, trains, use_reentrant=False)


@contextlib.contextmanager
def statistics_kept(block: nn.Layer) -> Iterator[None]:
    """Inside the block of code, training passes leave BatchNorm's running statistics as they are."""
    kept = [(tensor, tensor.clone()) for name, tensor in block.state_dict().items() if is_statistic(name)]
    try:
        yield
    finally:
        with paddle.no_grad():
            for tensor, before in kept:
                tensor.set_value(before)
