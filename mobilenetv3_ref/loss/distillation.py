"""Distillation (Hinton et al. 2015, https://arxiv.org/abs/1503.02531)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


class DistillationLoss(nn.Module):
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
        self.teachers = [teacher]  # in a list: its weights are not this module's
        self.soft: torch.Tensor | None = None

    @torch.no_grad()
    def look(self, images: torch.Tensor) -> None:
        """Let the teacher see the pictures (N, 3, H, W) of the next call."""
        self.soft = self.teachers[0](images)

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar, of floating logits (N, classes) and labels as the criterion takes them."""
        assert self.soft is not None, "look() comes first"
        hard = self.criterion(logits, labels)
        return hard * (1.0 - self.alpha) + divergence(logits, self.soft, self.temperature) * self.alpha


def divergence(logits: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Mean over the samples of KL(teacher || student) of softened probabilities, times the square of the temperature.

    Args:
        logits: of the student, floating (N, classes).
        teacher: its logits, (N, classes).
        temperature: above 0.
    """
    ours, theirs = (F.log_softmax(x.to(logits) / temperature, dim=1) for x in (logits, teacher))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2
