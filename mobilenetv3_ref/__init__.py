"""MobileNetV3 in PyTorch: the reference, on torchvision's own models and image operations. Never imports paddle."""

import torch

from mobilenetv3_common.torchvision_operators import declare_missing_operators

declare_missing_operators(torch)
