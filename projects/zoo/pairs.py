"""The pairs: which two callables, on what input, and which differences are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pair:
    """A port and its reference.

    Attributes:
        name: of the row.
        port, reference: ``MODULE:CALLABLE``.
        shape: of one sample.
        differences: keys of ``projects.zoo.differences.DIFFERENCES`` that are known.
        port_args, reference_args: keyword arguments.
    """

    name: str
    port: str
    reference: str
    shape: tuple[int, ...] = (3, 64, 64)
    differences: tuple[str, ...] = ("variance",)
    port_args: Mapping[str, Any] = field(default_factory=dict)
    reference_args: Mapping[str, Any] = field(default_factory=dict)


def _vision(name: str, **more: Any) -> Pair:
    return Pair(name, f"paddle.vision.models:{name}", f"torchvision.models:{name}", **more)


def _vgg(depth: int, norm: bool) -> Pair:
    name = f"vgg{depth}{'_bn' if norm else ''}"
    differences = ("variance",) if norm else ()
    port_args = {"batch_norm": True} if norm else {}
    return Pair(
        name,
        f"paddle.vision.models:vgg{depth}",
        f"torchvision.models:{name}",
        (3, 64, 64),
        differences,
        port_args,
        {"init_weights": False},
    )


AUXILIARY = {"aux_logits": False, "init_weights": False}
PADDLE_VISION = (
    _vision("alexnet", shape=(3, 224, 224), differences=("dropout", "average")),
    *(_vision(f"densenet{depth}") for depth in (121, 161, 169, 201)),
    _vision("googlenet", differences=("googlenet",), reference_args=AUXILIARY, shape=(3, 224, 224)),
    _vision("inception_v3", shape=(3, 107, 107), differences=("epsilon", "dropout", "rate", "variance"), reference_args=AUXILIARY),
    _vision("mobilenet_v2"),
    _vision("mobilenet_v3_small"),
    _vision("mobilenet_v3_large"),
    *(_vision(f"resnet{depth}") for depth in (18, 34, 50, 101, 152)),
    _vision("resnext50_32x4d"),
    _vision("resnext101_64x4d"),
    _vision("wide_resnet50_2"),
    _vision("wide_resnet101_2"),
    *(_vision(f"shufflenet_v2_x{width}") for width in ("0_5", "1_0", "1_5")),
    _vision("shufflenet_v2_x2_0", differences=("width",)),
    _vision("squeezenet1_0", shape=(3, 65, 65), differences=("dropout", "ceiling")),
    _vision("squeezenet1_1", shape=(3, 65, 65), differences=("dropout", "padding", "ceiling")),
    *(_vgg(depth, norm) for norm in (False, True) for depth in (11, 13, 16, 19)),
)
PAIRS = {pair.name: pair for pair in PADDLE_VISION}
