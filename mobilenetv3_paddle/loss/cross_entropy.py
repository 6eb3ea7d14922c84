"""Cross-entropy as torch computes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle
from paddle import nn


class CrossEntropyLoss(nn.Layer):
    """Mean cross-entropy of logits with hard, smoothed or soft labels: ``torch.nn.CrossEntropyLoss`` in Paddle.

    Paddle's own ``cross_entropy`` and ``log_softmax`` saturate on CPU: a logit gap of 500 costs 64. This one does not.

    Args:
        label_smoothing: share of the label spread over all classes, 0..1.
        ignore_index: samples with this hard label count for nothing.
        weight: of each class, above 0. Hard labels: the mean is over the weights of the samples' labels, and smoothing
            weighs each class by its own; soft labels: over the samples. (Paddle's ``cross_entropy`` has another mean.)
    """

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int = -100, weight: Sequence[float] | None = None) -> None:
        super().__init__()
        if not 0.0 <= label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing must lie between 0 and 1, found {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.weight = None if weight is None else paddle.to_tensor(np.asarray(weight, dtype=np.float64))

    def forward(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """The loss, a scalar.

        Args:
            logits: floating (N, classes).
            labels: int64 (N,) class numbers, or floating (N, classes) rows of class probabilities.

        Returns:
            Mean over the samples (hard labels: over those not ignored, by their classes' weights; NaN where all are ignored,
            as torch has it).
        """
        smooth = self.label_smoothing
        # Written as log-sum-exp less the target's logits, not as -sum(target * log_softmax): the gradient is then
        # softmax - target without a cancelling sum over all classes, which costs 20 times the rounding in float32.
        shifted = logits - logits.detach().max(axis=1, keepdim=True)
        log_sum = _sum_classes(paddle.exp(shifted)).log()
        weight = None if self.weight is None else self.weight.astype(logits.dtype)
        if labels.ndim == 2:
            labels = labels if weight is None else labels * weight
            loss = _sum_classes(labels) * log_sum - _sum_classes(labels * shifted)
            kept = paddle.ones_like(loss, dtype="bool")
            counts = paddle.ones_like(loss)
        else:
            kept = labels != self.ignore_index
            index = paddle.where(kept, labels, paddle.zeros_like(labels)).unsqueeze(1)
            counts = paddle.ones_like(log_sum) if weight is None else paddle.gather(weight, index.squeeze(1))
            loss = (log_sum - paddle.take_along_axis(shifted, index, axis=1).squeeze(1)) * counts
        if smooth > 0.0:
            share = 1.0 if weight is None else weight
            spread = _mean_classes(shifted * share)
            loss = loss * (1.0 - smooth) + (log_sum * (1.0 if weight is None else weight.mean()) - spread) * smooth
        loss = paddle.where(kept, loss, paddle.zeros_like(loss))
        return loss.sum() / paddle.where(kept, counts, paddle.zeros_like(counts)).sum()


def _sum_classes(values: paddle.Tensor) -> paddle.Tensor:
    # Paddle's CPU reduction adds one value after the other, which over 1000 float32 classes rounds 20 times as much as
    # torch's; in float64 the order does not matter.
    return values.astype("float64").sum(axis=1).astype(values.dtype)


def _mean_classes(values: paddle.Tensor) -> paddle.Tensor:
    # The sum of 1000 float16 values overflows before it is divided; the mean does not.
    return values.astype("float64").mean(axis=1).astype(values.dtype)
