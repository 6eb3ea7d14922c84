"""Mistakes of a quantised graph: what a tensor would be with the scale, zero point, axis or calibration that a mistake gives it.

A constant's levels are computed again from the right values with the mistake in them, and read back as the file reads them. An
activation's right values go through the file's range. What rounding itself costs is no mistake: it is asked for nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.compare import norm, relative
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, always, seen
from alignment.localize.quantised import QuantisedTensor
from alignment.models.quantised import Quantiser

FEW = 6  # channels that are listed
ONCE = 0.98  # share of levels that are those of a value that is rounded once: a tie may fall to either side in float32


def _observed(s: QuantisedTensor) -> Sequence[Observed]:
    return [Observed(s.right, s.made, s.right, rtol=tolerance.QUANTISED_READ)]


QUANTISED = Family("quantised", _observed)


def _read_back(s: QuantisedTensor, kind: Kind, words: str, scale: np.ndarray | None = None, axis: int | None = None) -> Hypothesis:
    """Levels that were made with another scale, or along another axis, than those with which the file reads them."""
    return Hypothesis(kind, words, lambda x: s.one.read_back(s.one.rounded(x, scale, axis)))


def _listed(channels: Sequence[int]) -> str:
    shown = ", ".join(map(str, channels[:FEW]))
    return f"{shown} and {len(channels) - FEW} more" if len(channels) > FEW else " and ".join(shown.rsplit(", ", 1))


# --- constants --------------------------------------------------------------------------------------------------------------


@QUANTISED
def twice(s: QuantisedTensor) -> Hypotheses:
    """QuantisedTensor with one scale, then with another: within the file, or before."""
    if s.one.levels is None or s.one.is_bias or (s.one.read_back(s.one.rounded(s.right)) == s.made)[s.inside].mean() > ONCE:
        return
    usual = [np.abs(s.right).max() / 127.0 * np.ones(1)]
    for axis in range(s.right.ndim if s.right.ndim > 1 else 0):
        axes = tuple(place for place in range(s.right.ndim) if place != axis)
        usual.append(np.expand_dims(np.abs(s.right).max(axes) / 127.0, axes))
    for first in (*(one.reshape(-1) for one in s.one.earlier), *usual):
        first = s.one.along(first, s.right.shape) if first.ndim == 1 else first
        first = np.maximum(first, tolerance.TINY)
        once = np.rint(s.right / first) * first
        yield Hypothesis(
            Kind.QUANTISED_TWICE, "the weight is quantised twice: its levels are those of values that were rounded before",
            always(np.where(s.inside, s.one.read_back(s.one.rounded(once)), s.made)), unexplained=0.2,
        )  # fmt: skip


@QUANTISED
def axis(s: QuantisedTensor) -> Hypotheses:
    """Scales that go with the channels of another axis."""
    one = s.one
    if one.levels is None or one.scale.size < 2 or one.scale.ndim > 1:
        return
    own = one.axis % s.right.ndim
    for other in range(s.right.ndim):
        if other != own and s.right.shape[other] == one.scale.size:
            words = f"the scales of the channels lie along axis {own}, expected axis {other}"
            yield _read_back(s, Kind.QUANTISED_AXIS, words, axis=other)
    if s.axis is not None and own != s.axis and not (s.steps > tolerance.QUANTISED_STEP).any():
        words = f"the scales lie along axis {own}, expected axis {s.axis}, of the output channels: no integer kernel can compute it"
        yield seen(Kind.QUANTISED_AXIS, words)


@QUANTISED
def exchanged(s: QuantisedTensor) -> Hypotheses:
    """Scales of channels in the place of each other's."""
    one = s.one
    if one.levels is None or one.scale.ndim != 1 or one.scale.size < 2 or one.is_bias:
        return
    scale, needed = one.scale, one.needed
    wrong = [int(n) for n in np.flatnonzero(np.abs(needed - scale) > tolerance.QUANTISED_READ * np.abs(scale))]
    if not wrong:
        return
    found, left = scale.copy(), list(wrong)
    for channel in wrong:
        near = min(left, key=lambda other: abs(scale[other] - needed[channel]))
        left.remove(near)
        found[channel] = scale[near]
    yield _read_back(s, Kind.QUANTISED_SCALE, f"the scales of the channels {_listed(wrong)} are exchanged", found)


