"""Mistakes of one kind of layer: its formula with one setting changed, held against what the port gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from alignment import formulas
from alignment.localize.blame import Subject
from alignment.localize.finding import Hint
from alignment.localize.hints.arrays import close, common_factor
from alignment.localize.hints.wiring import wiring
from alignment.localize.kinds import Kind

ACTIVATIONS = {"relu", "relu6", "hardswish", "hardsigmoid", "sigmoid", "silu", "gelu", "tanh", "leaky_relu", "elu"}
POOLS = {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"}


def layers(s: Subject) -> Iterator[Hint]:
    """The hypotheses for the kind of layer that the reference has here."""
    if s.input is None:
        return
    kind = s.layer.kind
    network = s.pair.reference
    if kind in HYPOTHESES:
        yield from HYPOTHESES[kind](s)
    elif "squeeze" in kind and close(s.output, s.input):
        yield Kind.NO_SQUEEZE_EXCITATION, "squeeze-excitation missing: the block gives its input back"
    elif network.framework.children(network.modules[s.path]):
        yield from wiring(s)


def _activation(s: Subject) -> Iterator[Hint]:
    assert s.input is not None
    slopes = [_slope(s.input, made) for made in (s.output, s.expected)]
    if None not in slopes:
        yield Kind.ACTIVATION, f"slope {slopes[0]:.4g} of the negative values, expected {slopes[1]:.4g}"
    for other, function in formulas.ACTIVATIONS.items():
        made = function(s.input)
        if close(s.output, made) and not close(s.expected, made):
            yield Kind.ACTIVATION, f"activation swapped: it computes {other}, expected {s.expected_class}"


def _slope(given: np.ndarray, made: np.ndarray | None) -> float | None:
    """By what a leaky ReLU multiplies negative values; None where something else was computed."""
    if made is None or made.shape != given.shape or not (given < 0).any() or not close(made[given > 0], given[given > 0]):
        return None
    return common_factor(made[given < 0], given[given < 0])


def _dropout(s: Subject) -> Iterator[Hint]:
    out, given = s.output, s.input
    p = float(s.layer.settings["p"])
    if out is None or given is None or out.shape != given.shape:
        return
    dropped = float(((out == 0) & (given != 0)).mean())
    if not s.pair.training:
        if dropped > 0:
            yield Kind.DROPOUT_ON, f"dropout left on in evaluation mode: {dropped:.0%} of the values are zero"
        ratio = common_factor(out, given)
        if ratio is not None:
            yield Kind.DROPOUT_SCALE, f"dropout scales by {ratio:.4g} in evaluation mode (downscale_in_infer?)"
        return
    if dropped == 0:
        ratio = common_factor(out, given)
        if ratio is not None and abs(ratio - 1) < 1e-9:
            yield Kind.DROPOUT_MISSING, f"dropout does nothing in training: missing, or evaluation mode; expected p = {p:g}"
    kept = out != 0
    scale = common_factor(out[kept], given[kept]) if kept.any() else None
    wanted = 1 / (1 - p) if p < 1 else 0.0
    if scale is not None and abs(scale - 1) < 1e-9 and p > 0 and dropped > 0:
        yield Kind.DROPOUT_SCALE, f"dropout keeps values unscaled in training, expected the factor {wanted:.4g}"
    if scale is not None and scale > 1:
        yield (
            Kind.DROPOUT_RATE,
            f"dropout rate: it drops {dropped:.0%} and scales by {scale:.4g}, which is p = {1 - 1 / scale:.3g}, expected {p:g}",
        )


def _batch_norm(s: Subject) -> Iterator[Hint]:
    given, out = s.input, s.output
    if out is None or given is None or out.shape != given.shape:
        return
    held, expected_eps = s.weights(), float(s.layer.settings["eps"])
    weight, bias = held.get("weight"), held.get("bias")
    axes = tuple(i for i in range(given.ndim) if i != 1)
    batch = given.mean(axes, dtype=np.float64), given.var(axes, dtype=np.float64)
    if "running_mean" in held:
        kept = held["running_mean"], held["running_var"]
        right, wrong = (batch, kept) if s.pair.training else (kept, batch)
        if close(out, formulas.normalised(given, wrong[0], wrong[1], expected_eps, weight, bias), 1e-5):
            if s.pair.training:
                yield Kind.EVALUATION_MODE, "evaluation mode in training: it normalises by the running statistics"
            else:
                yield Kind.TRAINING_MODE, "evaluation mode forgotten: it normalises by the statistics of the batch"
    else:
        right = batch
    if close(out, given):
        yield Kind.DOES_NOTHING, "batch normalisation is missing: it gives its input back"
    scale = np.ones(given.shape[1]) if weight is None else weight
    shape = (1, -1, *(1,) * (given.ndim - 2))
    centred = given - right[0].reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = out if bias is None else out - bias.reshape(shape)
        slope = np.abs(moved * centred).sum(axes) / (centred**2).sum(axes)
        eps = (scale / slope) ** 2 - right[1]
    eps = eps[np.isfinite(eps)]
    if eps.size:
        # Weighted to the channels whose variance is small, where eps shows.
        for candidate in (float(np.median(eps)), 1e-3, 1e-5, 1e-6, 1e-12, 0.1):
            other = abs(candidate - expected_eps) > 0.01 * expected_eps and candidate >= 0
            if other and close(out, formulas.normalised(given, right[0], right[1], candidate, weight, bias), 1e-5):
                yield Kind.BATCH_NORM_EPS, f"wrong eps: {candidate:.3g}, expected {expected_eps:.3g}"


def _convolution(s: Subject) -> Iterator[Hint]:
    out, x, held, settings = s.output, s.input, s.weights(), dict(s.layer.settings)
    if out is None or x is None or isinstance(settings["padding"], str) or x.ndim != 4:
        return
    weight, bias = held["weight"], held.get("bias")
    stride, padding, dilation = settings["stride"], settings["padding"], settings["dilation"]

    def run(**changes: Any) -> np.ndarray | None:
        given = {"weight": weight, "bias": bias, **settings, **changes}
        try:
            return formulas.conv(x, **given)
        except ValueError:
            return None

    if bias is not None and close(out, run(bias=None)):
        yield Kind.BIAS_MISSING, "the bias is not added"
    if weight.shape[2] == weight.shape[3] and weight.shape[2] > 1:
        if close(out, run(weight=weight.transpose(0, 1, 3, 2))):
            yield Kind.WEIGHT_TRANSPOSED, "kernel transposed: height and width are swapped"
        if close(out, run(weight=weight[:, :, ::-1, ::-1])):
            yield Kind.WEIGHT_FLIPPED, "kernel flipped: a true convolution, expected a correlation"
    if weight.shape[0] == weight.shape[1] and close(out, run(weight=weight.transpose(1, 0, 2, 3))):
        yield Kind.WEIGHT_TRANSPOSED, "weight transposed: input and output channels are swapped"
    for p in range(4):
        if (p, p) != padding and close(out, run(padding=(p, p))):
            yield Kind.PADDING, f"padding {p}, expected {padding}"
    for d in (1, 2):
        reach = tuple(d * (k - 1) // 2 for k in weight.shape[2:])
        if (d, d) != dilation and (close(out, run(dilation=(d, d))) or close(out, run(dilation=(d, d), padding=reach))):
            yield Kind.DILATION, f"dilation {d}, expected {dilation}"
    for n in (1, 2):
        if (n, n) != stride and close(out, run(stride=(n, n))):
            yield Kind.STRIDE, f"stride {n}, expected {stride}"
    for top, left in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1)):
        moved = ((padding[0] - top, padding[0] + top), (padding[1] - left, padding[1] + left))
        if min(min(side) for side in moved) >= 0 and close(out, run(padding=moved)):
            words = (*moved[1], *moved[0])
            yield (
                Kind.PADDING,
                f"padding off by one: it lies {words} (left, right, top, bottom), expected {padding} on both sides",
            )
    for mode in ("reflect", "replicate", "circular"):
        if any(padding) and mode != settings["padding_mode"] and close(out, run(padding_mode=mode)):
            yield Kind.PADDING, f"padding mode {mode}, expected {settings['padding_mode']}"


def _linear(s: Subject) -> Iterator[Hint]:
    assert s.input is not None
    held = s.weights()
    weight, bias = held["weight"], held.get("bias")
    if bias is not None and close(s.output, formulas.linear(s.input, weight)):
        yield Kind.BIAS_MISSING, "the bias is not added"
    if weight.shape[0] == weight.shape[1] and close(s.output, formulas.linear(s.input, weight.T, bias)):
        yield Kind.WEIGHT_TRANSPOSED, "weight transposed: a square one fits either way round"


def _pooling(s: Subject) -> Iterator[Hint]:
    x, settings = s.input, s.layer.settings
    if x is None or x.ndim != 4:
        return
    size = settings.get("output_size", (1, 1))
    for words, how in (("max", "max"), ("average", "mean")):
        if close(s.output, formulas.adaptive_pool(x, size, how)):
            yield Kind.POOLING, f"{words} pooling, expected {s.expected_class}"
    if "kernel_size" not in settings:
        return
    windows = (settings["kernel_size"], settings["stride"], settings["padding"])
    for words, result in (
        ("max pooling", formulas.pool(x, *windows)),
        (
            "average pooling that counts the padding" if any(settings["padding"]) else "average pooling",
            formulas.pool(x, *windows, how="mean"),
        ),
        (
            "average pooling that leaves the padding out (Paddle's exclusive=True)",
            formulas.pool(x, *windows, how="mean", count_padding=False),
        ),
    ):
        if close(s.output, result):
            yield Kind.POOLING, f"{words}, expected {s.expected_class}"


HYPOTHESES: dict[str, Callable[[Subject], Iterator[Hint]]] = {
    "dropout": _dropout,
    "batch_norm": _batch_norm,
    "conv": _convolution,
    "linear": _linear,
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(POOLS, _pooling),
}
