"""Operators of ONNX in float64, where the package's own reference evaluator has none, is slow, or rounds to float32.

Each is held to ONNX Runtime by a test. The others are the evaluator's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_average_pool, op_max_pool, op_resize
from onnx.reference.ops.op_cast import Cast_19

from alignment import formulas
from alignment.strangers import Refused

Array = np.ndarray
FUSED = "com.microsoft"  # the domain of what ONNX Runtime's own optimiser makes of several nodes


def margins_of(
    auto_pad: str, pads: Sequence[int] | None, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Padding before and after, in each dimension of the picture."""
    if auto_pad in ("NOTSET", ""):
        given = [0] * (2 * len(kernel)) if pads is None else list(pads)
        return list(zip(given[: len(kernel)], given[len(kernel) :], strict=True))
    if auto_pad == "VALID":
        return [(0, 0)] * len(kernel)
    return formulas.same_margins(sizes, kernel, strides, dilations, auto_pad == "SAME_UPPER")


def _conv(x: Array, weight: Array, bias: Array | None, given: dict[str, Any]) -> Array:
    kernel = weight.shape[2:]
    ones = [1] * len(kernel)
    strides, dilations = given["strides"] or ones, given["dilations"] or ones
    padding = margins_of(given["auto_pad"], given["pads"], x.shape[2:], kernel, strides, dilations)
    made = formulas.conv(x, weight, bias, stride=strides, padding=padding, dilation=dilations, groups=given["group"] or 1)
    return made.astype(x.dtype)


class Conv(OpRun):
    op_domain = ""

    def _run(self, X, W, B=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None):  # type: ignore[no-untyped-def]
        given = {"auto_pad": auto_pad or "NOTSET", "dilations": dilations, "group": group, "pads": pads, "strides": strides}
        return (_conv(X, W, B, given),)