@QUANTISED
def another_layers_scale(s: QuantisedTensor) -> Hypotheses:
    """The scale of another tensor of the file."""
    one = s.one
    for title, other in s.others:
        same = other is not one and other.scale.shape == one.scale.shape and np.array_equal(other.scale, one.scale)
        if same and one.levels is not None and not one.is_bias and other.levels is not None:
            yield _read_back(s, Kind.QUANTISED_SCALE, f"the weight has the scale of another layer, {title}", one.needed)
        if other is not one and one.levels is None and other.levels is None and other.right is not None:
            words = f"the activation has the scale of another layer's, {title}"
            if same and _width(one) > tolerance.QUANTISED_WIDE and _width(other) < tolerance.QUANTISED_WIDE / 2:
                yield seen(Kind.QUANTISED_SCALE, words)
            elif same and s.lost > tolerance.QUANTISED_LOST and QuantisedTensor(other).lost < tolerance.QUANTISED_LOST:
                yield Hypothesis(Kind.QUANTISED_SCALE, words, lambda x: np.clip(x, *one.limits), rtol=1.0, unexplained=0.5)
            elif any(_is(other, *pair) and not _is(one, *pair) for pair in s.back):
                yield Hypothesis(Kind.QUANTISED_SCALE, f"it is read back with the scale of another layer's, {title}", s.passed)


def _is(one: Quantiser, scale: float, zero: int) -> bool:
    """Whether an activation is quantised with a scale."""
    return one.scale.size == 1 and float(one.scale.ravel()[0]) == scale and zero is not None


def _width(one: Quantiser) -> float:
    """How many times as wide as its values an activation's range is."""
    assert one.right is not None
    low, high = one.limits
    wide = max(float(one.right.max(initial=0)), 0.0) - min(float(one.right.min(initial=0)), 0.0)
    return (high - low) / max(wide, tolerance.TINY)


