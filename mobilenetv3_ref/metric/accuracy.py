"""Top-k accuracy by counts: exact for any batch size, padding and number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist


def top_k_correct(logits: torch.Tensor, labels: torch.Tensor, ks: Sequence[int]) -> torch.Tensor:
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
    own = torch.take_along_dim(logits, labels.unsqueeze(1), dim=1)
    earlier = torch.arange(logits.shape[1], device=labels.device).unsqueeze(0) < labels.unsqueeze(1)
    ahead = (logits > own) | ((logits == own) & earlier)
    rank = ahead.sum(dim=1)
    valid = ~torch.isnan(logits).any(dim=1)
    return torch.stack([(rank < k) & valid for k in ks], dim=1)


class TopKAccuracy:
    """Counts right answers and samples.

    Args:
        ks: values of k.
    """

    def __init__(self, ks: Sequence[int] = (1, 5)) -> None:
        self.ks = tuple(ks)
        self.correct = [0] * len(self.ks)
        self.count = 0

    def update(self, logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Add a batch.

        Args:
            logits: (N, classes).
            labels: int64 (N,).
            mask: bool (N,), False for padding, which counts neither as right nor as a sample.
        """
        right = top_k_correct(logits, labels, self.ks)
        if mask is not None:
            right = right & mask.unsqueeze(1)
        counts = right.sum(dim=0).tolist()
        self.correct = [total + new for total, new in zip(self.correct, counts, strict=True)]
        self.count += int(mask.sum()) if mask is not None else labels.shape[0]

    def merge(self, other: TopKAccuracy) -> None:
        """Add the counts of another part of the data."""
        self.correct = [total + new for total, new in zip(self.correct, other.correct, strict=True)]
        self.count += other.count

    def all_reduce(self) -> None:
        """Sum the counts over all ranks; without a process group this changes nothing."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            counts = torch.tensor([*self.correct, self.count], dtype=torch.int64)
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
