"""Mistakes of a convolution: the same formula with other settings, or with the kernel turned round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from alignment import formulas
from alignment.frameworks.base import Layer, leaves
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import against, close
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis
from alignment.localize.hypotheses.passes import by_input
from alignment.strangers import strangers

CONVOLUTION = Family("convolution", by_input)


def _made(s: Subject, kind: Kind, words: str, **changes: Any) -> Hypotheses:
    """The convolution with other settings; one whose output has another shape than the port's is not computed."""
    out, held = s.output, s.weights()
    if out is None or s.input is None or s.input.ndim != 4 or isinstance(s.layer.settings["padding"], str):
        return
    given = {"weight": held["weight"], "bias": held.get("bias"), **s.layer.settings, **changes}

    def predict(x: np.ndarray) -> np.ndarray | None:
        sizes = (given["stride"], given["dilation"], formulas.margins(given["padding"]))
        ends = zip(x.shape[2:], given["weight"].shape[2:], *sizes, strict=True)
        shape = tuple((n + sum(m) - d * (k - 1) - 1) // step + 1 for n, k, step, d, m in ends)
        if shape != out.shape[2:]:
            return None
        try:
            return formulas.conv(x, **given)
        except ValueError:
            return None

    yield Hypothesis(kind, words, predict)


def _weight(s: Subject) -> np.ndarray:
    """Canonical, four axes; empty where the layer is no convolution of pictures."""
    weight = s.weights()["weight"]
    return weight if weight.ndim == 4 else np.zeros((0, 0, 0, 0))


@CONVOLUTION
def bias_missing(s: Subject) -> Hypotheses:
    if s.weights().get("bias") is not None:
        yield from _made(s, Kind.BIAS_MISSING, "the bias is not added", bias=None)


@CONVOLUTION
def stride(s: Subject) -> Hypotheses:
    expected = s.layer.settings["stride"]
    for n in range(1, 5):
        if (n, n) != expected:
            yield from _made(s, Kind.STRIDE, f"stride {against(n, expected)}", stride=(n, n))


def other_margins(
    x: np.ndarray, right: np.ndarray | None, layer: Layer, weight: np.ndarray, bias: np.ndarray | None
) -> Iterator[tuple[str, Any]]:
    """Words and padding where one of the two pads by what the sizes ask for, as TensorFlow's SAME does, or on one side alone.

    Args:
        x, right: of the reference's convolution, which may be of a class that pads by itself.
        layer, weight, bias: of it.
    """
    given, expected = layer.settings, layer.settings["padding"]
    if x.ndim != 4 or weight.ndim != 4 or isinstance(expected, str) or given["padding_mode"] != "zeros":
        return
    upper, lower = (
        formulas.same_margins(x.shape[2:], weight.shape[2:], given["stride"], given["dilation"], end) for end in (True, False)
    )
    known = [(upper, ", as TensorFlow's SAME"), (lower, ", as ONNX's SAME_LOWER"), ([(0, sum(pair)) for pair in upper], "")]
    theirs = None
    with strangers("reference"):
        made = ((one, formulas.conv(x, weight, bias, **{**given, "padding": one[0]})) for one in [(expected, ""), *known])
        theirs = next((one for one, output in made if close(output, right)), None)
    if theirs is not None and theirs[0] != expected:
        for p in range(6):
            yield f"padding {p} on both sides, expected {_lies(theirs[0])}{theirs[1]}", ((p, p), (p, p))
        return
    for around, name in known:
        if any(before != after for before, after in around):
            yield f"padding off by one: it lies {_lies(around)}{name}, expected {expected} on both sides", around


def _lies(around: Any) -> str:
    return f"{(*around[1], *around[0])} (left, right, top, bottom)"


@CONVOLUTION
def same_padding(s: Subject) -> Hypotheses:
    right = next(iter(leaves(s.call.output, np.ndarray)), None) if s.call is not None else None
    if s.input is not None:
        for words, around in other_margins(s.input, right, s.layer, _weight(s), s.weights().get("bias")):
            yield from _made(s, Kind.PADDING, words, padding=around)


@CONVOLUTION
def padding(s: Subject) -> Hypotheses:
    expected = s.layer.settings["padding"]
    for p in range(6):
        if (p, p) != expected:
            yield from _made(s, Kind.PADDING, f"padding {against(p, expected)}", padding=(p, p))


@CONVOLUTION
def dilation(s: Subject) -> Hypotheses:
    kernel, expected = _weight(s).shape[2:], s.layer.settings["dilation"]
    for d in range(1, 5):
        if (d, d) != expected and math.prod(kernel) > 1:
            words, reach = f"dilation {against(d, expected)}", tuple(d * (k - 1) // 2 for k in kernel)
            yield from _made(s, Kind.DILATION, words, dilation=(d, d))
            yield from _made(s, Kind.DILATION, words, dilation=(d, d), padding=reach)


@CONVOLUTION
def kernel_transposed(s: Subject) -> Hypotheses:
    weight = _weight(s)
    if weight.shape[2] == weight.shape[3] > 1:
        words = "kernel transposed: height and width are swapped"
        yield from _made(s, Kind.WEIGHT_TRANSPOSED, words, weight=weight.transpose(0, 1, 3, 2))


@CONVOLUTION
def kernel_flipped(s: Subject) -> Hypotheses:
    weight = _weight(s)
    if math.prod(weight.shape[2:]) > 1:
        words = "kernel flipped: a true convolution, expected a correlation"
        yield from _made(s, Kind.WEIGHT_FLIPPED, words, weight=weight[:, :, ::-1, ::-1])


@CONVOLUTION
def channels_swapped(s: Subject) -> Hypotheses:
    weight = _weight(s)
    if weight.shape[0] == weight.shape[1] > 1:
        words = "weight transposed: input and output channels are swapped"
        yield from _made(s, Kind.WEIGHT_TRANSPOSED, words, weight=weight.transpose(1, 0, 2, 3))


@CONVOLUTION
def padding_on_one_side(s: Subject) -> Hypotheses:
    around = s.layer.settings["padding"]
    if isinstance(around, str) or len(around) != 2:
        return
    for top, left in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1)):
        moved = ((around[0] - top, around[0] + top), (around[1] - left, around[1] + left))
        if min(min(side) for side in moved) >= 0:
            words = f"padding off by one: it lies {_lies(moved)}, expected {around} on both sides"
            yield from _made(s, Kind.PADDING, words, padding=moved)


@CONVOLUTION
def padding_mode(s: Subject) -> Hypotheses:
    around, expected = s.layer.settings["padding"], s.layer.settings["padding_mode"]
    for mode in ("reflect", "replicate", "circular", "zeros"):
        if mode != expected and not isinstance(around, str) and any(around):
            yield from _made(s, Kind.PADDING, f"padding mode {mode}, expected {expected}", padding_mode=mode)
