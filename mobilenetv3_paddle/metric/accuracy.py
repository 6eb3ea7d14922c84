"""Top-k accuracy by counts: exact for any batch size, padding and number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.distributed as dist


def top_k_correct(logits: paddle.Tensor, labels: paddle.Tensor, ks: Sequence[int]) -> paddle.Tensor:
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
    own = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1)
    earlier = paddle.arange(logits.shape[1], dtype=labels.dtype).unsqueeze(0) < labels.unsqueeze(1)
    ahead = (logits > own) | ((logits == own) & earlier)
    rank = ahead.astype("int64").sum(axis=1)
    valid = ~paddle.isnan(logits).any(axis=1)
    return paddle.stack([(rank < k) & valid for k in ks], axis=1)


class TopKAccuracy:
    """Counts right answers and samples.

    Args:
        ks: values of k.
    """

    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:
        self.ks = tuple(ks)
        self.correct = [0] * len(self.ks)
        self.count = 0

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor, mask: paddle.Tensor | None = None) -> None:
        """Add a batch.

        Args:
            logits: (N, classes).
            labels: int64 (N,).
            mask: bool (N,), False for padding, which counts neither as right nor as a sample.
        """
        right = top_k_correct(logits, labels, self.ks)
        if mask is not None:
            right = right & mask.unsqueeze(1)
        counts = right.astype("int64").sum(axis=0).tolist()
        self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]
        self.count += int(mask.astype("int64").sum()) if mask is not None else labels.shape[0]

    def merge(self, other: TopKAccuracy) -> None:
        """Add the counts of another part of the data."""
        self.correct = [total + new for total, new in zip(self.correct, other.correct, strict=True)]
        self.count += other.count

    def all_reduce(self) -> None:
        """Sum the counts over all ranks; without a process group this changes nothing."""
        if dist.is_initialized() and dist.get_world_size() > 1:
            counts = paddle.to_tensor([*self.correct, self.count], dtype="int64")
            dist.all_reduce(counts)
            *self.correct, self.count = counts.tolist()

    def compute(self) -> dict[str, float]:
        """``{"top1": share of right answers, ...}``, each 0..1.

        Raises:
            ValueError: nothing was counted.
        """
        if self.count == 0:
            raise ValueError("accuracy of no samples: the data set is empty or fully masked")
        return {f"top{k}": correct / self.count for k, correct in zip(self.ks, self.correct, strict=True)}
