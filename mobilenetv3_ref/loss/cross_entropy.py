"""Cross-entropy, torch's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """Mean cross-entropy of logits with hard, smoothed or soft labels.

    Args:
        label_smoothing: share of the label spread over all classes, 0..1.
        ignore_index: samples with this hard label count for nothing.
        weight: of each class, above 0. Hard labels: the mean is over the weights of the samples' labels, and smoothing
            weighs each class by its own; soft labels: over the samples.
    """

    weight: torch.Tensor | None

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int = -100, weight: Sequence[float] | None = None) -> None:
        of_classes = None if weight is None else torch.tensor(weight, dtype=torch.float64)
        super().__init__(of_classes, label_smoothing=label_smoothing, ignore_index=ignore_index)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar.

        Args:
            input: logits, floating (N, classes).
            target: int64 (N,) class numbers, or floating (N, classes) rows of class probabilities.

        Returns:
            Mean over the samples (hard labels: over those not ignored, by their classes' weights; NaN where all are ignored).
        """
        weight = None if self.weight is None else self.weight.to(input)
        return F.cross_entropy(input, target, weight, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing)
