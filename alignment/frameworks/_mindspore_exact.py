"""MindSpore's operators in exact mode: the same formulas from operations that have a float64 kernel on a CPU.

Convolution, batch normalisation, ReLU6 and PReLU have none; other normalisations, poolings and activations, and numbers beside a
tensor, are computed in float32 or hold a float32 number. Each version here keeps the settings of the operator in whose place it
computes, so a port that chose wrong ones keeps its mistake.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from alignment.frameworks._exact import Replaced

SIDES = ("add", "sub", "mul", "truediv")


def replacements(mindspore: Any) -> list[Replaced]:
    """MindSpore's operators and functions that are computed otherwise in float64, as (owner, name, exact version).

    Args:
        mindspore: the package.
    """
    ops = mindspore.ops
    made: list[Replaced] = [
        (ops.Conv2D, "__call__", _convolution),
        (ops.BatchNorm, "__call__", _batch_norm),
        (ops.LayerNorm, "__call__", _layer_norm),
        (ops.AvgPool, "__call__", _average_pooling),
        (ops.AvgPool3D, "__call__", _padded_average_pooling),
        (ops.MaxPool, "__call__", _maximum_pooling),
        (ops.ReLU6, "__call__", lambda ms, self, x: _within(ms, x, 0.0, 6.0)),
        (ops, "relu6", lambda ms, x: _within(ms, x, 0.0, 6.0)),
        (ops, "leaky_relu", _leaky_relu),
        (ops, "gelu", _gelu),
        (ops, "group_norm", _group_norm),
        (ops, "clip", _clip),
        (ops, "clamp", _clip),
        (ops.PReLU, "__call__", _prelu),
        (ops, "log_softmax", _log_softmax),
        (ops.LogSoftmax, "__call__", lambda ms, self, x: _log_softmax(ms, x, self.axis)),
        *((mindspore.Tensor, f"__{side}{name}__", _with_number(f"__{side}{name}__")) for name in SIDES for side in ("", "r")),
    ]
    return [(owner, name, _in_float64(mindspore, function)) for owner, name, function in made]


def _in_float64(mindspore: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The exact version for float64 tensors; NotImplemented for all others."""

    @functools.wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        first = next((one for one in (*args, *kwargs.values()) if isinstance(one, mindspore.Tensor)), None)
        if first is None or first.dtype != mindspore.float64:
            return NotImplemented
        return function(mindspore, *args, **kwargs)

    return computed


def _number(ms: Any, value: float) -> Any:
    return ms.Tensor(np.float64(value).reshape(()))


def _with_number(name: str) -> Callable[..., Any]:
    """An operator of a tensor with a number, which MindSpore takes in float32."""

    def computed(ms: Any, self: Any, other: Any) -> Any:
        if not isinstance(other, float) or float(np.float32(other)) == other:
            return NotImplemented
        return getattr(self, name)(_number(ms, other))

    return computed


