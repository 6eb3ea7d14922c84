"""MobileNetV3 in PyTorch: the reference, on torchvision's own models and image operations. Never imports paddle."""

from mobilenetv3_ref._torchvision import declare_missing_operators

declare_missing_operators()
