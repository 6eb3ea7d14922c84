"""MobileNetV3 small and large: torchvision's own."""

from mobilenetv3_ref.models.dropout import SharedDropout, share_dropout
from mobilenetv3_ref.models.mobilenetv3 import MobileNetV3, mobilenet_v3_large, mobilenet_v3_small

MODELS = {"mobilenet_v3_small": mobilenet_v3_small, "mobilenet_v3_large": mobilenet_v3_large}

__all__ = ["MODELS", "MobileNetV3", "SharedDropout", "mobilenet_v3_large", "mobilenet_v3_small", "share_dropout"]
