"""paddle.vision's ResNet with torch's running variance, with its own stem or the one for pictures of 32 pixels."""

from __future__ import annotations

from typing import Any

import paddle.vision.models
from paddle import nn

from mobilenetv3_paddle.models import BatchNorm2D

STEMS = ("imagenet", "cifar")


def resnet18(num_classes: int = 1000, stem: str = "imagenet") -> nn.Layer:
    """ResNet-18; ``stem``: ``"imagenet"``, or ``"cifar"`` for pictures of 32 pixels."""
    return with_stem(with_torch_statistics(paddle.vision.models.resnet18(num_classes=num_classes)), checked(stem))


def resnet50(num_classes: int = 1000, stem: str = "imagenet") -> nn.Layer:
    """ResNet-50; ``stem``: as ``resnet18``."""
    return with_stem(with_torch_statistics(paddle.vision.models.resnet50(num_classes=num_classes)), checked(stem))


def with_stem(model: Any, stem: str) -> Any:
    """For CIFAR: a 3x3 convolution of stride 1 in place of the 7x7 one of stride 2, and no pooling."""
    if stem == "cifar":
        he = nn.initializer.KaimingNormal(fan_in=64 * 9, nonlinearity="relu")
        model.conv1 = nn.Conv2D(3, 64, 3, padding=1, bias_attr=False, weight_attr=paddle.ParamAttr(initializer=he))
        model.maxpool = nn.Identity()
    return model


def with_torch_statistics(model: nn.Layer) -> nn.Layer:
    """The model with every stock BatchNorm2D replaced by one that keeps torch's running variance; in place."""
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm2D:
                setattr(parent, name, BatchNorm2D(child._num_features, eps=child._epsilon, momentum=1.0 - child._momentum))
    return model


def checked(stem: str) -> str:
    if stem not in STEMS:
        raise ValueError(f"stem must be one of {', '.join(STEMS)}, found {stem!r}")
    return stem
