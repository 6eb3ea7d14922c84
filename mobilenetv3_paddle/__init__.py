"""MobileNetV3 in PaddlePaddle: the reproduction. Never imports torch."""

import importlib
import warnings
from typing import Any

# Said at each import of Paddle; it concerns those who compile Paddle operators of their own.
warnings.filterwarnings("ignore", message=".*No ccache found.*")


def __getattr__(name: str) -> Any:
    """``create_model`` and ``load_weights``, loaded when they are asked for, so that importing the package stays light."""
    if name in ("create_model", "load_weights"):
        return getattr(importlib.import_module("mobilenetv3_paddle.create"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
