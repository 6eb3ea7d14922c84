"""Who fills the parameters of a model in PyTorch: a layer's own ``reset_parameters``, or the source of the model."""

from __future__ import annotations

import math
import sys
from typing import Any

OF_LAYERS = "torch.nn.modules."
BETWEEN = ("torch.nn.init", "torch.overrides", "torch.utils._contextlib")  # modules between who asks and what fills


def fills(function: Any, data: Any) -> bool:
    """Whether a function of torch changes its first argument in place; ``data`` is the property of this name."""
    name = getattr(function, "__name__", "")
    assigned = name == "__setitem__" or (getattr(function, "__self__", None) is data and name == "__set__")
    return assigned or (name.endswith("_") and not name.endswith("__"))


def called_by(package: str) -> bool:
    """Whether the first caller of the function that asks, behind torch's initialisers, is in a package of PyTorch."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in BETWEEN:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}.".startswith(package)


def is_default(kind: type) -> bool:
    """Whether modules of a class fill their parameters by code of PyTorch; others choose the values of their own parameters."""
    filling = getattr(kind, "reset_parameters", None) or getattr(kind, "_reset_parameters", None)
    return getattr(filling, "__module__", "").startswith(OF_LAYERS)


def draw_defaults(model: Any) -> None:
    """Fill the parameters of layers of PyTorch as these do, and those of other classes as a linear layer does.

    A vector of such a class, but for a bias beside a weight, has no default: it gets values that nobody chooses.
    """
    for module in reversed(list(model.modules())):  # an attention fills layers inside of it once more
        if is_default(type(module)):
            (getattr(module, "reset_parameters", None) or module._reset_parameters)()
        elif not type(module).__module__.startswith("torch."):
            for name, tensor in module.named_parameters(recurse=False):
                _draw_linear(module, name, tensor)


def _draw_linear(module: Any, name: str, tensor: Any) -> None:
    weight = tensor if tensor.ndim > 1 else getattr(module, "weight", None) if name == "bias" else None
    if weight is not None and getattr(weight, "ndim", 0) > 1:
        bound = 1 / math.sqrt(max(weight[0].numel(), 1))
        tensor.uniform_(-bound, bound)
    else:
        tensor.fill_(math.nan)
