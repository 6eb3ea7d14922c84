"""The settings of the frameworks' own layers, under torch's names: data, by the name of the class.

An entry is the layer's kind (its class's name in lower case where None) and, by setting, the attribute that holds it. A ``!``
before the attribute turns a truth value round; ``*`` says that there is one value for each dimension; ``@`` that it holds a
function, which goes by its name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from alignment.frameworks._describe import Layer

Known = tuple["str | None", Mapping[str, str]]
SPREAD = {"stride": "*stride", "padding": "*padding", "ceil_mode": "ceil_mode"}

TORCH: dict[str, Known] = {
    "LayerNorm": (None, {"eps": "eps"}),
    "GroupNorm": (None, {"eps": "eps", "num_groups": "num_groups"}),
    "InstanceNorm": (None, {"eps": "eps"}),
    "LocalResponseNorm": (None, {name: name for name in ("size", "alpha", "beta", "k")}),
    "Embedding": (None, {"padding_idx": "padding_idx"}),
    "ConvTranspose": (
        "conv_transpose",
        {name: f"*{name}" for name in ("stride", "padding", "output_padding", "dilation")} | {"groups": "groups"},
    ),
    "MaxPool": ("max_pool", {"kernel_size": "*kernel_size", **SPREAD}),
    "AvgPool": ("avg_pool", {"kernel_size": "*kernel_size", **SPREAD, "count_include_pad": "count_include_pad"}),
    "AdaptiveAvgPool": ("adaptive_avg_pool", {"output_size": "*output_size"}),
    "AdaptiveMaxPool": ("adaptive_max_pool", {"output_size": "*output_size"}),
    "Upsample": (None, {"mode": "mode", "align_corners": "align_corners"}),
    "ChannelShuffle": (None, {"groups": "groups"}),
    "CELU": (None, {"alpha": "alpha"}),
    "Softplus": (None, {"beta": "beta", "threshold": "threshold"}),
    "Hardtanh": (None, {"min_val": "min_val", "max_val": "max_val"}),
    "Hardshrink": (None, {"lambd": "lambd"}),
    "Softshrink": (None, {"lambd": "lambd"}),
    "Softmax": (None, {"dim": "dim"}),
    "LogSoftmax": (None, {"dim": "dim"}),
    "GLU": (None, {"dim": "dim"}),
    "MultiheadAttention": (None, {"num_heads": "num_heads"}),
    **dict.fromkeys(
        ("TransformerEncoderLayer", "TransformerDecoderLayer"), (None, {"norm_first": "norm_first", "activation": "@activation"})
    ),
    "LSTM": (None, {"batch_first": "batch_first"}),
    "GRU": (None, {"batch_first": "batch_first"}),
    "RNN": (None, {"batch_first": "batch_first", "nonlinearity": "mode"}),
}
PADDLE: dict[str, Known] = {
    "LayerNorm": (None, {"eps": "_epsilon"}),
    "GroupNorm": (None, {"eps": "_epsilon", "num_groups": "_num_groups"}),
    "InstanceNorm": (None, {"eps": "_epsilon"}),
    "LocalResponseNorm": (None, {name: name for name in ("size", "alpha", "beta", "k")}),
    "Embedding": (None, {"padding_idx": "_padding_idx"}),
    "ConvTranspose": (
        "conv_transpose",
        {name: f"*_{name}" for name in ("stride", "padding", "dilation")}
        | {"output_padding": "*output_padding", "groups": "_groups"},
    ),
    "MaxPool": ("max_pool", {"kernel_size": "*kernel_size|*ksize", **SPREAD}),
    "AvgPool": ("avg_pool", {"kernel_size": "*kernel_size|*ksize", **SPREAD, "count_include_pad": "!exclusive"}),
    "AdaptiveAvgPool": ("adaptive_avg_pool", {"output_size": "*output_size|*_output_size"}),
    "AdaptiveMaxPool": ("adaptive_max_pool", {"output_size": "*output_size|*_output_size"}),
    "Upsample": (None, {"mode": "mode", "align_corners": "align_corners"}),
    "ChannelShuffle": (None, {"groups": "_groups"}),
    "CELU": (None, {"alpha": "_alpha"}),
    "Softplus": (None, {"beta": "_beta", "threshold": "_threshold"}),
    "Hardtanh": (None, {"min_val": "_min", "max_val": "_max"}),
    "Hardshrink": (None, {"lambd": "_threshold"}),
    "Softshrink": (None, {"lambd": "_threshold"}),
    "Softmax": (None, {"dim": "_axis"}),
    "LogSoftmax": (None, {"dim": "_axis"}),
    "GLU": (None, {"dim": "_axis"}),
    "MultiHeadAttention": ("multiheadattention", {"num_heads": "num_heads"}),
    **dict.fromkeys(
        ("TransformerEncoderLayer", "TransformerDecoderLayer"),
        (None, {"norm_first": "normalize_before", "activation": "@activation"}),
    ),
    "LSTM": (None, {"batch_first": "!time_major"}),
    "GRU": (None, {"batch_first": "!time_major"}),
    "SimpleRNN": ("rnn", {"batch_first": "!time_major", "nonlinearity": "mode"}),
}
SLOPES_OF_TORCH = {"leaky_relu": {"slope": "negative_slope"}, "elu": {"alpha": "alpha"}}
SLOPES_OF_PADDLE = {"leaky_relu": {"slope": "_negative_slope"}, "elu": {"alpha": "_alpha"}}
MINDSPORE: dict[str, Known] = {
    "LayerNorm": (None, {"eps": "epsilon"}),
    "GroupNorm": (None, {"eps": "eps", "num_groups": "num_groups"}),
    "InstanceNorm": (None, {"eps": "eps"}),
    "Embedding": (None, {"padding_idx": "padding_idx"}),
    "MaxPool": ("max_pool", {"kernel_size": "*kernel_size", "stride": "*stride"}),
    "AvgPool": ("avg_pool", {"kernel_size": "*kernel_size", "stride": "*stride"}),
    "AdaptiveAvgPool": ("adaptive_avg_pool", {}),
    "AdaptiveMaxPool": ("adaptive_max_pool", {}),
    "Softmax": (None, {"dim": "axis"}),
    "LogSoftmax": (None, {"dim": "axis"}),
}
# What a layer's constructor calls a setting, and how the value is given there, in the framework's own words.
SAME = dict.fromkeys(("padding", "stride", "dilation", "groups", "ceil_mode", "kernel_size", "output_size", "p", "num_groups"), "")
SAME |= dict.fromkeys(("alpha", "beta", "threshold", "padding_idx", "align_corners", "mode", "num_heads", "output_padding"), "")
ARGUMENTS: dict[str, dict[str, str]] = {
    "torch": SAME | {"eps": "eps", "momentum": "momentum", "slope": "negative_slope", "approximate": "approximate", "dim": "dim",
                     "count_include_pad": "", "norm_first": "", "batch_first": "", "padding_mode": ""},
    "paddle": SAME | {"eps": "epsilon", "momentum": "1-momentum", "slope": "negative_slope", "approximate": "?approximate",
                      "dim": "axis", "count_include_pad": "!exclusive", "norm_first": "normalize_before",
                      "batch_first": "!time_major", "padding_mode": ""},
}  # fmt: skip
CLASSES: dict[str, dict[str, str]] = {  # of activations and poolings, by kind; ``#`` is the number of dimensions
    "torch": {"relu": "ReLU", "relu6": "ReLU6", "hardswish": "Hardswish", "hardsigmoid": "Hardsigmoid", "sigmoid": "Sigmoid",
              "silu": "SiLU", "tanh": "Tanh", "leaky_relu": "LeakyReLU", "elu": "ELU", "gelu": "GELU", "identity": "Identity",
              "max_pool": "MaxPool#d", "avg_pool": "AvgPool#d"},
    "paddle": {"relu": "ReLU", "relu6": "ReLU6", "hardswish": "Hardswish", "hardsigmoid": "Hardsigmoid", "sigmoid": "Sigmoid",
               "silu": "Silu", "tanh": "Tanh", "leaky_relu": "LeakyReLU", "elu": "ELU", "gelu": "GELU", "identity": "Identity",
               "max_pool": "MaxPool#D", "avg_pool": "AvgPool#D"},
}  # fmt: skip
UPSCALED = {"paddle": {"mode": "upscale_in_train"}}  # of a dropout that keeps its input in evaluation, as torch's does
DEFAULTS = {"align_corners": False}  # what None stands for


def stock_class(module: Any, package: str) -> tuple[str, int]:
    """The framework's own class that a module is, or is derived from: its name without the dimensions, and how many these are."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith(package):
            found = re.fullmatch(r"(.*?)([123])[dD](\w*)", kind.__name__)
            return (found[1] + found[3], int(found[2])) if found else (kind.__name__, 0)
    return "", 0


