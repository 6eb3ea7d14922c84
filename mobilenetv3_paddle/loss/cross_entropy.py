"""Cross-entropy as torch computes it."""

from __future__ import annotations

import paddle
from paddle import nn


class CrossEntropyLoss(nn.Layer):
    """Mean cross-entropy of logits with hard, smoothed or soft labels: ``torch.nn.CrossEntropyLoss`` in Paddle.

    Paddle's own ``cross_entropy`` and ``log_softmax`` saturate on CPU: a logit gap of 500 costs 64. This one does not.

    Args:
        label_smoothing: share of the label spread over all classes, 0..1.
        ignore_index: samples with this hard label count for nothing.
    """

    def __init__(self, label_smoothing: float = 0.0, ignore_index: int = -100) -> None:
        super().__init__()
        if not 0.0 <= label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing must lie between 0 and 1, found {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index

    def forward(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """The loss, a scalar.

        Args:
            logits: floating (N, classes).
            labels: int64 (N,) class numbers, or floating (N, classes) rows of class probabilities.

        Returns:
            Mean over the samples (hard labels: over those not ignored; NaN where all are, as torch has it).
        """
        smooth = self.label_smoothing
        # Written as log-sum-exp less the target's logits, not as -sum(target * log_softmax): the gradient is then
        # softmax - target without a cancelling sum over all classes, which costs 20 times the rounding in float32.
        shifted = logits - logits.detach().max(axis=1, keepdim=True)
        log_sum = _sum_classes(paddle.exp(shifted)).log()
        if labels.ndim == 2:
            loss = _sum_classes(labels) * log_sum - _sum_classes(labels * shifted)
            kept = paddle.ones_like(loss, dtype="bool")
        else:
            kept = labels != self.ignore_index
            index = paddle.where(kept, labels, paddle.zeros_like(labels)).unsqueeze(1)
            loss = log_sum - paddle.take_along_axis(shifted, index, axis=1).squeeze(1)
        if smooth > 0.0:
            loss = loss * (1.0 - smooth) + (log_sum - _mean_classes(shifted)) * smooth
        loss = paddle.where(kept, loss, paddle.zeros_like(loss))
        return loss.sum() / kept.astype(loss.dtype).sum()


def _sum_classes(values: paddle.Tensor) -> paddle.Tensor:
    # Paddle's CPU reduction adds one value after the other, which over 1000 float32 classes rounds 20 times as much as
    # torch's; in float64 the order does not matter.
    return values.astype("float64").sum(axis=1).astype(values.dtype)


def _mean_classes(values: paddle.Tensor) -> paddle.Tensor:
    # The sum of 1000 float16 values overflows before it is divided; the mean does not.
    return values.astype("float64").mean(axis=1).astype(values.dtype)
