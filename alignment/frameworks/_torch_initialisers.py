"""Who fills the parameters of a model in PyTorch: a layer's own ``reset_parameters``, or the source of the model."""

from __future__ import annotations

import sys
from typing import Any

OF_LAYERS = "torch.nn.modules."
BETWEEN = ("torch.nn.init", "torch.overrides", "torch.utils._contextlib")  # modules between who asks and what fills


def fills(function: Any, data: Any) -> bool:
    """Whether a function of torch changes its first argument in place; ``data`` is the property of this name."""
    name = getattr(function, "__name__", "")
    assigned = name == "__setitem__" or (getattr(function, "__self__", None) is data and name == "__set__")
    return assigned or (name.endswith("_") and not name.endswith("__"))


def called_by_layer() -> bool:
    """Whether the first caller of the function that asks, behind torch's initialisers, is a layer of PyTorch."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in BETWEEN:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith(OF_LAYERS)


def is_default(kind: type) -> bool:
    """Whether modules of a class fill their parameters by code of PyTorch; others choose the values of their own parameters."""
    filling = getattr(kind, "reset_parameters", None) or getattr(kind, "_reset_parameters", None)
    return getattr(filling, "__module__", "").startswith(OF_LAYERS)