@QUANTISED
def zero_point(s: QuantisedTensor) -> Hypotheses:
    """Off by a constant, or that of the other of signed and unsigned levels."""
    one = s.one
    if one.levels is None:
        yield from _zero_point_of_activation(s)
        return
    if one.is_bias or not (s.steps > tolerance.QUANTISED_STEP).any():
        return
    rounded = one.levels - one.along(one.zero, one.levels.shape)
    wide = 2**8 if one.ends[1] - one.ends[0] < 2**8 else one.ends[1] - one.ends[0] + 1
    scale = one.along(one.scale, s.right.shape)
    shift, was = int(np.median(np.rint(rounded - s.right / scale))), int(one.zero.ravel()[0])
    if shift:
        turned = "signed and unsigned levels are exchanged: " if abs(shift) == wide // 2 else ""
        words = f"{turned}zero point {was}, expected {was + shift}"
        yield Hypothesis(Kind.ZERO_POINT, words, lambda x: (np.rint(x / scale) + shift) * scale)
    read = f"the levels are {'signed' if one.ends[0] else 'unsigned'}, expected {'unsigned' if one.ends[0] else 'signed'}"
    other = (lambda x: x % wide) if one.ends[0] == 0 else (lambda x: (x + wide // 2) % wide - wide // 2)
    for expected in (0, wide // 2):
        words = f"signed and unsigned levels are exchanged: {read}"
        made = lambda x, expected=expected: (other(np.rint(x / scale) + expected) - was) * scale  # noqa: E731
        yield Hypothesis(Kind.ZERO_POINT, words, made)


def _zero_point_of_activation(s: QuantisedTensor) -> Hypotheses:
    one, was, step = s.one, int(s.one.zero.ravel()[0]), float(s.one.scale.ravel()[0])
    for _, zero in s.back:
        if zero != was:
            words = f"quantised with zero point {was}, read back with zero point {zero}"
            turned = "signed and unsigned levels are exchanged: " if abs(zero - was) == (one.ends[1] - one.ends[0] + 1) // 2 else ""
            yield Hypothesis(Kind.ZERO_POINT, turned + words, s.passed)
    low = min(float(s.right.min(initial=0)), 0.0)
    fits, (least, most) = round(one.ends[0] - low / step), one.ends
    if (
        s.lost > tolerance.QUANTISED_LOST and _width(one) > 0.9 and least <= fits <= most
    ):  # the range is wide enough, at another place
        words = f"zero point {was} cuts off {s.beyond.mean():.1%} of the values, which zero point {fits} would hold"
        yield Hypothesis(Kind.ZERO_POINT, words, lambda x: np.clip(x, *one.limits), rtol=1.0, unexplained=0.5)


@QUANTISED
def bias_scale(s: QuantisedTensor) -> Hypotheses:
    """A bias of another scale than the accumulator has, which is the product of the scales of input and weight."""
    one, product = s.one, s.product
    if one.levels is None or not one.is_bias or product is None:
        return
    first = int(np.argmax(np.abs(one.along(one.scale, s.right.shape) - product) + 0 * s.right))
    shown = float((one.along(one.scale, s.right.shape) + 0 * s.right)[first]), float((product + 0 * s.right)[first])
    words = (
        f"the bias is quantised with scale {shown[0]:.3g}, expected {shown[1]:.3g}: the scale of the input times that of the weight"
    )
    if relative(norm(s.made - s.right), norm(s.right)) < tolerance.QUANTISED_LOST:
        yield seen(Kind.QUANTISED_SCALE, f"{words}; integer kernels add it wrongly")
    yield Hypothesis(Kind.QUANTISED_SCALE, words, lambda x: one.read_back(np.rint(x / product)))


@QUANTISED
def per_tensor(s: QuantisedTensor) -> Hypotheses:
    """One scale where the file's other layers have one a channel."""
    one = s.one
    if one.levels is not None and not one.is_bias and np.ptp(one.scale) == 0 and s.right.ndim > 1:
        made, apart = s.per_channel_cost
        count = s.right.shape[0 if s.axis is None else s.axis]
        words = (
            f"one scale for all {count} channels, where other layers have one a channel: "
            f"signal-to-noise ratio {made:.0f} dB, expected {apart:.0f} dB"
        )
        yield _read_back(s, Kind.QUANTISED_PER_TENSOR, words)


@QUANTISED
def factor(s: QuantisedTensor) -> Hypotheses:
    """Every scale is wrong by one factor."""
    one = s.one
    if one.levels is None or one.is_bias:
        return
    ratio = float(np.median(one.scale.ravel() / np.where(one.needed, one.needed, 1.0).ravel()))
    if abs(ratio - 1) > tolerance.QUANTISED_READ:
        yield _read_back(
            s, Kind.QUANTISED_SCALE, f"the scale of the weight is {ratio:.3g} times what it has to be", one.scale / ratio
        )


# --- activations ------------------------------------------------------------------------------------------------------------


@QUANTISED
def read_back_otherwise(s: QuantisedTensor) -> Hypotheses:
    own = float(s.one.scale.ravel()[0])
    for scale, _ in s.back if s.one.levels is None else ():
        if scale != own:
            yield Hypothesis(Kind.QUANTISED_SCALE, f"quantised with scale {own:.3g}, read back with scale {scale:.3g}", s.passed)


@QUANTISED
def calibrated_on_others(s: QuantisedTensor) -> Hypotheses:
    """A range that other data had."""
    if s.one.levels is None and s.lost > tolerance.QUANTISED_LOST:
        (low, high), least, most = s.one.limits, float(s.right.min()), float(s.right.max())
        words = (
            f"{s.beyond.mean():.1%} of the values saturate: the range is {low:.3g} to {high:.3g}, "
            f"the values are {least:.3g} to {most:.3g}; calibrated on other data"
        )
        yield Hypothesis(Kind.CALIBRATION, words, lambda x: np.clip(x, low, high), rtol=1.0, unexplained=0.5)


# --- layers -----------------------------------------------------------------------------------------------------------------


@dataclass
class Layered:
    """A layer of the graph that has a weight.

    Attributes:
        operator: of the node.
        quantised: whether its weight is.
        kept: whether it was told to be kept in float32.
        others: how many other layers of the operator are quantised.
    """

    operator: str
    quantised: bool
    kept: bool
    others: int


LAYERED = Family("quantised layer", lambda s: [Observed(None, s.quantised, not s.kept)])


@LAYERED
def left_out(s: Layered) -> Iterator[Hypothesis]:
    if not s.quantised and not s.kept and s.others:
        words = f"left out of quantisation: its weight is float32, that of {s.others} other {s.operator} nodes is quantised"
        yield seen(Kind.NOT_QUANTISED, words)


@LAYERED
def not_kept(s: Layered) -> Iterator[Hypothesis]:
    if s.quantised and s.kept:
        yield seen(Kind.QUANTISED_EXTRA, "quantised, though --float-layers keeps it in float32")
