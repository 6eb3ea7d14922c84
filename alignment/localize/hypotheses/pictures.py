"""Mistakes in a picture as a whole: channels, levels, where it lies, and how it is normalised.

A hypothesis about a transform is what the reference makes with that mistake in it; a case is one call of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from alignment import tolerance
from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, seen
from mobilenetv3_common.counted import counted

PictureCases = Sequence[Observed]


def picture_family(name: str) -> Family:
    """Hypotheses about several cases, which are what they are asked about."""
    return Family(name, lambda cases: cases)


def in_every_case(family: Family, cases: PictureCases) -> Hint:
    """The first hypothesis that holds in every case; else in every case that is wrong, where there are several."""
    wrong = [one for one in cases if one.differs]
    found = family.hint(cases) if wrong else NO_HINT
    return family.hint(wrong) if found == NO_HINT and len(wrong) > 1 else found


def first_wrong(cases: PictureCases) -> Observed:
    """The first case in which the port differs."""
    return next(one for one in cases if one.differs)


# --- two pictures ----------------------------------------------------------------------------------------------------------

PIXELS = picture_family("pixels")  # given: both pictures


def pixels(ours: np.ndarray, right: np.ndarray, rtol: float = tolerance.CLOSE) -> Observed:
    """A case of PIXELS: pictures (C, H, W) or (H, W, C)."""
    if ours.shape == right.shape and right.shape[-1] == 3:
        ours, right = ours.transpose(2, 0, 1), right.transpose(2, 0, 1)
    ours, right = ours.astype(np.float64), right.astype(np.float64)
    return Observed((ours, right), ours, right, rtol)


@PIXELS
def shape(cases: PictureCases) -> Hypotheses:
    for ours, right in (one.given for one in cases if one.ours.shape != one.right.shape):
        yield seen(Kind.SHAPE, f"shape {ours.shape}, expected {right.shape}")


@PIXELS
def not_finite(cases: PictureCases) -> Hypotheses:
    for ours, right in (one.given for one in cases):
        if (lost := ours.size - int(np.isfinite(ours).sum())) and np.isfinite(right).all():
            yield seen(Kind.NOT_FINITE, f"{lost} of {ours.size} values are NaN or infinite")


def _moved(dy: int, dx: int) -> Callable[[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    def moved(given: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        made, inner = given[0].copy(), np.s_[:, 2:-2, 2:-2]  # what comes in at the border is not known
        made[inner] = np.roll(given[1], (dy, dx), (1, 2))[inner]
        return made

    return moved


PIXELS.add(Kind.CHANNELS_REVERSED, "RGB and BGR: the channels are reversed", lambda given: given[1][::-1])
PIXELS.add(Kind.MIRRORED, "mirrored left to right", lambda given: given[1][:, :, ::-1])
PIXELS.add(Kind.UPSIDE_DOWN, "upside down", lambda given: given[1][:, ::-1])
PIXELS.add(Kind.AXES_SWAPPED, "rows and columns are swapped", lambda given: given[1].transpose(0, 2, 1))
for _dy, _dx in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1), (1, -1), (-1, 1)):
    _by = f"{counted(_dy, 'row')} and {counted(_dx, 'column')}"
    PIXELS.add(Kind.CROP_OFF_BY_ONE, f"crop off by one: moved by {_by}", _moved(_dy, _dx))


@PIXELS
def few_elements(cases: PictureCases) -> Hypotheses:
    different = [(a != b).any(axis=0) for a, b in (one.given for one in cases if one.differs)]
    if all(where.sum() <= max(1, where.size // 100) for where in different):
        yield from (seen(Kind.FEW_ELEMENTS, f"{int(where.sum())} of {where.size} pixels differ") for where in different)


def _fit(lines: Sequence[np.ndarray], given: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.stack([np.polyval(line, plane) for line, plane in zip(lines, given[1], strict=True)])


@PIXELS
def affine(cases: PictureCases) -> Hypotheses:
    for ours, right in (one.given for one in cases if one.differs):
        if all(np.ptp(plane) > 0 for plane in right):
            lines = [np.polyfit(y.ravel(), x.ravel(), 1) for x, y in zip(ours, right, strict=True)]
            words = ", ".join(f"{c[0]:.4g} x + {c[1]:.4g}" for c in lines)
            yield Hypothesis(
                Kind.AFFINE,
                f"each channel is {words} of the reference's x",
                functools.partial(_fit, lines),
                tolerance.PICTURE_FITTED,
            )


# --- normalising -----------------------------------------------------------------------------------------------------------


class Levels(NamedTuple):
    """What is normalised: levels 0..255, float64 (3, H, W), with the mean and the standard deviation of each channel."""

    raw: np.ndarray
    mean: np.ndarray
    std: np.ndarray


NORMALISATION = picture_family("normalisation")  # given: Levels
Line = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # mean and standard deviation -> slope and offset


def by_level(ours: np.ndarray, levels: np.ndarray) -> bool:
    """Whether each channel of a picture (3, H, W) is a function of the levels of one channel of what was given (H, W, 3)."""
    if ours.shape != (levels.shape[2], *levels.shape[:2]):
        return False

    def function(values: np.ndarray, of: np.ndarray) -> bool:
        order = np.argsort(of, kind="stable")
        same = of[order][1:] == of[order][:-1]
        return bool((values[order][1:] == values[order][:-1])[same].all())

    return all(any(function(plane.ravel(), levels[..., c].ravel()) for c in range(levels.shape[2])) for plane in ours)


def _on_a_line(raw: np.ndarray, slope: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return slope[:, None, None] * raw + offset[:, None, None]


def _normalised_otherwise(kind: Kind, words: str, line: Line) -> None:
    NORMALISATION.add(kind, words, lambda given: _on_a_line(given.raw, *line(given.mean, given.std)))


_ONE, _ZERO = np.ones(3), np.zeros(3)
for _kind, _words, _made in (
    (Kind.NOT_DIVIDED_BY_255, "missing /255: the levels 0..255 are normalised as they are", lambda m, s: (1 / s, -m / s)),
    (Kind.NOT_DIVIDED_BY_255, "missing /255, and not normalised", lambda m, s: (_ONE, _ZERO)),
    (Kind.DIVIDED_OTHERWISE, "normalised before it is divided by 255", lambda m, s: (1 / (255 * s), -m / (255 * s))),
    (Kind.DIVIDED_OTHERWISE, "divided by 255 twice", lambda m, s: (1 / (255 * 255 * s), -m / s)),
    (Kind.DIVIDED_OTHERWISE, "divided by 256, expected 255", lambda m, s: (1 / (256 * s), -m / s)),
    (Kind.MEAN_STD_SWAPPED, "mean and standard deviation are swapped", lambda m, s: (1 / (255 * m), -s / m)),
    (Kind.WRONG_MEAN_STD, "mean and standard deviation in BGR order", lambda m, s: (1 / (255 * s[::-1]), (-m / s)[::-1])),
    (Kind.WRONG_MEAN_STD, "not normalised: mean 0 and standard deviation 1", lambda m, s: (_ONE / 255, _ZERO)),
    (Kind.WRONG_MEAN, "the mean in BGR order", lambda m, s: (1 / (255 * s), -m[::-1] / s)),
    (Kind.WRONG_MEAN, "the mean is not subtracted", lambda m, s: (1 / (255 * s), _ZERO)),
    (Kind.WRONG_MEAN, "the mean is added, expected subtracted", lambda m, s: (1 / (255 * s), m / s)),
    (Kind.WRONG_STD, "the standard deviation in BGR order", lambda m, s: (1 / (255 * s[::-1]), -m / s[::-1])),
    (Kind.WRONG_STD, "not divided by the standard deviation", lambda m, s: (_ONE / 255, -m)),
    (Kind.WRONG_STD, "multiplied by the standard deviation, expected divided", lambda m, s: (s / 255, -m * s)),
    (Kind.WRONG_STD, "divided by the variance, expected the standard deviation", lambda m, s: (1 / (255 * s * s), -m / (s * s))),
    (Kind.WRONG_STD, "divided by the root of the standard deviation", lambda m, s: (1 / (255 * np.sqrt(s)), -m / np.sqrt(s))),
    (Kind.WRONG_STD, "the mean alone is divided by the standard deviation", lambda m, s: (_ONE / 255, -m / s)),
):
    _normalised_otherwise(_kind, _words, _made)


def _fitted(one: Observed, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Slope and offset of each channel; ``order`` is -1 where the channels are reversed."""
    fits = [np.polyfit(x.ravel(), y.ravel().astype(np.float64), 1) for x, y in zip(one.given.raw[::order], one.ours, strict=True)]
    return np.array([c[0] for c in fits]), np.array([c[1] for c in fits])


