"""Paddle's interpolations and average poolings in exact mode: the same as products with matrices, one for each dimension.

The stock kernels hold positions, or 1/N of their gradients, in float32 (2e-8 to 5e-7 off).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alignment.frameworks._resampling import interpolation_matrix, means_matrix, sums_matrix

FORMATS = (None, "NCL", "NCW", "NCHW", "NCDHW")
LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5}  # -> dimensions of the tensor


def _along(paddle: Any, x: Any, matrices: Sequence[np.ndarray]) -> Any:
    """The product with a matrix in each dimension of the picture."""
    for axis, matrix in enumerate(matrices, start=2):
        last = axis == x.ndim - 1
        moved = x if last else x.moveaxis(axis, -1)
        moved = moved @ paddle.to_tensor(np.ascontiguousarray(matrix.T))
        x = moved if last else moved.moveaxis(-1, axis)
    return x


def _each(value: Any, count: int) -> tuple | None:
    """A number for each dimension; None where it is given in another way."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,) * count
    return values if len(values) == count and all(isinstance(n, int | float) for n in values) else None


def _interpolated(
    paddle: Any,
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    name: str | None = None,
) -> Any:
    """Linear interpolation in one to three dimensions, and cubic in two, to a size or by a factor."""
    mode = mode.lower()
    cubic = mode == "bicubic"
    known = x.ndim == (4 if cubic else LINEAR.get(mode)) and data_format in FORMATS and not (recompute_scale_factor or antialias)
    if x.dtype != paddle.float64 or not known or (align_mode != 0 and not align_corners and not cubic):
        return NotImplemented
    factors = None if scale_factor is None or size is not None else _each(scale_factor, x.ndim - 2)
    if factors is not None:
        sizes = tuple(int(n * by) for n, by in zip(x.shape[2:], factors, strict=True))
    else:
        sizes = _each(size, x.ndim - 2)  # type: ignore[assignment]
    if sizes is None:
        return NotImplemented
    steps = [1.0 / by for by in factors] if factors is not None else [None] * len(sizes)
    sides = zip(x.shape[2:], sizes, steps, strict=True)
    return _along(paddle, x, [interpolation_matrix(n, int(to), align_corners, step, cubic) for n, to, step in sides])


def _adaptive(
    paddle: Any, dimensions: int, x: Any, output_size: Any, data_format: str | None = None, name: str | None = None
) -> Any:
    if x.dtype != paddle.float64 or data_format not in FORMATS or x.ndim != dimensions + 2:
        return NotImplemented
    sizes = tuple(output_size) if isinstance(output_size, list | tuple) else (output_size,) * dimensions
    if all(n == 1 for n in sizes):
        return x.mean(list(range(2, x.ndim)), keepdim=True)
    return _along(paddle, x, [means_matrix(n, n if to is None else int(to)) for n, to in zip(x.shape[2:], sizes, strict=True)])


def _pooled(
    paddle: Any,
    dimensions: int,
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str | None = None,
    name: str | None = None,
) -> Any:
    given = (kernel_size, stride or kernel_size, padding)
    sizes = [None if isinstance(value, str) else _each(value, dimensions) for value in given]
    if x.dtype != paddle.float64 or data_format not in FORMATS or x.ndim != dimensions + 2 or None in sizes:
        return NotImplemented
    kernel, step, margin = sizes
    found = [sums_matrix(*side, ceil_mode) for side in zip(x.shape[2:], kernel, step, margin, strict=True)]  # type: ignore
    if any(one is None for one in found):  # type: ignore[arg-type]
        return NotImplemented
    sums = _along(paddle, x, [matrix for matrix, _ in found])  # type: ignore[misc]
    if divisor_override is not None:
        return sums / float(divisor_override)
    if not exclusive:
        return sums / float(math.prod(kernel)) if not ceil_mode else sums / paddle.to_tensor(_counts(found, False))  # type: ignore
    return sums / paddle.to_tensor(_counts(found, True))


def _counts(found: Sequence[Any], inside: bool) -> np.ndarray:
    """How many places each window has: those of the picture alone, or with its margin."""
    return functools.reduce(np.multiply.outer, [matrix.sum(1) if inside else places for matrix, places in found])


def _pooled_1d(
    paddle: Any, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, exclusive: bool = True, ceil_mode: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    return _pooled(paddle, 1, x, kernel_size, stride, padding, ceil_mode, exclusive)


def resampling(paddle: Any) -> dict[str, Callable]:
    """The exact versions by the names of Paddle's functions; ``paddle`` is the module."""
    return {
        "interpolate": functools.partial(_interpolated, paddle),
        "avg_pool1d": functools.partial(_pooled_1d, paddle),
        **{f"avg_pool{count}d": functools.partial(_pooled, paddle, count) for count in (2, 3)},
        **{f"adaptive_avg_pool{count}d": functools.partial(_adaptive, paddle, count) for count in (1, 2, 3)},
    }