def settings_of(module: Any, known: Mapping[str, str], dimensions: int) -> dict[str, Any]:
    """A layer's settings under torch's names."""
    found: dict[str, Any] = {}
    for name, held in known.items():
        attribute = _attribute(module, held)
        value = getattr(module, attribute.lstrip("*!@"), None)
        if name == "stride" and value is None:
            value = found.get("kernel_size")
        if attribute.startswith("!"):
            value = not value
        elif attribute.startswith("@"):
            value = getattr(value, "__name__", type(value).__name__.lower()).lstrip("_")
        elif name == "nonlinearity":
            value = str(value).rpartition("_")[2].lower()  # both call it "RNN_TANH"
        elif attribute.startswith("*") and not isinstance(value, str) and value is not None:
            value = tuple(value) if isinstance(value, (tuple, list)) else (value,) * max(dimensions, 1)
        found[name] = DEFAULTS.get(name) if value is None else value
    return found


def known_layer(module: Any, package: str, table: Mapping[str, Known]) -> Layer | None:
    """What a layer computes whose class stands in the framework's table; None for another."""
    name, dimensions = stock_class(module, package)
    if name not in table:
        return None
    kind, known = table[name]
    own = f"{name}{f'{dimensions}d' if dimensions else ''}".lower()
    return Layer(kind or own, settings_of(module, known, dimensions), type(module).__name__)


