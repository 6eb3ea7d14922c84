"""Distillation (Hinton et al. 2015, https://arxiv.org/abs/1503.02531)."""

from __future__ import annotations

from collections.abc import Callable

import paddle
from paddle import nn


class DistillationLoss(nn.Layer):
    """Part of the labels' loss, part of the divergence from a teacher.

    Args:
        criterion: loss of (logits, labels).
        teacher: gives logits (N, classes) of pictures (N, 3, H, W).
        temperature: above 0; both sides' logits are divided by it, and the divergence is multiplied by its square.
        alpha: share of the divergence, 0..1.
    """

    def __init__(self, criterion: Callable, teacher: Callable, temperature: float = 4.0, alpha: float = 0.5) -> None:
        super().__init__()
        self.criterion, self.temperature, self.alpha = criterion, temperature, alpha
        self.teachers = [teacher]  # in a list: its weights are not this layer's
        self.soft: paddle.Tensor | None = None

    @paddle.no_grad()
    def look(self, images: paddle.Tensor) -> None:
        """Let the teacher see the pictures (N, 3, H, W) of the next call."""
        self.soft = self.teachers[0](images)

    def forward(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """The loss, a scalar, of floating logits (N, classes) and labels as the criterion takes them."""
        assert self.soft is not None, "look() comes first"
        hard = self.criterion(logits, labels)
        return hard * (1.0 - self.alpha) + divergence(logits, self.soft, self.temperature) * self.alpha


def divergence(logits: paddle.Tensor, teacher: paddle.Tensor, temperature: float) -> paddle.Tensor:
    """Mean over the samples of KL(teacher || student) of softened probabilities, times the square of the temperature.

    Paddle's own ``kl_div`` and ``log_softmax`` saturate on a CPU, and ``batchmean`` is another mean there.

    Args:
        logits: of the student, floating (N, classes).
        teacher: its logits, (N, classes).
        temperature: above 0.
    """
    ours, theirs = _log_softmax(logits / temperature), _log_softmax(teacher.astype(logits.dtype) / temperature)
    terms = paddle.exp(theirs) * (theirs - ours)
    return terms.sum(axis=1).mean() * temperature**2


def _log_softmax(logits: paddle.Tensor) -> paddle.Tensor:
    shifted = logits - logits.detach().max(axis=1, keepdim=True)
    total = paddle.exp(shifted).astype("float64").sum(axis=1, keepdim=True)
    return shifted - total.astype(logits.dtype).log()
