"""ResNet in MindSpore (https://arxiv.org/abs/1512.03385, table 1), torchvision's: the stride lies in the 3x3 convolution."""

from __future__ import annotations

from mindspore import nn
from mindspore.common.initializer import HeNormal

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
STEMS = ("imagenet", "cifar")


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, padded by half its size, with torchvision's initialisation."""
    he = HeNormal(mode="fan_out", nonlinearity="relu")
    return nn.Conv2d(inputs, outputs, size, stride, pad_mode="pad", padding=size // 2, weight_init=he)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Cell | None:
    """What brings a block's input to its output's shape; None where it has that."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.SequentialCell(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Cell):
    """Two 3x3 convolutions and the input."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def construct(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Cell):
    """1x1, 3x3 and 1x1 convolutions and the input."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = shortcut(inputs, outputs, stride)

    def construct(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Cell):
    """(N, 3, H, W) -> logits (N, classes)."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], blocks: tuple[int, ...], num_classes: int, stem: str) -> None:
        super().__init__()
        self.conv1 = convolution(3, 64, 7, 2) if stem == "imagenet" else convolution(3, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1) if stem == "imagenet" else nn.Identity()
        inputs = 64
        for number, count in enumerate(blocks):
            width, stride = 64 * 2**number, 1 if number == 0 else 2
            layer = []
            for place in range(count):
                layer.append(block(inputs, width, stride if place == 0 else 1))
                inputs = width * block.expansion
            setattr(self, f"layer{number + 1}", nn.SequentialCell(layer))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(inputs, num_classes)

    def construct(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.flatten(self.avgpool(x)))


def resnet18(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    """ResNet-18; ``stem``: ``"imagenet"``, or ``"cifar"`` for pictures of 32 pixels."""
    return ResNet(BasicBlock, BLOCKS[18], num_classes, checked(stem))


def resnet50(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    """ResNet-50; ``stem``: as ``resnet18``."""
    return ResNet(Bottleneck, BLOCKS[50], num_classes, checked(stem))


def checked(stem: str) -> str:
    if stem not in STEMS:
        raise ValueError(f"stem must be one of {', '.join(STEMS)}, found {stem!r}")
    return stem