def set_settings(module: Any, known: Mapping[str, str], changes: Mapping[str, Any], spread: Callable) -> bool:
    """Give a layer other settings, in place; False where one of them is none of its own."""
    if not changes.keys() <= known.keys():
        return False
    for name, value in changes.items():
        attribute = _attribute(module, known[name])
        value = not value if attribute.startswith("!") else _function(module, value) if attribute.startswith("@") else spread(value)
        value = f"RNN_{value}".upper() if name == "nonlinearity" else value
        setattr(module, attribute.lstrip("*!@"), value)
    if "num_heads" in changes:
        module.head_dim = module.embed_dim // changes["num_heads"]
    return True


def _function(module: Any, name: str) -> Any:
    """A function of the framework that a layer is of."""
    for kind in type(module).__mro__:
        functional = getattr(sys.modules.get(f"{kind.__module__.partition('.')[0]}.nn"), "functional", None)
        if functional is not None:
            return getattr(functional, name, None)
    return None


def _attribute(module: Any, held: str) -> str:
    """The first of several attributes that a layer has."""
    return next((one for one in held.split("|") if hasattr(module, one.lstrip("*!@"))), held.partition("|")[0])


def argument_of(framework: str, setting: str, value: Any) -> tuple[str, Any] | None:
    """The name and value that a layer's constructor takes for a setting under torch's name; None where it is not known."""
    held = ARGUMENTS.get(framework, {}).get(setting)
    if held is None:
        return None
    if held.startswith("1-"):
        return held[2:], round(1.0 - float(value), 12)
    if held.startswith("!"):
        return held[1:], not value
    if held.startswith("?"):
        return held[1:], value == "tanh"
    return held or setting, value
