"""Gradient checkpointing: what a block computed is not kept for the backward pass, but computed again there."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mobilenetv3_common.blocks import blocks_of


def recompute_blocks(model: nn.Module) -> int:
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
        block.forward = types.MethodType(_recomputed, block)  # type: ignore[method-assign]
    return len(blocks)


def _recomputed(self: nn.Module, *inputs: torch.Tensor) -> Any:
    plain = functools.partial(type(self).forward, self)
    if not (self.training and torch.is_grad_enabled()):
        return plain(*inputs)
    return checkpoint(plain, *inputs, use_reentrant=False, context_fn=lambda: (contextlib.nullcontext(), statistics_kept(self)))


@contextlib.contextmanager
def statistics_kept(block: nn.Module) -> Iterator[None]:
    """Inside the block of code, training passes leave BatchNorm's running statistics as they are."""
    norms = [layer for layer in block.modules() if isinstance(layer, _BatchNorm) and layer.num_batches_tracked is not None]
    before = [(layer.momentum, layer.num_batches_tracked.clone()) for layer in norms]
    for layer in norms:
        layer.momentum = 0.0  # share of the batch; without statistics torch would keep other tensors for the backward pass
    try:
        yield
    finally:
        for layer, (momentum, counted) in zip(norms, before, strict=True):
            layer.momentum = momentum
            layer.num_batches_tracked.copy_(counted)
