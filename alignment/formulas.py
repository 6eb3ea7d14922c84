"""What layers compute, in numpy and float64, from their definitions: no framework's kernel, no float32 constant.

Hypotheses about a mistake are computed here: a layer's formula with one setting changed, held against what the port gave.
Pictures are (N, C, H, W), weights are canonical: (out, in / groups, height, width) and (out, in).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import erf

from alignment.strangers import Refused
from mobilenetv3_common.counted import counted

Array = np.ndarray
Pads = Sequence["int | tuple[int, int]"]  # before and after in each dimension of the picture

PAD_NAMES = {"constant": "zeros"}
PAD_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "ReLU": lambda x: np.maximum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "Hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "Hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "Sigmoid": lambda x: sigmoid(x),
    "Swish": lambda x: x * sigmoid(x),
    "GELU": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "GELU (tanh)": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "Tanh": np.tanh,
    "GELU (sigmoid)": lambda x: x * sigmoid(1.702 * x),
    "LeakyReLU": lambda x: np.where(x > 0, x, 0.01 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "SELU": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Hardtanh": lambda x: np.clip(x, -1, 1),
    "LogSigmoid": lambda x: -np.logaddexp(0, -x),
    "Hardsigmoid of slope 0.2": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Hardswish without the division by 6": lambda x: x * np.clip(x + 3, 0, 6),
    "ReLU6(x + 3)": lambda x: np.clip(x + 3, 0, 6),
}


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def same_margins(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], upper: bool = True
) -> list[tuple[int, int]]:
    """Padding before and after of TensorFlow's SAME: what the sizes ask for, the odd pixel behind (upper), or before."""
    found = []
    for n, k, step, d in zip(sizes, kernel, stride, dilation, strict=True):
        wide = max((math.ceil(n / step) - 1) * step + d * (k - 1) + 1 - n, 0)
        found.append((wide // 2, wide - wide // 2) if upper else (wide - wide // 2, wide // 2))
    return found


def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Pads = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    padding_mode: str = "zeros",
) -> Array:
    """Cross-correlation of pictures, as every framework's convolution computes it.

    Args:
        x: (N, C, spatial...).
        weight: (out, C / groups, kernel...).
        bias: (out,).
        stride, padding, dilation: one value a spatial dimension.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.

    Raises:
        ValueError: the shapes do not go together.
    """
    x = padded(x, padding, padding_mode)
    kernel = weight.shape[2:]
    out = tuple((n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], dilation, kernel, stride, strict=True))
    if min(out) < 1 or weight.shape[0] % groups or x.shape[1] != weight.shape[1] * groups:
        raise Refused(f"weight {weight.shape} in {counted(groups, 'group')} does not fit a picture of shape {x.shape}")
    by_group = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    total = np.zeros((x.shape[0], groups, weight.shape[0] // groups, math.prod(out)))
    for tap in itertools.product(*map(range, kernel)):
        places: Any = (..., *_tap(tap, dilation, stride, out))
        at: Any = (..., *tap)
        seen = x[places].reshape(x.shape[0], groups, weight.shape[1], -1)
        matrix = by_group[at]
        total += matrix * seen if matrix.shape[1:] == (1, 1) else matrix @ seen
    result = total.reshape(x.shape[0], weight.shape[0], *out)
    return result if bias is None else result + bias.reshape(1, -1, *(1,) * len(out))


def margins(padding: Pads) -> list[tuple[int, int]]:
    """Before and after, in each dimension of the picture."""
    return [(n, n) if isinstance(n, int) else (n[0], n[1]) for n in padding]


def padded(x: Array, padding: Pads, mode: str = "zeros", value: float = 0.0) -> Array:
    """The picture with margins, of a value in mode zeros; another mode raises ValueError where the picture is too small for it."""
    wide = [(0, 0), (0, 0), *margins(padding)]
    if not any(before or after for before, after in wide):
        return x
    if mode == "reflect" and any(max(m) >= size for m, size in zip(wide[2:], x.shape[2:], strict=True)):
        raise Refused("the picture is smaller than its reflected margin")
    if mode == "zeros":
        return np.pad(x, wide, constant_values=value)
    return np.pad(x, wide, mode=PAD_MODES[mode])  # type: ignore[call-overload]


def _tap(tap: Sequence[int], dilation: Sequence[int], stride: Sequence[int], out: Sequence[int]) -> Any:
    """The places of a picture that one tap of a kernel sees."""
    starts = [t * d for t, d in zip(tap, dilation, strict=True)]
    return tuple(slice(start, start + (n - 1) * s + 1, s) for start, n, s in zip(starts, out, stride, strict=True))


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x (..., in) times weight (out, in) transposed, plus bias (out,)."""
    return x @ weight.T if bias is None else x @ weight.T + bias


def normalised(x: Array, mean: Array, variance: Array, eps: float, weight: Array | None, bias: Array | None) -> Array:
    """Batch normalisation of (N, C, ...) by given statistics (C,)."""
    shape = (1, -1, *(1,) * (x.ndim - 2))
    result = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + eps)
    result = result if weight is None else result * weight.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


def pool(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    how: str = "max",
    count_padding: bool = True,
    ceil_mode: bool = False,
) -> Array:
    """Maxima or means over windows; a window that would leave the picture and its margin is left out.

    Args:
        x: (N, C, spatial...).
        how: ``"max"`` or ``"mean"``.
        count_padding: whether the margin's zeros count in a mean.
        ceil_mode: a window that leaves picture and margin is kept where it begins inside; what lies outside never counts.

    Raises:
        ValueError: a window is larger than picture and margin, or its margin than half of it.
    """
    around = margins(padding)
    if any(max(m) > k // 2 for m, k in zip(around, kernel, strict=True)):
        raise Refused("the padding is more than half of the window")
    out, more = [], []
    for n, k, s, (before, after) in zip(x.shape[2:], kernel, stride, around, strict=True):
        whole = n + before + after - k
        if whole < 0:
            raise Refused("the window is larger than the picture")
        count = -(-whole // s) + 1 if ceil_mode else whole // s + 1
        if ceil_mode and (count - 1) * s >= n + before:
            count -= 1
        out.append(count)
        more.append(max(0, (count - 1) * s - whole))
    fill = -np.inf if how == "max" else 0.0
    outside = [(0, 0), (0, 0), *((before, after + m) for (before, after), m in zip(around, more, strict=True))]
    wide = np.pad(x, outside, constant_values=fill)
    ones = np.pad(np.ones((1, 1, *x.shape[2:])), [(0, 0), (0, 0), *around], constant_values=float(count_padding))
    ones = np.pad(ones, [(0, 0), (0, 0), *((0, m) for m in more)])
    total: Array = np.full((*x.shape[:2], *out), fill)
    count_of = np.zeros((1, 1, *out))
    for tap in itertools.product(*map(range, kernel)):
        places: Any = (..., *_tap(tap, (1,) * len(out), stride, out))
        total = np.maximum(total, wide[places]) if how == "max" else total + wide[places]
        count_of += ones[places]
    return total if how == "max" else total / count_of


def adaptive_pool(x: Array, size: Sequence[int | None], how: str = "mean") -> Array:
    """Means or maxima over as many windows as ``size`` says; None keeps a dimension as it is."""
    sizes = [n if wanted is None else wanted for wanted, n in zip(size, x.shape[2:], strict=True)]
    result = np.empty((*x.shape[:2], *sizes))
    for place in itertools.product(*map(range, sizes)):
        window: Any = tuple(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place, x.shape[2:], sizes, strict=True))
        at: Any = (..., *place)
        seen = x[(slice(None), slice(None), *window)]
        axes = tuple(range(2, x.ndim))
        result[at] = seen.mean(axes) if how == "mean" else seen.max(axes)
    return result


def log_softmax(logits: Array) -> Array:
    """Over the last axis, without overflow."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0, ignore_index: int | None = None) -> Array:
    """The loss of each sample (N,), 0 where its hard label is ignored.

    Args:
        logits: (N, classes).
        labels: integers (N,), or rows of class probabilities (N, classes).
        smoothing: share of the label spread over all classes.
        ignore_index: hard label that counts for nothing.
    """
    logs = log_softmax(np.asarray(logits, np.float64))
    classes = logs.shape[1]
    if labels.dtype.kind == "f":
        target = labels * (1 - smoothing) + smoothing / classes
        return -(target * logs).sum(1)
    kept = np.ones(len(labels), bool) if ignore_index is None else labels != ignore_index
    own = -logs[np.arange(len(labels)), np.where(kept, labels, 0)]
    return np.where(kept, (1 - smoothing) * own - smoothing * logs.mean(1), 0.0)
