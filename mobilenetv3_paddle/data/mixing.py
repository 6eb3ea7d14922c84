"""Mixup and cutmix of a batch."""

from __future__ import annotations

import numpy as np

from mobilenetv3_common.sampling import MixParams


def mix_batch(images: np.ndarray, labels: np.ndarray, params: MixParams, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Mix each sample with the one before it in the batch, the first with the last.

    Args:
        images: float32 (N, 3, H, W).
        labels: int64 (N,), 0 .. ``num_classes`` - 1.
        params: from ``mobilenetv3_common.sampling.mix_params``.

    Returns:
        Mixed images, and labels as rows of class probabilities, float32 (N, num_classes).
    """
    own, other = np.float32(params.lam), np.float32(1.0 - params.lam)
    if params.kind == "mixup":
        images = np.roll(images, 1, axis=0) * other + images * own
    elif params.box is not None:
        top, left, height, width = params.box
        region = np.s_[..., top : top + height, left : left + width]
        mixed = images.copy()
        mixed[region] = np.roll(images, 1, axis=0)[region]
        images = mixed
    one_hot = np.zeros((len(labels), num_classes), dtype=np.float32)
    one_hot[np.arange(len(labels)), labels] = 1.0
    return images, np.roll(one_hot, 1, axis=0) * other + one_hot * own
