"""Mixup and cutmix of a batch. (``vision.MixUp`` and ``vision.CutMixBatch`` draw their shares and partners themselves.)"""

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
    before = np.arange(len(images)) - 1
    own, other = np.float32(params.lam), np.float32(1.0 - params.lam)
    if params.kind == "mixup":
        images = images[before] * other + images * own
    elif params.box is not None:
        top, left, height, width = params.box
        inside = np.zeros(images.shape[2:], dtype=bool)
        inside[top : top + height, left : left + width] = True
        images = np.where(inside, images[before], images)
    rows = np.eye(num_classes, dtype=np.float32)[labels]
    return images, rows[before] * other + rows * own
