"""Mistakes of one kind of layer: its formula with one setting changed, held against what the port gave."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from alignment import formulas
from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close, common_factor
from alignment.localize.hypotheses.attention import attention
from alignment.localize.hypotheses.convolution import convolution
from alignment.localize.hypotheses.gates import KINDS as HARD_GATES
from alignment.localize.hypotheses.gates import gates
from alignment.localize.hypotheses.general import random
from alignment.localize.hypotheses.hypothesis import Hypothesis, confirmed
from alignment.localize.hypotheses.settings import of_own_class, settings
from alignment.localize.hypotheses.wiring import siblings, wiring

ACTIVATIONS = {
    "relu", "relu6", "hardswish", "hardsigmoid", "sigmoid", "silu", "gelu", "tanh", "leaky_relu", "elu", "selu", "celu", "mish",
    "softplus", "softsign", "hardtanh", "logsigmoid",
}  # fmt: skip
POOLS = {"max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"}
Hypotheses = Iterator[Hypothesis]


def layers(s: Subject) -> Iterator[Hint]:
    """The hypotheses for the kind of layer that the reference has here."""
    if s.input is None:
        return
    kind = s.layer.kind
    network = s.pair.reference
    if kind == "dropout":
        yield from _dropout(s)
    if kind in HYPOTHESES:
        yield from confirmed(s, HYPOTHESES[kind](s))
        yield from gates(s)
    yield from settings(s)
    yield from of_own_class(s)
    yield from attention(s)
    if kind in HYPOTHESES:
        pass
    elif "squeeze" in kind and close(s.output, s.input):
        yield Kind.NO_SQUEEZE_EXCITATION, "squeeze-excitation missing: the block gives its input back"
    elif network.framework.children(network.modules[s.path]):
        yield from random(s)
        yield from wiring(s)
    yield from siblings(s)


def _activation(s: Subject) -> Hypotheses:
    expected = s.expected_class
    slope = _slope(s)
    if slope is not None:
        words = f"slope {slope:.4g} of the negative values, expected "
        words += f"{s.layer.settings['slope']:.4g}" if "slope" in s.layer.settings else expected
        yield Hypothesis(Kind.ACTIVATION, words, lambda x: np.where(x > 0, x, slope * x))
    if (alpha := _alpha(s)) is not None and s.layer.kind == "elu":
        words = f"ELU with alpha {alpha:.4g}, expected {s.layer.settings['alpha']:.4g}"
        yield Hypothesis(Kind.ACTIVATION, words, lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))
    for other, function in formulas.ACTIVATIONS.items():
        yield Hypothesis(Kind.ACTIVATION, f"activation swapped: it computes {other}, expected {expected}", function)
    for gated in (False, True):
        if s.layer.kind not in HARD_GATES and (line := _gate(s, gated)) is not None:
            slope_, offset = line
            shown = f"clip({slope_:.4g} x + {offset:.4g}, 0, 1)"
            words = f"it computes {'x * ' if gated else ''}{shown}, expected {expected}"
            yield Hypothesis(Kind.ACTIVATION, words, functools.partial(_hard_gate, slope_, offset, gated))


def _slope(s: Subject) -> float | None:
    """By what a leaky ReLU multiplies negative values; None where something else was computed."""
    given, made = s.input, s.output
    if given is None or made is None or made.shape != given.shape or not (given < 0).any():
        return None
    if (given > 0).any() and not close(made[given > 0], given[given > 0]):
        return None
    slope = common_factor(made[given < 0], given[given < 0])
    return None if slope is None or abs(slope - 1) < 1e-9 else slope


def _alpha(s: Subject) -> float | None:
    """By what an ELU multiplies exp(x) - 1 of negative values; None where something else was computed."""
    given, made = s.input, s.output
    if given is None or made is None or made.shape != given.shape or not (given < 0).any():
        return None
    if (given > 0).any() and not close(made[given > 0], given[given > 0]):
        return None
    return common_factor(made[given < 0], np.expm1(given[given < 0]))


def _gate(s: Subject, gated: bool) -> tuple[float, float] | None:
    """Slope and offset of a hard sigmoid, measured where it lies between 0 and 1; of a hard swish where ``gated``."""
    given, made = s.input, s.output
    if given is None or made is None or made.shape != given.shape or not np.isfinite(made).all():
        return None
    x, y = given.astype(np.float64).ravel(), made.astype(np.float64).ravel()
    if gated:
        x, y = x[np.abs(x) > 1e-3], y[np.abs(x) > 1e-3]
        y = y / x
    inside = (y > 0.05) & (y < 0.95)
    if inside.sum() < 8 or np.ptp(x[inside]) == 0:
        return None
    a, b = np.polyfit(x[inside], y[inside], 1)
    return float(a), float(b)


def _hard_gate(slope: float, offset: float, gated: bool, x: np.ndarray) -> np.ndarray:
    return np.clip(slope * x + offset, 0, 1) * (x if gated else 1.0)


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
        if ratio is not None and abs(ratio - 1) > 1e-9:
            yield Kind.DROPOUT_SCALE, f"dropout scales by {ratio:.4g} in evaluation mode (downscale_in_infer?)"
        return
    if dropped == 0:
        ratio = common_factor(out, given)
        if ratio is not None and abs(ratio - 1) < 1e-9:
            yield Kind.DROPOUT_MISSING, f"dropout does nothing in training: missing, or evaluation mode; expected p = {p:g}"
        return
    kept = out != 0
    scale = common_factor(out[kept], given[kept]) if kept.any() else None
    wanted = 1 / (1 - p) if p < 1 else 0.0
    if scale is None:
        return
    if abs(scale - 1) < 1e-9 and p > 0:
        yield Kind.DROPOUT_SCALE, f"dropout keeps values unscaled in training, expected the factor {wanted:.4g}"
    seen = 1 - 1 / scale
    # What a dropout of p drops lies within five standard deviations of p: another share is not this mistake.
    likely = 5 * (max(seen * (1 - seen), 0.0) / out.size) ** 0.5
    if scale > 1 and abs(seen - p) > 1e-6 and abs(dropped - seen) <= likely:
        yield (
            Kind.DROPOUT_RATE,
            f"dropout rate: it drops {dropped:.0%} and scales by {scale:.4g}, which is p = {seen:.3g}, expected {p:g}",
        )


def _batch_norm(s: Subject) -> Hypotheses:
    given, out = s.input, s.output
    if out is None or given is None or out.shape != given.shape or given.ndim < 2:
        return
    held, right_eps = s.weights(), float(s.layer.settings["eps"])
    weight, bias = held.get("weight"), held.get("bias")
    axes = tuple(i for i in range(given.ndim) if i != 1)
    kept = (held["running_mean"], held["running_var"]) if "running_mean" in held else None

    def of_batch(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x.mean(axes, dtype=np.float64), x.var(axes, dtype=np.float64)

    def statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return of_batch(x) if s.pair.training or kept is None else kept

    def normalised(eps: float, x: np.ndarray, w: Any = weight, b: Any = bias) -> np.ndarray:
        return formulas.normalised(x, *statistics(x), eps, w, b)

    if kept is not None and s.pair.training:
        words = "evaluation mode in training: it normalises by the running statistics"
        yield Hypothesis(Kind.EVALUATION_MODE, words, lambda x: formulas.normalised(x, *kept, right_eps, weight, bias))
    elif kept is not None:
        words = "evaluation mode forgotten: it normalises by the statistics of the batch"
        yield Hypothesis(Kind.TRAINING_MODE, words, lambda x: formulas.normalised(x, *of_batch(x), right_eps, weight, bias))
    yield Hypothesis(Kind.DOES_NOTHING, "batch normalisation is missing: it gives its input back", lambda x: x)
    if weight is not None and bias is not None:
        yield Hypothesis(Kind.BIAS_MISSING, "the bias is not added", lambda x: normalised(right_eps, x, b=None))
        yield Hypothesis(Kind.SCALE_MISSING, "the weight is not multiplied", lambda x: normalised(right_eps, x, w=None))
        yield Hypothesis(Kind.AFFINE_MISSING, "weight and bias are left out", lambda x: normalised(right_eps, x, w=None, b=None))
    # One channel says what eps would be; the median over channels whose variance is small says it best.
    shape = (1, -1, *(1,) * (given.ndim - 2))
    mean, variance = statistics(given)
    centred = given - mean.reshape(shape)
    scale = np.ones(given.shape[1]) if weight is None else weight
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moved = out if bias is None else out - bias.reshape(shape)
        steep = np.abs(moved * centred).sum(axes) / (centred**2).sum(axes)
        by_channel = (scale / steep) ** 2 - variance
    by_channel = by_channel[np.isfinite(by_channel)]
    measured = [float(np.median(by_channel))] if by_channel.size else []
    for eps in (1e-3, 1e-5, 1e-6, 1e-12, 0.1, *measured):
        if abs(eps - right_eps) > 0.01 * right_eps and eps >= 0:
            words = f"wrong eps: {eps:.3g}, expected {right_eps:.3g}"
            yield Hypothesis(Kind.BATCH_NORM_EPS, words, functools.partial(normalised, eps))

    def outside(x: np.ndarray) -> np.ndarray:
        m, v = statistics(x)
        return formulas.normalised(x, m, (np.sqrt(v) + right_eps) ** 2, 0.0, weight, bias)

    yield Hypothesis(Kind.EPS_OUTSIDE_ROOT, "eps is added to the standard deviation, expected to the variance", outside)

    def unbiased(x: np.ndarray) -> np.ndarray:
        n = x.size // x.shape[1]
        m, v = of_batch(x)
        return formulas.normalised(x, m, v * n / max(n - 1, 1), right_eps, weight, bias)

    if s.pair.training or kept is None:
        words = "it normalises by the unbiased variance of the batch (n - 1), expected the biased one"
        yield Hypothesis(Kind.UNBIASED_VARIANCE, words, unbiased)


def _linear(s: Subject) -> Hypotheses:
    held = s.weights()
    weight, bias = held["weight"], held.get("bias")
    if bias is not None:
        yield Hypothesis(Kind.BIAS_MISSING, "the bias is not added", lambda x: formulas.linear(x, weight))
    if weight.shape[0] == weight.shape[1]:
        words = "weight transposed: a square one fits either way round"
        yield Hypothesis(Kind.WEIGHT_TRANSPOSED, words, lambda x: formulas.linear(x, weight.T, bias))


def _pooling(s: Subject) -> Hypotheses:
    x, settings, expected = s.input, s.layer.settings, s.expected_class
    if x is None or x.ndim < 3:
        return
    size = settings.get("output_size", (1,) * (x.ndim - 2))
    for words, how in (("max", "max"), ("average", "mean")):
        made = functools.partial(formulas.adaptive_pool, size=size, how=how)
        yield Hypothesis(Kind.POOLING, f"{words} pooling, expected {expected}", made)
    if x.ndim != 4:
        return
    if "kernel_size" not in settings:
        if tuple(size) == (1, 1):
            yield Hypothesis(Kind.POOLING, f"sum over the picture, expected {expected}", lambda x: x.sum((2, 3), keepdims=True))
            for n in range(2, max(x.shape[2:])):  # a window that is the whole picture in one size of pictures alone
                corner = functools.partial(_mean_of_corner, n)
                yield Hypothesis(Kind.POOLING, f"one average over a window of {n} x {n}, expected {expected}", corner)
        return
    kernel, stride, padding = settings["kernel_size"], settings["stride"], settings["padding"]
    ceil = bool(settings.get("ceil_mode", False))

    own = {"how": "max" if s.layer.kind == "max_pool" else "mean", "count_padding": bool(settings.get("count_include_pad", True))}

    def hypothesis(words: str, kind: Kind = Kind.POOLING, **changes: Any) -> Hypothesis:
        given = {"kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil, **own, **changes}

        def made(x: np.ndarray) -> np.ndarray | None:
            try:
                return formulas.pool(x, **given)
            except ValueError:
                return None

        return Hypothesis(kind, words, made)

    kinds: dict[str, dict[str, Any]] = {
        "max pooling": {"how": "max"},
        "average pooling that counts the padding" if any(padding) else "average pooling": {"how": "mean"},
        "average pooling that leaves the padding out (Paddle's exclusive=True)": {"how": "mean", "count_padding": False},
    }
    for words, changes in kinds.items():
        yield hypothesis(f"{words}, expected {expected}", **changes)
    yield hypothesis(f"ceil_mode={not ceil}, expected {ceil}", ceil_mode=not ceil)
    for n in range(5):
        if (n, n) != tuple(padding):
            yield hypothesis(f"padding {n}, expected {padding}", Kind.PADDING, padding=(n, n))
        if n and (n, n) != tuple(stride):
            yield hypothesis(f"stride {n}, expected {stride}", Kind.STRIDE, stride=(n, n))
        if n and (n, n) != tuple(kernel):
            yield hypothesis(f"windows of {n} x {n}, expected {kernel}", kernel=(n, n))


def _mean_of_corner(n: int, x: np.ndarray) -> np.ndarray:
    return x[:, :, :n, :n].mean((2, 3), keepdims=True)


def _pad(s: Subject) -> Hypotheses:
    own, expected = s.pair.port.framework.layer(s.pair.port.modules[s.path]), s.layer
    if own.kind != "pad":
        return
    other = {name: value for name, value in own.settings.items() if value != expected.settings[name]}
    words = ", ".join(f"{name} {value}, expected {expected.settings[name]}" for name, value in other.items())
    settings = dict(own.settings)
    wide = list(zip(settings["padding"][::2], settings["padding"][1::2], strict=True))[::-1]  # the last dimension comes first
    if other and all(n >= 0 for side in wide for n in side):
        yield Hypothesis(
            Kind.PADDING,
            f"wrong {words}",
            lambda x: formulas.padded(x, wide, formulas.PAD_NAMES.get(settings["mode"], settings["mode"]), settings["value"]),
        )


def _embedding(s: Subject) -> Hypotheses:
    own = s.pair.port.framework.layer(s.pair.port.modules[s.path]).settings.get("padding_idx")
    weight, right = s.weights()["weight"], s.layer.settings.get("padding_idx")
    if own is not None and own != right:
        words = f"padding_idx {own}, expected {right}: it gives zeros for this number"
        yield Hypothesis(Kind.PADDING_INDEX, words, lambda x: np.where((x == own)[..., None], 0.0, weight[x]))


HYPOTHESES: dict[str, Callable[[Subject], Hypotheses]] = {
    "batch_norm": _batch_norm,
    "conv": convolution,
    "embedding": _embedding,
    "pad": _pad,
    "linear": _linear,
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(POOLS, _pooling),
}
