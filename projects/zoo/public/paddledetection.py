"""PaddleDetection's networks against timm's."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from alignment.kinds import Kind
from projects.zoo.public.inputs import pictures_64
from projects.zoo.public.pair import Difference, PublicPair
from projects.zoo.public.repository import Repository
from projects.zoo.shells import make_importable, stand_in

PADDLEDETECTION = Repository("PaddlePaddle/PaddleDetection", "666f597", "ppdet/modeling", package="ppdet")


@cache
def _prepare(folder: Path) -> None:
    """Let one network be imported without the others, the data pipelines and what these need."""
    make_importable(folder, ("ppdet", "ppdet.core", "ppdet.modeling", "ppdet.modeling.backbones"))
    # A list of all classes, for configuration files.
    stand_in("ppdet.core.workspace", register=lambda kind: kind, serializable=lambda kind: kind)


def lcnet(checkouts: str | None = None) -> Any:
    """The port is given a dictionary."""
    import paddle

    _prepare(PADDLEDETECTION.found(checkouts))
    from ppdet.modeling.backbones.lcnet import LCNet

    class OfPicture(paddle.nn.Layer):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return self.net({"image": x})

    return OfPicture(LCNet(scale=0.25))


def lcnet_reference() -> Any:
    """As timm's ``lcnet_035`` with ``features_only``, with fewer channels."""
    from timm.models.mobilenetv3 import _gen_lcnet

    return _gen_lcnet("lcnet_035", 0.25, features_only=True, out_indices=(2, 3, 4))


PAIRS = (
    PublicPair(
        PADDLEDETECTION,
        lcnet,
        lcnet_reference,
        "timm _gen_lcnet",
        pictures_64,
        (
            Difference(
                "fresh weights of the convolutions are drawn for fan_in, the reference's for fan_out",
                "ppdet/modeling/backbones/lcnet.py",
                "self.conv = Conv2D(",
                (Kind.INITIALISATION,),
                ("conv_stem.weight", "blocks.*.conv_pw.weight"),
            ),
        ),
    ),
)
