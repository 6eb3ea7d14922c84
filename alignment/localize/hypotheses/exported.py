"""Mistakes of an export where several modules became fewer nodes, or nodes were added: no module stands for them alone.

The modules are computed one after another by the other side's own, with one of them changed or left out, or with another input.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import formulas, tolerance
from alignment.frameworks.base import Call, Layer, leaves
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import close, common_factor
from alignment.localize.hypotheses.convolution import other_margins
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, seen
from alignment.localize.hypotheses.settings import USUAL, instead
from alignment.models.exported import is_operation, path_of
from alignment.models.tracing import Network
from alignment.strangers import strangers

IMAGENET = (np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))
SHOWN = 4  # numbers of a vector in words
Computed = Callable[[np.ndarray], "np.ndarray | None"]


@dataclass
class Folded:
    """Modules in a row that some nodes stand for.

    Attributes:
        network: of the modules, in exact mode.
        calls: of the modules, in order, by key; empty where nodes were added and no module stands for them.
        nodes: what the nodes compute.
        settings: of the convolution among the nodes, where there is one.
        weights: of that node: weight, and bias where it has one.
        cases: what both are given: the pass, and other numbers of its shape.
    """

    network: Network
    calls: dict[str, Call]
    nodes: Computed
    cases: list[np.ndarray]
    settings: Layer | None = None
    weights: tuple[np.ndarray, ...] = ()

    def layer(self, key: str) -> Layer:
        """What a module computes."""
        return self.network.framework.layer(self.network.modules[path_of(key)])

    def one(self, key: str, x: np.ndarray) -> np.ndarray | None:
        """What a module gives for an input; of a class with more inside, what the normalisation that it calls gives."""
        if is_operation(key):
            held = self.held(key)
            mean, variance, eps = held["running_mean"], held["running_var"], float(self.layer(key).settings["eps"])
            if x.ndim < 2 or x.shape[1] != mean.size:
                return None
            return formulas.normalised(x, mean, variance, eps, held.get("weight"), held.get("bias"))
        made = self.network.answer(path_of(key), self.calls[key].changed(lambda _: x)).outputs
        return made[0] if made else None

    def held(self, key: str) -> dict[str, np.ndarray]:
        """A module's tensors in float64."""
        return {name: one.astype(np.float64) for name, one in self.network.state_of(path_of(key)).items()}

    def right(self, x: np.ndarray) -> np.ndarray | None:
        """What the modules give."""
        return self.with_another("", lambda x: x, x)

    def with_another(self, changed: str, function: Computed, x: np.ndarray) -> np.ndarray | None:
        """What the modules give where one of them, by key, is a function."""
        made: np.ndarray | None = x
        for key in self.calls:
            if made is not None:
                with strangers("reference"):  # another shape than it takes
                    made = function(made) if key == changed else self.one(key, made)
        return made


def _observed(s: Folded) -> Sequence[Observed]:
    return [Observed(x, s.nodes(x), s.right(x)) for x in s.cases]


FOLDED = Family("folded", _observed)


def _changed(s: Folded, key: str, kind: Kind, words: str, function: Computed) -> Hypothesis:
    return Hypothesis(kind, words, functools.partial(s.with_another, key, function), about=key)


def _of_kind(s: Folded, *kinds: str) -> Iterator[tuple[str, Layer]]:
    return ((key, layer) for key in s.calls if (layer := s.layer(key)).kind in kinds)


@FOLDED
def left_out(s: Folded) -> Hypotheses:
    for key in s.calls if len(s.calls) > 1 else ():
        yield _changed(s, key, Kind.LAYER_NOT_CALLED, f"{s.layer(key).title} is left out of the graph", lambda x: x)


@FOLDED
def bias_lost(s: Folded) -> Hypotheses:
    for key, layer in _of_kind(s, "conv"):
        held = s.held(key)
        if "bias" in held:
            words = "the convolution's bias is not folded in"
            yield _changed(
                s, key, Kind.BIAS_MISSING, words, functools.partial(_conv, layer=layer, weight=held["weight"], bias=None)
            )


