"""One layer of Paddle and of torch behind a stem, for ``bench --layer-faults``: ``P`` is paddle.nn, ``T`` is torch.nn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.nn as P
import torch
import torch.nn as T

from alignment.faults import LayerPair
from alignment.kinds import Kind as K

SHAPES = {"signal": (4, 3, 15), "picture": (4, 3, 13, 11), "volume": (3, 3, 9, 8, 7), "tokens": (4, 7, 6), "numbers": (4, 20)}
NUMBERS = 10
STEMS: dict[str, tuple[partial, partial]] = {
    "signal": (partial(P.Conv1D, 3, 8, 3), partial(T.Conv1d, 3, 8, 3)),
    "picture": (partial(P.Conv2D, 3, 8, 3), partial(T.Conv2d, 3, 8, 3)),
    "volume": (partial(P.Conv3D, 3, 8, 3), partial(T.Conv3d, 3, 8, 3)),
    "tokens": (partial(P.Linear, 6, 8), partial(T.Linear, 6, 8)),
    "numbers": (partial(P.Identity), partial(T.Identity)),
}


class Port(P.Layer):
    """Stem, layer, tanh."""

    def __init__(self, stem: Any, layer: Any) -> None:
        super().__init__()
        self.stem, self.layer, self.head = stem, layer, P.Tanh()

    def forward(self, x: Any) -> Any:
        made = self.layer(self.stem(x))
        return self.head(made[0] if isinstance(made, tuple) else made)


class Reference(T.Module):
    """The same."""

    def __init__(self, stem: Any, layer: Any) -> None:
        super().__init__()
        self.stem, self.layer, self.head = stem, layer, T.Tanh()

    def forward(self, x: Any) -> Any:
        made = self.layer(self.stem(x))
        return self.head(made[0] if isinstance(made, tuple) else made)


class PortBranches(P.Layer):
    """Networks side by side, each with an input and an output of its own; each goes into a mode by its own method."""

    def __init__(self, **branches: Any) -> None:
        super().__init__()
        for name, branch in branches.items():
            setattr(self, name, branch)

    def train(self) -> None:
        self.training = True
        for branch in self.children():
            branch.train()

    def eval(self) -> None:
        self.training = False
        for branch in self.children():
            branch.eval()

    def forward(self, *inputs: Any) -> Any:
        return tuple(branch(x) for branch, x in zip(self.children(), inputs, strict=True))


class ReferenceBranches(T.Module):
    """The same."""

    def __init__(self, **branches: Any) -> None:
        super().__init__()
        for name, branch in branches.items():
            setattr(self, name, branch)

    def forward(self, *inputs: Any) -> Any:
        return tuple(branch(x) for branch, x in zip(self.children(), inputs, strict=True))


BRANCHES = PortBranches, ReferenceBranches
PAIRS: dict[str, LayerPair] = {}


def built(network: Callable, stem: Callable, layer: Callable) -> Any:
    """A network of what two makers make."""
    return network(stem(), layer())


def pair(name: str, on: str, port: Callable, reference: Callable, training: bool = True, **faults: tuple[Callable, K]) -> None:
    """Add a pair; each fault is another layer for the port, and what it may be called."""

    def inputs(rng: np.random.Generator) -> np.ndarray:
        shape = SHAPES[on]
        return rng.integers(0, NUMBERS, shape) if on == "numbers" else rng.standard_normal(shape).astype(np.float32)

    PAIRS[name] = LayerPair(
        partial(built, Port, STEMS[on][0], port),
        partial(built, Reference, STEMS[on][1], reference),
        inputs,
        {fault: (partial(built, Port, STEMS[on][0], layer), (kind,)) for fault, (layer, kind) in faults.items()},
        training,
    )


def ours(name: str, *args: Any, **settings: Any) -> Callable:
    """A maker of one layer of Paddle."""
    return partial(getattr(P, name), *args, **settings)


def theirs(name: str, *args: Any, **settings: Any) -> Callable:
    """A maker of one layer of torch."""
    return partial(getattr(T, name), *args, **settings)


pair("LayerNorm", "tokens", ours("LayerNorm", 8, 1e-5), theirs("LayerNorm", 8, 1e-5),
     eps=(ours("LayerNorm", 8, 1e-3), K.NORM_EPS), tiny_eps=(ours("LayerNorm", 8, 1e-12), K.NORM_EPS),
     no_bias=(ours("LayerNorm", 8, 1e-5, bias_attr=False), K.BIAS_MISSING),
     no_affine=(ours("LayerNorm", 8, 1e-5, weight_attr=False, bias_attr=False), K.NORM_AFFINE))  # fmt: skip
pair("GroupNorm", "picture", ours("GroupNorm", 2, 8, 1e-3), theirs("GroupNorm", 2, 8, 1e-3),
     eps=(ours("GroupNorm", 2, 8, 1e-5), K.NORM_EPS), groups=(ours("GroupNorm", 4, 8, 1e-3), K.GROUPS),
     one_group=(ours("GroupNorm", 1, 8, 1e-3), K.GROUPS))  # fmt: skip
pair("LocalResponseNorm", "picture", ours("LocalResponseNorm", 5, alpha=0.1, beta=0.5, k=2.0),
     theirs("LocalResponseNorm", 5, 0.1, 0.5, 2.0),
     size=(ours("LocalResponseNorm", 3, alpha=0.1, beta=0.5, k=2.0), K.NORM_SETTING),
     alpha=(ours("LocalResponseNorm", 5, alpha=0.2, beta=0.5, k=2.0), K.NORM_SETTING),
     beta=(ours("LocalResponseNorm", 5, alpha=0.1, beta=0.75, k=2.0), K.NORM_SETTING),
     k=(ours("LocalResponseNorm", 5, alpha=0.1, beta=0.5, k=1.0), K.NORM_SETTING))  # fmt: skip
pair("PReLU", "picture", ours("PReLU", 8), theirs("PReLU", 8))
pair("Linear", "tokens", ours("Linear", 8, 5), theirs("Linear", 8, 5),
     no_bias=(ours("Linear", 8, 5, bias_attr=False), K.BIAS_MISSING), width=(ours("Linear", 8, 6), K.WIDTH))  # fmt: skip
pair("Embedding", "numbers", ours("Embedding", NUMBERS, 6, padding_idx=0), theirs("Embedding", NUMBERS, 6, padding_idx=0),
     no_padding=(ours("Embedding", NUMBERS, 6), K.PADDING_INDEX),
     other_padding=(ours("Embedding", NUMBERS, 6, padding_idx=3), K.PADDING_INDEX))  # fmt: skip
for count, where in ((1, "signal"), (2, "picture"), (3, "volume")):
    D, d = f"{count}D", f"{count}d"
    pair(f"BatchNorm{D}", where, ours(f"BatchNorm{D}", 8, epsilon=1e-3), theirs(f"BatchNorm{d}", 8, 1e-3), training=False,
         eps=(ours(f"BatchNorm{D}", 8, epsilon=1e-5), K.BATCH_NORM_EPS),
         no_affine=(ours(f"BatchNorm{D}", 8, epsilon=1e-3, weight_attr=False, bias_attr=False), K.NORM_AFFINE))  # fmt: skip
    pair(f"InstanceNorm{D}", where, ours(f"InstanceNorm{D}", 8, 1e-3), theirs(f"InstanceNorm{d}", 8, 1e-3, affine=True),
         eps=(ours(f"InstanceNorm{D}", 8, 1e-5), K.NORM_EPS),
         no_affine=(ours(f"InstanceNorm{D}", 8, 1e-3, weight_attr=False, bias_attr=False), K.NORM_AFFINE))  # fmt: skip
    pair(f"MaxPool{D}", where, ours(f"MaxPool{D}", 3, 2, 1), theirs(f"MaxPool{d}", 3, 2, 1),
         padding=(ours(f"MaxPool{D}", 3, 2, 0), K.PADDING), stride=(ours(f"MaxPool{D}", 3, 1, 1), K.STRIDE))  # fmt: skip
    pair(f"MaxPool{D}, ceil mode", where, ours(f"MaxPool{D}", 2, 2, ceil_mode=True), theirs(f"MaxPool{d}", 2, 2, ceil_mode=True),
         floor=(ours(f"MaxPool{D}", 2, 2), K.POOLING))  # fmt: skip
    pair(f"AvgPool{D}", where, ours(f"AvgPool{D}", 3, 2, 1, exclusive=False), theirs(f"AvgPool{d}", 3, 2, 1),
         exclusive=(ours(f"AvgPool{D}", 3, 2, 1), K.POOLING),
         stride=(ours(f"AvgPool{D}", 3, 1, 1, exclusive=False), K.STRIDE))  # fmt: skip
    pair(f"AdaptiveAvgPool{D}", where, ours(f"AdaptiveAvgPool{D}", 3), theirs(f"AdaptiveAvgPool{d}", 3),
         size=(ours(f"AdaptiveAvgPool{D}", 4), K.POOLING), maximum=(ours(f"AdaptiveMaxPool{D}", 3), K.POOLING))  # fmt: skip
    pair(f"Conv{D}", where, ours(f"Conv{D}", 8, 4, 3, 2, 1, groups=2), theirs(f"Conv{d}", 8, 4, 3, 2, 1, groups=2),
         groups=(ours(f"Conv{D}", 8, 4, 3, 2, 1), K.GROUPS), padding=(ours(f"Conv{D}", 8, 4, 3, 2, 0, groups=2), K.PADDING),
         mode=(ours(f"Conv{D}", 8, 4, 3, 2, 1, groups=2, padding_mode="replicate"), K.PADDING),
         no_bias=(ours(f"Conv{D}", 8, 4, 3, 2, 1, groups=2, bias_attr=False), K.BIAS_MISSING))  # fmt: skip
    transposed = f"Conv{D}Transpose"
    pair(transposed, where, ours(transposed, 8, 4, 3, 2, 1, 1, groups=2), theirs(f"ConvTranspose{d}", 8, 4, 3, 2, 1, 1, groups=2),
         output_padding=(ours(transposed, 8, 4, 3, 2, 1, 0, groups=2), K.OUTPUT_PADDING),
         groups=(ours(transposed, 8, 4, 3, 2, 1, 1), K.GROUPS),
         padding=(ours(transposed, 8, 4, 3, 2, 0, 1, groups=2), K.PADDING))  # fmt: skip
    sides = [1, 2, *[0, 1] * (count - 1)]
    pair(f"Pad{D}", where, ours(f"Pad{D}", sides, mode="reflect"), theirs(f"ReflectionPad{d}", tuple(sides)),
         mode=(ours(f"Pad{D}", sides, mode="replicate"), K.PADDING),
         sides=(ours(f"Pad{D}", [2, 1, *sides[2:]], mode="reflect"), K.PADDING))  # fmt: skip
    linear, named = ("linear", "bilinear", "trilinear")[count - 1], f"NC{'DHW'[-count:]}"  # one dimension is NCW
    pair(f"Upsample, {linear}", where, ours("Upsample", scale_factor=1.5, mode=linear, data_format=named),
         theirs("Upsample", scale_factor=1.5, mode=linear),
         corners=(ours("Upsample", scale_factor=1.5, mode=linear, align_corners=True, data_format=named),
                  K.ALIGN_CORNERS))  # fmt: skip
for name, given, theirs_given, wrong in (
    ("LeakyReLU", (0.2,), (0.2,), (0.01,)), ("ELU", (0.7,), (0.7,), (1.0,)), ("CELU", (0.7,), (0.7,), (1.0,)),
    ("Softplus", (2.0, 1.5), (2.0, 1.5), (1.0, 1.5)), ("Hardtanh", (-0.3, 0.7), (-0.3, 0.7), (-0.3, 1.0)),
    ("Hardshrink", (0.3,), (0.3,), (0.5,)), ("Softshrink", (0.3,), (0.3,), (0.5,)),
):  # fmt: skip
    pair(name, "tokens", ours(name, *given), theirs(name, *theirs_given), setting=(ours(name, *wrong), K.ACTIVATION))
pair("GELU", "tokens", ours("GELU"), theirs("GELU"), by_tanh=(ours("GELU", True), K.ACTIVATION))
pair("SELU", "tokens", ours("SELU"), theirs("SELU"), elu=(ours("ELU"), K.ACTIVATION))
pair("Mish", "tokens", ours("Mish"), theirs("Mish"), silu=(ours("Silu"), K.ACTIVATION))
pair("SiLU", "tokens", ours("Silu"), theirs("SiLU"), relu=(ours("ReLU"), K.ACTIVATION))
pair("Softmax", "tokens", ours("Softmax", 1), theirs("Softmax", 1), axis=(ours("Softmax", -1), K.AXIS))
pair("LogSoftmax", "tokens", ours("LogSoftmax", 1), theirs("LogSoftmax", 1), axis=(ours("LogSoftmax", -1), K.AXIS))
pair("PixelShuffle", "picture", ours("PixelShuffle", 2), theirs("PixelShuffle", 2))
pair("ChannelShuffle", "picture", ours("ChannelShuffle", 2), theirs("ChannelShuffle", 2),
     groups=(ours("ChannelShuffle", 4), K.GROUPS))  # fmt: skip
pair("Dropout", "tokens", ours("Dropout", 0.3), theirs("Dropout", 0.3), rate=(ours("Dropout", 0.5), K.DROPOUT_RATE),
     mode=(ours("Dropout", 0.3, mode="downscale_in_infer"), K.DROPOUT_SCALE),
     missing=(ours("Identity"), K.DROPOUT_MISSING))  # fmt: skip
pair("Dropout2D", "picture", ours("Dropout2D", 0.3), theirs("Dropout2d", 0.3), rate=(ours("Dropout2D", 0.5), K.DROPOUT_RATE))
pair("LayerNorm over two axes", "tokens", ours("LayerNorm", [7, 8], 1e-5), theirs("LayerNorm", [7, 8], 1e-5),
     eps=(ours("LayerNorm", [7, 8], 1e-3), K.NORM_EPS), one_axis=(ours("LayerNorm", 8, 1e-5), K.LAYER_REPLACED))  # fmt: skip
pair("LSTM", "tokens", ours("LSTM", 8, 5), theirs("LSTM", 8, 5, batch_first=True),
     time_major=(ours("LSTM", 8, 5, time_major=True), K.BATCH_FIRST))  # fmt: skip
pair("GRU", "tokens", ours("GRU", 8, 5, 2), theirs("GRU", 8, 5, 2, batch_first=True),
     time_major=(ours("GRU", 8, 5, 2, time_major=True), K.BATCH_FIRST))  # fmt: skip
for kind, named in (("LSTM", "LSTM"), ("GRU", "GRU"), ("SimpleRNN", "RNN")):
    both: dict = {"direction": "bidirect"}
    pair(f"{kind}, two layers, both directions", "tokens", ours(kind, 8, 5, 2, **both),
         theirs(named, 8, 5, 2, batch_first=True, bidirectional=True),
         time_major=(ours(kind, 8, 5, 2, time_major=True, **both), K.BATCH_FIRST),
         one_direction=(ours(kind, 8, 5, 2), K.WEIGHTS_MISSING), one_layer=(ours(kind, 8, 5, 1, **both), K.WEIGHTS_MISSING),
         width=(ours(kind, 8, 6, 2, **both), K.WIDTH))  # fmt: skip
pair("SimpleRNN", "tokens", ours("SimpleRNN", 8, 5), theirs("RNN", 8, 5, batch_first=True),
     activation=(ours("SimpleRNN", 8, 5, activation="relu"), K.ACTIVATION))  # fmt: skip


class Attending(P.Layer):
    """Attention of a sequence to itself, with a mask that is made of it."""

    def __init__(self, heads: int = 2, mask: Callable | None = None, **given: Any) -> None:
        super().__init__()
        self.attention, self.mask = P.MultiHeadAttention(8, heads, **given), mask

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, attn_mask=self.mask(x.shape[1], x.dtype) if self.mask else None)


class AttendingReference(T.Module):
    """The same."""

    def __init__(self, mask: Callable | None = None, batch_first: bool = True, **given: Any) -> None:
        super().__init__()
        self.attention, self.mask = T.MultiheadAttention(8, 2, batch_first=batch_first, **given), mask

    def forward(self, x: Any) -> Any:
        first = self.attention.batch_first
        x = x if first else x.transpose(0, 1)
        made = self.attention(x, x, x, attn_mask=self.mask(x.shape[1 if first else 0], x.dtype) if self.mask else None)[0]
        return made if first else made.transpose(0, 1)


class Scaled(P.MultiHeadAttention):
    """Attention whose scores are divided by another number."""

    def __init__(self, factor: float) -> None:
        super().__init__(8, 2)
        self.factor = factor

    def forward(self, query: Any, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None) -> Any:
        split = lambda x: x.reshape([x.shape[0], x.shape[1], 2, 4]).transpose([0, 2, 1, 3])  # noqa: E731
        q, k, v = split(self.q_proj(query)), split(self.k_proj(key)), split(self.v_proj(value))
        made = P.functional.softmax(q @ k.transpose([0, 1, 3, 2]) * self.factor) @ v
        return self.out_proj(made.transpose([0, 2, 1, 3]).flatten(2))


class AttendingScaled(Attending):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.attention = Scaled(factor)


class Packed(P.Layer):
    """An encoder layer, called with a mask."""

    def __init__(self, mask: Callable | None = None, **given: Any) -> None:
        super().__init__()
        self.block, self.mask = P.TransformerEncoderLayer(8, **{"nhead": 2, "dim_feedforward": 16, "dropout": 0.0} | given), mask

    def forward(self, x: Any) -> Any:
        return self.block(x, self.mask(x.shape[1], x.dtype) if self.mask else None)


class PackedReference(T.Module):
    """The same."""

    def __init__(self, mask: Callable | None = None, **given: Any) -> None:
        super().__init__()
        self.block, self.mask = T.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **given), mask

    def forward(self, x: Any) -> Any:
        return self.block(x, self.mask(x.shape[1], x.dtype) if self.mask else None)


class Decoding(P.Layer):
    """A decoder of which the sequence is the memory, too."""

    def __init__(self, mask: Callable | None, **given: Any) -> None:
        super().__init__()
        block = P.TransformerDecoderLayer(8, **{"nhead": 2, "dim_feedforward": 16, "dropout": 0.0} | given)
        self.decoder, self.mask = P.TransformerDecoder(block, 2), mask

    def forward(self, x: Any) -> Any:
        return self.decoder(x[:, :4], x, self.mask(4, x.dtype) if self.mask else None)


class DecodingReference(T.Module):
    """The same."""

    def __init__(self, mask: Callable, **given: Any) -> None:
        super().__init__()
        self.decoder, self.mask = T.TransformerDecoder(T.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, **given), 2), mask

    def forward(self, x: Any) -> Any:
        return self.decoder(x[:, :4], x, self.mask(4, x.dtype))


def no_future(n: int, dtype: Any) -> Any:
    """Paddle: true where attention is allowed."""
    return paddle.tril(paddle.ones([n, n])) > 0


def future(n: int, dtype: Any) -> Any:
    return paddle.tril(paddle.ones([n, n])) == 0


def no_past(n: int, dtype: Any) -> Any:
    return paddle.triu(paddle.ones([n, n])) > 0


def added_future(n: int, dtype: Any) -> Any:
    """Numbers that are added: the same in both frameworks."""
    return paddle.triu(paddle.full([n, n], float("-inf"), dtype), 1)


def their_future(n: int, dtype: Any) -> Any:
    """torch: true where attention is masked."""
    return torch.triu(torch.ones(n, n, dtype=torch.bool), 1)


def their_added_future(n: int, dtype: Any) -> Any:
    return torch.triu(torch.full((n, n), float("-inf"), dtype=dtype), 1)


def of(kind: Callable, *args: Any, **given: Any) -> Callable:
    """A maker of a module."""
    return partial(kind, *args, **given)


pair("MultiHeadAttention", "tokens", of(Attending), of(AttendingReference), heads=(of(Attending, 4), K.HEADS),
     mask=(of(Attending, mask=no_future), K.MASK),
     no_scale=(of(AttendingScaled, 1.0), K.ATTENTION_SCALE), no_root=(of(AttendingScaled, 0.25), K.ATTENTION_SCALE),
     whole_width=(of(AttendingScaled, 8**-0.5), K.ATTENTION_SCALE))  # fmt: skip
pair("MultiHeadAttention, sequence first", "tokens", of(Attending), of(AttendingReference, batch_first=False),
     heads=(of(Attending, 4), K.HEADS))  # fmt: skip
pair("MultiHeadAttention, mask of truth values", "tokens", of(Attending, mask=no_future), of(AttendingReference, their_future),
     contrary=(of(Attending, mask=future), K.MASK), transposed=(of(Attending, mask=no_past), K.MASK),
     none=(of(Attending), K.MASK))  # fmt: skip
numbers = of(Attending, mask=added_future), of(AttendingReference, their_added_future)
pair("MultiHeadAttention, mask of numbers", "tokens", *numbers, none=(of(Attending), K.MASK))
for first in (False, True):
    placed: dict = {"normalize_before": first}
    pair(f"TransformerEncoderLayer, norm {'first' if first else 'last'}", "tokens", of(Packed, **placed),
         of(PackedReference, norm_first=first), position=(of(Packed, normalize_before=not first), K.NORM_POSITION),
         activation=(of(Packed, activation="gelu", **placed), K.ACTIVATION),
         heads=(of(Packed, nhead=4, **placed), K.HEADS))  # fmt: skip
pair("TransformerEncoderLayer with a mask", "tokens", of(Packed, no_future), of(PackedReference, their_future),
     contrary=(of(Packed, future), K.MASK), none=(of(Packed), K.MASK),
     activation=(of(Packed, no_future, activation="gelu"), K.ACTIVATION))  # fmt: skip
pair("TransformerDecoder", "tokens", of(Decoding, no_future), of(DecodingReference, their_future),
     position=(of(Decoding, no_future, normalize_before=True), K.NORM_POSITION),
     activation=(of(Decoding, no_future, activation="gelu"), K.ACTIVATION), contrary=(of(Decoding, future), K.MASK),
     none=(of(Decoding, None), K.MASK))  # fmt: skip
