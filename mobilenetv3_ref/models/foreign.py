"""Networks of other trainers, where this project's builders do not make them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from torch import nn
from torchvision.models import MobileNetV3
from torchvision.models.mobilenetv3 import InvertedResidual, InvertedResidualConfig
from torchvision.ops.misc import Conv2dNormActivation, SqueezeExcitation

from mobilenetv3_common.architecture import Architecture, Shapes, architecture_of
from mobilenetv3_common.weights_file import say
from mobilenetv3_ref.models import MODELS

NORM = functools.partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)


def build(architecture: Architecture, source: str | Path) -> MobileNetV3:
    """The network of an architecture that was read off the weights ``source``."""
    model = MODELS[architecture.model](**architecture.options)
    adapt(model, architecture, source)
    return model


def adapt(model: MobileNetV3, architecture: Architecture | None, source: str | Path) -> None:
    """Give a builder's network the layers in which the architecture of weights differs, in place, and say so; of None nothing."""
    if architecture is None or not architecture.differences:
        return
    say(source, [f"the network is built as its weights are: {', '.join(architecture.differences)}"])
    for number, inputs, expanded, outputs in architecture.rows:
        if number == 0:
            model.features[0] = _convolution(inputs, outputs, nn.Hardswish, kernel_size=3, stride=2)
        else:
            model.features[number] = _rebuilt(model.features[number].block, inputs, expanded, outputs)
    if architecture.first_expansion:
        block = model.features[1].block
        channels = block[0][0].weight.shape[0]
        model.features[1].block = nn.Sequential(_convolution(channels, channels, nn.ReLU), *block)
    for path, squeezed in architecture.squeezed:
        part, _, place = path.removeprefix("features.").partition(".block.")
        gate = model.features[int(part)].block[int(place)]
        channels = gate.fc2.weight.shape[0]
        gate.fc1, gate.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
    tail, classifier = model.features[-1], model.classifier
    if architecture.tail_channels is not None:
        tail = _convolution(model.features[-2].block[-1][0].weight.shape[0], architecture.tail_channels, nn.Hardswish)
        model.features[len(model.features) - 1] = tail
    if architecture.tail_channels is not None or architecture.last_channels is not None:
        hidden = architecture.last_channels or classifier[0].weight.shape[0]
        classifier[0] = nn.Linear(tail[0].weight.shape[0], hidden)
        classifier[3] = nn.Linear(hidden, classifier[3].weight.shape[0])


def _rebuilt(block: nn.Sequential, inputs: int, expanded: int, outputs: int) -> InvertedResidual:
    """A block with other channels, and with the kernel, the stride and the activation that it has."""
    squeezes = any(isinstance(layer, SqueezeExcitation) for layer in block)
    depthwise = block[len(block) - (3 if squeezes else 2)]
    activation = "HS" if isinstance(depthwise[2], nn.Hardswish) else "RE"
    kernel, stride = depthwise[0].weight.shape[2], depthwise[0].stride[0]
    return InvertedResidual(InvertedResidualConfig(inputs, kernel, expanded, outputs, squeezes, activation, stride, 1, 1.0), NORM)


def _convolution(inputs: int, outputs: int, activation: type[nn.Module], kernel_size: int = 1, stride: int = 1) -> nn.Module:
    """A convolution with BatchNorm, as torchvision's MobileNetV3 has them."""
    return Conv2dNormActivation(inputs, outputs, kernel_size, stride, norm_layer=NORM, activation_layer=activation)


def fitting(shapes: Shapes) -> Architecture | None:
    """The architecture of weights by the canonical shapes of their tensors; None where no MobileNetV3 has them."""
    return architecture_of(shapes, shapes_of)


def shapes_of(model: str, **options: Any) -> Shapes:
    """The canonical shapes of a network's tensors."""
    state = MODELS[model](**options).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items() if tensor.is_floating_point()}