@FOLDED
def same_padding(s: Folded) -> Hypotheses:
    """One of the two pads as TensorFlow does, in nodes of its own or in the forward of a class of its own."""
    for key, layer in _of_kind(s, "conv"):
        held, given = s.held(key), leaves(s.calls[key].args, np.ndarray)
        right = next(iter(leaves(s.calls[key].output, np.ndarray)), None)
        for words, around in other_margins(given[0], right, layer, held["weight"], held.get("bias")):
            padded = Layer("conv", {**layer.settings, "padding": around})
            made = functools.partial(_conv, layer=padded, weight=held["weight"], bias=held.get("bias"))
            yield _changed(s, key, Kind.PADDING, words, made)


@FOLDED
def convolution(s: Folded) -> Hypotheses:
    """The settings of the node."""
    kinds = {"dilation": Kind.DILATION, "padding": Kind.PADDING, "stride": Kind.STRIDE, "groups": Kind.GROUPS}
    for key, layer in _of_kind(s, "conv"):
        own, held = s.settings.settings if s.settings else {}, s.held(key)
        other = {
            name: own[name]
            for name in kinds
            if name in own and own[name] != layer.settings[name] and not isinstance(own[name], str)
        }
        for changes in [*({name: value} for name, value in other.items()), *([other] if len(other) > 1 else [])]:
            changed = Layer("conv", {**layer.settings, **changes})
            made = functools.partial(_conv, layer=changed, weight=held["weight"], bias=held.get("bias"))
            yield _changed(s, key, kinds[next(iter(changes))], instead(changes, layer.settings), made)


@FOLDED
def kernel(s: Folded) -> Hypotheses:
    for key, layer in _of_kind(s, "conv"):
        held = s.held(key)
        weight = held["weight"]
        if weight.ndim != 4:
            continue
        other = {"kernel flipped": weight[:, :, ::-1, ::-1]}
        if weight.shape[1] > 1:
            other["input channels in reversed order (BGR for RGB)"] = weight[:, ::-1]
        if weight.shape[2] == weight.shape[3]:
            other["kernel transposed: height and width are swapped"] = weight.transpose(0, 1, 3, 2)
        for words, one in other.items():
            kind = (
                Kind.CHANNELS_REVERSED if "BGR" in words else Kind.WEIGHT_FLIPPED if "flipped" in words else Kind.WEIGHT_TRANSPOSED
            )
            yield _changed(s, key, kind, words, functools.partial(_conv, layer=layer, weight=one, bias=held.get("bias")))


