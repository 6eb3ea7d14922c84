"""Functions of frameworks under names that belong to none, and their arguments in a form that can be compared.

``x.permute(0, 2, 1)``, ``paddle.transpose(x, [0, 2, 1])`` and ``x.transpose(1, 2)`` are one operation, "transpose", with one order
of axes. Arguments that change no value (``out``, ``name``, ``inplace``) are left out.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import numpy as np

from alignment.strangers import Refused

Shape = tuple[int, ...]
Attributes = dict[str, Any]

ALIASES: dict[str, str] = {
    **dict.fromkeys(("add", "iadd", "radd"), "add"),
    **dict.fromkeys(("sub", "subtract", "isub", "rsub"), "sub"),
    **dict.fromkeys(("mul", "multiply", "imul", "rmul"), "mul"),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv", "itruediv", "rtruediv", "rdiv"), "div"),
    **dict.fromkeys(("pow", "rpow", "ipow"), "pow"),
    **dict.fromkeys(("mod", "remainder", "floor_mod", "rmod"), "mod"),
    **dict.fromkeys(("floor_divide", "floordiv", "rfloordiv"), "floor_divide"),
    **dict.fromkeys(("matmul", "rmatmul", "bmm", "mm"), "matmul"),
    **dict.fromkeys(("cat", "concat", "concatenate"), "concat"),
    **dict.fromkeys(("clamp", "clip"), "clip"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("amax", "max"), "max"),
    **dict.fromkeys(("amin", "min"), "min"),
    **dict.fromkeys(("neg", "negative"), "neg"),
    **dict.fromkeys(("expand", "broadcast_to"), "expand"),
    **dict.fromkeys(("tile", "repeat"), "tile"),
    **dict.fromkeys(("interpolate", "upsample"), "interpolate"),
    **dict.fromkeys(("reshape", "view", "flatten", "squeeze", "unsqueeze", "ravel", "view_as", "unflatten"), "reshape"),
    **dict.fromkeys(
        ("transpose", "permute", "swapaxes", "swapdims", "t", "T", "mT", "moveaxis", "movedim", "adjoint", "numpy_T"), "transpose"
    ),
    **dict.fromkeys(("split", "chunk", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split"), "split"),
    **dict.fromkeys(("gt", "greater_than"), "gt"),
    **dict.fromkeys(("lt", "less_than"), "lt"),
    **dict.fromkeys(("ge", "greater_equal"), "ge"),
    **dict.fromkeys(("le", "less_equal"), "le"),
    **dict.fromkeys(("eq", "equal"), "eq"),
}  # fmt: skip
# A transform over one axis, over two and over any number is one operation, over other axes.
FOURIER = tuple(f"{one}fft" for one in ("", "i", "r", "ir", "h", "ih"))
ALIASES |= {f"{before}{one}{axes}": f"{one}n" for one in FOURIER for axes in ("", "2", "n") for before in ("", "fft_")}
ALIASES |= {f"fft_{one}": one for one in ("fftshift", "ifftshift", "fftfreq", "rfftfreq")}
CAST = "cast"
ALIASES |= dict.fromkeys(
    ("astype", "to", "type", "type_as", "byte", "char", "short", "int", "long", "bool", "float", "double", "half"), CAST
)
SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "mod": "%", "floor_divide": "//", "matmul": "@"}
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
REFLECTED = frozenset({"rsub", "rdiv", "rtruediv", "rpow", "rmod", "rfloordiv", "rmatmul"})

# The parameters of functions written in C, whose signatures cannot be read; "*" takes all that follow.
PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("mean", "sum", "prod", "amax", "amin", "max", "min"), ("x", "dim", "keepdim")),
    **dict.fromkeys(("logsumexp", "argmax", "argmin"), ("x", "dim", "keepdim")),
    **dict.fromkeys(("var", "std"), ("x", "dim", "unbiased", "keepdim")),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "unbind", "unsqueeze", "squeeze"), ("x", "dim")),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), ("tensors", "dim")),
    **dict.fromkeys(("chunk",), ("x", "chunks", "dim")),
    **dict.fromkeys(("split", "split_with_sizes"), ("x", "split_size", "dim")),
    **dict.fromkeys(("flatten",), ("x", "start_dim", "end_dim")),
    **dict.fromkeys(("permute", "flip"), ("x", "*dims")),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), ("x", "dim0", "dim1")),
    **dict.fromkeys(("movedim", "moveaxis"), ("x", "source", "destination")),
    **dict.fromkeys(("reshape", "view", "expand", "repeat", "tile"), ("x", "*shape")),
    **dict.fromkeys(("clamp", "clip"), ("x", "min", "max")),
    **dict.fromkeys(("roll",), ("x", "shifts", "dims")),
    **dict.fromkeys(("masked_fill",), ("x", "mask", "value")),
    **dict.fromkeys(("gelu",), ("x", "approximate")),
    **dict.fromkeys(
        ("avg_pool2d", "avg_pool3d", "avg_pool1d"),
        ("x", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    **dict.fromkeys(
        ("max_pool2d", "max_pool3d", "max_pool1d"),
        ("x", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    ),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), ("x", "weight", "bias", "stride", "padding", "dilation", "groups")),
    **dict.fromkeys(("full",), ("size", "fill_value")),
    **dict.fromkeys(("full_like",), ("x", "fill_value")),
    **dict.fromkeys(("triu", "tril"), ("x", "diagonal")),
    **dict.fromkeys(("gather", "index_select"), ("x", "dim", "index")),
    **dict.fromkeys(("pixel_shuffle",), ("x", "upscale_factor")),
    **dict.fromkeys(("pixel_unshuffle",), ("x", "downscale_factor")),
    **dict.fromkeys(("select",), ("x", "dim", "index")),
    **dict.fromkeys(("narrow",), ("x", "dim", "start", "length")),
    **dict.fromkeys(("softplus",), ("x", "beta", "threshold")),
    **dict.fromkeys(("where",), ("condition", "x", "y")),
    **dict.fromkeys(("einsum",), ("equation", "*operands")),
    **dict.fromkeys(
        ("scaled_dot_product_attention",), ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    ),
    **dict.fromkeys((f"fft_{one}" for one in FOURIER), ("x", "n", "dim", "norm")),
    **dict.fromkeys((f"fft_{one}{axes}" for one in FOURIER for axes in "2n"), ("x", "s", "dim", "norm")),
    **dict.fromkeys(("fft_fftshift", "fft_ifftshift"), ("x", "dim")),
    **dict.fromkeys(("__getitem__",), ("x", "index")),
    **dict.fromkeys(("__setitem__",), ("x", "index", "value")),
}  # fmt: skip

RENAMED = {
    "dim": "axis", "dims": "axis", "axes": "axis", "epsilon": "eps", "negative_slope": "slope", "item": "index",
    "exclusive": "count_include_pad", "k": "diagonal", "correction": "unbiased",
}  # fmt: skip
IGNORED = frozenset({
    "name", "out", "dtype", "inplace", "training", "_stacklevel", "data_format", "align_mode", "recompute_scale_factor", "device",
    "return_mask", "return_indices", "requires_grad", "pin_memory", "layout", "memory_format", "backend", "enable_gqa", "alpha_",
    "scale_factor", "stop_gradient", "place", "generator", "pad_from_left_axis",
})  # fmt: skip
_REDUCED: Attributes = {"axis": None, "keepdim": False}
_POOLED: Attributes = {"stride": None, "padding": 0, "ceil_mode": False}
_MEANS: Attributes = {**_POOLED, "count_include_pad": True}
_CONVOLVED: Attributes = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
# What an argument that is not given means.
DEFAULTS: dict[str, Attributes] = {
    **dict.fromkeys(("mean", "sum", "max", "min", "prod", "logsumexp"), _REDUCED),
    **{f"max_pool{count}d": _POOLED for count in (1, 2, 3)},
    **{f"avg_pool{count}d": _MEANS for count in (1, 2, 3)},
    **{f"conv{count}d": _CONVOLVED for count in (1, 2, 3)},
    **{name: {**_REDUCED, "unbiased": True} for name in ("var", "std")},
    "gelu": {"approximate": "none"},
    "clip": {"min": None, "max": None},
    "concat": {"axis": 0},
    "stack": {"axis": 0},
    "scaled_dot_product_attention": {"is_causal": False, "scale": None},
    "hardsigmoid": {"slope": 1 / 6, "offset": 0.5},
    "leaky_relu": {"slope": 0.01},
    "softplus": {"beta": 1, "threshold": 20},
    "triu": {"diagonal": 0},
    "tril": {"diagonal": 0},
    **{f"{one}n": {"axis": None, "norm": "backward"} for one in FOURIER},
    **{one: {"axis": None} for one in ("fftshift", "ifftshift")},
    "cross_entropy": {"axis": 1},  # PyTorch's has no other; Paddle's signature says its own default
}
DEFAULTS_OF_ONE: dict[str, Attributes] = {  # of a function that is written in C, where it is one form of an operation of several
    **{f"fft_{one}": {"axis": -1} for one in FOURIER},
    **{f"fft_{one}2": {"axis": (-2, -1)} for one in FOURIER},
}
OVER_ALL_AXES = frozenset(name for name, given in DEFAULTS.items() if given.get("axis", 0) is None)  # where none is named
NEGATED = frozenset({"exclusive"})  # parameters that say the opposite of their canonical name
EFFECTS = frozenset({"reshape", "transpose", "split", "pad", CAST})  # described by what they do: see ``effect``
ENDS = ("start_axis", "start_dim"), ("stop_axis", "end_dim")  # of the axes that are flattened
AXES_OF_SHAPE = {**dict.fromkeys(ENDS[0], 0), **dict.fromkeys(ENDS[1], -1), "axis": None, "dim": None}  # and what holds by default
SECTIONS = ("num_or_sections", "split_size", "chunks")  # what says into which parts a tensor is split
APPROXIMATE = {"tanh": True, "none": False}  # of GELU, torch's name and Paddle's
PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@functools.cache
def bound_names(function: Callable, name: str) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    """A function's parameters in order, and those that have a default with it; none where they are not known."""
    if isinstance(function, FunctionType):
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # it wraps a function written in C
            return PARAMETERS.get(name.rstrip("_"), ()), ()
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            defaults = tuple((p.name, p.default) for p in parameters if p.default is not p.empty)
            return tuple(p.name for p in parameters), defaults
    return PARAMETERS.get(name, PARAMETERS.get(name.rstrip("_"), ())), ()


