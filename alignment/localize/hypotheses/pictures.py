"""What two pictures have to do with each other: which other transform gives what the port gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import close, explains
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import Box

Made = Callable[[Box], np.ndarray]


def pixel_hint(ours: np.ndarray, theirs: np.ndarray) -> Hint:
    """What two pictures (C, H, W) or (H, W, C) have to do with each other."""
    if ours.shape != theirs.shape or ours.ndim != 3:
        return (Kind.SHAPE, f"shape {ours.shape}, expected {theirs.shape}") if ours.shape != theirs.shape else NO_HINT
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if b.shape[-1] == 3:
        a, b = a.transpose(2, 0, 1), b.transpose(2, 0, 1)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Kind.NOT_FINITE, f"{a.size - int(np.isfinite(a).sum())} of {a.size} values are NaN or infinite"
    for kind, words, made in (
        (Kind.CHANNELS_REVERSED, "RGB and BGR: the channels are reversed", b[::-1]),
        (Kind.MIRRORED, "mirrored left to right", b[:, :, ::-1]),
        (Kind.UPSIDE_DOWN, "upside down", b[:, ::-1]),
        (Kind.AXES_SWAPPED, "rows and columns are swapped", b.transpose(0, 2, 1)),
    ):
        if explains(made, a, b):
            return kind, words
    for dy, dx in ((0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1), (1, -1), (-1, 1)):
        inner = np.s_[:, 2:-2, 2:-2]
        if explains(np.roll(b, (dy, dx), (1, 2))[inner], a[inner], b[inner]):
            return Kind.CROP_OFF_BY_ONE, f"crop off by one: moved by {dy} row(s) and {dx} column(s)"
    different = (a != b).any(axis=0)
    if different.sum() <= max(1, different.size // 100):
        return Kind.FEW_ELEMENTS, f"{int(different.sum())} of {different.size} pixels differ"
    if all(np.ptp(y) > 0 for y in b):
        slopes = [np.polyfit(y.ravel(), x.ravel(), 1) for x, y in zip(a, b, strict=True)]
        fitted = np.stack([np.polyval(c, y) for c, y in zip(slopes, b, strict=True)])
        if explains(fitted, a, b, 1e-5):
            words = ", ".join(f"{c[0]:.4g} x + {c[1]:.4g}" for c in slopes)
            return Kind.AFFINE, f"each channel is {words} of the reference's x"
    return NO_HINT


# --- normalising -----------------------------------------------------------------------------------------------------------


def by_level(ours: np.ndarray, levels: np.ndarray) -> bool:
    """Whether each channel of a picture (3, H, W) is a function of the levels of one channel of what was given (H, W, 3)."""
    if ours.shape != (levels.shape[2], *levels.shape[:2]):
        return False

    def function(values: np.ndarray, of: np.ndarray) -> bool:
        order = np.argsort(of, kind="stable")
        same = of[order][1:] == of[order][:-1]
        return bool((values[order][1:] == values[order][:-1])[same].all())

    return all(any(function(plane.ravel(), levels[..., c].ravel()) for c in range(levels.shape[2])) for plane in ours)


def normalisation_hint(ours: np.ndarray, levels: np.ndarray, preset: EvalPreset | TrainPreset) -> Hint:
    """Which mean, standard deviation and scale would give what the port gives for known levels 0..255 (H, W, 3)."""
    raw = levels.transpose(2, 0, 1).astype(np.float64)
    if ours.shape != raw.shape or not np.isfinite(ours).all():
        return NO_HINT
    for flipped in (False, True):
        given = raw[::-1] if flipped else raw
        fits = [np.polyfit(x.ravel(), y.ravel().astype(np.float64), 1) for x, y in zip(given, ours, strict=True)]
        fitted = np.stack([np.polyval(c, x) for c, x in zip(fits, given, strict=True)])
        if not close(ours, fitted, 1e-4):
            continue
        slope, offset = np.array([c[0] for c in fits]), np.array([c[1] for c in fits])
        m, s = np.array(preset.mean), np.array(preset.std)
        right = 1 / (255 * s), -m / s
        if flipped:
            return Kind.CHANNELS_REVERSED, "RGB and BGR: the channels are reversed before normalising"
        for kind, words, a, b in _normalisations(m, s):
            other = not (np.allclose(a, right[0], rtol=1e-4) and np.allclose(b, right[1], rtol=1e-4, atol=1e-6))
            if other and np.allclose(slope, a, rtol=1e-4) and np.allclose(offset, b, rtol=1e-4, atol=1e-4 * np.abs(slope).max()):
                return kind, words
        std, mean = 1 / (slope * 255), -offset / (slope * 255)
        shown = lambda values: "(" + ", ".join(f"{round(v, 5) + 0.0:g}" for v in values) + ")"  # noqa: E731
        if np.allclose(std, s, rtol=1e-3):
            return Kind.WRONG_MEAN, f"wrong mean: {shown(mean)}, expected {shown(m)}"
        if np.allclose(mean, m, rtol=1e-3, atol=1e-6):
            return Kind.WRONG_STD, f"wrong standard deviation: {shown(std)}, expected {shown(s)}"
        words = f"mean {shown(mean)} and standard deviation {shown(std)}, expected {shown(m)} and {shown(s)}"
        return Kind.WRONG_MEAN_STD, words
    return NO_HINT


def _normalisations(m: np.ndarray, s: np.ndarray) -> Iterator[tuple[Kind, str, np.ndarray, np.ndarray]]:
    """Other ways to normalise a level x, as slope and offset of a line."""
    one, zero = np.ones(3), np.zeros(3)
    yield Kind.NOT_DIVIDED_BY_255, "missing /255: the levels 0..255 are normalised as they are", 1 / s, -m / s
    yield Kind.NOT_DIVIDED_BY_255, "missing /255, and not normalised", one, zero
    yield Kind.DIVIDED_OTHERWISE, "normalised before it is divided by 255", 1 / (255 * s), -m / (255 * s)
    yield Kind.DIVIDED_OTHERWISE, "divided by 255 twice", 1 / (255 * 255 * s), -m / s
    yield Kind.DIVIDED_OTHERWISE, "divided by 256, expected 255", 1 / (256 * s), -m / s
    yield Kind.MEAN_STD_SWAPPED, "mean and standard deviation are swapped", 1 / (255 * m), -s / m
    yield Kind.WRONG_MEAN_STD, "mean and standard deviation in BGR order", 1 / (255 * s[::-1]), (-m / s)[::-1]
    yield Kind.WRONG_MEAN_STD, "not normalised: mean 0 and standard deviation 1", one / 255, zero
    yield Kind.WRONG_MEAN, "the mean in BGR order", 1 / (255 * s), -m[::-1] / s
    yield Kind.WRONG_MEAN, "the mean is not subtracted", 1 / (255 * s), zero
    yield Kind.WRONG_MEAN, "the mean is added, expected subtracted", 1 / (255 * s), m / s
    yield Kind.WRONG_STD, "the standard deviation in BGR order", 1 / (255 * s[::-1]), -m / s[::-1]
    yield Kind.WRONG_STD, "not divided by the standard deviation", one / 255, -m
    yield Kind.WRONG_STD, "multiplied by the standard deviation, expected divided", s / 255, -m * s
    yield Kind.WRONG_STD, "divided by the variance, expected the standard deviation", 1 / (255 * s * s), -m / (s * s)
    yield Kind.WRONG_STD, "divided by the root of the standard deviation", 1 / (255 * np.sqrt(s)), -m / np.sqrt(s)
    yield Kind.WRONG_STD, "the mean alone is divided by the standard deviation", one / 255, -m / s


# --- cropping and resizing -------------------------------------------------------------------------------------------------


def window_of(ours: np.ndarray, picture: np.ndarray) -> tuple[int, int] | None:
    """Row and column at which a picture (C, h, w) is cut out of a larger one (C, H, W); None where it is not."""
    if ours.ndim != 3 or ours.shape[0] != picture.shape[0] or ours.shape[1] > picture.shape[1] or ours.shape[2] > picture.shape[2]:
        return None
    height, width = ours.shape[1:]
    for top in range(picture.shape[1] - height + 1):
        for left in np.flatnonzero(picture[0, top, : picture.shape[2] - width + 1] == ours[0, 0, 0]):
            if np.array_equal(ours, picture[:, top : top + height, left : left + width]):
                return top, int(left)
    return None


def window_hint(found: tuple[int, int], expected: tuple[int, int]) -> Hint:
    """Where a crop begins, and should."""
    words = f"the crop begins at row {found[0]}, column {found[1]}, expected row {expected[0]}, column {expected[1]}"
    if max(abs(f - e) for f, e in zip(found, expected, strict=True)) <= 1:
        return Kind.CROP_OFF_BY_ONE, f"crop off by one: {words}"
    if found == expected[::-1]:
        return Kind.AXES_SWAPPED, f"rows and columns are swapped: {words}"
    return Kind.CROP, words


def box_hint(box: Box, made: Made, ours: np.ndarray, right: np.ndarray, size: tuple[int, int] = (0, 0)) -> Hint:
    """Which other box (top, left, height, width) gives what the port gives.

    Args:
        box: the right one.
        made: what the reference makes with a box; it may raise where one lies outside the picture.
        ours, right: what the port and the reference make.
        size: height and width of the picture.
    """
    top, left, height, width = box
    swapped = "rows and columns of the box are swapped"
    corner = "height and width are taken for the lower right corner"
    others: list[tuple[Kind, str, Box]] = [
        (Kind.AXES_SWAPPED, swapped, (left, top, width, height)),
        (Kind.AXES_SWAPPED, f"{swapped}: its height and width", (top, left, width, height)),
        (Kind.AXES_SWAPPED, f"{swapped}: its corner", (left, top, height, width)),
        (Kind.BOX, corner, (top, left, height - top, width - left)),
        (Kind.BOX, "the lower right corner is taken for height and width", (top, left, height + top, width + left)),
        (Kind.BOX, "the box begins at the upper left corner of the picture", (0, 0, height, width)),
        (Kind.BOX, "the corner is taken for the middle", (top - height // 2, left - width // 2, height, width)),
        (Kind.BOX, "the whole picture, not a box of it", (0, 0, *size)),
    ]
    for moves in itertools.product((0, 1, -1), repeat=4):
        if any(moves):
            changed = (top + moves[0], left + moves[1], height + moves[2], width + moves[3])
            others.append((Kind.BOX, f"the box off by one: {changed} (top, left, height, width), expected {box}", changed))
    for kind, words, other in others:
        if other != box and min(other) >= 0 and min(other[2:]) > 0:  # a size of 0 is not known
            try:
                given = made(other)
            except (ValueError, IndexError):
                continue
            if explains(given, ours, right):
                return kind, words
    return NO_HINT


Size = tuple[int, int]  # width and height


def _opencv(name: str) -> Callable[[Image.Image, Size], Image.Image]:
    def resized(picture: Image.Image, size: Size) -> Image.Image:
        import cv2

        return Image.fromarray(cv2.resize(np.asarray(picture), size, interpolation=getattr(cv2, name)))

    return resized


FILTERS: dict[str, Callable[[Image.Image, Size], Image.Image]] = {
    "bilinear": lambda picture, size: picture.resize(size, Image.Resampling.BILINEAR),
    "nearest": lambda picture, size: picture.resize(size, Image.Resampling.NEAREST),
    "bicubic": lambda picture, size: picture.resize(size, Image.Resampling.BICUBIC),
    "lanczos": lambda picture, size: picture.resize(size, Image.Resampling.LANCZOS),
    "box": lambda picture, size: picture.resize(size, Image.Resampling.BOX),
    "hamming": lambda picture, size: picture.resize(size, Image.Resampling.HAMMING),
    "OpenCV's bilinear, not antialiased,": _opencv("INTER_LINEAR"),
    "OpenCV's bicubic, not antialiased,": _opencv("INTER_CUBIC"),
    "OpenCV's area": _opencv("INTER_AREA"),
    "OpenCV's nearest": _opencv("INTER_NEAREST"),
    "OpenCV's lanczos": _opencv("INTER_LANCZOS4"),
}


def resize_hint(
    picture: Image.Image, sizes: dict[str, Size], finish: Callable[[Image.Image], np.ndarray], ours: np.ndarray, right: np.ndarray
) -> Hint:
    """Which other filter or target size gives what the port gives.

    Args:
        picture: what is resized.
        sizes: target sizes by what they are; the first is the right one.
        finish: what the reference makes of a resized picture; it may raise where that is too small.
    """
    for number, (what, size) in enumerate(sizes.items()):
        for name, resized in FILTERS.items():
            if number == 0 and name == "bilinear":
                continue
            try:
                made = finish(resized(picture, size))
            except Exception:  # a size that the crop does not take
                continue
            if explains(made, ours, right):
                if name == "bilinear":
                    return Kind.TARGET_SIZE, f"resized to {what}: {size[0]} x {size[1]}, expected {next(iter(sizes.values()))}"
                return Kind.INTERPOLATION, f"{name} interpolation, expected bilinear" + (f", and to {what}" if number else "")
    return Kind.INTERPOLATION_OR_SIZE, "resized otherwise: another interpolation or target size"