ACTIVATIONS = {
    "Relu": lambda x, p: np.maximum(x, 0),
    "Sigmoid": lambda x, p: formulas.sigmoid(x),
    "Tanh": lambda x, p: np.tanh(x),
    "LeakyRelu": lambda x, p: np.where(x > 0, x, p[0] * x),
    "Clip": lambda x, p: np.clip(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: np.clip(p[0] * x + p[1], 0, 1),
}


class FusedConv(OpRun):
    """A convolution, what is added to it, and an activation: ONNX Runtime's own."""

    op_domain = FUSED

    def _run(self, *args: Any, **_: Any) -> tuple[Array, ...]:  # attributes without a schema have no defaults
        own = {one.name: one for one in self.onnx_node.attribute}
        ints = {name: list(own[name].ints) if name in own else None for name in ("dilations", "pads", "strides")}
        group = own["group"].i if "group" in own else 1
        auto_pad = own["auto_pad"].s.decode() if "auto_pad" in own else "NOTSET"
        x, weight, bias, *more = [*args, None]
        made = _conv(x, weight, bias, {**ints, "group": group, "auto_pad": auto_pad})
        for other in more:
            made = made if other is None else made + other
        name = own["activation"].s.decode() if "activation" in own else ""
        if name and name not in ACTIVATIONS:
            raise Refused(f"FusedConv with the activation {name}")
        numbers = list(own["activation_params"].floats) if "activation_params" in own else []
        return (ACTIVATIONS[name](made, numbers) if name else made,)


class _Windows:
    """Pooling over windows by ``formulas.pool``; what that does not have is the evaluator's own."""

    how = ""

    def _pooled(self, x: Array, given: dict[str, Any]) -> Array | None:
        kernel, ones = given["kernel_shape"], [1] * len(given["kernel_shape"])
        strides, dilations = given.get("strides") or ones, given.get("dilations") or ones
        if set(dilations) != {1}:
            return None
        padding = margins_of(given.get("auto_pad") or "NOTSET", given.get("pads"), x.shape[2:], kernel, strides, dilations)
        counted, ceil = bool(given.get("count_include_pad")), bool(given.get("ceil_mode"))
        try:
            return formulas.pool(x, kernel, strides, padding, self.how, counted, ceil)
        except Refused:
            return None


class MaxPool(_Windows, op_max_pool.MaxPool):
    op_domain, how = "", "max"

    def _run(self, x, **given):  # type: ignore
        made = self._pooled(x, given) if len(self.onnx_node.output) == 1 else None
        return super()._run(x, **given) if made is None else (made,)


class AveragePool(_Windows, op_average_pool.AveragePool_19):
    op_domain, how = "", "mean"

    def _run(self, x, **given):  # type: ignore
        made = self._pooled(x, given)
        return super()._run(x, **given) if made is None else (made,)


class HardSwish(OpRun):
    op_domain = ""

    def _run(self, x):  # type: ignore[no-untyped-def]
        return (x * np.clip(x + 3, 0, 6) / 6,)


class Cast(Cast_19):
    """A cast to float32 leaves a float64 value what it is: exact mode has no narrower type."""

    op_domain = ""

    def _run(self, x, to=None, saturate=None):  # type: ignore[no-untyped-def]
        return (x,) if to == TensorProto.FLOAT and x.dtype == np.float64 else super()._run(x, to=to, saturate=saturate)


class Resize(op_resize.Resize):
    """Resampling axis by axis as products with matrices; what these do not have is the evaluator's own, which is slow."""

    op_domain = ""

    def _run(self, X, roi=None, scales=None, sizes=None, **given):  # type: ignore
        axes = given.get("axes") or range(X.ndim)
        plain = not given.get("antialias") and not given.get("exclude_outside")
        plain &= given.get("keep_aspect_ratio_policy") in (None, "stretch")
        mode = given.get("coordinate_transformation_mode") or "half_pixel"
        if not plain or mode not in COORDINATES or X.dtype.kind != "f":
            return super()._run(X, roi, scales, sizes, **given)
        made = X
        for number, axis in enumerate(axes):
            n = X.shape[axis]
            scale = float(scales[number]) if scales is not None and scales.size else sizes[number] / n
            out = int(sizes[number]) if sizes is not None and sizes.size else int(np.floor(n * np.float32(scale)))
            if scale != 1 or out != n:
                how = given.get("mode") or "nearest"
                kind = np.float32 if how == "nearest" else np.float64  # which pixel is the nearest, float32 decides everywhere
                places = COORDINATES[mode](np.arange(out, dtype=kind), kind(n), kind(out), kind(scale))
                matrix = _resampling(places, n, how, given)
                made = np.moveaxis(np.tensordot(matrix, made, (1, axis)), 0, axis)
        return (made.astype(X.dtype),)


def along(numbers: Array, shape: Sequence[int], axis: int) -> Array:
    """Scale or zero points so that they go with an array: one for all, one for each channel along an axis, or by blocks of it."""
    if numbers.size == 1:
        return numbers.reshape(())
    if numbers.ndim == len(shape) > 1:
        return np.repeat(numbers, -(-shape[axis] // numbers.shape[axis]), axis).take(range(shape[axis]), axis)
    return numbers.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])


class QuantizeLinear(OpRun):
    op_domain = ""

    def _run(self, x, y_scale, y_zero_point=None, axis=None, **_):  # type: ignore[no-untyped-def]
        zero = np.zeros(1, np.uint8) if y_zero_point is None else y_zero_point
        ends, axis = np.iinfo(zero.dtype), 1 if axis is None else axis
        levels = np.rint(x / along(y_scale, x.shape, axis)) + along(zero, x.shape, axis)
        return (np.clip(levels, ends.min, ends.max).astype(zero.dtype),)


class DequantizeLinear(OpRun):
    op_domain = ""

    def _run(self, x, x_scale, x_zero_point=None, axis=None, **_):  # type: ignore[no-untyped-def]
        axis = 1 if axis is None else axis
        zero = 0 if x_zero_point is None else along(np.asarray(x_zero_point, np.int64), x.shape, axis)
        return ((np.asarray(x, np.int64) - zero) * along(x_scale, x.shape, axis),)


HALF = np.float32(0.5)  # it makes float64 of no float32
COORDINATES = {
    "half_pixel": lambda at, n, out, scale: (at + HALF) / scale - HALF,
    "pytorch_half_pixel": lambda at, n, out, scale: (at + HALF) / scale - HALF if out > 1 else 0 * at,
    "asymmetric": lambda at, n, out, scale: at / scale,
    "align_corners": lambda at, n, out, scale: at * (n - 1) / (out - 1) if out > 1 else 0 * at,
}
NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _resampling(places: Array, n: int, mode: str, given: dict[str, Any]) -> Array:
    """A matrix (out, n) that gives a line of n values at places between them."""
    below = np.floor(places)
    part = places - below
    if mode == "nearest":
        below, shares = NEAREST[given.get("nearest_mode") or "round_prefer_floor"](places), {0: np.ones_like(places)}
    elif mode == "linear":
        shares = {0: 1 - part, 1: part}
    else:
        a = given.get("cubic_coeff_a") or -0.75
        near = lambda t: ((a + 2) * t - (a + 3)) * t * t + 1  # noqa: E731
        far = lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a  # noqa: E731
        shares = {-1: far(1 + part), 0: near(part), 1: near(1 - part), 2: far(2 - part)}
    matrix = np.zeros((len(places), n))
    for step, share in shares.items():
        np.add.at(matrix, (np.arange(len(places)), np.clip(below + step, 0, n - 1).astype(int)), share)
    return matrix


OPERATORS = [Conv, FusedConv, MaxPool, AveragePool, HardSwish, Resize, Cast, QuantizeLinear, DequantizeLinear]
