"""Mistakes of a pooling layer: maxima for means, another window, margin or rounding of the output's size."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alignment import formulas
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import against
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis
from alignment.localize.hypotheses.passes import by_input

POOLING = Family("pooling", by_input)


@POOLING
def whole_picture(s: Subject) -> Hypotheses:
    x = s.input
    if x is None or x.ndim < 3:
        return
    size = s.layer.settings.get("output_size", (1,) * (x.ndim - 2))
    for words, how in (("max", "max"), ("average", "mean")):
        made = functools.partial(formulas.adaptive_pool, size=size, how=how)
        yield Hypothesis(Kind.POOLING, f"{words} pooling, expected {s.expected_class}", made)


def _means_of_all(s: Subject) -> bool:
    """Whether the reference pools each picture to one number."""
    settings = s.layer.settings
    whole = "kernel_size" not in settings and tuple(settings.get("output_size", (1, 1))) == (1, 1)
    return whole and s.input is not None and s.input.ndim == 4


@POOLING
def summed(s: Subject) -> Hypotheses:
    if _means_of_all(s):
        words = f"sum over the picture, expected {s.expected_class}"
        yield Hypothesis(Kind.POOLING, words, lambda x: x.sum((2, 3), keepdims=True))


@POOLING
def over_the_batch(s: Subject) -> Hypotheses:
    """Written for a batch of one."""
    if _means_of_all(s):
        words = "mean over the samples of the batch, too: every sample is given the same"
        yield Hypothesis(Kind.BATCH, words, lambda x: np.broadcast_to(x.mean((0, 2, 3), keepdims=True), (*x.shape[:2], 1, 1)))
        yield Hypothesis(Kind.BATCH, words, lambda x: x.mean((0, 2, 3), keepdims=True))


@POOLING
def one_window(s: Subject) -> Hypotheses:
    """A window that is the whole picture in one size of pictures alone."""
    if s.input is not None and _means_of_all(s):
        for n in range(2, max(s.input.shape[2:])):
            words = f"one average over a window of {n} x {n}, expected {s.expected_class}"
            yield Hypothesis(Kind.POOLING, words, functools.partial(_mean_of_corner, n))


def _mean_of_corner(n: int, x: np.ndarray) -> np.ndarray:
    return x[:, :, :n, :n].mean((2, 3), keepdims=True)


def _windows(s: Subject, kind: Kind, words: str, **changes: Any) -> Hypotheses:
    """The reference's pooling with other settings; nothing where it has no windows."""
    settings = s.layer.settings
    if "kernel_size" not in settings or s.input is None or s.input.ndim != 4:
        return
    given = {
        "kernel": settings["kernel_size"],
        "stride": settings["stride"],
        "padding": settings["padding"],
        "ceil_mode": bool(settings.get("ceil_mode", False)),
        "how": "max" if s.layer.kind == "max_pool" else "mean",
        "count_padding": bool(settings.get("count_include_pad", True)),
        **changes,
    }

    def predict(x: np.ndarray) -> np.ndarray | None:
        try:
            return formulas.pool(x, **given)
        except ValueError:
            return None

    yield Hypothesis(kind, words, predict)


@POOLING
def maxima(s: Subject) -> Hypotheses:
    yield from _windows(s, Kind.POOLING, f"max pooling, expected {s.expected_class}", how="max")


@POOLING
def means(s: Subject) -> Hypotheses:
    title = "average pooling that counts the padding" if any(s.layer.settings.get("padding", ())) else "average pooling"
    yield from _windows(s, Kind.POOLING, f"{title}, expected {s.expected_class}", how="mean")


@POOLING
def means_without_padding(s: Subject) -> Hypotheses:
    words = f"average pooling that leaves the padding out (Paddle's exclusive=True), expected {s.expected_class}"
    yield from _windows(s, Kind.POOLING, words, how="mean", count_padding=False)


@POOLING
def ceil_mode(s: Subject) -> Hypotheses:
    ceil = bool(s.layer.settings.get("ceil_mode", False))
    yield from _windows(s, Kind.POOLING, f"ceil_mode={not ceil}, expected {ceil}", ceil_mode=not ceil)


@POOLING
def sizes(s: Subject) -> Hypotheses:
    settings = s.layer.settings
    if "kernel_size" not in settings:
        return
    kernel, stride, padding = (settings[name] for name in ("kernel_size", "stride", "padding"))
    for n in range(5):
        if (n, n) != tuple(padding):
            yield from _windows(s, Kind.PADDING, f"padding {against(n, padding)}", padding=(n, n))
        if n and (n, n) != tuple(stride):
            yield from _windows(s, Kind.STRIDE, f"stride {against(n, stride)}", stride=(n, n))
        if n and (n, n) != tuple(kernel):
            yield from _windows(s, Kind.POOLING, f"windows of {n} x {n}, expected {' x '.join(map(str, kernel))}", kernel=(n, n))