def _conv(x: np.ndarray, *, layer: Layer, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return formulas.conv(x, weight, bias, **layer.settings)


@FOLDED
def normalisation(s: Folded) -> Hypotheses:
    """Folded with another eps, or with a part of it lost."""
    for key, layer in _of_kind(s, "batch_norm"):
        held, eps = s.held(key), float(layer.settings["eps"])
        if "running_var" not in held:
            continue
        mean, var = held["running_mean"], held["running_var"]
        weight, bias = held.get("weight"), held.get("bias")
        for kind, words, m, v, e, w, b in (
            *((Kind.BATCH_NORM_EPS, f"folded with eps {other:.3g}, expected {eps:.3g}", mean, var, other, weight, bias)
              for other in USUAL["eps"] if not math.isclose(other, eps, rel_tol=0.01)),
            (Kind.BIAS_MISSING, "folded without the normalisation's bias", mean, var, eps, weight, None),
            (Kind.SCALE_MISSING, "folded without the normalisation's weight", mean, var, eps, None, bias),
            (Kind.AFFINE_MISSING, "folded without weight and bias", mean, var, eps, None, None),
            (Kind.NORM_SETTING, "folded without the running mean", 0 * mean, var, eps, weight, bias),
            (Kind.NORM_SETTING, "folded with the variance in the place of its root", mean, var**2, 0.0, weight, bias),
            (Kind.EPS_OUTSIDE_ROOT, "eps is added to the deviation", mean, (np.sqrt(var) + eps) ** 2, 0.0, weight, bias),
            (Kind.NORM_SETTING, "folded without running statistics", 0 * mean, 0 * var + 1, eps, weight, bias),
        ):  # fmt: skip
            made = functools.partial(formulas.normalised, mean=m, variance=v, eps=e, weight=w, bias=b)
            yield _changed(s, key, kind, words, made)
        made = functools.partial(_of_batch, eps=eps, weight=weight, bias=bias)
        yield _changed(s, key, Kind.TRAINING_MODE, "it normalises by the statistics of the batch", made)


def _of_batch(x: np.ndarray, eps: float, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    return formulas.normalised(x, x.mean(axes), x.var(axes), eps, weight, bias)


@FOLDED
def activation(s: Folded) -> Hypotheses:
    for key in s.calls:
        layer = s.layer(key)
        if s.network.framework.knows(s.network.modules[path_of(key)]) and not s.held(key):
            for name, function in formulas.ACTIVATIONS.items():
                words = f"activation swapped: it computes {name}, expected {layer.title}"
                yield _changed(s, key, Kind.ACTIVATION, words, function)


@FOLDED
def another_input(s: Folded) -> Hypotheses:
    """What the nodes are given is changed first: channels, layout, or a normalisation that the pictures have had already."""
    x = s.cases[0]
    if x.ndim != 4:
        return
    for kind, words, function in _inputs(x):
        yield Hypothesis(kind, words, functools.partial(_of_another_input, s, function))


def _of_another_input(s: Folded, function: Any, x: np.ndarray) -> np.ndarray | None:
    return s.right(function(x))


def _inputs(x: np.ndarray) -> Iterator[tuple[Kind, str, Any]]:
    n, c, h, w = x.shape
    read = "values that lie with channels"
    if min(c, h * w) > 1:
        yield Kind.LAYOUT, f"{read} last are read as if they came first", lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape)
        yield Kind.LAYOUT, f"{read} first are read as if they came last", lambda x: x.reshape(n, h, w, c).transpose(0, 3, 1, 2)
    yield Kind.CHANNELS_REVERSED, "channels in reversed order (BGR for RGB)", lambda x: x[:, ::-1]
    yield Kind.MIRRORED, "pictures mirrored", lambda x: x[..., ::-1]
    yield Kind.UPSIDE_DOWN, "pictures upside down", lambda x: x[:, :, ::-1]
    yield Kind.NOT_DIVIDED_BY_255, "values divided by 255 inside the graph", lambda x: x / 255
    yield Kind.NOT_DIVIDED_BY_255, "values times 255 inside the graph", lambda x: x * 255
    if x.shape[2] == x.shape[3]:
        yield Kind.AXES_SWAPPED, "height and width swapped", lambda x: x.swapaxes(2, 3)
    if x.shape[1] == 3:
        mean, std = (one.reshape(1, 3, 1, 1) for one in IMAGENET)
        yield Kind.WRONG_MEAN_STD, "ImageNet's mean and deviation are applied inside the graph", lambda x: (x - mean) / std
        yield Kind.WRONG_MEAN_STD, "mean 0.5 and deviation 0.5 are applied inside the graph", lambda x: (x - 0.5) / 0.5
        yield Kind.WRONG_MEAN, "ImageNet's mean is subtracted inside the graph", lambda x: x - mean
        yield Kind.WRONG_STD, "values divided by ImageNet's deviation inside the graph", lambda x: x / std
        words = "values divided by 255, less ImageNet's mean, over its deviation, inside the graph"
        yield Kind.WRONG_MEAN_STD, words, lambda x: (x / 255 - mean) / std


@FOLDED
def mean_and_deviation(s: Folded) -> Hypotheses:
    """A module that normalises pictures by channels, with other numbers: read off what both sides make of them."""
    x = s.cases[0]
    made, right = s.nodes(x), s.right(x)
    if not s.calls or x.ndim != 4 or made is None or right is None or not x.shape == made.shape == right.shape:
        return
    (a, b), (c, d) = _line(x, made), _line(x, right)
    if a is None or c is None or not (a.all() and c.all()):
        return
    mean, std, true_mean, true_std = -b / a, 1 / a, -d / c, 1 / c
    same = close(mean, true_mean, tolerance.CLOSE), close(std, true_std, tolerance.CLOSE)
    swapped = close(mean, true_std, tolerance.CLOSE) and close(std, true_mean, tolerance.CLOSE)
    kind = {(True, False): Kind.WRONG_STD, (False, True): Kind.WRONG_MEAN}.get(same, Kind.WRONG_MEAN_STD)
    words = f"mean {_listed(mean)} and deviation {_listed(std)}, expected {_listed(true_mean)} and {_listed(true_std)}"
    kind, words = (Kind.MEAN_STD_SWAPPED, f"mean and deviation are exchanged: {words}") if swapped else (kind, words)
    shape = (1, -1, 1, 1)
    yield Hypothesis(kind, words, lambda x: a.reshape(shape) * x + b.reshape(shape))


def _line(x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Slope and offset of each channel where all values of it lie on one line; None where not."""
    x, y = (one.swapaxes(0, 1).reshape(one.shape[1], -1) for one in (x, y))
    middle = x.mean(1, keepdims=True)
    spread = ((x - middle) ** 2).sum(1)
    if not spread.all():
        return None, None
    a = ((x - middle) * (y - y.mean(1, keepdims=True))).sum(1) / spread
    b = y.mean(1) - a * middle[:, 0]
    return (a, b) if close(a[:, None] * x + b[:, None], y, tolerance.CLOSE) else (None, None)


def _listed(numbers: np.ndarray) -> str:
    shown = [f"{one:.4g}" for one in numbers[:SHOWN]]
    return f"({', '.join([*shown, '...'] if len(numbers) > SHOWN else shown)})"


@FOLDED
def nearest_pixel(s: Folded) -> Hypotheses:
    """Upsampling by the nearest pixel, which is chosen otherwise."""
    x = s.cases[0]
    for key, layer in _of_kind(s, "upsample"):
        right = s.one(key, x) if x.ndim == 4 and len(s.calls) == 1 else None
        if right is None or layer.settings.get("mode") != "nearest":
            continue
        sizes, scales = right.shape[2:], [_scale(n, out) for n, out in zip(x.shape[2:], right.shape[2:], strict=True)]
        for half, place in ((0.0, "the pixel's edge"), (0.5, "the pixel's middle")):
            for title, rounded in ROUNDED.items():
                words = f"the nearest pixel is chosen by {place}, rounded {title}; expected by its edge, rounded down"
                yield _changed(s, key, Kind.INTERPOLATION, words, functools.partial(_nearest, sizes, scales, half, rounded))


ROUNDED: dict[str, Any] = {
    "down": np.floor, "up": np.ceil, "to the nearest, halves down": lambda x: np.ceil(x - 0.5),
    "to the nearest, halves up": lambda x: np.floor(x + 0.5),
}  # fmt: skip


def _scale(n: int, out: int) -> float:
    """The simplest number that makes ``out`` pixels of ``n``."""
    return next((p / q for q in (1, 2, 3, 4) for p in range(1, 16 * q) if math.floor(n * p / q) == out), out / n)


def _nearest(sizes: Sequence[int], scales: Sequence[float], half: float, rounded: Any, x: np.ndarray) -> np.ndarray:
    for axis, out, scale in zip((2, 3), sizes, scales, strict=True):
        n = x.shape[axis]
        places = (np.arange(out, dtype=np.float32) + np.float32(half)) / np.float32(scale) - np.float32(half)
        x = np.take(x, np.clip(rounded(places), 0, n - 1).astype(int), axis)
    return x


@FOLDED
def drops(s: Folded) -> Hypotheses:
    """A dropout that is left on: it gives zeros for some of the values."""
    x = s.cases[0]
    made = s.nodes(x)
    if s.calls or made is None or made.shape != x.shape:
        return
    dropped = (made == 0) & (x != 0)
    if 0 < dropped.mean() < 1 and common_factor(made[~dropped], x[~dropped]) is not None:
        words = f"dropout left on (training_mode): {dropped.mean():.0%} of the values are zero"
        yield seen(Kind.DROPOUT_ON, words)


@FOLDED
def added(s: Folded) -> Hypotheses:
    """A function that is applied besides."""
    for name, function in formulas.ACTIVATIONS.items():
        if name != "identity":
            words = f"{name} is applied besides"
            yield Hypothesis(Kind.ACTIVATION_EXTRA, words, functools.partial(_then, s, function))
    yield Hypothesis(Kind.ACTIVATION_EXTRA, "Softmax is applied besides", functools.partial(_then, s, _softmax))


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(formulas.log_softmax(x))


def _then(s: Folded, function: Any, x: np.ndarray) -> np.ndarray | None:
    right = s.right(x)
    with np.errstate(over="ignore", invalid="ignore"):
        return None if right is None else function(right)


@FOLDED
def other_weights(s: Folded) -> Hypotheses:
    """Everything is right but the node's weights: those of another checkpoint, or of another module."""
    for key, layer in _of_kind(s, "conv", "linear"):
        if len(s.calls) > 1 or not s.weights:
            continue
        held, (weight, *more) = s.held(key), s.weights
        if layer.kind == "linear" and weight.shape != held["weight"].shape:
            weight = weight.T
        bias = more[0] if more else None
        if weight.shape != held["weight"].shape or not _differ(held, {"weight": weight, "bias": bias}):
            continue
        other = " and ".join(_differ(held, {"weight": weight, "bias": bias}))
        made = functools.partial(_conv, layer=layer, weight=weight, bias=bias)
        if layer.kind == "linear":
            made = functools.partial(formulas.linear, weight=weight, bias=bias)
        yield _changed(s, key, Kind.WEIGHTS_NOT_LOADED, f"other values of its {other}", made)


def _differ(held: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray | None]) -> list[str]:
    """Names of the tensors that a node has with other values."""
    return [
        name for name, array in own.items()
        if array is not None and name in held and not close(array, held[name], tolerance.EXACT_RTOL)
    ]  # fmt: skip


@FOLDED
def folded_weights(s: Folded) -> Hypotheses:
    """A convolution and the normalisation behind it became one node with other weights: which of the two they differ in is read off
    what is left of them without the normalisation."""
    keys = [key for key in s.calls if s.layer(key).kind not in ("dropout", "identity")]
    for key, norm in itertools.pairwise(keys):
        held, own, layer = s.held(key), s.held(norm), s.layer(key)
        kinds = layer.kind, s.layer(norm).kind
        if kinds not in (("conv", "batch_norm"), ("linear", "batch_norm")) or "running_var" not in own or len(s.weights) != 2:
            continue
        gain = own.get("weight", 1.0) / np.sqrt(own["running_var"] + float(s.layer(norm).settings["eps"]))
        weight, bias = s.weights if s.weights[0].shape == held["weight"].shape else (s.weights[0].T, s.weights[1])
        if weight.shape != held["weight"].shape or not gain.all():
            continue
        bias = (bias - own.get("bias", 0.0)) / gain + own["running_mean"]
        weight = weight / gain.reshape(-1, *(1,) * (weight.ndim - 1))
        kind, words, about = _of_which(weight, held["weight"], key, norm)
        made = functools.partial(formulas.linear, weight=weight, bias=bias)
        if layer.kind == "conv":
            made = functools.partial(_conv, layer=layer, weight=weight, bias=bias)
        yield replace(_changed(s, key, kind, words, made), about=about)


def _of_which(weight: np.ndarray, right: np.ndarray, conv: str, norm: str) -> tuple[Kind, str, str]:
    """Kind, words and key of the module whose tensor makes a folded weight differ; the bias does where the weight is right."""
    if close(weight, right):
        return Kind.WEIGHTS_NOT_LOADED, "folded with another bias, or with another running mean", norm
    factors = [common_factor(ours, theirs) for ours, theirs in zip(weight, right, strict=True)]
    if None in factors:
        return Kind.WEIGHTS_NOT_LOADED, "other values of its weight", conv
    if factor := common_factor(weight, right):
        return Kind.SCALED, f"its folded weight is {factor:.4g} times what it has to be", conv
    scaled = sum(abs((one or 0.0) - 1) > tolerance.CLOSE for one in factors)
    return Kind.WEIGHTS_NOT_LOADED, f"folded with another weight, or another running variance, of {scaled} channels", norm
