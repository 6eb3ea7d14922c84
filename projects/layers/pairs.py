"""One layer of Paddle and of torch behind a stem, for ``bench --layer-faults``: ``P`` is paddle.nn, ``T`` is torch.nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle.nn as P
import torch.nn as T

from alignment.bench.layer_faults import LayerPair
from alignment.localize.kinds import Kind as K

SHAPES = {"signal": (4, 3, 15), "picture": (4, 3, 13, 11), "volume": (3, 3, 9, 8, 7), "tokens": (4, 7, 6), "numbers": (4, 20)}
NUMBERS = 10
STEMS: dict[str, tuple[Callable, Callable]] = {
    "signal": (lambda: P.Conv1D(3, 8, 3), lambda: T.Conv1d(3, 8, 3)),
    "picture": (lambda: P.Conv2D(3, 8, 3), lambda: T.Conv2d(3, 8, 3)),
    "volume": (lambda: P.Conv3D(3, 8, 3), lambda: T.Conv3d(3, 8, 3)),
    "tokens": (lambda: P.Linear(6, 8), lambda: T.Linear(6, 8)),
    "numbers": (P.Identity, T.Identity),
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


PAIRS: dict[str, LayerPair] = {}


def pair(name: str, on: str, port: Callable, reference: Callable, training: bool = True, **faults: tuple[Callable, K]) -> None:
    """Add a pair; each fault is another layer for the port, and what it may be called."""

    def inputs(rng: np.random.Generator) -> np.ndarray:
        shape = SHAPES[on]
        return rng.integers(0, NUMBERS, shape) if on == "numbers" else rng.standard_normal(shape).astype(np.float32)

    def made(layer: Callable) -> Callable:
        return lambda: Port(STEMS[on][0](), layer())

    PAIRS[name] = LayerPair(
        made(port),
        lambda: Reference(STEMS[on][1](), reference()),
        inputs,
        {fault: (made(layer), (kind,)) for fault, (layer, kind) in faults.items()},
        training,
    )


def layer(module: Any, name: str, *args: Any, **settings: Any) -> Callable:
    """A maker of one layer."""
    return lambda: getattr(module, name)(*args, **settings)


def ours(name: str, *args: Any, **settings: Any) -> Callable:
    return layer(P, name, *args, **settings)


def theirs(name: str, *args: Any, **settings: Any) -> Callable:
    return layer(T, name, *args, **settings)


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
pair("LSTM", "tokens", ours("LSTM", 8, 5), theirs("LSTM", 8, 5, batch_first=True),
     time_major=(ours("LSTM", 8, 5, time_major=True), K.BATCH_FIRST))  # fmt: skip
pair("GRU", "tokens", ours("GRU", 8, 5, 2), theirs("GRU", 8, 5, 2, batch_first=True),
     time_major=(ours("GRU", 8, 5, 2, time_major=True), K.BATCH_FIRST))  # fmt: skip
