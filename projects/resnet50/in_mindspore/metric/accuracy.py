"""Top-k accuracy by counts: exact for any batch size, padding and number of parts."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, int32, ops


def top_k_correct(logits: Tensor, labels: Tensor, ks: Sequence[int]) -> Tensor:
    """Which samples have their label among the k largest logits.

    Equal logits rank in class order, so the answer does not depend on a sorting routine. A row with NaN is wrong at
    every k: no comparison with NaN holds, and counting such a row as right would call a diverged model perfect.

    Args:
        logits: floating (N, classes).
        labels: int64 (N,).
        ks: values of k, at least 1.

    Returns:
        bool (N, len(ks)).
    """
    own = ops.gather_elements(logits, 1, labels.expand_dims(1))
    earlier = ops.arange(logits.shape[1]).expand_dims(0) < labels.expand_dims(1)
    ahead = ops.logical_or(logits > own, ops.logical_and(logits == own, earlier))
    rank = ahead.astype(int32).sum(axis=1)
    valid = ops.isnan(logits).astype(int32).sum(axis=1) == 0
    return ops.stack([ops.logical_and(rank < k, valid) for k in ks], axis=1)


class TopKAccuracy:
    """Counts right answers and samples.

    Args:
        ks: values of k.
    """

    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:
        self.ks = tuple(ks)
        self.correct = [0] * len(self.ks)
        self.count = 0

    def update(self, logits: Tensor, labels: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            logits: (N, classes).
            labels: int64 (N,).
            mask: bool (N,), False for padding, which counts neither as right nor as a sample.
        """
        right = top_k_correct(logits, labels, self.ks)
        if mask is not None:
            right = ops.logical_and(right, mask.expand_dims(1))
        counts = right.astype(int32).sum(axis=0).asnumpy().tolist()
        self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]
        self.count += int(mask.asnumpy().sum()) if mask is not None else labels.shape[0]

    def merge(self, other: TopKAccuracy) -> None:
        """Add the counts of another part of the data."""
        self.correct = [total + new for total, new in zip(self.correct, other.correct, strict=True)]
        self.count += other.count

    def compute(self) -> dict[str, float]:
        """``{"top1": share of right answers, ...}``, each 0..1.

        Raises:
            ValueError: nothing was counted.
        """
        if self.count == 0:
            raise ValueError("accuracy of no samples: the data set is empty or fully masked")
        return {f"top{k}": correct / self.count for k, correct in zip(self.ks, self.correct, strict=True)}
