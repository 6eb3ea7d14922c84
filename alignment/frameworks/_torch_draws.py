"""torch's functions that draw random numbers, with given numbers where the module that calls them shares some."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alignment.frameworks import _plain_draws
from alignment.frameworks._dropout import kept_values, normal_numbers, occurs, uniform_numbers
from alignment.frameworks._exact import Replaced

Size = Any  # numbers, or one sequence of them


def drawing(torch: Any) -> list[Replaced]:
    """As ``Framework.exact_functions`` lists them; each returns NotImplemented where the caller shares no numbers."""
    found: list[Replaced] = [
        (torch.nn.functional, "dropout", dropout),
        (torch, "dropout", dropout),
        *[(torch.nn.functional, f"dropout{count}d", channel_dropout) for count in (1, 2, 3)],
        (torch.nn.functional, "scaled_dot_product_attention", attention),
        (torch, "rand", rand),
        (torch, "rand_like", rand_like),
        (torch, "randn", randn),
        (torch, "randn_like", randn_like),
        (torch, "bernoulli", bernoulli),
        (torch.Tensor, "bernoulli", bernoulli),
        (torch.Tensor, "bernoulli_", bernoulli_),
        (torch.Tensor, "uniform_", uniform_),
        (torch.Tensor, "normal_", normal_),
        (torch, "randint", randint),
        (torch, "randperm", randperm),
    ]
    return [*[(owner, name, functools.partial(function, torch)) for owner, name, function in found], *_plain_draws.drawing()]


def dropout(torch: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: Any = None) -> Any:
    """Dropout with the masks that the calling module shares; NotImplemented where it shares none."""
    return _dropped(torch, input, p, training if train is None else train, tuple(input.shape))


def channel_dropout(torch: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """The same for whole channels."""
    return _dropped(torch, input, p, training, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def _dropped(torch: Any, input: Any, p: float, training: bool, drawn: tuple[int, ...]) -> Any:
    kept = kept_values(p, tuple(input.shape), drawn) if training and 0 < p < 1 else None
    return NotImplemented if kept is None else input * torch.from_numpy(kept / (1 - p)).to(input)


def attention(
    torch: Any,
    query: Any, key: Any, value: Any, attn_mask: Any | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention whose weights drop what the calling module's masks say, written out; the masks have the weights' shape."""
    if not 0 < dropout_p < 1:
        return NotImplemented
    queries, keys = query.shape[-2], key.shape[-2]
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    shape = (*query.shape[:-1], keys)
    kept = kept_values(dropout_p, shape, shape)
    if kept is None:
        return NotImplemented
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1) * torch.from_numpy(kept / (1 - dropout_p)).to(query) @ value


def rand(torch: Any, *size: Size, **options: Any) -> Any:
    return _made(torch, uniform_numbers, size, options)


def randn(torch: Any, *size: Size, **options: Any) -> Any:
    return _made(torch, normal_numbers, size, options)


def rand_like(torch: Any, input: Any, **options: Any) -> Any:
    return _made(torch, uniform_numbers, (tuple(input.shape),), {"dtype": input.dtype, "device": input.device, **options})


def randn_like(torch: Any, input: Any, **options: Any) -> Any:
    return _made(torch, normal_numbers, (tuple(input.shape),), {"dtype": input.dtype, "device": input.device, **options})


def _made(torch: Any, numbers: Any, size: Size, options: dict[str, Any]) -> Any:
    shape = size or (options.get("size", ()),)
    shape = tuple(int(n) for n in (shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape))
    found = None if options.get("out") is not None else numbers(shape)
    if found is None:
        return NotImplemented
    made = torch.from_numpy(np.asarray(found)).to(options.get("device"), options.get("dtype") or torch.get_default_dtype())
    return made.requires_grad_() if options.get("requires_grad") else made


def bernoulli(torch: Any, input: Any, p: float | None = None, *, generator: Any = None, out: Any = None) -> Any:
    """Ones where an event occurs, whose probabilities are the input, or ``p``."""
    probability = input.detach().double().cpu().numpy() if p is None else p
    found = occurs(probability, tuple(input.shape)) if out is None else None
    return NotImplemented if found is None else torch.from_numpy(np.asarray(found)).to(input)


def bernoulli_(torch: Any, self: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    probability = p.detach().double().cpu().numpy() if isinstance(p, torch.Tensor) else p
    return _filled(torch, self, occurs(probability, tuple(self.shape)))


def uniform_(torch: Any, self: Any, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **more: float) -> Any:
    low = more.get("from", from_)
    found = uniform_numbers(tuple(self.shape))
    return _filled(torch, self, None if found is None else low + found * (to - low))


def normal_(torch: Any, self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    found = normal_numbers(tuple(self.shape))
    return _filled(torch, self, None if found is None else mean + found * std)


def _filled(torch: Any, tensor: Any, found: np.ndarray | None) -> Any:
    return NotImplemented if found is None else tensor.copy_(torch.from_numpy(np.asarray(found)))


def randint(torch: Any, low: Any = 0, high: Any = None, size: Any = None, **options: Any) -> Any:
    """Whole numbers from ``low`` to below ``high``; with two positional arguments they are ``high`` and ``size``."""
    if isinstance(high, list | tuple):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    found = uniform_numbers(tuple(size)) if size is not None and options.get("out") is None else None
    if found is None:
        return NotImplemented
    return torch.from_numpy(np.floor(low + found * (high - low))).to(options.get("device"), options.get("dtype") or torch.int64)


def randperm(torch: Any, n: int, **options: Any) -> Any:
    """The numbers below ``n`` in the order of uniform ones."""
    found = uniform_numbers((n,)) if options.get("out") is None else None
    if found is None:
        return NotImplemented
    return torch.from_numpy(np.argsort(found, kind="stable")).to(options.get("device"), options.get("dtype") or torch.int64)
