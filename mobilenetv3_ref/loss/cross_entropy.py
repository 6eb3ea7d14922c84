"""Cross-entropy, torch's own."""

from __future__ import annotations

import torch
from torch import nn


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """Mean cross-entropy of logits with hard, smoothed or soft labels.

    Args:
        label_smoothing: share of the label spread over all classes, 0..1.
        ignore_index: samples with this hard label count for nothing.
    """

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int = -100) -> None:
        super().__init__(label_smoothing=label_smoothing, ignore_index=ignore_index)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss, a scalar.

        Args:
            input: logits, floating (N, classes).
            target: int64 (N,) class numbers, or floating (N, classes) rows of class probabilities.

        Returns:
            Mean over the samples (hard labels: over those not ignored; NaN where all are).
        """
        return super().forward(input, target)
