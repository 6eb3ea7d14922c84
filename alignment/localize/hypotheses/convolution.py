"""Mistakes of a convolution: the same formula with other settings, or with the kernel turned round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from alignment import formulas
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.hypothesis import Hypothesis


def convolution(s: Subject) -> Iterator[Hypothesis]:
    """Other padding, stride, dilation, padding mode, groups; the kernel transposed or flipped; no bias.

    A hypothesis whose output has another shape than the port's is not computed.
    """
    out, x, held, settings = s.output, s.input, s.weights(), dict(s.layer.settings)
    if out is None or x is None or isinstance(settings["padding"], str) or x.ndim != 4:
        return
    weight, bias = held["weight"], held.get("bias")
    stride, padding, dilation = (settings[name] for name in ("stride", "padding", "dilation"))
    kernel = weight.shape[2:]

    def hypothesis(kind: Kind, words: str, **changes: Any) -> Hypothesis:
        given = {"weight": weight, "bias": bias, **settings, **changes}

        def made(x: np.ndarray) -> np.ndarray | None:
            sizes = (given["stride"], given["dilation"], formulas.margins(given["padding"]))
            ends = zip(x.shape[2:], kernel, *sizes, strict=True)
            shape = tuple((n + sum(m) - d * (k - 1) - 1) // step + 1 for n, k, step, d, m in ends)
            if shape != out.shape[2:]:
                return None
            try:
                return formulas.conv(x, **given)
            except ValueError:
                return None

        return Hypothesis(kind, words, made)

    if bias is not None:
        yield hypothesis(Kind.BIAS_MISSING, "the bias is not added", bias=None)
    for n in range(1, 5):
        if (n, n) != stride:
            yield hypothesis(Kind.STRIDE, f"stride {n}, expected {stride}", stride=(n, n))
    for p in range(6):
        if (p, p) != padding:
            yield hypothesis(Kind.PADDING, f"padding {p}, expected {padding}", padding=(p, p))
    for d in range(1, 5):
        reach = tuple(d * (k - 1) // 2 for k in kernel)
        if (d, d) != dilation and math.prod(kernel) > 1:
            yield hypothesis(Kind.DILATION, f"dilation {d}, expected {dilation}", dilation=(d, d))
            yield hypothesis(Kind.DILATION, f"dilation {d}, expected {dilation}", dilation=(d, d), padding=reach)
    if math.prod(kernel) > 1:
        if kernel[0] == kernel[1]:
            words = "kernel transposed: height and width are swapped"
            yield hypothesis(Kind.WEIGHT_TRANSPOSED, words, weight=weight.transpose(0, 1, 3, 2))
        words = "kernel flipped: a true convolution, expected a correlation"
        yield hypothesis(Kind.WEIGHT_FLIPPED, words, weight=weight[:, :, ::-1, ::-1])
    if weight.shape[0] == weight.shape[1] > 1:
        words = "weight transposed: input and output channels are swapped"
        yield hypothesis(Kind.WEIGHT_TRANSPOSED, words, weight=weight.transpose(1, 0, 2, 3))
    for top, left in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1)):
        moved = ((padding[0] - top, padding[0] + top), (padding[1] - left, padding[1] + left))
        if min(min(side) for side in moved) >= 0:
            words = (
                f"padding off by one: it lies {(*moved[1], *moved[0])} (left, right, top, bottom), expected {padding} on both sides"
            )
            yield hypothesis(Kind.PADDING, words, padding=moved)
    if any(padding):
        for mode in ("reflect", "replicate", "circular", "zeros"):
            if mode != settings["padding_mode"]:
                words = f"padding mode {mode}, expected {settings['padding_mode']}"
                yield hypothesis(Kind.PADDING, words, padding_mode=mode)
