"""Backbones of PaddleClas against timm's and torchvision's: small variants, with ten classes, on small pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from projects.zoo.pairs import Pair


@dataclass(frozen=True)
class Backbone:
    """A backbone and what is known of it.

    Attributes:
        pair: it and its reference.
        found: what the audit's first finding has to say, each part of it; it has to pass where there is none.
        why: what differs, as both sources have it.
    """

    pair: Pair
    found: tuple[str, ...] = ()
    why: str = ""


CLASSES = 10
LEGENDARY = ["mobilenet_v1", "mobilenet_v3", "resnet", "vgg", "hrnet", "inception_v3", "swin_transformer"]
SIZE_64 = {"img_size": 64}


def _clas(name: str, file: str, reference: str, port: dict[str, Any] | None = None, side: int = 64, **more: Any) -> Backbone:
    """A backbone of PaddleClas and ``timm.models:NAME``, or ``torchvision.models:NAME`` where ``tv:NAME`` is given."""
    folder = "legendary_models" if file in LEGENDARY else "model_zoo"
    package = "torchvision.models" if reference.startswith("tv:") else "timm.models"
    reference_args = {"num_classes": CLASSES, **more.pop("reference_args", {})}
    pair = Pair(
        f"ppcls.{name}",
        f"ppcls.arch.backbone.{folder}.{file}:{name}",
        f"{package}:{reference.removeprefix('tv:')}",
        (3, side, side),
        differences=(),
        port_args={"class_num": CLASSES, **(port or {})},
        reference_args=reference_args,
    )
    return Backbone(pair, **more)


_ALL = (
    _clas(
        "ResNet18",
        "resnet",
        "resnet18",
        found=(
            "blocks.0.short.conv",
            "the reference does not have",
        ),
        why="the first block has a convolution on its shortcut",
    ),
    _clas(
        "ResNet34_vd",
        "resnet",
        "resnet34d",
        found=(
            "blocks.0.short.conv",
            "the reference does not have",
        ),
        why="the first block has a convolution on its shortcut",
    ),
    _clas("ResNet50", "resnet", "tv:resnet50"),
    _clas("ResNet50_vd", "resnet", "resnet50d"),
    _clas("ResNet50_vc", "resnet_vc", "resnet50c"),
    _clas("ResNeXt50_32x4d", "resnext", "tv:resnext50_32x4d"),
    _clas(
        "SE_ResNeXt50_32x4d",
        "se_resnext",
        "legacy_seresnext50_32x4d",
        found=(
            "pool0: wrong padding (1, 1), expected (0, 0)",
            "ceil_mode False, expected True",
        ),
        why="padding of the first pooling, where the reference's keeps the last, incomplete window",
    ),
    _clas(
        "Res2Net50_26w_4s",
        "res2net",
        "res2net50_26w_4s",
        found=(
            "layer1.0: ",
            "res2net.py:141: + is superfluous",
            "avg_pool2d is missing",
        ),
        why="the first block adds up its parts, and does not pool the last one",
    ),
    _clas(
        "Res2Net50_vd_26w_4s",
        "res2net_vd",
        "res2net50d",
        found=(
            "layer1.0: ",
            "res2net_vd.py:150: + is superfluous",
            "avg_pool2d is missing",
        ),
        why="the first block adds up its parts, and does not pool the last one",
    ),
    _clas(
        "ResNeSt50",
        "resnest",
        "resnest50d",
        found=("layer1.0.conv2.fc1.bias: the port has no such tensor",),
        why="the first convolution of the attention over splits has no bias",
    ),
    _clas("DenseNet121", "densenet", "tv:densenet121"),
    _clas("DPN68", "dpn", "dpn68", found=("bn: wrong eps: 1e-05, expected 0.001",), why="eps of every BatchNorm"),
    _clas(
        "HRNet_W18_C",
        "hrnet",
        "hrnet_w18",
        found=("downsamp_modules.0.0.bias: the port has no such tensor",),
        why="the convolutions of the head have no bias",
    ),
    _clas(
        "MobileNetV1",
        "mobilenet_v1",
        "mobilenetv1_100",
        found=(
            ".act: activation swapped",
            "expected ReLU6",
        ),
        why="ReLU, where timm's has ReLU6",
    ),
    _clas(
        "MobileNetV2",
        "mobilenet_v2",
        "tv:mobilenet_v2",
        found=(
            "conv2._first_block._expand_conv",
            "the reference does not have",
        ),
        why="the first block expands, by a factor of 1",
    ),
    _clas(
        "MobileNetV3_small_x1_0",
        "mobilenet_v3",
        "tv:mobilenet_v3_small",
        found=("4 output channels, expected 8",),
        why="widths of the squeeze, eps, slope of the hard sigmoid, a block that expands by 1",
    ),
    _clas(
        "MobileNetV3_large_x1_0",
        "mobilenet_v3",
        "tv:mobilenet_v3_large",
        found=("18 output channels, expected 24",),
        why="widths of the squeeze, eps, slope of the hard sigmoid, a block that expands by 1",
    ),
    _clas(
        "GhostNet_x1_0",
        "ghostnet",
        "ghostnet_100",
        found=("18 output channels, expected 20",),
        why="widths of the squeeze that are not rounded to a multiple of 4, a BatchNorm instead of a bias in the head",
    ),
    _clas(
        "EfficientNetB0",
        "efficientnet",
        "tv:efficientnet_b0",
        found=("features.0.0: padding 2, expected 1",),
        why="TensorFlow's padding and eps",
    ),
    _clas(
        "RegNetX_400MF",
        "regnet",
        "tv:regnet_x_400mf",
        found=("384 output channels, expected 400",),
        why="a width that is rounded to the even multiple",
    ),
    _clas("RepVGG_A0", "repvgg", "repvgg_a0"),
    _clas("ConvNeXt_tiny", "convnext", "convnext_tiny"),
    _clas("ViT_base_patch16_224", "vision_transformer", "vit_base_patch16_224", SIZE_64, reference_args=SIZE_64),
    _clas("DeiT_tiny_patch16_224", "distilled_vision_transformer", "deit_tiny_patch16_224", SIZE_64, reference_args=SIZE_64),
    _clas(
        "DeiT_tiny_distilled_patch16_224",
        "distilled_vision_transformer",
        "deit_tiny_distilled_patch16_224",
        SIZE_64,
        reference_args=SIZE_64,
    ),
    _clas(
        "SwinTransformer_tiny_patch4_window7_224",
        "swin_transformer",
        "swin_tiny_patch4_window7_224",
        {"img_size": 224},
        side=224,
        reference_args={"img_size": 224},
    ),
    _clas("pcpvt_small", "twins", "twins_pcpvt_small", SIZE_64, reference_args=SIZE_64),
    _clas("alt_gvt_small", "twins", "twins_svt_small", SIZE_64, reference_args=SIZE_64),
    _clas("PVT_V2_B0", "pvt_v2", "pvt_v2_b0", SIZE_64),
    _clas("LeViT_128S", "levit", "levit_128s", side=224, reference_args={"distilled": False}),
    _clas(
        "MixNet_S",
        "mixnet",
        "mixnet_s",
        found=(
            "mixnet.py:695: avg_pool2d(",
            "expected adaptive_avg_pool2d(output_size=[1, 1])",
        ),
        why="a last pooling of 7 x 7, whatever the size of the picture",
    ),
    _clas(
        "MobileViT_XXS",
        "mobilevit",
        "mobilevit_xxs",
        found=("wrong eps 1e-06, expected 1e-05",),
        why="eps, nearest upsampling, dropout",
    ),
    _clas(
        "MobileViTV2_x0_5",
        "mobilevit_v2",
        "mobilevitv2_050",
        found=("interpolate is missing before stages.2.1.conv_kxk",),
        why="no resizing of pictures that do not divide into patches",
    ),
    _clas(
        "VGG11",
        "vgg",
        "tv:vgg11",
        reference_args={"init_weights": False},
        found=(
            "features.0.bias",
            "the port's Conv2D has no bias",
        ),
        why="no biases in the convolutions, dropout",
    ),
    _clas(
        "AlexNet",
        "alexnet",
        "tv:alexnet",
        side=224,
        found=("classifier.0: dropout scales by 0.5 in evaluation mode",),
        why="dropout",
    ),
    _clas(
        "SqueezeNet1_1",
        "squeezenet",
        "tv:squeezenet1_1",
        side=65,
        found=("features.0: padding 1",),
        why="padding, dropout, ceiling",
    ),
    _clas("ShuffleNetV2_x0_5", "shufflenet_v2", "tv:shufflenet_v2_x0_5"),
    _clas(
        "InceptionV3",
        "inception_v3",
        "tv:inception_v3",
        side=107,
        reference_args={"aux_logits": False, "init_weights": False},
        found=("Conv2d_1a_3x3.bn: wrong eps: 1e-05, expected 0.001",),
        why="eps, dropout",
    ),
    _clas("InceptionV4", "inception_v4", "inception_v4", side=107),
    _clas("Xception41", "xception", "xception41"),
    _clas("GoogLeNet", "googlenet", "tv:googlenet", side=224, reference_args={"aux_logits": False, "init_weights": False}),
    _clas(
        "DarkNet53",
        "darknet",
        "darknet53",
        found=("darknet.py:66: relu, expected leaky_relu(slope=0.01)",),
        why="ReLU, where timm's has LeakyReLU",
    ),
    _clas("CSPDarkNet53", "cspnet", "cspdarknet53"),
    _clas("DLA34", "dla", "dla34"),
    _clas("TNT_small", "tnt", "tnt_s_legacy_patch16_224", side=224),
    _clas("NextViT_small_224", "nextvit", "nextvit_small"),
    _clas("StarNet_S1", "starnet", "starnet_s1"),
    _clas("FasterNet_T0", "fasternet", "fasternet_t0"),
    _clas("ReXNet_1_0", "rexnet", "rexnet_100"),
    _clas(
        "TinyNet_E",
        "tinynet",
        "tinynet_e",
        found=(
            "_ef.block.2.._dcn",
            "the reference does not have",
        ),
        why="three blocks more, padding and eps as TensorFlow's",
    ),
)

BACKBONES = {backbone.pair.name: backbone for backbone in _ALL}

# Of PaddleClas, with no counterpart in timm or torchvision.
WITHOUT_REFERENCE = {
    "RedNet": "timm has involution as a layer (byoanet) and no RedNet of these depths",
    "CvT": "timm and torchvision have none",
    "CSWinTransformer": "timm and torchvision have none",
    "SE_ResNet_vd": "timm's seresnet has the plain stem",
    "VAN": "timm and torchvision have none",
    "UniFormer": "timm and torchvision have none",
    "HarDNet": "timm and torchvision have none",
    "PeleeNet": "timm and torchvision have none",
    "PP-LCNet, PP-HGNet, ESNet": "PaddleClas is their origin; timm's ports are the copies",
}
