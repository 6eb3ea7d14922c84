"""What a model makes of one batch."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from mobilenetv3_common.parts import Judgement
from mobilenetv3_paddle.loss import CrossEntropyLoss
from mobilenetv3_paddle.metric import top_k_correct
from mobilenetv3_paddle.train.distributed import Ranks
from mobilenetv3_paddle.train.precision import Precision


def count_right(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """How many pictures have their label among the one and the five largest logits: float32 (2,), on the device.

    Args:
        logits: (N, classes).
        labels: int64 (N,), or (N, classes) probabilities, of which the largest counts.
    """
    hard = labels if labels.ndim == 1 else labels.argmax(1)
    return top_k_correct(logits, hard, (1, 5)).astype("float32").sum(0)


def averaged(model: nn.Layer, images: paddle.Tensor, precision: Precision) -> paddle.Tensor:
    """Logits (N, classes) of pictures (N, 3, H, W); of pictures in several views (N, views, 3, H, W) the logarithm of the mean
    of the views' probabilities."""
    if images.ndim == 4:
        return precision.full(model(images))
    of_views = []
    for view in range(images.shape[1]):
        logits = precision.full(model(images[:, view]))
        shifted = logits - logits.max(axis=1, keepdim=True)
        of_views.append(shifted - paddle.exp(shifted).sum(axis=1, keepdim=True).log())
    stacked = paddle.stack(of_views)
    largest = stacked.max(axis=0)
    return paddle.exp(stacked - largest).mean(axis=0).log() + largest


@paddle.no_grad()
def judge_batch(
    model: nn.Layer, images: paddle.Tensor, labels: paddle.Tensor, counted: np.ndarray, ranks: Ranks, precision: Precision
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
    kept = paddle.where(ranks.place(paddle.to_tensor(counted)), labels, paddle.full_like(labels, -1))
    # Of NaN logits Paddle's softmax makes a uniform one, whose loss looks sound.
    loss = float(CrossEntropyLoss(ignore_index=-1)(logits, kept)) if bool(paddle.isfinite(logits).all()) else float("nan")
    confidence = paddle.nn.functional.softmax(logits, axis=1).max(axis=1).numpy()
    return Judgement(top_k_correct(logits, labels, (1, 5)).numpy(), labels.numpy(), logits.argmax(1).numpy(), confidence, loss)