@NORMALISATION
def other_mean_or_std(cases: PictureCases) -> Hypotheses:
    one = first_wrong(cases)
    slope, offset = _fitted(one, 1)
    m, s = one.given.mean, one.given.std
    if (slope == 0).any():
        return
    std, mean = 1 / (slope * 255), -offset / (slope * 255)
    shown = lambda values: "(" + ", ".join(f"{round(v, 5) + 0.0:g}" for v in values) + ")"  # noqa: E731
    kind, words = Kind.WRONG_MEAN_STD, f"mean {shown(mean)} and standard deviation {shown(std)}, expected {shown(m)} and {shown(s)}"
    if np.allclose(std, s, rtol=tolerance.PICTURE_READ):
        kind, words = Kind.WRONG_MEAN, f"wrong mean: {shown(mean)}, expected {shown(m)}"
    elif np.allclose(mean, m, rtol=tolerance.PICTURE_READ, atol=tolerance.CLOSE):
        kind, words = Kind.WRONG_STD, f"wrong standard deviation: {shown(std)}, expected {shown(s)}"
    yield Hypothesis(kind, words, lambda given: _on_a_line(given.raw, slope, offset))


@NORMALISATION
def reversed_channels(cases: PictureCases) -> Hypotheses:
    slope, offset = _fitted(first_wrong(cases), -1)
    words = "RGB and BGR: the channels are reversed before normalising"
    yield Hypothesis(Kind.CHANNELS_REVERSED, words, lambda given: _on_a_line(given.raw[::-1], slope, offset))
