"""Mixup and cutmix of a batch, by torchvision's own transforms."""

from __future__ import annotations

import torch
from torchvision.transforms import v2

from mobilenetv3_common.sampling import MixParams


class _MixUp(v2.MixUp):
    def __init__(self, params: MixParams, num_classes: int) -> None:
        super().__init__(num_classes=num_classes)
        self.drawn = params

    def make_params(self, flat_inputs: list) -> dict:
        return {"lam": self.drawn.lam}


class _CutMix(v2.CutMix):
    def __init__(self, params: MixParams, num_classes: int) -> None:
        super().__init__(num_classes=num_classes)
        self.drawn = params

    def make_params(self, flat_inputs: list) -> dict:
        assert self.drawn.box is not None
        top, left, height, width = self.drawn.box
        return {"box": (left, top, left + width, top + height), "lam_adjusted": self.drawn.lam}


def mix_batch(images: torch.Tensor, labels: torch.Tensor, params: MixParams, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mix each sample with the one before it in the batch, the first with the last.

    Args:
        images: float32 (N, 3, H, W).
        labels: int64 (N,), 0 .. ``num_classes`` - 1.
        params: from ``mobilenetv3_common.sampling.mix_params``.

    Returns:
        Mixed images, and labels as rows of class probabilities, float32 (N, num_classes).
    """
    mixer = (_MixUp if params.kind == "mixup" else _CutMix)(params, num_classes)
    return mixer(images, labels)