def _spread(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """How far "same" pads a dimension, before and after."""
    whole = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return whole // 2, whole - whole // 2


def _patches(ms: Any, x: Any, kernel: tuple, stride: tuple, dilation: tuple, padding: tuple) -> Any:
    """What each tap of a kernel sees, (samples, channels, taps, height, width), of a picture padded (top, bottom, left, right)."""
    ops = ms.ops
    if any(padding):
        x = ops.pad(x, [padding[2], padding[3], padding[0], padding[1]])
    samples, channels, height, width = x.shape
    out = [
        (size - spread * (taps - 1) - 1) // step + 1
        for size, taps, step, spread in zip((height, width), kernel, stride, dilation, strict=True)
    ]
    seen = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            begin = (0, 0, i * dilation[0], j * dilation[1])
            end = (samples, channels, begin[2] + (out[0] - 1) * stride[0] + 1, begin[3] + (out[1] - 1) * stride[1] + 1)
            seen.append(ops.strided_slice(x, begin, end, (1, 1, *stride)))
    return ops.stack(seen, 2)


def _convolution(ms: Any, self: Any, x: Any, weight: Any) -> Any:
    """Conv2D as a product with what the kernel sees."""
    stride, dilation, kernel = tuple(self.stride)[2:], tuple(self.dilation)[2:], tuple(weight.shape[2:])
    padding = tuple(self.padding)
    if self.pad_mode == "same":
        padding = (*_spread(x.shape[2], kernel[0], stride[0], dilation[0]), *_spread(x.shape[3], kernel[1], stride[1], dilation[1]))
    seen = _patches(ms, x, kernel, stride, dilation, padding)
    samples, _, _, height, width = seen.shape
    groups = self.group
    columns = seen.reshape(samples, groups, -1, height * width)
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    return ms.ops.matmul(rows, columns).reshape(samples, weight.shape[0], height, width)


def _across(x: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes over which batch statistics are taken, and the shape in which they stand beside the tensor."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    return axes, tuple(-1 if axis == 1 else 1 for axis in range(x.ndim))


def _batch_norm(ms: Any, self: Any, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
    """Batch normalisation with eps rounded to float32, as kernels hold it; the unbiased variance goes into the statistics."""
    axes, shape = _across(x)
    eps = _number(ms, float(np.float32(self.epsilon)))
    own = mean, variance
    if self.is_training:
        mean = x.mean(axes)
        centred = x - mean.reshape(shape)
        variance = (centred * centred).mean(axes)
        count = x.size // x.shape[1]
        with ms._no_grad():
            fresh = mean, variance * _number(ms, count / max(count - 1, 1))
            for held, new in zip(own, fresh, strict=True):
                held.assign_value(held * _number(ms, 1.0 - self.momentum) + new * _number(ms, self.momentum))
    else:
        centred = x - mean.reshape(shape)
    out = centred / ms.ops.sqrt(variance.reshape(shape) + eps) * scale.reshape(shape) + shift.reshape(shape)
    return out, mean, variance, mean, variance


def _layer_norm(ms: Any, self: Any, x: Any, scale: Any, shift: Any) -> Any:
    axes = tuple(range(self.begin_norm_axis % x.ndim, x.ndim))
    mean = x.mean(axes, True)
    centred = x - mean
    variance = (centred * centred).mean(axes, True)
    out = centred / ms.ops.sqrt(variance + _number(ms, float(np.float32(self.epsilon)))) * scale + shift
    return out, mean, variance


def _group_norm(ms: Any, x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    parts = x.reshape(x.shape[0], num_groups, -1)
    centred = parts - parts.mean(-1, True)
    out = (centred / ms.ops.sqrt((centred * centred).mean(-1, True) + _number(ms, eps))).reshape(x.shape)
    shape = _across(x)[1]
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def _average_pooling(ms: Any, self: Any, x: Any) -> Any:
    """The mean of what a window sees; at an edge that is padded ("same"), of what there is."""
    kernel, stride = tuple(self.kernel_size)[-2:], tuple(self.strides)[-2:]
    padding = (0, 0, 0, 0)
    if str(self.pad_mode).lower() == "same":
        padding = (*_spread(x.shape[2], kernel[0], stride[0], 1), *_spread(x.shape[3], kernel[1], stride[1], 1))
    total = _patches(ms, x, kernel, stride, (1, 1), padding).sum(2)
    there = _patches(ms, ms.ops.ones_like(x), kernel, stride, (1, 1), padding).sum(2)
    return total / there


def _padded_average_pooling(ms: Any, self: Any, x: Any) -> Any:
    """AvgPool3D of pictures of depth 1, as ``nn.AvgPool2d`` calls it with padding."""
    kernel, stride, padding = tuple(self.kernel_size)[-2:], tuple(self.strides)[-2:], tuple(self.pad_list)[-4:]
    if x.shape[2] != 1 or self.ceil_mode or self.divisor_override or str(self.pad_mode).lower() == "same":
        return NotImplemented
    x = x.reshape(x.shape[0], x.shape[1], *x.shape[3:])
    total = _patches(ms, x, kernel, stride, (1, 1), padding).sum(2)
    if self.count_include_pad:
        return ms.ops.expand_dims(total / _number(ms, kernel[0] * kernel[1]), 2)
    return ms.ops.expand_dims(total / _patches(ms, ms.ops.ones_like(x), kernel, stride, (1, 1), padding).sum(2), 2)


def _maximum_pooling(ms: Any, self: Any, x: Any) -> Any:
    """The stock kernel's gradient is in float32; that of the one for volumes is not."""
    if str(self.pad_mode).lower() != "valid":
        return NotImplemented
    kernel, stride = tuple(self.kernel_size)[-2:], tuple(self.strides)[-2:]
    pool = ms.ops.MaxPool3DWithArgmax(ksize=(1, *kernel), strides=(1, *stride), pads=0, dilation=1)
    found = pool(ms.ops.expand_dims(x, 2))[0]
    return found.reshape(*found.shape[:2], *found.shape[3:])


def _gelu(ms: Any, input: Any, approximate: Any = "none") -> Any:
    if approximate not in ("tanh", True):
        return NotImplemented
    cubic = input * input * input * _number(ms, 0.044715)
    return input * _number(ms, 0.5) * (ms.ops.tanh((input + cubic) * _number(ms, np.sqrt(2 / np.pi))) + 1.0)


def _clip(ms: Any, input: Any, min: Any = None, max: Any = None) -> Any:
    if any(not isinstance(bound, int | float | None) for bound in (min, max)):
        return NotImplemented
    low, high = (-np.inf if min is None else min), (np.inf if max is None else max)
    return _within(ms, input, low, high)


def _within(ms: Any, x: Any, low: float, high: float) -> Any:
    return ms.ops.minimum(ms.ops.maximum(x, _number(ms, low)), _number(ms, high))


def _leaky_relu(ms: Any, input: Any, alpha: float = 0.2) -> Any:
    return ms.ops.where(input > 0, input, input * _number(ms, alpha)) if isinstance(alpha, int | float) else NotImplemented


def _prelu(ms: Any, self: Any, x: Any, weight: Any) -> Any:
    shape = _across(x)[1] if x.ndim > 1 and weight.size > 1 else (1,) * x.ndim
    return ms.ops.where(x > 0, x, x * weight.reshape(shape))


def _log_softmax(ms: Any, logits: Any, axis: int = -1) -> Any:
    shifted = logits - logits.max(axis=axis, keepdims=True)
    return shifted - ms.ops.log(ms.ops.exp(shifted).sum(axis=axis, keepdims=True))
