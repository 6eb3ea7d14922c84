"""torch's attention layer in its single steps, so that a port that writes them out can be held to it call by call."""

from __future__ import annotations

import inspect
from typing import Any

NAME = "multi_head_attention_forward"
_MORE = ("bias_k", "bias_v", "static_k", "static_v")  # arguments of forms that few ports have


def steps(torch: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call of ``multi_head_attention_forward`` by name; None where it is not spelled out here."""
    bound = inspect.signature(torch.nn.functional.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    drops = given["training"] and given["dropout_p"] > 0
    if drops or given["add_zero_attn"] or given["query"].ndim != 3 or any(given[name] is not None for name in _MORE):
        return None
    weights = [given[f"{name}_proj_weight"] for name in "qkv"] if given["use_separate_proj_weight"] else None
    bias = given["in_proj_bias"]
    given["weights"] = weights or given["in_proj_weight"].chunk(3)
    given["biases"] = (None, None, None) if bias is None else bias.chunk(3)
    return given


def spelled_out(torch: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The same, step by step, on sequences that begin with the batch."""
    linear = torch.nn.functional.linear
    sequences = [given[name].transpose(0, 1) for name in ("query", "key", "value")]
    rows, heads = sequences[0].shape[0], given["num_heads"]
    made = [linear(*one) for one in zip(sequences, given["weights"], given["biases"], strict=True)]
    q, k, v = (one.reshape(rows, one.shape[1], heads, -1).transpose(1, 2) for one in made)
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(2, 3))
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None:
        mask = _added(torch, mask, scores)
        scores = scores + (mask.reshape(rows, heads, *mask.shape[1:]) if mask.ndim == 3 else mask)
    if padding is not None:
        scores = scores + _added(torch, padding, scores)[:, None, None, :]
    shares = torch.softmax(scores, dim=-1)
    out = torch.matmul(shares, v).transpose(1, 2).flatten(2)
    out = linear(out, given["out_proj_weight"], given["out_proj_bias"]).transpose(0, 1)
    if not given["need_weights"]:
        return out, None
    return out, shares.mean(1) if given["average_attn_weights"] else shares


def _added(torch: Any, mask: Any, scores: Any) -> Any:
    """A mask as numbers that are added to scores; true is masked."""
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -torch.inf) if mask.dtype is torch.bool else mask
