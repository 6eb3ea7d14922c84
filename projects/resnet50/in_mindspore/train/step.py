"""One training step: forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mindspore
from mindspore import Tensor, nn, ops

from projects.resnet50.in_mindspore.train.distributed import Ranks, average_gradients
from projects.resnet50.in_mindspore.train.optimizer import Optimizer, times, trainable
from projects.resnet50.in_mindspore.train.precision import Precision

Batch = tuple[Tensor, Tensor]


def accumulate_gradients(
    model: nn.Cell,
    criterion: nn.Cell,
    batches: Sequence[Batch],
    precision: Precision | None = None,
    begin: Callable[[int], None] = lambda number: None,
    watch: Callable[[Tensor, Tensor], None] = lambda logits, labels: None,
) -> Tensor:
    """Forward and backward over micro-batches of equal size; gradients are those of their mean loss, and of all ranks'.

    Args:
        model: in training or evaluation mode, as the caller set it; its ``ranks`` are those of ``framework.parallel``.
        criterion: loss of (logits, labels), a mean over the samples.
        batches: (images, labels) a micro-batch, at least one.
        precision: float32 by default.
        begin: called with the number of each micro-batch before it.
        watch: called with the logits and labels of each micro-batch after it.

    Returns:
        The mean loss, a scalar without graph.
    """
    precision = precision or Precision()
    precision.prepare(model)
    parameters = mindspore.ParameterTuple(trainable(model))

    def forward(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = precision.full(model(images))
        loss = criterion(logits, labels)
        return precision.scale(loss), loss, logits

    differentiated = mindspore.value_and_grad(forward, None, parameters, has_aux=True)
    total = None
    for number, (images, labels) in enumerate(batches):
        begin(number)
        (_scaled, loss, logits), gradients = differentiated(images, labels)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            share = times(gradient, 1.0 / len(batches))
            parameter._grad = share if parameter._grad is None else parameter._grad + share
        watch(logits, labels)
        share = times(loss, 1.0 / len(batches))
        total = share if total is None else total + share
    assert total is not None
    average_gradients(model, getattr(model, "ranks", Ranks()))
    return total


def apply_update(model: nn.Cell, optimizer: Optimizer, clip_norm: float | None = None, precision: Precision | None = None) -> None:
    """Clip the gradients' global norm to ``clip_norm`` where given, add the L1 penalty, update the parameters, clear the
    gradients."""
    precision = precision or Precision()
    with mindspore._no_grad():
        precision.unscale(model)
        if clip_norm is not None:
            clip_gradients(model, clip_norm)
        add_l1_decay(optimizer)
    precision.step(model, optimizer.step)
    for parameter in trainable(model):
        parameter._grad = None


def clip_gradients(model: nn.Cell, clip_norm: float) -> None:
    """Scale all gradients so that their global L2 norm is at most ``clip_norm``, as torch does."""
    held = [parameter for parameter in trainable(model) if parameter._grad is not None]
    squares = [(parameter._grad * parameter._grad).sum() for parameter in held]
    norm = float(ops.sqrt(ops.stack(squares).sum()).asnumpy())
    if norm + 1e-6 > clip_norm:
        for parameter in held:
            parameter._grad = times(parameter._grad, clip_norm / (norm + 1e-6))


def add_l1_decay(optimizer: Optimizer) -> None:
    """Add each group's L1 penalty to its gradients: ``l1_decay`` times the sign of the weight."""
    for group in optimizer.groups:
        for parameter in group.params if group.l1_decay else ():
            if parameter._grad is not None:
                parameter._grad = parameter._grad + times(ops.sign(parameter.value()), group.l1_decay)


def train_step(
    model: nn.Cell, criterion: nn.Cell, optimizer: Optimizer, batches: Sequence[Batch], clip_norm: float | None = None
) -> Tensor:
    """One update from one or more micro-batches; returns the mean loss."""
    loss = accumulate_gradients(model, criterion, batches)
    apply_update(model, optimizer, clip_norm)
    return loss
