"""The calls of the frameworks' own attention and transformer layers, whose signatures and masks differ, in one common form.

In the common form sequences are (batch, length, width). A mask is floating, to be added to the scores, or of truth values, true
where attention is allowed; it broadcasts to (batch, heads, queries, keys). torch's masks of truth values say the contrary, and
its keys' padding is an argument of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
ATTENTION = "multiheadattention"
INPUTS: dict[str, tuple[str, ...]] = {  # sequences of each kind of layer
    ATTENTION: ("query", "key", "value"),
    "transformerencoderlayer": ("src",),
    "transformerencoder": ("src",),
    "transformerdecoderlayer": ("tgt", "memory"),
    "transformerdecoder": ("tgt", "memory"),
    "transformer": ("src", "tgt"),
}
MASKS: dict[str, tuple[str, ...]] = {  # its masks; the keys of each are those of ``MASKED``
    ATTENTION: ("attn_mask",),
    "transformerencoderlayer": ("src_mask",),
    "transformerencoder": ("src_mask",),
    "transformerdecoderlayer": ("tgt_mask", "memory_mask"),
    "transformerdecoder": ("tgt_mask", "memory_mask"),
    "transformer": ("src_mask", "tgt_mask", "memory_mask"),
}
# The arguments in order. A mask's padding of keys follows a colon; what neither side needs begins with a minus.
_DECODER = (
    "tgt", "memory", "tgt_mask", "memory_mask", "tgt_mask:tgt_key_padding_mask", "memory_mask:memory_key_padding_mask",
    "-tgt_is_causal", "-memory_is_causal",
)  # fmt: skip
_ENCODER = ("src_mask:src_key_padding_mask", "-is_causal")
TORCH: dict[str, tuple[str, ...]] = {
    ATTENTION: (
        "query", "key", "value", "attn_mask:key_padding_mask", "-need_weights", "attn_mask", "-average_attn_weights", "-is_causal",
    ),
    "transformerencoderlayer": ("src", "src_mask", *_ENCODER),
    "transformerencoder": ("src", "src_mask=mask", *_ENCODER),
    "transformerdecoderlayer": _DECODER,
    "transformerdecoder": _DECODER,
    "transformer": (
        "src", "tgt", "src_mask", "tgt_mask", "memory_mask", "src_mask:src_key_padding_mask", "tgt_mask:tgt_key_padding_mask",
        "memory_mask:memory_key_padding_mask", "-src_is_causal", "-tgt_is_causal", "-memory_is_causal",
    ),
}  # fmt: skip
PADDLE: dict[str, tuple[str, ...]] = {kind: (*INPUTS[kind], *MASKS[kind]) for kind in INPUTS}


@dataclass(frozen=True)
class Attended:
    """One call in the common form.

    Attributes:
        kind: of the layer.
        inputs: its sequences, in the order of ``INPUTS``.
        masks: in the order of ``MASKS``; None for no mask.
        batch_first: whether the sequences of the layer that was called so begin with the batch; those here always do.
    """

    kind: str
    inputs: tuple[Array, ...]
    masks: tuple[Array | None, ...]
    batch_first: bool = True

    def mapped(self, function: Callable[[Array], Array]) -> Attended:
        """The same call of other arrays."""
        masks = tuple(None if mask is None else function(mask) for mask in self.masks)
        return Attended(self.kind, tuple(map(function, self.inputs)), masks, self.batch_first)


@dataclass(frozen=True)
class Attention:
    """A framework's own attention or transformer layer.

    Attributes:
        kind: of the layer.
        heads: of its attention.
        batch_first: whether its sequences begin with the batch.
    """

    kind: str
    heads: int
    batch_first: bool = True


@dataclass(frozen=True)
class AttentionForm:
    """How a framework's layers are called.

    Attributes:
        arguments: by kind, as above.
        true_is_masked: what true means in a mask.
        three_axes: whether a mask for each head has (batch * heads, queries, keys).
        defaults: arguments that are always given.
        pairs: kinds that return their output with another value, which may be None.
    """

    arguments: Mapping[str, tuple[str, ...]]
    true_is_masked: bool = False
    three_axes: bool = False
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pairs: frozenset[str] = frozenset()

    def common(self, layer: Attention, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Attended | None:
        """A call in the common form; None where it has an argument of its own (a cache), or an input without a batch.

        Args:
            layer: that is called.
            args, kwargs: what it is given, as arrays.
        """
        kind, heads, batch_first = layer.kind, layer.heads, layer.batch_first
        known = self.arguments[kind]
        names = [entry.lstrip("-").rpartition("=")[2].rpartition(":")[2] for entry in known]
        if len(args) > len(names) and any(arg is not None for arg in args[len(names) :]):
            return None
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if any(value is not None for name, value in given.items() if name not in names):
            return None
        inputs: list[Array] = []
        for name in INPUTS[kind]:
            value = given.get(name)
            if value is None and inputs:
                value = inputs[-1]  # Paddle's key and value are the query where they are left out
            elif isinstance(value, Array) and value.ndim == 3 and not batch_first:
                value = value.swapaxes(0, 1)
            if not isinstance(value, Array) or value.ndim != 3:
                return None
            inputs.append(value)
        masks: dict[str, Array | None] = dict.fromkeys(MASKS[kind])
        for entry, name in zip(known, names, strict=True):
            mask, value = entry.partition(":")[0].partition("=")[0], given.get(name)
            if mask in masks and value is not None:
                masks[mask] = both_masks(masks[mask], self._read(value, ":" in entry, heads))
        return Attended(kind, tuple(inputs), tuple(masks.values()), batch_first)

    def _read(self, mask: Array, padding: bool, heads: int) -> Array:
        if mask.dtype.kind != "f":
            mask = (mask != 0) ^ self.true_is_masked
        if padding:
            return mask[:, None, None, :]
        return mask.reshape(-1, heads, *mask.shape[1:]) if self.three_axes and mask.ndim == 3 else mask

    def own(self, layer: Attention, call: Attended) -> tuple[tuple, dict[str, Any]]:
        """What a layer of the same kind is given: its sequences by place, its masks by name."""
        inputs = call.inputs if layer.batch_first else tuple(one.swapaxes(0, 1) for one in call.inputs)
        named = dict(self.defaults.get(call.kind, {}))
        called = {e.partition("=")[0]: e.rpartition("=")[2] for e in self.arguments[call.kind] if ":" not in e}
        for name, mask in zip(MASKS[call.kind], call.masks, strict=True):
            if mask is not None:
                named[called[name]] = self._written(mask, call, name, layer.heads)
        return inputs, named

    def _written(self, mask: Array, call: Attended, name: str, heads: int) -> Array:
        if mask.dtype.kind == "b" and self.true_is_masked:
            mask = ~mask
        if not self.three_axes or mask.ndim == 2:
            return mask
        lengths = {key: array.shape[1] for key, array in zip(INPUTS[call.kind], call.inputs, strict=True)}
        queries = lengths.get("query", lengths.get("src" if name == "src_mask" else "tgt", 0))
        keys = lengths.get("key", lengths.get("memory", lengths.get("src", 0)) if name == "memory_mask" else queries)
        whole = np.broadcast_to(mask, (call.inputs[0].shape[0], heads, queries, keys))
        return np.ascontiguousarray(whole.reshape(-1, queries, keys))


def both_masks(a: Array | None, b: Array) -> Array:
    """Two masks in the common form as one."""
    if a is None:
        return b
    if a.dtype.kind == b.dtype.kind == "b":
        return a & b
    floating = next(mask for mask in (a, b) if mask.dtype.kind == "f")
    return added(a, floating.dtype) + added(b, floating.dtype)


def added(mask: Array, dtype: Any) -> Array:
    """A mask in the common form as numbers that are added to scores."""
    return mask.astype(dtype) if mask.dtype.kind == "f" else np.where(mask, 0.0, -np.inf).astype(dtype)
