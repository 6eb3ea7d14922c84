"""Tensors that a model makes, or casts, in float32 are float64 in exact mode.

A port that says ``paddle.zeros(shape, "float32")``, ``mask.astype("float32")`` or ``positions / 8`` is right in float32. In exact
mode it would mix two types, which Paddle's functions refuse, or round what the reference does not. A tensor that a model keeps
beside its buffers stays in float32: a function that takes one type alone is given both in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alignment.frameworks._exact import Replaced

MADE = ("zeros", "ones", "full", "empty", "eye", "arange", "linspace", "logspace", "to_tensor", "as_tensor", "asarray")
LIKE = ("zeros_like", "ones_like", "full_like", "empty_like")
OF_TENSOR = ("astype", "cast", "to", "new_zeros", "new_ones", "new_full", "new_empty")
ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "pow")  # with a number that is not whole, whole numbers give float32
OF_ARRAYS = ("to_tensor", "as_tensor", "asarray", "assign")  # of an array in float32, where no type is given
OF_WHOLE = (
    "sqrt", "rsqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "reciprocal", "deg2rad", "rad2deg", "median", "nanmedian",
)  # fmt: skip
OF_ONE_TYPE = (
    "matmul", "bmm", "mm", "mv", "dot", "inner", "addmm", "baddbmm", "einsum", "tensordot", "multi_dot", "kron", "cross",
    "solve", "cdist", "dist", "__matmul__", "__rmatmul__", "concat", "stack", "hstack", "vstack", "dstack", "column_stack",
    "row_stack", "add_n", "where", "lerp", "complex", "diff", "heaviside", "isclose", "allclose", "put_along_axis", "scatter",
    "scatter_nd_add", "index_add", "index_put", "masked_fill", "masked_scatter", "linear", "bilinear", "conv1d", "conv2d",
    "conv3d", "conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "grid_sample", "affine_grid", "prelu",
    "group_norm", "rms_norm", "scaled_dot_product_attention", "label_smooth", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "sigmoid_focal_loss", "cross_entropy", "softmax_with_cross_entropy", "nll_loss",
    "kl_div", "deform_conv2d", "roi_align", "roi_pool", "psroi_pool",
)  # fmt: skip
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
    own = [(owner, name) for owner in _owners(paddle) for name in vars(owner)]
    functions += [one for one in own if one[1] in OF_ARRAYS and one not in functions]
    arithmetic = [f"__{side}{name}__" for name in ARITHMETIC for side in ("", "r")]
    stock = lambda owner, name: STOCK.setdefault((owner, name), getattr(owner, name))  # noqa: E731
    of_whole = [(paddle.Tensor, name, _of_whole(paddle, "div" in name, stock(paddle.Tensor, name))) for name in arithmetic]
    wide = [(owner, name, _wide(paddle, stock(owner, name))) for owner, name in functions]
    functions_of_whole = [(*one, _of_whole_alone(paddle, stock(*one))) for one in own if one[1] in OF_WHOLE]
    mixed = [(*one, _of_one_type(paddle, stock(*one))) for one in own if one[1] in OF_ONE_TYPE]
    one_hot = (paddle.nn.functional, "one_hot", _one_hot(paddle, stock(paddle.nn.functional, "one_hot")))
    to_float = (paddle.Tensor, "float", lambda tensor: tensor.astype("float32"))
    return [*wide, *of_whole, *functions_of_whole, *mixed, one_hot, to_float]


def _owners(paddle: Any) -> tuple[Any, ...]:
    """Where Paddle's functions and methods are looked up."""
    return paddle, paddle.Tensor, paddle.linalg, paddle.nn.functional, paddle.vision.ops


STOCK: dict[tuple[Any, str], Callable] = {}  # as they are outside exact mode


def _wide(paddle: Any, original: Callable) -> Callable:
    def computed(*args: Any, **kwargs: Any) -> Any:
        if paddle.get_default_dtype() != "float64":
            return NotImplemented
        if (
            args
            and original.__name__ in OF_ARRAYS
            and getattr(args[0], "dtype", None) == np.float32
            and len(args) == 1
            and not kwargs
        ):
            return original(args[0].astype(np.float64))
        narrow = [value for value in (*args, *kwargs.values()) if is_float32(paddle, value)]
        if not narrow:
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


def _of_whole_alone(paddle: Any, original: Callable) -> Callable:
    """A function whose result is float32 where it is given whole numbers."""
    whole_types = {getattr(paddle, name) for name in ("bool", "uint8", "int8", "int16", "int32", "int64")}

    def computed(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if paddle.get_default_dtype() != "float64" or getattr(tensor, "dtype", None) not in whole_types:
            return NotImplemented
        return original(tensor.astype("float64"), *args, **kwargs)

    return computed


def _one_hot(paddle: Any, original: Callable) -> Callable:
    def computed(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs).astype("float64") if paddle.get_default_dtype() == "float64" else NotImplemented

    return computed


def _of_one_type(paddle: Any, original: Callable) -> Callable:
    """A function that refuses float32 beside float64, or gives float32 for both."""
    float32, float64 = paddle.float32, paddle.float64

    def tensors(values: Any) -> Any:
        for value in values:
            if isinstance(value, paddle.Tensor):
                yield value
            elif isinstance(value, list | tuple):
                yield from tensors(value)

    def wide(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(wide, value))
        return value.astype("float64") if isinstance(value, paddle.Tensor) and value.dtype == float32 else value

    def computed(*args: Any, **kwargs: Any) -> Any:
        if paddle.get_default_dtype() != "float64" or not {float32, float64} <= {
            one.dtype for one in tensors((*args, *kwargs.values()))
        }:
            return NotImplemented
        return original(*map(wide, args), **{name: wide(value) for name, value in kwargs.items()})

    return computed


def is_float32(paddle: Any, value: Any) -> bool:
    """Whether an argument names the type that is float64 in exact mode."""
    return value is paddle.float32 or (isinstance(value, str) and value in ("float32", "paddle.float32"))
