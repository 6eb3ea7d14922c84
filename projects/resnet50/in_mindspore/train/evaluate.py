"""What a model makes of one batch."""

from __future__ import annotations

import math

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from mobilenetv3_common.parts import Judgement
from projects.resnet50.in_mindspore.loss import CrossEntropyLoss
from projects.resnet50.in_mindspore.metric import top_k_correct
from projects.resnet50.in_mindspore.train.distributed import Ranks
from projects.resnet50.in_mindspore.train.guard import all_finite, is_finite
from projects.resnet50.in_mindspore.train.optimizer import plus
from projects.resnet50.in_mindspore.train.precision import Precision


def count_right(logits: Tensor, labels: Tensor) -> Tensor:
    """How many pictures have their label among the one and the five largest logits: float32 (2,).

    Args:
        logits: (N, classes).
        labels: int64 (N,), or (N, classes) probabilities, of which the largest counts.
    """
    hard = labels if labels.ndim == 1 else labels.argmax(1)
    return top_k_correct(logits, hard, (1, 5)).astype(mindspore.float32).sum(0)


def averaged(model: nn.Cell, images: Tensor) -> Tensor:
    """Logits (N, classes) of pictures (N, 3, H, W); of pictures in several views (N, views, 3, H, W) the logarithm of the mean
    of the views' probabilities."""
    if images.ndim == 4:
        return model(images)
    of_views = ops.stack([model(images[:, number]) for number in range(images.shape[1])])
    shifted = of_views - of_views.max(axis=2, keepdims=True)
    probabilities = ops.exp(shifted)
    mean = (probabilities / probabilities.sum(axis=2, keepdims=True)).sum(axis=0)
    return plus(ops.log(mean), -math.log(images.shape[1]))


def judge_batch(
    model: nn.Cell, images: Tensor, labels: Tensor, counted: np.ndarray, ranks: Ranks, precision: Precision
) -> Judgement:
    """What a model in evaluation mode makes of one batch.

    Args:
        model: of the run.
        images: float32 (N, 3, H, W), or (N, views, 3, H, W).
        labels: int64 (N,).
        counted: bool (N,), True for at least one picture; the others have no part in the loss.
        ranks: whose device computes.
        precision: of the forward pass.
    """
    precision.prepare(model)
    with mindspore._no_grad():
        logits = precision.full(averaged(model, images))
        kept = Tensor(np.where(counted, labels.asnumpy(), -1))
        finite = is_finite(logits) and all_finite(model)  # ReLU hides NaN
        loss = float(CrossEntropyLoss(ignore_index=-1)(logits, kept).asnumpy()) if finite else math.nan
        right = top_k_correct(logits, labels, (1, 5)).asnumpy()
    values = logits.asnumpy().astype(np.float64)
    confidence = 1 / np.exp(values - values.max(1, keepdims=True)).sum(1)
    return Judgement(right, labels.asnumpy(), values.argmax(1), confidence, loss)
