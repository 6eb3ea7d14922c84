"""Paddle's functions that draw random numbers, with given numbers where the layer that calls them shares some."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alignment.frameworks import _plain_draws
from alignment.frameworks._dropout import kept_values, normal_numbers, occurs, uniform_numbers
from alignment.frameworks._exact import Replaced

Shape = Any  # numbers, tensors of one number, or a sequence of either


def drawing(paddle: Any) -> list[Replaced]:
    """As ``Framework.exact_functions`` lists them; each returns NotImplemented where the caller shares no numbers."""
    found: list[Replaced] = [
        (paddle.nn.functional, "dropout", dropout),
        (paddle.nn.functional, "dropout2d", channel_dropout),
        (paddle.nn.functional, "dropout3d", channel_dropout),
        (paddle.nn.functional, "scaled_dot_product_attention", attention),
        (paddle, "rand", rand),
        (paddle, "rand_like", rand_like),
        (paddle, "uniform", uniform),
        (paddle, "randn", randn),
        (paddle, "randn_like", randn_like),
        (paddle, "standard_normal", randn),
        (paddle, "normal", normal),
        (paddle, "bernoulli", bernoulli),
        (paddle.Tensor, "bernoulli_", bernoulli_),
        (paddle.Tensor, "uniform_", uniform_),
        (paddle.Tensor, "normal_", normal_),
        (paddle, "randint", randint),
        (paddle, "randperm", randperm),
    ]
    return [*[(owner, name, functools.partial(function, paddle)) for owner, name, function in found], *_plain_draws.drawing()]


def dropout(
    paddle: Any,
    x: Any,
    p: float = 0.5,
    axis: Any = None,
    training: bool = True,
    *others: Any,
    mode: str = "upscale_in_train",
    **more: Any,
) -> Any:
    """Dropout with the masks that the calling layer shares; NotImplemented where it shares none."""
    known = isinstance(p, float | int) and isinstance(x, paddle.Tensor)  # of anything else, Paddle's own error is the port's
    if others or not more.keys() <= {"inplace", "name"} or not known:
        return NotImplemented
    axes = range(x.ndim) if axis is None else [one % x.ndim for one in (axis if isinstance(axis, list | tuple) else (axis,))]
    drawn = tuple(size if number in axes else 1 for number, size in enumerate(x.shape))
    kept = kept_values(p, tuple(x.shape), drawn) if training and 0 < p < 1 else None
    scale = 1 if mode == "downscale_in_infer" else 1 - p
    return NotImplemented if kept is None else x * paddle.to_tensor(kept / scale).astype(x.dtype)


def channel_dropout(
    paddle: Any, x: Any, p: float = 0.5, training: bool = True, data_format: str = "NCHW", name: str | None = None
) -> Any:
    """The same for whole channels."""
    if not data_format.startswith("NC"):
        return NotImplemented
    return dropout(paddle, x, p, [0, 1], training)


def attention(
    paddle: Any,
    query: Any, key: Any, value: Any, attn_mask: Any | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, training: bool = True, backend: str | None = None, scale: float | None = None,
    enable_gqa: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """Attention whose weights drop what the calling layer's masks say, written out.

    Its sequences are (batch, length, heads, width); the masks have the weights' shape, (batch, heads, queries, keys).
    """
    if not training or not 0 < dropout_p < 1 or query.ndim != 4:
        return NotImplemented
    query, key, value = (one.transpose([0, 2, 1, 3]) for one in (query, key, value))
    if key.shape[1] != query.shape[1]:
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
    shape = (*query.shape[:3], key.shape[2])
    kept = kept_values(dropout_p, shape, shape)
    if kept is None:
        return NotImplemented
    scores = query @ key.transpose([0, 1, 3, 2]) * (query.shape[-1] ** -0.5 if scale is None else scale)
    hidden = paddle.to_tensor(-np.inf, dtype=scores.dtype)
    if is_causal:
        scores = paddle.where(paddle.ones(shape[2:], "bool").tril(), scores, hidden)
    if attn_mask is not None and attn_mask.dtype == paddle.bool:
        scores = paddle.where(attn_mask, scores, hidden)
    elif attn_mask is not None:
        scores = scores + attn_mask.astype(scores.dtype)
    weights = paddle.nn.functional.softmax(scores, -1) * paddle.to_tensor(kept / (1 - dropout_p)).astype(scores.dtype)
    return (weights @ value).transpose([0, 2, 1, 3])


def rand(paddle: Any, *shape: Shape, dtype: Any = None, **options: Any) -> Any:
    return _made(paddle, uniform_numbers, shape, dtype, options)


def randn(paddle: Any, *shape: Shape, dtype: Any = None, **options: Any) -> Any:
    return _made(paddle, normal_numbers, shape, dtype, options)


def rand_like(paddle: Any, x: Any, name: Any = None, *, dtype: Any = None, **options: Any) -> Any:
    return _made(paddle, uniform_numbers, (x.shape,), dtype or x.dtype, options)


def randn_like(paddle: Any, x: Any, dtype: Any = None, name: Any = None, **options: Any) -> Any:
    return _made(paddle, normal_numbers, (x.shape,), dtype or x.dtype, options)


def uniform(
    paddle: Any,
    shape: Shape = (),
    dtype: Any = None,
    min: float = 0,
    max: float = 1.0,
    seed: int = 0,
    name: Any = None,
    **options: Any,
) -> Any:
    found = _made(paddle, uniform_numbers, (shape,), dtype, options)
    return found if found is NotImplemented else min + found * (max - min)


def normal(paddle: Any, mean: Any = 0.0, std: Any = 1.0, shape: Shape = None, name: Any = None, **options: Any) -> Any:
    if isinstance(mean, complex):
        return NotImplemented
    given = next((one for one in (mean, std) if isinstance(one, paddle.Tensor)), None)
    shape, dtype = (shape, None) if given is None else (given.shape, given.dtype)
    found = _made(paddle, normal_numbers, (shape,), dtype, options)
    return found if found is NotImplemented else mean + found * std


def _made(paddle: Any, numbers: Any, shape: Shape, dtype: Any, options: dict[str, Any]) -> Any:
    """Numbers of a shape; a second positional argument is the type."""
    first = shape[0] if shape else options.get("shape", ())
    if len(shape) > 1 and not isinstance(shape[1], int):
        dtype, shape = shape[1], shape[:1]
    sizes = shape if len(shape) > 1 else first if isinstance(first, list | tuple | paddle.Tensor) else (first,)
    found = None if options.get("out") is not None else numbers(tuple(int(size) for size in sizes))
    if found is None:
        return NotImplemented
    return paddle.to_tensor(found).astype(dtype or paddle.get_default_dtype())


def bernoulli(paddle: Any, x: Any, p: float | None = None, name: Any = None) -> Any:
    """Ones where an event occurs, whose probabilities are ``x``, or ``p``."""
    found = occurs(x.detach().astype("float64").numpy() if p is None else p, tuple(x.shape))
    return NotImplemented if found is None else paddle.to_tensor(found).astype(x.dtype)


def bernoulli_(paddle: Any, x: Any, p: Any = 0.5, name: Any = None) -> Any:
    return _filled(paddle, x, occurs(p.detach().astype("float64").numpy() if isinstance(p, paddle.Tensor) else p, tuple(x.shape)))


def uniform_(paddle: Any, x: Any, min: float = 0, max: float = 1.0, seed: int = 0, name: Any = None) -> Any:
    found = uniform_numbers(tuple(x.shape))
    return _filled(paddle, x, None if found is None else min + found * (max - min))


def normal_(paddle: Any, x: Any, mean: float = 0.0, std: float = 1.0, name: Any = None) -> Any:
    found = normal_numbers(tuple(x.shape))
    return _filled(paddle, x, None if found is None else mean + found * std)


def _filled(paddle: Any, x: Any, found: np.ndarray | None) -> Any:
    return NotImplemented if found is None else paddle.assign(paddle.to_tensor(found).astype(x.dtype), x)


def randint(paddle: Any, low: Any = 0, high: Any = None, shape: Shape = (1,), dtype: Any = None, name: Any = None) -> Any:
    """Whole numbers from ``low`` to below ``high``, or below ``low`` alone."""
    low, high = (0, low) if high is None else (low, high)
    found = _made(paddle, uniform_numbers, (shape,), "float64", {})
    return found if found is NotImplemented else paddle.floor(low + found * (high - low)).astype(dtype or "int64")


def randperm(paddle: Any, n: int, dtype: Any = "int64", name: Any = None, **options: Any) -> Any:
    """The numbers below ``n`` in the order of uniform ones."""
    found = uniform_numbers((n,)) if options.get("out") is None else None
    return NotImplemented if found is None else paddle.to_tensor(np.argsort(found, kind="stable")).astype(dtype)
