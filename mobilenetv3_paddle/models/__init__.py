"""MobileNetV3 small and large."""

from mobilenetv3_paddle.models.dropout import SharedDropout, share_dropout
from mobilenetv3_paddle.models.mobilenetv3 import MobileNetV3, mobilenet_v3_large, mobilenet_v3_small
from mobilenetv3_paddle.models.norm import BatchNorm2D

MODELS = {"mobilenet_v3_small": mobilenet_v3_small, "mobilenet_v3_large": mobilenet_v3_large}

__all__ = ["MODELS", "BatchNorm2D", "MobileNetV3", "SharedDropout", "mobilenet_v3_large", "mobilenet_v3_small", "share_dropout"]
