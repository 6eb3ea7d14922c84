"""One training step: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]


def accumulate_gradients(model: nn.Module, criterion: nn.Module, batches: Sequence[Batch]) -> torch.Tensor:
    """Forward and backward over micro-batches of equal size; gradients are those of their mean loss.

    Args:
        model: in training or evaluation mode, as the caller set it.
        criterion: loss of (logits, labels), a mean over the samples.
        batches: (images, labels) a micro-batch, at least one.

    Returns:
        The mean loss, a scalar without graph.
    """
    total = torch.zeros([])
    for images, labels in batches:
        loss = criterion(model(images), labels) / len(batches)
        loss.backward()
        total = total.to(loss) + loss.detach()
    return total


def apply_update(model: nn.Module, optimizer: torch.optim.Optimizer, clip_norm: float | None = None) -> None:
    """Clip the gradients' global norm to ``clip_norm`` where given, update the parameters, clear the gradients."""
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()


def train_step(
    model: nn.Module,
    criterion: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    clip_norm: float | None = None,
) -> torch.Tensor:
    """One update from one or more micro-batches; returns the mean loss."""
    loss = accumulate_gradients(model, criterion, batches)
    apply_update(model, optimizer, clip_norm)
    return loss