@dataclass
class Named:
    """One call under names of no framework.

    Attributes:
        name: of the operation.
        own: the function's own name.
        bound: own parameter -> value; tensors are among them.
        places: own parameter -> its place among the positional arguments, where it was given by place.
        constants: operands of arithmetic that are no tensors: ``"by"``, ``"from"`` or ``"constant"`` -> value.
        operands: the same -> own parameter, or the place among the arguments.
        takes: the function's own parameters, as far as they are known.
        given: those that the call gives.
        shape: of the first tensor that the call got.
        dtype: of the first one that it gave; "float" for any type of numbers that are not whole.
    """

    name: str
    own: str
    bound: dict[str, Any]
    places: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    operands: dict[str, int] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()
    shape: Shape = ()
    dtype: str = ""

    def attributes(self, given: list[Shape], made: list[Shape]) -> tuple[Attributes, Attributes]:
        """The arguments that are no tensors, to compare, and as the source spells them.

        Args:
            given, made: shapes of the tensors that it got and gave.
        """
        self.shape = given[0] if given else ()
        rank = len(self.shape)
        if self.name in EFFECTS:
            found = effect(self, given, made)
            return found, dict(found)
        spelled = {**self.constants}
        if not self.constants and self.name not in SYMBOLS:
            for own, value in self.bound.items():
                if own not in IGNORED and _is_plain(value):
                    spelled[self._key(own)] = not value if own in NEGATED else value
        spelled = {
            **DEFAULTS.get(self.name, {}),
            **DEFAULTS_OF_ONE.get(self.own, {}),
            **{k: v for k, v in spelled.items() if v is not None or k in ("axis", "min", "max")},
        }
        if self.name == "interpolate":
            spelled["size"] = made[0][2:] if made else None
        if "kernel_size" in spelled and spelled.get("stride") in (None, [], ()):
            spelled["stride"] = spelled["kernel_size"]
        compared = {key: comparable(self.name, key, value, rank) for key, value in spelled.items()}
        return compared, spelled

    def _key(self, own: str) -> str:
        """The name under which an argument is compared: the ``k`` of topk is no diagonal."""
        return own if self.name == "topk" else RENAMED.get(own, own)

    def changed(self, change: Mapping[str, Any], args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The call's arguments with other attributes, under canonical names.

        Raises:
            Refused: the function has no such parameter.
        """
        new, named_ = list(args), dict(kwargs)
        for key, value in change.items():
            if key in self.operands:
                new[self.operands[key]] = value
                continue
            own, value = self.argument(key, value)
            if own in self.places:
                new[self.places[own]] = value
            else:
                named_[own] = value
        return tuple(new), named_

    def without_tensors(self) -> Named:
        """The same with the arguments alone that hold no tensor."""
        return replace(self, bound={own: value for own, value in self.bound.items() if _is_plain(value)})

    def argument(self, key: str, value: Any) -> tuple[str, Any]:
        """An argument under the function's own name, and its value as this function takes it.

        Raises:
            Refused: the function has no such parameter.
        """
        if self.name == "interpolate" and key == "size" and "size" not in self.given:
            return "scale_factor", _factor(self.shape[2:], value, self.bound.get("scale_factor"))
        own = next((o for o in (*sorted(self.given), *self.bound, *self.takes) if self._key(o) == key and o not in IGNORED), None)
        if own is None:
            raise Refused(f"the function has no parameter {key}")
        if key == "approximate" and isinstance(self.bound.get(own), bool):
            value = APPROXIMATE.get(value, value)
        if own == "correction":
            value = int(value)
        return own, not value if own in NEGATED else value

    def written(self, key: str, value: Any) -> tuple[str, Any]:
        """The same of an attribute in the form in which it is compared; of arithmetic, an operand without a name.

        Raises:
            Refused: what the source has to give for it is not known.
        """
        if key in self.operands:
            return "", value
        if self.name in EFFECTS:
            return self._moving(key, value)
        own, value = self.argument(key, value)
        if self.name == "getitem":
            raise Refused(f"it is no argument that gives the {key}")
        return own, list(value) if isinstance(value, tuple) else value

    def _moving(self, key: str, value: Any) -> tuple[str, Any]:
        """An argument of a call that moves values, of which ``effect`` says what it does."""
        found: tuple[str, Any] | None = None
        if self.name == "pad":
            found = (key, value) if key in ("mode", "value") else self._padded(value)
        elif self.name == "transpose" and isinstance(self.bound.get("perm"), list | tuple):
            found = "perm", list(value)
        elif self.name == CAST and "dtype" in self.bound:
            found = "dtype", value
        elif self.name == "split":
            found = self._parted(key, value)
        elif self.name == "reshape":
            found = self._shaped(value)
        if found is None:
            raise Refused(f"what gives this {key} is not known")
        return found

    def _padded(self, value: Sequence[tuple[int, int]]) -> tuple[str, Any] | None:
        """The margins of a padding, in the order in which they are given."""
        pads, rank = self.bound.get("pad"), len(self.shape)
        if not isinstance(pads, list | tuple):
            return None
        from_left = len(pads) == 2 * rank and self.bound.get("pad_from_left_axis")
        axes = value if from_left else value[::-1]
        for start in range(rank):
            made = [margin for axis in axes[start:] for margin in axis][: len(pads)]
            if len(made) == len(pads) and pad_margins(made, rank, self.bound) == value:
                return "pad", made
        return None

    def _parted(self, key: str, value: Any) -> tuple[str, Any] | None:
        """The axis of a split, or its parts: their sizes where the port lists them, else how many they are, or how large each."""
        names = ("axis", "dim") if key == "axis" else SECTIONS
        name = next((own for own in names if own in self.bound or own in self.takes), "")
        held = self.bound.get(name)
        if key == "axis" and name:
            return name, value
        if isinstance(held, list | tuple) and len(held) == len(value):
            return name, [-1 if a == -1 else b for a, b in zip(held, value, strict=True)]
        if isinstance(held, int) and len({*value}) == 1:
            return name, value[0] if name == "split_size" else len(value)
        return (name, [*value]) if name == SECTIONS[0] else None

    def _shaped(self, value: Shape) -> tuple[str, Any] | None:
        """What gives another shape: the sizes, or one axis; None where several arguments would have to change."""
        held = self.bound.get("shape")
        if isinstance(held, list | tuple):
            if len(held) != len(value):
                return None
            return "shape", [a if a == -1 else b for a, b in zip(held, value, strict=True)]
        rank, shape, right = len(self.shape), self.shape, []
        for own in (one for one in (*self.bound, *self.takes) if one in AXES_OF_SHAPE):
            now = self.bound.get(own, AXES_OF_SHAPE[own])
            axes = range(-rank - 1, 0) if isinstance(now, int) and now < 0 else range(rank + 1)
            right += [(own, axis) for axis in axes if _reshaped(self.own.strip("_"), shape, {**self.bound, own: axis}) == value]
        return right[0] if len({*right}) == 1 else None


def _reshaped(own: str, shape: Shape, bound: Mapping[str, Any]) -> Shape | None:
    """The shape that a function of axes gives; None where there is no such axis."""
    axes = [bound[name] for name in ("axis", "dim") if name in bound]
    try:
        if own == "flatten":
            ends = ([bound[name] for name in names if name in bound] for names in ENDS)
            start, stop = (range(len(shape))[(*given, default)[0]] for given, default in zip(ends, (0, -1), strict=True))
            return (*shape[:start], math.prod(shape[start : stop + 1]), *shape[stop + 1 :]) if start <= stop else None
        if own == "unsqueeze":
            place = range(len(shape) + 1)[axes[0]]
            return (*shape[:place], 1, *shape[place:])
        place = range(len(shape))[axes[0]]
        return (*shape[:place], *shape[place + 1 :]) if own == "squeeze" and shape[place] == 1 else None
    except (IndexError, TypeError):
        return None


def _factor(shape: Shape, value: Shape, held: Any) -> Any:
    """The factor of an interpolation that gives this size, one or several as the port gives its own.

    Raises:
        Refused: no factor in quarters gives it.
    """
    factors = [b // a if b % a == 0 else b / a for a, b in zip(shape, value, strict=True) if b * 4 % a == 0]
    if isinstance(held, list | tuple) and len(factors) == len(value):
        return factors
    fitting = [one for one in factors if all(int(a * one) == b for a, b in zip(shape, value, strict=True))]
    if not isinstance(held, int | float) or not fitting:
        raise Refused("no plain factor gives this size")
    return fitting[0]


def named(
    own: str,
    parameters: Sequence[str],
    defaults: Sequence[tuple[str, Any]],
    args: tuple,
    kwargs: Mapping[str, Any],
    plain: Callable[[Any], Any],
) -> Named:
    """A call under the names of no framework.

    Args:
        own: the function's name.
        parameters: its parameters, as ``bound_names`` gives them.
        defaults: likewise.
        args, kwargs: of the call.
        plain: makes a number of a tensor that is one.
    """
    bare = own.strip("_") or own
    name = ALIASES.get(bare, bare)
    bound: dict[str, Any] = dict(defaults)
    places: dict[str, int] = {}
    for place, value in enumerate(args):
        parameter = parameters[place] if place < len(parameters) else f"argument {place + 1}"
        if parameter.startswith("*"):
            rest = args[place:]
            bound[parameter[1:]] = rest[0] if len(rest) == 1 and isinstance(rest[0], (list, tuple)) else rest
            break
        bound[parameter], places[parameter] = value, place
    given = {*places, *kwargs, *(parameter[1:] for parameter in parameters[len(places) : len(args)])}
    bound |= {{"axis": "axis", "input": "x"}.get(key, key): value for key, value in kwargs.items()}
    if name in ("max", "min") and len(args) > 1 and hasattr(plain(args[1]), "shape"):
        name = f"{name}imum"
    call = Named(name, own, bound, places, takes=tuple(parameters), given=frozenset(given))
    if (name in SYMBOLS or name in COMMUTATIVE) and len(args) == 2:
        keys = ("from", "by") if name not in COMMUTATIVE else ("constant", "constant")
        for place, value in enumerate(map(plain, args)):
            if isinstance(value, (int, float, bool)):
                key = keys[1 - place if bare in REFLECTED else place]
                call.constants[key], call.operands[key] = value, place
    return call


def is_arithmetic(own: str) -> bool:
    """Whether a function, by its own name, computes from two operands element by element."""
    bare = own.strip("_") or own
    name = ALIASES.get(bare, bare)
    return name != "matmul" and (name in SYMBOLS or name in COMMUTATIVE)


def effect(call: Named, given: list[Shape], made: list[Shape]) -> Attributes:
    """What a call that computes no values does: the new shape, the order of axes, the parts, the margins, the type."""
    if call.name == CAST:
        return {"to": call.dtype}
    shape = given[0] if given else ()
    rank = len(shape)
    if call.name == "reshape":
        return {"shape": made[0]} if made else {}
    if call.name == "split":
        axis = int(call.bound.get("axis", call.bound.get("dim", 0))) % max(rank, 1)
        return {"axis": axis, "sizes": tuple(part[axis] for part in made)} if made and all(len(m) == rank for m in made) else {}
    if call.name == "pad":
        margins = pad_margins([int(n) for n in call.bound["pad"]], rank, call.bound)
        return {"pad": margins, "mode": call.bound.get("mode", "constant"), "value": float(call.bound.get("value") or 0.0)}
    return {"order": order_of(call, rank)}


def order_of(call: Named, rank: int) -> Shape:
    """The old axis at each new place."""
    bound, own, axes = call.bound, call.own, list(range(rank))
    if own in ("t", "T", "numpy_T"):
        return tuple(reversed(axes))
    if own in ("mT", "adjoint"):
        return (*axes[:-2], axes[-1], axes[-2])
    for key in ("perm", "dims"):
        if isinstance(bound.get(key), int):  # Paddle's transpose takes two axes, too, whatever its signature says
            bound = {"dim0": bound[key], "dim1": bound["name"]}
        elif key in bound:
            return tuple(int(n) % rank for n in bound[key])
    if "source" in bound:
        return _moved(rank, bound)
    pair = [bound[key] for key in ("dim0", "dim1", "axis0", "axis1") if key in bound]
    if len(pair) == 2:
        a, b = (int(n) % rank for n in pair)
        axes[a], axes[b] = axes[b], axes[a]
    return tuple(axes)


def _moved(rank: int, bound: Mapping[str, Any]) -> Shape:
    shape = tuple(range(2, rank + 2))  # each axis is known by its length
    return tuple(n - 2 for n in np.moveaxis(np.empty(shape, np.int8), bound["source"], bound["destination"]).shape)


def pad_margins(pads: list[int], rank: int, bound: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Before and after, for each axis from the first: most orders begin at the last axis."""
    pairs = list(zip(pads[::2], pads[1::2], strict=True))
    if bound.get("pad_from_left_axis") and len(pairs) == rank and bound.get("mode", "constant") == "constant":
        return tuple(pairs)
    around = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    if len(pairs) < rank and str(bound.get("data_format") or "").endswith("C"):
        around = [(0, 0)] * (rank - len(pairs) - 1) + pairs[::-1] + [(0, 0)]
    return tuple(around)


def comparable(name: str, key: str, value: Any, rank: int) -> Any:
    """An attribute in a form in which equal meanings are equal."""
    if key == "axis":
        rank += name in ("stack",)
        if value is None:
            return tuple(range(rank)) if name in OVER_ALL_AXES else None
        many = sorted(int(n) % max(rank, 1) for n in value) if isinstance(value, (list, tuple)) else [int(value) % max(rank, 1)]
        return tuple(many)
    if key in ("kernel_size", "stride", "padding", "dilation", "output_size"):
        count = max(rank - 2, 1)
        many = list(value) if isinstance(value, (list, tuple)) else [value] * count
        return tuple(many * count if len(many) == 1 else many)
    if key == "approximate":
        return {True: "tanh", False: "none"}.get(value, value) if isinstance(value, bool) else value
    if name == "hardsigmoid":
        return round(float(value), 6)  # Paddle's default is 0.1666667
    if key in ("align_corners", "unbiased"):
        return bool(value)
    if key == "index":
        return re.sub(r"\b[\w.]*Ellipsis\b", "...", repr(value if isinstance(value, tuple) else (value,)))
    if key == "equation" and isinstance(value, str):
        return value.replace(" ", "")
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _is_plain(value: Any) -> bool:
    """Whether a value holds no tensor."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(part) for part in value)
    return value is None or value is Ellipsis or isinstance(value, (int, float, bool, str, slice))


def computed(name: str, attributes: Mapping[str, Any], array: np.ndarray) -> list[np.ndarray] | None:
    """What a call that moves values gives, from numpy; None for other operations."""
    try:
        if name == "reshape":
            return [array.reshape(attributes["shape"])]
        if name == "transpose":
            return [array.transpose(attributes["order"])]
        if name == "split":
            return np.split(array, np.cumsum(attributes["sizes"])[:-1], attributes["axis"])
        if name == CAST:
            with np.errstate(invalid="ignore"):  # numbers that the type does not hold
                return [array.astype(attributes["to"])]
        if name == "pad":
            more = {"constant_values": attributes["value"]} if attributes["mode"] == "constant" else {}
            return [np.pad(array, attributes["pad"], PAD_MODES[attributes["mode"]], **more)]  # type: ignore[call-overload]
    except (ValueError, KeyError):
        return None
    return None
