"""PaddleViT's networks for pictures against timm's."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from alignment.kinds import Kind
from projects.zoo.public.inputs import pictures_32, pictures_64
from projects.zoo.public.pair import Difference, PublicPair
from projects.zoo.public.repository import Repository

PADDLEVIT = Repository("BR-IDL/PaddleViT", "5ac7d89", "image_classification")
CAIT = {"num_classes": 10, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "depth_token_only": 2}
XCIT = {
    "img_size": 64,
    "patch_size": 8,
    "num_classes": 10,
    "embed_dim": 48,
    "depth": 2,
    "num_heads": 4,
    "qkv_bias": True,
    "eta": 1.0,
}
PVT_V2 = {"num_classes": 10, "embed_dims": [16, 24, 40, 48], "num_heads": [1, 2, 5, 6], "depths": [1, 2, 1, 1], "qkv_bias": True}


def _prepare(checkouts: str | None, network: str) -> None:
    """Let the files of one network be imported: each network is a folder of modules that is no package."""
    folder = str(PADDLEVIT.found(checkouts) / "image_classification" / network)
    if folder not in sys.path:
        sys.path.insert(0, folder)


def cait(checkouts: str | None = None) -> Any:
    _prepare(checkouts, "CaiT")
    from cait import Cait

    return Cait(image_size=32, **CAIT)


def cait_reference() -> Any:
    from timm.models.cait import Cait

    return Cait(img_size=32, **CAIT)


def mlp_mixer(checkouts: str | None = None) -> Any:
    _prepare(checkouts, "MLP-Mixer")
    from mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, image_size=32, patch_size=8, num_mixer_layers=3, embed_dim=48)


def mlp_mixer_reference() -> Any:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=3, embed_dim=48)


def poolformer(checkouts: str | None = None) -> Any:
    _prepare(checkouts, "PoolFormer")
    from poolformer import PoolFormer

    return PoolFormer([1, 1, 2, 1], embed_dims=[16, 24, 32, 48], mlp_ratios=[4, 4, 4, 4], downsamples=[True] * 4, num_classes=10)


def poolformer_reference() -> Any:
    """As timm's ``poolformer_s12``, which has more layers of more channels."""
    from timm.models.metaformer import GroupNorm1, MetaFormer
    from torch import nn

    return MetaFormer(
        num_classes=10,
        depths=[1, 1, 2, 1],
        dims=[16, 24, 32, 48],
        downsample_norm=None,
        mlp_act=nn.GELU,
        mlp_bias=True,
        norm_layers=GroupNorm1,
        layer_scale_init_values=1e-5,
        res_scale_init_values=None,
        use_mlp_head=False,
    )


def pvt_v2(checkouts: str | None = None) -> Any:
    _prepare(checkouts, "PVTv2")
    from pvtv2 import PyramidVisionTransformerV2

    return PyramidVisionTransformerV2(image_size=64, mlp_ratio=[8, 8, 4, 4], sr_ratio=[8, 4, 2, 1], drop_path=0.1, **PVT_V2)


def pvt_v2_reference() -> Any:
    from timm.models.pvt_v2 import PyramidVisionTransformerV2

    return PyramidVisionTransformerV2(mlp_ratios=[8, 8, 4, 4], sr_ratios=[8, 4, 2, 1], drop_path_rate=0.1, **PVT_V2)


def xcit(checkouts: str | None = None) -> Any:
    """The first of the two equal logits that the port returns."""
    import paddle

    _prepare(checkouts, "XCiT")
    from xcit import XCiT

    class First(paddle.nn.Layer):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return self.net(x)[0]

    return First(XCiT(norm_layer=partial(paddle.nn.LayerNorm, epsilon=1e-6), **XCIT))


def xcit_reference() -> Any:
    from timm.models.xcit import Xcit

    return Xcit(**XCIT)


_CAIT, _MIXER, _POOLFORMER, _PVT_V2, _XCIT = (
    f"image_classification/{file}.py"
    for file in ("CaiT/cait", "MLP-Mixer/mlp_mixer", "PoolFormer/poolformer", "PVTv2/pvtv2", "XCiT/xcit")
)
PAIRS = (
    PublicPair(
        PADDLEVIT,
        cait,
        cait_reference,
        "timm Cait",
        pictures_32,
        (
            Difference(
                "fresh weights of the class token and of the positions are zero, the reference's are random",
                _CAIT,
                "self.cls_token = paddle.create_parameter(",
                (Kind.INITIALISATION,),
                ("cls_token", "pos_embed"),
            ),
        ),
    ),
    PublicPair(
        PADDLEVIT,
        mlp_mixer,
        mlp_mixer_reference,
        "timm MlpMixer",
        pictures_32,
        (
            Difference(
                "fresh weights of the head are random, the reference's are zero",
                _MIXER,
                "self.head = nn.Linear(",
                (Kind.INITIALISATION,),
                ("head.weight",),
            ),
        ),
    ),
    PublicPair(
        PADDLEVIT,
        poolformer,
        poolformer_reference,
        "timm MetaFormer",
        pictures_64,
        (
            Difference(
                "the last normalisation stands before the mean over the map, the reference's behind it",
                _POOLFORMER,
                "cls_out = self.head(x.mean([-2, -1]))",
                (Kind.CALL_ORDER, Kind.NORM_POSITION, Kind.CALL_MISSING),
                ("PoolFormer.forward",),
            ),
            Difference(
                "the last normalisation is a GroupNorm with one group, the reference's a LayerNorm over channels, with another eps",
                _POOLFORMER,
                "self.norm = norm_layer(embed_dims[-1])",
                (Kind.LAYER_REPLACED, Kind.NORM_SETTING),
                ("head.norm",),
            ),
        ),
    ),
    PublicPair(
        PADDLEVIT,
        pvt_v2,
        pvt_v2_reference,
        "timm PyramidVisionTransformerV2",
        pictures_64,
        (
            Difference(
                "eps of the normalisations of the patches: 1e-6, the reference's 1e-5",
                _PVT_V2,
                "self.norm = nn.LayerNorm(embed_dim, weight_attr=w_attr_1, bias_attr=b_attr_1, epsilon=1e-6)",
                (Kind.NORM_EPS,),
                ("patch_embed.norm", "stages.*.downsample.norm"),
            ),
            Difference(
                "eps of the normalisations behind the reduction in attention: 1e-6, the reference's 1e-5",
                _PVT_V2,
                "self.norm = nn.LayerNorm(dim,",
                (Kind.NORM_EPS,),
                ("stages.*.blocks.*.attn.norm",),
            ),
            Difference(
                "fresh weights of the reduction and of the depthwise convolutions are zero: XavierNormal(fan_in=0)",
                _PVT_V2,
                "self.sr = nn.Conv2D(dim,",
                (Kind.INITIALISATION,),
                ("stages.*.blocks.*.attn.sr.weight", "stages.*.blocks.*.mlp.dwconv.weight"),
            ),
        ),
    ),
    PublicPair(
        PADDLEVIT,
        xcit,
        xcit_reference,
        "timm Xcit",
        pictures_64,
        (
            Difference(
                "the logits are returned twice, in evaluation mode, too: a method is tested in place of self.training",
                _XCIT,
                "if self.train:",
            ),
        ),
    ),
)
