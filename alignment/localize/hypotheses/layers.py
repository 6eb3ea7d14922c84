"""Mistakes of one kind of layer: its formula with one setting changed, held against what the port gave."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alignment import formulas, tolerance
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.activation import ACTIVATION, ACTIVATIONS
from alignment.localize.hypotheses.arrays import common_factor
from alignment.localize.hypotheses.convolution import CONVOLUTION
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, seen
from alignment.localize.hypotheses.passes import by_input, of_pass
from alignment.localize.hypotheses.pooling import POOLING
from alignment.localize.hypotheses.settings import instead

DROPOUT = Family("dropout", of_pass)
BATCH_NORM = Family("batch_norm", by_input)
LINEAR = Family("linear", by_input)
PAD = Family("pad", by_input)
EMBEDDING = Family("embedding", by_input)
SQUEEZE = Family("squeeze_excitation", of_pass)

# Kind of the reference's layer -> the family that is asked about it.
OF_KIND: dict[str, Family] = {
    "batch_norm": BATCH_NORM,
    "conv": CONVOLUTION,
    "embedding": EMBEDDING,
    "pad": PAD,
    "linear": LINEAR,
    **dict.fromkeys(ACTIVATIONS, ACTIVATION),
    **dict.fromkeys(("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"), POOLING),
}


# --- dropout ---------------------------------------------------------------------------------------------------------------


def _dropped(s: Subject) -> float | None:
    """The share of values that the port's dropout makes zero; None where it gives another shape."""
    out, given = s.output, s.input
    if out is None or given is None or out.shape != given.shape:
        return None
    return float(((out == 0) & (given != 0)).mean())


def _kept_times(factor: float) -> Any:
    return lambda s: np.where(s.output == 0, 0, factor * s.input)


@DROPOUT
def left_on(s: Subject) -> Hypotheses:
    if not s.pair.training and (dropped := _dropped(s)):
        yield seen(Kind.DROPOUT_ON, f"dropout left on in evaluation mode: {dropped:.0%} of the values are zero")


@DROPOUT
def scaled_in_evaluation(s: Subject) -> Hypotheses:
    if s.pair.training or _dropped(s) is None:
        return
    assert s.output is not None and s.input is not None
    ratio = common_factor(s.output, s.input)
    if ratio is not None and abs(ratio - 1) > tolerance.SAME:
        words = f"dropout scales by {ratio:.4g} in evaluation mode (downscale_in_infer?)"
        yield Hypothesis(Kind.DROPOUT_SCALE, words, lambda s: ratio * s.input)


@DROPOUT
def does_nothing(s: Subject) -> Hypotheses:
    if s.pair.training and _dropped(s) == 0:
        words = f"dropout does nothing in training: missing, or evaluation mode; expected p = {float(s.layer.settings['p']):g}"
        yield Hypothesis(Kind.DROPOUT_MISSING, words, lambda s: s.input)


@DROPOUT
def not_scaled(s: Subject) -> Hypotheses:
    p = float(s.layer.settings["p"])
    if s.pair.training and _dropped(s) and p > 0:
        wanted = 1 / (1 - p) if p < 1 else 0.0
        words = f"dropout keeps values unscaled in training, expected the factor {wanted:.4g}"
        yield Hypothesis(Kind.DROPOUT_SCALE, words, _kept_times(1.0))


@DROPOUT
def single_values_or_channels(s: Subject) -> Hypotheses:
    out, right, given, p = s.output, s.expected, s.input, float(s.layer.settings["p"])
    if not s.pair.training or not _dropped(s) or out is None or right is None or given is None or not 0 < p < 1:
        return
    if not out.shape == right.shape == given.shape:
        return
    mine, its = ("whole channels" if _is_by_channel(one, given) else "single values" for one in (out, right))
    if mine != its:
        yield Hypothesis(Kind.DROPOUT_SHAPE, f"dropout drops {mine}, expected {its}", _kept_times(1 / (1 - p)))


def _is_by_channel(made: np.ndarray, given: np.ndarray) -> bool:
    """Whether a channel of a sample is dropped as a whole or nowhere; what was zero before says nothing."""
    dropped, there = ((one != 0).reshape(*made.shape[:2], -1) for one in (np.where(made == 0, given, 0), given))
    return bool((dropped.any(-1) <= (dropped == there).all(-1)).all())


