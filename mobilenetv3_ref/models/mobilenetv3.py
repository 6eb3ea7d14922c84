"""MobileNetV3 (Howard et al. 2019, https://arxiv.org/abs/1905.02244), torchvision's implementation."""

from __future__ import annotations

from torchvision import models
from torchvision.models import MobileNetV3


def mobilenet_v3_small(
    num_classes: int = 1000, *, width_mult: float = 1.0, reduced_tail: bool = False, dilated: bool = False, dropout: float = 0.2
) -> MobileNetV3:
    """MobileNetV3-Small; see ``mobilenetv3_paddle.models.mobilenet_v3_small`` for the arguments."""
    return models.mobilenet_v3_small(
        num_classes=num_classes, width_mult=width_mult, reduced_tail=reduced_tail, dilated=dilated, dropout=dropout
    )


def mobilenet_v3_large(
    num_classes: int = 1000, *, width_mult: float = 1.0, reduced_tail: bool = False, dilated: bool = False, dropout: float = 0.2
) -> MobileNetV3:
    """MobileNetV3-Large; see ``mobilenetv3_paddle.models.mobilenet_v3_large`` for the arguments."""
    return models.mobilenet_v3_large(
        num_classes=num_classes, width_mult=width_mult, reduced_tail=reduced_tail, dilated=dilated, dropout=dropout
    )
