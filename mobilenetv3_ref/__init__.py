"""MobileNetV3 in PyTorch: the reference, on torchvision's own models and image operations. Never imports paddle."""

import importlib
from typing import Any

import torch

from mobilenetv3_common.torchvision_operators import declare_missing_operators

declare_missing_operators(torch)


def __getattr__(name: str) -> Any:
    """``create_model`` and ``load_weights``, loaded when they are asked for, so that importing the package stays light."""
    if name in ("create_model", "load_weights"):
        return getattr(importlib.import_module("mobilenetv3_ref.create"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
