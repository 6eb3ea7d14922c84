"""Tensors that a model makes, or casts, in float32 are float64 in exact mode.

A port that says ``paddle.zeros(shape, "float32")``, ``mask.astype("float32")`` or ``positions / 8`` is right in float32. In exact
mode it would mix two types, which Paddle's functions refuse, or round what the reference does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alignment.frameworks._exact import Replaced

MADE = ("zeros", "ones", "full", "empty", "eye", "arange", "linspace", "logspace", "to_tensor", "as_tensor", "asarray")
LIKE = ("zeros_like", "ones_like", "full_like", "empty_like")
OF_TENSOR = ("astype", "cast", "to", "new_zeros", "new_ones", "new_full", "new_empty")
ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "pow")  # with a number that is not whole, whole numbers give float32
TYPED = ("cumsum", "sum", "nansum", "prod", "cumprod", "mean", "logcumsumexp", "softmax")  # with a type of their result


def widened(paddle: Any) -> list[Replaced]:
    """Paddle's functions that make or cast tensors, as ``Framework.exact_functions`` lists them.

    They do so while float64 is the default type.
    """
    functions = [
        *((paddle, name) for name in (*MADE, *LIKE, "cast", *TYPED)),
        *((paddle.Tensor, name) for name in (*OF_TENSOR, *TYPED)),
        (paddle.nn.functional, "softmax"),
    ]
    arithmetic = [f"__{side}{name}__" for name in ARITHMETIC for side in ("", "r")]
    stock = lambda owner, name: STOCK.setdefault((owner, name), getattr(owner, name))  # noqa: E731
    of_whole = [(paddle.Tensor, name, _of_whole(paddle, "div" in name, stock(paddle.Tensor, name))) for name in arithmetic]
    wide = [(owner, name, _wide(paddle, stock(owner, name))) for owner, name in functions]
    return [*wide, *of_whole, (paddle.Tensor, "float", lambda tensor: tensor.astype("float32"))]


STOCK: dict[tuple[Any, str], Callable] = {}  # as they are outside exact mode


def _wide(paddle: Any, original: Callable) -> Callable:
    def computed(*args: Any, **kwargs: Any) -> Any:
        narrow = [value for value in (*args, *kwargs.values()) if is_float32(paddle, value)]
        if not narrow or paddle.get_default_dtype() != "float64":
            return NotImplemented
        wide = lambda value: "float64" if is_float32(paddle, value) else value  # noqa: E731
        return original(*map(wide, args), **{name: wide(value) for name, value in kwargs.items()})

    return computed


def _of_whole(paddle: Any, divides: bool, original: Callable) -> Callable:
    """Arithmetic of whole numbers that gives others: Paddle computes it in float32, whatever the default type."""
    whole_types = {getattr(paddle, name) for name in ("bool", "uint8", "int8", "int16", "int32", "int64")}

    def computed(tensor: Any, other: Any) -> Any:
        if paddle.get_default_dtype() != "float64" or tensor.dtype not in whole_types:
            return NotImplemented
        if isinstance(other, paddle.Tensor):
            whole = divides and other.dtype in whole_types
            return original(tensor.astype("float64"), other.astype("float64")) if whole else NotImplemented
        number = isinstance(other, float) or (divides and isinstance(other, int))
        return original(tensor.astype("float64"), other) if number else NotImplemented

    return computed


def is_float32(paddle: Any, value: Any) -> bool:
    """Whether an argument names the type that is float64 in exact mode."""
    return value is paddle.float32 or (isinstance(value, str) and value in ("float32", "paddle.float32"))