@DROPOUT
def another_rate(s: Subject) -> Hypotheses:
    p, dropped = float(s.layer.settings["p"]), _dropped(s)
    out, given = s.output, s.input
    if not s.pair.training or not dropped or out is None or given is None or not (out != 0).any():
        return
    scale = common_factor(out[out != 0], given[out != 0])
    if scale is None:
        return
    drawn = 1 - 1 / scale
    # What a dropout of p drops lies within five standard deviations of p: another share is not this mistake.
    likely = 5 * (max(drawn * (1 - drawn), 0.0) / out.size) ** 0.5
    if scale > 1 and abs(drawn - p) > tolerance.CLOSE and abs(dropped - drawn) <= likely:
        words = f"dropout rate: it drops {dropped:.0%} and scales by {scale:.4g}, which is p = {drawn:.3g}, expected {p:g}"
        yield Hypothesis(Kind.DROPOUT_RATE, words, _kept_times(scale))


# --- batch normalisation ---------------------------------------------------------------------------------------------------


class _BatchNorm:
    """The reference's layer as a formula, with which it is computed again with one mistake."""

    def __init__(self, s: Subject) -> None:
        held = s.weights()
        self.training = s.pair.training
        self.eps = float(s.layer.settings["eps"])
        self.weight, self.bias = held.get("weight"), held.get("bias")
        self.kept = (held["running_mean"], held["running_var"]) if "running_mean" in held else None

    @staticmethod
    def of_batch(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        axes = tuple(i for i in range(x.ndim) if i != 1)
        return x.mean(axes, dtype=np.float64), x.var(axes, dtype=np.float64)

    def statistics(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.of_batch(x) if self.training or self.kept is None else self.kept

    def by(self, mean: np.ndarray, variance: np.ndarray, x: np.ndarray) -> np.ndarray:
        return formulas.normalised(x, mean, variance, self.eps, self.weight, self.bias)

    def with_affine(self, weight: np.ndarray | None, bias: np.ndarray | None, x: np.ndarray) -> np.ndarray:
        return formulas.normalised(x, *self.statistics(x), self.eps, weight, bias)

    def with_eps(self, eps: float, x: np.ndarray) -> np.ndarray:
        return formulas.normalised(x, *self.statistics(x), eps, self.weight, self.bias)


def _norm(s: Subject) -> _BatchNorm | None:
    """None where the output is no normalised input."""
    given, out = s.input, s.output
    return None if out is None or given is None or out.shape != given.shape or given.ndim < 2 else _BatchNorm(s)


@BATCH_NORM
def other_mode(s: Subject) -> Hypotheses:
    norm = _norm(s)
    if norm is None or norm.kept is None:
        return
    kept = norm.kept
    if s.pair.training:
        words = "evaluation mode in training: it normalises by the running statistics"
        yield Hypothesis(Kind.EVALUATION_MODE, words, lambda x: norm.by(*kept, x))
    else:
        words = "evaluation mode forgotten: it normalises by the statistics of the batch"
        yield Hypothesis(Kind.TRAINING_MODE, words, lambda x: norm.by(*norm.of_batch(x), x))


@BATCH_NORM
def norm_missing(s: Subject) -> Hypotheses:
    if _norm(s):
        yield Hypothesis(Kind.DOES_NOTHING, "batch normalisation is missing: it gives its input back", lambda x: x)


@BATCH_NORM
def affine(s: Subject) -> Hypotheses:
    norm = _norm(s)
    if norm is None or norm.weight is None or norm.bias is None:
        return
    for kind, words, weight, bias in (
        (Kind.BIAS_MISSING, "the bias is not added", norm.weight, None),
        (Kind.SCALE_MISSING, "the weight is not multiplied", None, norm.bias),
        (Kind.AFFINE_MISSING, "weight and bias are left out", None, None),
        (Kind.NORM_SETTING, "weight and bias are exchanged", norm.bias, norm.weight),
    ):
        yield Hypothesis(kind, words, functools.partial(norm.with_affine, weight, bias))


@BATCH_NORM
def eps(s: Subject) -> Hypotheses:
    if (norm := _norm(s)) is None:
        return
    for other in (1e-3, 1e-5, 1e-6, 1e-12, 0.1, *_measured_eps(s, norm)):
        if abs(other - norm.eps) > 0.01 * norm.eps and other >= 0:
            words = f"wrong eps: {other:.3g}, expected {norm.eps:.3g}"
            yield Hypothesis(Kind.BATCH_NORM_EPS, words, functools.partial(norm.with_eps, other))


def _measured_eps(s: Subject, norm: _BatchNorm) -> list[float]:
    """One channel says what eps would be; the median over channels whose variance is small says it best."""
    given, out = s.input, s.output
    assert given is not None and out is not None
    axes, shape = tuple(i for i in range(given.ndim) if i != 1), (1, -1, *(1,) * (given.ndim - 2))
    mean, variance = norm.statistics(given)
    centred = given - mean.reshape(shape)
    scale = np.ones(given.shape[1]) if norm.weight is None else norm.weight
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moved = out if norm.bias is None else out - norm.bias.reshape(shape)
        steep = np.abs(moved * centred).sum(axes) / (centred**2).sum(axes)
        by_channel = (scale / steep) ** 2 - variance
    by_channel = by_channel[np.isfinite(by_channel)]
    return [float(np.median(by_channel))] if by_channel.size else []


@BATCH_NORM
def eps_outside_root(s: Subject) -> Hypotheses:
    if (norm := _norm(s)) is None:
        return

    def outside(x: np.ndarray) -> np.ndarray:
        mean, variance = norm.statistics(x)
        return formulas.normalised(x, mean, (np.sqrt(variance) + norm.eps) ** 2, 0.0, norm.weight, norm.bias)

    yield Hypothesis(Kind.EPS_OUTSIDE_ROOT, "eps is added to the standard deviation, expected to the variance", outside)


@BATCH_NORM
def unbiased_variance(s: Subject) -> Hypotheses:
    norm = _norm(s)
    if norm is None or not (s.pair.training or norm.kept is None):
        return

    def unbiased(x: np.ndarray) -> np.ndarray:
        n = x.size // x.shape[1]
        mean, variance = norm.of_batch(x)
        return norm.by(mean, variance * n / max(n - 1, 1), x)

    words = "it normalises by the unbiased variance of the batch (n - 1), expected the biased one"
    yield Hypothesis(Kind.UNBIASED_VARIANCE, words, unbiased)


# --- linear layers, margins, embeddings, squeeze-excitation -----------------------------------------------------------------


@LINEAR
def linear_bias_missing(s: Subject) -> Hypotheses:
    held = s.weights()
    if held.get("bias") is not None:
        yield Hypothesis(Kind.BIAS_MISSING, "the bias is not added", lambda x: formulas.linear(x, held["weight"]))


@LINEAR
def weight_transposed(s: Subject) -> Hypotheses:
    weight, bias = s.weights()["weight"], s.weights().get("bias")
    if weight.shape[0] == weight.shape[1]:
        words = "weight transposed: a square one fits either way round"
        yield Hypothesis(Kind.WEIGHT_TRANSPOSED, words, lambda x: formulas.linear(x, weight.T, bias))


@PAD
def margin(s: Subject) -> Hypotheses:
    own, expected = s.pair.port.framework.layer(s.pair.port.modules[s.path]), s.layer
    if own.kind != "pad" or not own.settings:
        return
    other = {name: value for name, value in own.settings.items() if value != expected.settings[name]}
    settings = dict(own.settings)
    wide = list(zip(settings["padding"][::2], settings["padding"][1::2], strict=True))[::-1]  # the last dimension comes first
    mode = formulas.PAD_NAMES.get(settings["mode"], settings["mode"])
    if other and all(n >= 0 for side in wide for n in side):
        yield Hypothesis(
            Kind.PADDING, f"wrong {instead(other, expected.settings)}", lambda x: formulas.padded(x, wide, mode, settings["value"])
        )


@EMBEDDING
def padding_index(s: Subject) -> Hypotheses:
    own = s.pair.port.framework.layer(s.pair.port.modules[s.path]).settings.get("padding_idx")
    weight, right = s.weights()["weight"], s.layer.settings.get("padding_idx")
    if own is not None:
        words = f"padding_idx {own}, expected {right}: it gives zeros for this number"
        if own == right:  # the other framework stops the gradient of the row alone
            words = f"padding_idx {own} gives zeros for this number, expected the row of the weight, which holds other numbers"
        yield Hypothesis(Kind.PADDING_INDEX, words, lambda x: np.where((x == own)[..., None], 0.0, weight[x]))


NARROW = ("int8", "uint8", "int16", "uint16", "float16")


@EMBEDDING
def other_indices(s: Subject) -> Hypotheses:
    """Numbers of words that went through a type that does not hold them, or are counted from another one."""
    weight = s.weights()["weight"]
    most = len(weight) - 1
    for dtype in NARROW:
        through = functools.partial(_through, weight, dtype)
        yield Hypothesis(Kind.INDICES, f"the indices went through {dtype}, which does not hold them all", through)
    for step in (1, -1):
        words = f"the indices are {abs(step)} too {'large' if step > 0 else 'small'}"
        yield Hypothesis(Kind.INDICES, words, functools.partial(lambda x, step: weight[np.clip(x + step, 0, most)], step=step))


def _through(weight: np.ndarray, dtype: str, x: np.ndarray) -> np.ndarray | None:
    with np.errstate(over="ignore", invalid="ignore"):
        made = x.astype(dtype).astype(np.int64)
    return weight[made] if np.abs(made).max(initial=0) < len(weight) else None


@SQUEEZE
def squeeze_missing(s: Subject) -> Hypotheses:
    if "squeeze" in s.layer.kind:
        words = "squeeze-excitation missing: the block gives its input back"
        yield Hypothesis(Kind.NO_SQUEEZE_EXCITATION, words, lambda s: s.input)
