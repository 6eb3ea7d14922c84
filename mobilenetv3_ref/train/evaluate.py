"""Evaluation: every sample counted once, whatever the batch size and the number of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from mobilenetv3_ref.loss import CrossEntropyLoss
from mobilenetv3_ref.metric import top_k_correct
from mobilenetv3_ref.train.distributed import Ranks
from mobilenetv3_ref.train.precision import Precision


@dataclass(frozen=True)
class Evaluation:
    """Counts over all ranks.

    Attributes:
        samples: pictures counted.
        skipped: damaged pictures left out.
        top1, top5: shares of right answers, 0..1.
        loss: mean cross-entropy, without label smoothing.
        confusion: int64 (classes, classes); row the true class, column the predicted one.
    """

    samples: int
    skipped: int
    top1: float
    top5: float
    loss: float
    confusion: np.ndarray

    def figures(self) -> dict[str, float]:
        return {"top1": self.top1, "top5": self.top5, "loss": self.loss, "samples": self.samples, "skipped": self.skipped}


@torch.no_grad()
def evaluate(
    model: nn.Module, loader: Iterable, num_classes: int, ranks: Ranks | None = None, precision: Precision | None = None
) -> Evaluation:
    """Run a model in evaluation mode over this rank's share of the pictures, and add up over the ranks.

    Args:
        model: left in evaluation mode.
        loader: batches of (images, labels, picture numbers); a negative number marks a stand-in for a damaged picture,
            which does not count.
        num_classes: size of the confusion matrix.
        ranks: this process alone by default.
        precision: float32 by default.
    """
    ranks, precision = ranks or Ranks(), precision or Precision()
    model.eval()
    criterion = CrossEntropyLoss(ignore_index=-1)
    confusion = np.zeros((num_classes, num_classes), dtype=np.int64)
    samples = skipped = right1 = right5 = 0
    loss = 0.0
    for images, labels, numbers in loader:
        counted = numbers.numpy() >= 0
        skipped += int((~counted).sum())
        if not counted.any():
            continue
        images, labels = ranks.place(images), ranks.place(labels)
        with precision.autocast():
            logits = precision.full(model(images))
        kept = torch.where(ranks.place(torch.from_numpy(counted)), labels, -1)
        right = top_k_correct(logits, labels, (1, 5)).cpu().numpy() & counted[:, None]
        samples += int(counted.sum())
        right1, right5 = right1 + int(right[:, 0].sum()), right5 + int(right[:, 1].sum())
        loss += float(criterion(logits, kept)) * int(counted.sum())
        np.add.at(confusion, (labels.cpu().numpy()[counted], logits.argmax(1).cpu().numpy()[counted]), 1)
    totals = ranks.sum([samples, skipped, right1, right5, loss])
    samples, skipped, right1, right5 = (int(value) for value in totals[:4])
    confusion = ranks.sum(confusion.ravel()).reshape(confusion.shape).astype(np.int64)
    shown = max(samples, 1)
    return Evaluation(samples, skipped, right1 / shown, right5 / shown, float(totals[4]) / shown, confusion)
