"""One training step: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
from paddle import nn

Batch = tuple[paddle.Tensor, paddle.Tensor]


def accumulate_gradients(model: nn.Layer, criterion: nn.Layer, batches: Sequence[Batch]) -> paddle.Tensor:
    """Forward and backward over micro-batches of equal size; gradients are those of their mean loss.

    Args:
        model: in training or evaluation mode, as the caller set it.
        criterion: loss of (logits, labels), a mean over the samples.
        batches: (images, labels) a micro-batch, at least one.

    Returns:
        The mean loss, a scalar without graph.
    """
    total = paddle.zeros([])
    for images, labels in batches:
        loss = criterion(model(images), labels) / len(batches)
        loss.backward()
        total = total.astype(loss.dtype) + loss.detach()
    return total


def apply_update(model: nn.Layer, optimizer: paddle.optimizer.Optimizer, clip_norm: float | None = None) -> None:
    """Clip the gradients' global norm to ``clip_norm`` where given, update the parameters, clear the gradients."""
    if clip_norm is not None:
        nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
    optimizer.step()
    optimizer.clear_grad()


def train_step(
    model: nn.Layer,
    criterion: nn.Layer,
    optimizer: paddle.optimizer.Optimizer,
    batches: Sequence[Batch],
    clip_norm: float | None = None,
) -> paddle.Tensor:
    """One update from one or more micro-batches; returns the mean loss."""
    loss = accumulate_gradients(model, criterion, batches)
    apply_update(model, optimizer, clip_norm)
    return loss
