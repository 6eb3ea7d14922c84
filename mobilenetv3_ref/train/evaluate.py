"""What a model makes of one batch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from mobilenetv3_common.parts import Judgement
from mobilenetv3_ref.loss import CrossEntropyLoss
from mobilenetv3_ref.metric import top_k_correct
from mobilenetv3_ref.train.distributed import Ranks
from mobilenetv3_ref.train.precision import Precision


def count_right(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """How many pictures have their label among the one and the five largest logits: float32 (2,), on the device.

    Args:
        logits: (N, classes).
        labels: int64 (N,), or (N, classes) probabilities, of which the largest counts.
    """
    hard = labels if labels.ndim == 1 else labels.argmax(1)
    return top_k_correct(logits, hard, (1, 5)).float().sum(0)


def averaged(model: nn.Module, images: torch.Tensor, precision: Precision) -> torch.Tensor:
    """Logits (N, classes) of pictures (N, 3, H, W); of pictures in several views (N, views, 3, H, W) the logarithm of the mean
    of the views' probabilities."""
    if images.ndim == 4:
        return precision.full(model(images))
    of_views = [precision.full(model(view)).log_softmax(1) for view in images.unbind(1)]
    return torch.stack(of_views).logsumexp(0) - math.log(len(of_views))


@torch.no_grad()
def judge_batch(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, counted: np.ndarray, ranks: Ranks, precision: Precision
) -> Judgement:
    """What a model in evaluation mode makes of one batch.

    Args:
        model: on the ranks' device.
        images: float32 (N, 3, H, W), or (N, views, 3, H, W), on the CPU.
        labels: int64 (N,), on the CPU.
        counted: bool (N,), True for at least one picture; the others have no part in the loss.
        ranks: whose device computes.
        precision: of the forward pass.
    """
    images, labels = ranks.place(images), ranks.place(labels)
    with precision.autocast():
        logits = averaged(model, images, precision)
    kept = torch.where(ranks.place(torch.from_numpy(counted)), labels, -1)
    loss = float(CrossEntropyLoss(ignore_index=-1)(logits, kept)) if bool(torch.isfinite(logits).all()) else float("nan")
    right, labels, predicted = top_k_correct(logits, labels, (1, 5)).cpu(), labels.cpu(), logits.argmax(1).cpu()
    confidence = logits.softmax(1).amax(1).cpu()
    return Judgement(right.numpy(), labels.numpy(), predicted.numpy(), confidence.numpy(), loss)
