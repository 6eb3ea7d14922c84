"""torchvision's ResNet, with its own stem or the one for pictures of 32 pixels."""

from __future__ import annotations

from typing import Any

from torch import nn

import mobilenetv3_ref  # noqa: F401  (makes torchvision importable beside a CPU build of torch)

import torchvision.models  # isort: skip

STEMS = ("imagenet", "cifar")


def resnet18(num_classes: int = 1000, stem: str = "imagenet") -> nn.Module:
    """ResNet-18; ``stem``: ``"imagenet"``, or ``"cifar"`` for pictures of 32 pixels."""
    return with_stem(torchvision.models.resnet18(num_classes=num_classes), checked(stem))


def resnet50(num_classes: int = 1000, stem: str = "imagenet") -> nn.Module:
    """ResNet-50; ``stem``: as ``resnet18``."""
    return with_stem(torchvision.models.resnet50(num_classes=num_classes), checked(stem))


def with_stem(model: Any, stem: str) -> Any:
    """For CIFAR: a 3x3 convolution of stride 1 in place of the 7x7 one of stride 2, and no pooling."""
    if stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
    return model


def checked(stem: str) -> str:
    if stem not in STEMS:
        raise ValueError(f"stem must be one of {', '.join(STEMS)}, found {stem!r}")
    return stem
