"""Cross-entropy as torch computes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mindspore import Tensor, nn, ops


class CrossEntropyLoss(nn.Cell):
    """Mean cross-entropy of logits with hard, smoothed or soft labels: ``torch.nn.CrossEntropyLoss`` in MindSpore.

    Written in operations that have a float64 kernel on a CPU; ``nn.SoftmaxCrossEntropyWithLogits`` has none, wants one-hot labels
    unless ``sparse=True``, gives a loss a sample unless ``reduction="mean"``, and knows neither smoothing nor ignored labels.

    Args:
        label_smoothing: share of the label spread over all classes, 0..1.
        ignore_index: samples with this hard label count for nothing.
        weight: of each class, above 0. Hard labels: the mean is over the weights of the samples' labels, and smoothing
            weighs each class by its own; soft labels: over the samples.
    """

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int = -100, weight: Sequence[float] | None = None) -> None:
        super().__init__()
        if not 0.0 <= label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing must lie between 0 and 1, found {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.weight = None if weight is None else Tensor(np.asarray(weight, dtype=np.float64))

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: floating (N, classes).
            labels: int64 (N,) class numbers, or floating (N, classes) rows of class probabilities.

        Returns:
            Mean over the samples (hard labels: over those not ignored, by their classes' weights; NaN where all are, as torch
            has it).
        """
        smooth = self.label_smoothing
        shifted = logits - ops.stop_gradient(logits.max(axis=1, keepdims=True))
        log_sum = ops.log(ops.exp(shifted).sum(axis=1))
        ones = ops.ones_like(ops.stop_gradient(shifted[0]))
        weight = ones if self.weight is None else self.weight.astype(logits.dtype)
        if labels.ndim == 2:
            labels = labels * weight
            loss = labels.sum(axis=1) * log_sum - (labels * shifted).sum(axis=1)
            kept = ops.ones_like(loss)
        else:
            counted = labels != self.ignore_index
            index = ops.where(counted, labels, ops.zeros_like(labels))
            counts = ops.gather(weight, index, 0)
            loss = (log_sum - ops.gather_elements(shifted, 1, index.expand_dims(1)).squeeze(1)) * counts
            kept = counted.astype(loss.dtype) * counts
        if smooth > 0.0:
            spread = log_sum * weight.mean() - (shifted * weight).mean(axis=1)
            loss = loss * (1.0 - smooth) + spread * smooth
        loss = ops.where(kept > 0, loss, ops.zeros_like(loss))
        return loss.sum() / kept.sum()
