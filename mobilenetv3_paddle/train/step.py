"""One training step: forward, loss, backward, update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import paddle
from paddle import nn

from mobilenetv3_paddle.train.distributed import meet
from mobilenetv3_paddle.train.precision import Precision

Batch = tuple[paddle.Tensor, paddle.Tensor]


def accumulate_gradients(
    model: nn.Layer,
    criterion: nn.Layer,
    batches: Sequence[Batch],
    precision: Precision | None = None,
    begin: Callable[[int], None] = lambda number: None,
    watch: Callable[[paddle.Tensor, paddle.Tensor], None] = lambda logits, labels: None,
) -> paddle.Tensor:
    """Forward and backward over micro-batches of equal size; gradients are those of their mean loss.

    Args:
        model: in training or evaluation mode, as the caller set it; a ``paddle.DataParallel`` adds gradients up over the
            ranks once, in the last backward pass.
        criterion: loss of (logits, labels), a mean over the samples.
        batches: (images, labels) a micro-batch, at least one.
        precision: float32 by default.
        begin: called with the number of each micro-batch before it.
        watch: called with the logits and labels of each micro-batch after it.

    Returns:
        The mean loss, a scalar without graph.
    """
    precision = precision or Precision()
    total = paddle.zeros([])
    for number, (images, labels) in enumerate(batches):
        begin(number)
        last = number == len(batches) - 1
        alone = isinstance(model, paddle.DataParallel) and not last
        with model.no_sync() if alone else contextlib.nullcontext():
            with precision.autocast():
                logits = precision.full(model(images))
            loss = criterion(logits, labels) / len(batches)
            if isinstance(model, paddle.DataParallel) and last:
                meet()
            precision.scale(loss).backward()
        watch(logits.detach(), labels)
        total = total.astype(loss.dtype) + loss.detach()
    return total


def apply_update(
    model: nn.Layer, optimizer: paddle.optimizer.Optimizer, clip_norm: float | None = None, precision: Precision | None = None
) -> None:
    """Clip the gradients' global norm to ``clip_norm`` where given, add the L1 penalty, update the parameters, clear the
    gradients."""
    precision = precision or Precision()
    precision.unscale(optimizer)
    if clip_norm is not None:
        nn.utils.clip_grad_norm_([p for p in model.parameters() if not p.stop_gradient], clip_norm)
    add_l1_decay(optimizer)
    precision.step(optimizer)
    optimizer.clear_grad()


@paddle.no_grad()
def add_l1_decay(optimizer: paddle.optimizer.Optimizer) -> None:
    """Add each group's L1 penalty to its gradients: ``l1_decay`` times the sign of the weight."""
    groups = [group for group in optimizer._param_groups if isinstance(group, dict)]  # parameters where none were given
    for group in groups:
        for parameter in group["params"] if group.get("l1_decay") else ():
            if parameter.grad is not None:
                parameter.grad.add_(parameter.sign() * group["l1_decay"])


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
