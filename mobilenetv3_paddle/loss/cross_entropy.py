"""Cross-entropy as torch computes it."""

from __future__ import annotations

import paddle
from paddle import nn


class CrossEntropyLoss(nn.Layer):
    """Mean cross-entropy of logits with hard, smoothed or soft labels: ``torch.nn.CrossEntropyLoss`` in Paddle.

    Paddle's own ``cross_entropy`` and ``log_softmax`` saturate on CPU: a logit gap of 500 costs 64. Its ``logsumexp``
    does not, so the loss is made from that.

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
        log_probs = logits - paddle.logsumexp(logits, axis=1, keepdim=True)
        if labels.ndim == 2:
            target = labels * (1.0 - smooth) + smooth / logits.shape[1]
            return -(target * log_probs).sum() / logits.shape[0]
        kept = labels != self.ignore_index
        index = paddle.where(kept, labels, paddle.zeros_like(labels)).unsqueeze(1)
        loss = -paddle.take_along_axis(log_probs, index, axis=1).squeeze(1) * (1.0 - smooth)
        if smooth > 0.0:
            loss = loss - log_probs.sum(axis=1) * (smooth / logits.shape[1])
        loss = paddle.where(kept, loss, paddle.zeros_like(loss))
        return loss.sum() / kept.astype(loss.dtype).sum()
