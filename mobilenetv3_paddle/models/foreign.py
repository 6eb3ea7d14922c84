"""Networks of other trainers, where this project's builders do not make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddle import nn

from mobilenetv3_common.architecture import Architecture, Shapes, architecture_of
from mobilenetv3_common.weights import Entry, paddle_entries
from mobilenetv3_common.weights_file import say
from mobilenetv3_paddle.models import MODELS
from mobilenetv3_paddle.models.mobilenetv3 import BlockConfig, ConvNormActivation, InvertedResidual, MobileNetV3, SqueezeExcitation


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
            model.features[0] = ConvNormActivation(inputs, outputs, 3, "HS", stride=2)
        else:
            model.features[number] = _rebuilt(model.features[number].block, inputs, expanded, outputs)
    if architecture.first_expansion:
        block = model.features[1].block
        channels = block[0][0].weight.shape[0]
        model.features[1].block = nn.Sequential(ConvNormActivation(channels, channels, 1, "RE"), *block)
    for path, squeezed in architecture.squeezed:
        part, _, place = path.removeprefix("features.").partition(".block.")
        gate = model.features[int(part)].block[int(place)]
        channels = gate.fc2.weight.shape[0]
        gate.fc1, gate.fc2 = nn.Conv2D(channels, squeezed, 1), nn.Conv2D(squeezed, channels, 1)
    tail, classifier = model.features[-1], model.classifier
    if architecture.tail_channels is not None:
        tail = ConvNormActivation(model.features[-2].block[-1][0].weight.shape[0], architecture.tail_channels, 1, "HS")
        model.features[len(model.features) - 1] = tail
    if architecture.tail_channels is not None or architecture.last_channels is not None:
        hidden = architecture.last_channels or classifier[0].weight.shape[1]
        classifier[0] = nn.Linear(tail[0].weight.shape[0], hidden)
        classifier[3] = nn.Linear(hidden, classifier[3].weight.shape[1])


def _rebuilt(block: nn.Sequential, inputs: int, expanded: int, outputs: int) -> InvertedResidual:
    """A block with other channels, and with the kernel, the stride and the activation that it has."""
    squeezes = any(isinstance(layer, SqueezeExcitation) for layer in block)
    depthwise = block[len(block) - (3 if squeezes else 2)]
    activation = "HS" if isinstance(depthwise[2], nn.Hardswish) else "RE"
    kernel, stride = depthwise[0].weight.shape[2], depthwise[0]._stride[0]
    return InvertedResidual(BlockConfig(inputs, kernel, expanded, outputs, squeezes, activation, stride))


def fitting(shapes: Shapes) -> Architecture | None:
    """The architecture of weights by the canonical shapes of their tensors; None where no MobileNetV3 has them."""
    return architecture_of(shapes, shapes_of)


def shapes_of(model: str, **options: Any) -> Shapes:
    """The canonical shapes of a network's tensors."""
    return {entry.canonical: entry.shape for entry in _entries(MODELS[model](**options))}


def entries(architecture: Architecture, source: str | Path) -> list[Entry]:
    """The names and shapes of a network's tensors in both forms."""
    return _entries(build(architecture, source))


def _entries(model: MobileNetV3) -> list[Entry]:
    return paddle_entries({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
