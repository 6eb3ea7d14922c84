"""Mistakes in making a picture: channels, normalising, crops and boxes, resizing, operations, and how samples are mixed.

A hypothesis about a transform is what the reference makes with that mistake in it; a case is one call of it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from alignment import tolerance
from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, Observed, seen
from alignment.strangers import strangers
from mobilenetv3_common.sampling import Box, MixParams, SampleParams

PictureCases = Sequence[Observed]


def picture_family(name: str) -> Family:
    """Hypotheses about several cases, which are what they are asked about."""
    return Family(name, lambda cases: cases)


def in_every_case(family: Family, cases: PictureCases) -> Hint:
    """The first hypothesis that holds in every case; else in every case that is wrong, where there are several."""
    wrong = [one for one in cases if one.differs]
    found = family.hint(cases) if wrong else NO_HINT
    return family.hint(wrong) if found == NO_HINT and len(wrong) > 1 else found


def _first(cases: PictureCases) -> Observed:
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
    PIXELS.add(Kind.CROP_OFF_BY_ONE, f"crop off by one: moved by {_dy} row(s) and {_dx} column(s)", _moved(_dy, _dx))


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
    one = _first(cases)
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
    slope, offset = _fitted(_first(cases), -1)
    words = "RGB and BGR: the channels are reversed before normalising"
    yield Hypothesis(Kind.CHANNELS_REVERSED, words, lambda given: _on_a_line(given.raw[::-1], slope, offset))


# --- cropping --------------------------------------------------------------------------------------------------------------


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


def window_hint(corners: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> Hint:
    """Where each crop begins, and should; the kind is one that holds for all of them."""
    found, expected = corners[0]
    words = f"the crop begins at row {found[0]}, column {found[1]}, expected row {expected[0]}, column {expected[1]}"
    if all(max(abs(f - e) for f, e in zip(*corner, strict=True)) <= 1 for corner in corners):
        return Kind.CROP_OFF_BY_ONE, f"crop off by one: {words}"
    if all(one == other[::-1] for one, other in corners):
        return Kind.AXES_SWAPPED, f"rows and columns are swapped: {words}"
    return Kind.CROP, words


class Boxed(NamedTuple):
    """Something that is done in a box: the right box, what is made with another one, and the picture's height and width."""

    box: Box
    made: Callable[[Box], np.ndarray]
    size: tuple[int, int] = (0, 0)

    def with_box(self, other: Box) -> np.ndarray | None:
        """None where the box cannot be."""
        if min(other) < 0 or min(other[2:]) <= 0:
            return None
        with strangers("decoder", alone=True):  # each decoder has its own where a box lies outside the picture
            return self.made(other)
        return None


BOXES = picture_family("boxes")  # given: Boxed
_SWAPPED = "rows and columns of the box are swapped"
_BOXES: tuple[tuple[Kind, str, Callable[..., tuple]], ...] = (
    (Kind.AXES_SWAPPED, _SWAPPED, lambda size, y, x, h, w: (x, y, w, h)),
    (Kind.AXES_SWAPPED, f"{_SWAPPED}: its height and width", lambda size, y, x, h, w: (y, x, w, h)),
    (Kind.AXES_SWAPPED, f"{_SWAPPED}: its corner", lambda size, y, x, h, w: (x, y, h, w)),
    (Kind.BOX, "height and width are taken for the lower right corner", lambda size, y, x, h, w: (y, x, h - y, w - x)),
    (Kind.BOX, "the lower right corner is taken for height and width", lambda size, y, x, h, w: (y, x, h + y, w + x)),
    (Kind.BOX, "the box begins at the upper left corner of the picture", lambda size, y, x, h, w: (0, 0, h, w)),
    (Kind.BOX, "the corner is taken for the middle", lambda size, y, x, h, w: (y - h // 2, x - w // 2, h, w)),
    (Kind.BOX, "the whole picture, not a box of it", lambda size, y, x, h, w: (0, 0, *size)),
)


def _boxed(other: Callable[..., tuple], given: Boxed) -> np.ndarray | None:
    return given.with_box(other(given.size, *given.box))


for _kind, _words, _other in _BOXES:
    BOXES.add(_kind, _words, functools.partial(_boxed, _other))


@BOXES
def box_off_by_one(cases: PictureCases) -> Hypotheses:
    box = _first(cases).given.box
    for moves in itertools.product((0, 1, -1), repeat=4):

        def moved(size: object, *box: int, moves: tuple[int, ...] = moves) -> tuple[int, ...]:
            return tuple(side + move for side, move in zip(box, moves, strict=True))

        words = f"the box off by one: {moved(None, *box)} (top, left, height, width), expected {box}"
        if any(moves):
            yield Hypothesis(Kind.BOX, words, functools.partial(_boxed, moved))


# --- resizing --------------------------------------------------------------------------------------------------------------

Size = tuple[int, int]  # width and height


class Resized(NamedTuple):
    """What is resized, to which target sizes by what they are (the first is the right one), and what is then made of it."""

    picture: Image.Image
    sizes: Mapping[str, Size]
    finish: Callable[[Image.Image], np.ndarray]


RESIZING = picture_family("resizing")  # given: Resized


def _opencv(name: str) -> Callable[[Image.Image, Size], Image.Image]:
    def resized(picture: Image.Image, size: Size) -> Image.Image:
        import cv2

        return Image.fromarray(cv2.resize(np.asarray(picture), size, interpolation=getattr(cv2, name)))

    return resized


FILTERS: dict[str, Callable[[Image.Image, Size], Image.Image]] = {
    name: lambda picture, size, name=name: picture.resize(size, Image.Resampling[name.upper()])
    for name in ("bilinear", "nearest", "bicubic", "lanczos", "box", "hamming")
} | {
    "OpenCV's bilinear, not antialiased,": _opencv("INTER_LINEAR"),
    "OpenCV's bicubic, not antialiased,": _opencv("INTER_CUBIC"),
    "OpenCV's area": _opencv("INTER_AREA"),
    "OpenCV's nearest": _opencv("INTER_NEAREST"),
    "OpenCV's lanczos": _opencv("INTER_LANCZOS4"),
}


def _resizing(name: str) -> Callable[[PictureCases], Hypotheses]:
    def hypotheses(cases: PictureCases) -> Hypotheses:
        def made(what: str, given: Resized) -> np.ndarray | None:
            try:
                return given.finish(FILTERS[name](given.picture, given.sizes[what]))
            except (ValueError, ImportError):  # a size that the crop does not take
                return None

        sizes = _first(cases).given.sizes
        for number, (what, size) in enumerate(sizes.items()):
            kind, words = Kind.INTERPOLATION, f"{name} interpolation, expected bilinear" + (f", and to {what}" if number else "")
            if name == "bilinear":
                kind = Kind.TARGET_SIZE
                words = f"resized to {what}: {size[0]} x {size[1]}, expected {next(iter(sizes.values()))}"
            if number or name != "bilinear":
                yield Hypothesis(kind, words, functools.partial(made, what))

    return hypotheses


for _name in FILTERS:
    RESIZING.register(_name, _resizing(_name))


# --- operations ------------------------------------------------------------------------------------------------------------


class Operated(NamedTuple):
    """One operation of an augmentation: its name and magnitude, and what the reference makes with another one."""

    name: str
    magnitude: float
    made: Callable[[str, float], np.ndarray]

    def otherwise(self, name: str, magnitude: float) -> np.ndarray | None:
        """None where the operation cannot be done by that much."""
        try:
            return self.made(name, magnitude)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None


OPERATION = picture_family("operation")  # given: Operated
SIGNED = {"ShearX": 0.2, "ShearY": 0.2, "TranslateX": 9.0, "TranslateY": 9.0, "Rotate": 17.0} | dict.fromkeys(
    ("Brightness", "Color", "Contrast", "Sharpness"), 0.4
)


def usual_operations() -> list[tuple[str, float]]:
    """Every operation with a few magnitudes."""
    both = [(name, sign * size) for name, large in SIGNED.items() for size in (large, large / 2) for sign in (1, -1)]
    plain = [(name, 0.0) for name in ("Identity", "AutoContrast", "Equalize", "Invert")]
    return [*both, *plain, *[("Posterize", bits) for bits in (4.0, 5.0, 7.0)], ("Solarize", 128.0), ("Solarize", 77.0)]


@OPERATION
def does_nothing(cases: PictureCases) -> Hypotheses:
    words = f"{_first(cases).given.name} does nothing"
    yield Hypothesis(Kind.DOES_NOTHING, words, lambda given: given.made("Identity", 0.0))


@OPERATION
def other_way(cases: PictureCases) -> Hypotheses:
    if (name := _first(cases).given.name) in SIGNED:
        words = f"{name} goes the other way: its magnitude has the wrong sign"
        yield Hypothesis(Kind.SIGN, words, lambda given: given.otherwise(given.name, -given.magnitude))


def _operated(name: str, magnitude: float | None, given: Operated) -> np.ndarray | None:
    return given.otherwise(name, given.magnitude if magnitude is None else magnitude)


@OPERATION
def other_operation(cases: PictureCases) -> Hypotheses:
    name, magnitude, _ = _first(cases).given
    expected = f"{name} by {magnitude:g}" if magnitude else name
    for other in dict.fromkeys(one for one, _ in usual_operations() if one != name):
        did = f"{other} by {magnitude:g}" if magnitude else other
        words = f"it does {did}, expected {expected}"
        yield Hypothesis(Kind.OTHER_OPERATION, words, functools.partial(_operated, other, None))
    for other, size in usual_operations():
        if other != name and size != magnitude:
            words = f"it does {f'{other} by {size:g}' if size else other}, expected {expected}"
            yield Hypothesis(Kind.OTHER_OPERATION, words, functools.partial(_operated, other, size))


MAGNITUDES: tuple[Callable[[float], float], ...] = (
    *(lambda m, factor=factor: m * factor for factor in (0.5, 2.0, 0.1, 10.0, math.pi / 180, 180 / math.pi, 64 / 331, 331 / 64)),
    abs,
    lambda m: -abs(m),
    lambda m: m + 1,
    lambda m: m - 1,
    lambda m: 256 - m,
    lambda m: 255 - m,
    lambda m: math.tan(math.radians(m)),
    math.tan,
    math.atan,
    lambda m: 1 + m,
    *(lambda m, bits=bits: float(bits) for bits in range(9)),
)


@OPERATION
def other_magnitude(cases: PictureCases) -> Hypotheses:
    name, magnitude, _ = _first(cases).given
    for other in MAGNITUDES if magnitude else ():
        words = f"{name} by {other(magnitude):.4g}, expected {magnitude:g}"

        def made(given: Operated, other: Callable[[float], float] = other) -> np.ndarray | None:
            return given.otherwise(given.name, other(given.magnitude))

        yield Hypothesis(Kind.MAGNITUDE, words, made)


# --- transforms as they are applied ----------------------------------------------------------------------------------------


class Applied(NamedTuple):
    """Parameters of one picture, and what the reference makes with changed ones."""

    params: SampleParams
    made: Callable[[SampleParams], np.ndarray]

    def but(self, **changes: Any) -> np.ndarray:
        return self.made(replace(self.params, **changes))


APPLIED = {stage: picture_family(f"applied_{stage}") for stage in ("flip", "erase", "together")}  # given: Applied
APPLIED["flip"].add(Kind.FLIP_MISSING, "the picture is not mirrored", lambda given: given.but(flip=False))
_words = "the picture is flipped upside down, expected left to right"
APPLIED["flip"].add(Kind.UPSIDE_DOWN, _words, lambda given: given.but(flip=False)[:, ::-1])
APPLIED["erase"].add(Kind.DOES_NOTHING, "nothing is erased", lambda given: given.but(erase=None))


def _mirrored_last(given: Applied) -> np.ndarray:
    """The box that is erased stays where it is."""
    if not given.params.flip:
        return given.but()
    made = given.but(flip=False, erase=None)[:, :, ::-1].copy()
    if given.params.erase is not None:
        top, left, height, width = given.params.erase
        made[:, top : top + height, left : left + width] = 0
    return made


for _words, _change in (
    ("the operations are done in the reverse order", lambda given: given.but(ops=given.params.ops[::-1])),
    ("only the first of two operations is done", lambda given: given.but(ops=given.params.ops[:1])),
    ("only the last of two operations is done", lambda given: given.but(ops=given.params.ops[-1:])),
    ("the picture is mirrored after the operations, expected before", _mirrored_last),
):
    APPLIED["together"].add(Kind.CALL_ORDER, _words, _change)


# --- samples ---------------------------------------------------------------------------------------------------------------

SAMPLED = picture_family("sampled")  # given: the reference's samples with other random parameters, by what is other


def _looked_up(other: str, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
    return given.get(other)


def _other_stream(kind: Kind, what: str) -> Callable[[PictureCases], Hypotheses]:
    def hypotheses(cases: PictureCases) -> Hypotheses:
        for other in cases[0].given:
            if other.startswith(what):
                words = f"random parameters of {other}"
                yield Hypothesis(kind, words, functools.partial(_looked_up, other))

    return hypotheses


SAMPLED.register("seed", _other_stream(Kind.OTHER_SEED, "seed "))
SAMPLED.register("epoch", _other_stream(Kind.OTHER_EPOCH, "epoch "))
CHANGED = (
    "the flip is inverted",
    "no automatic augmentation",
    "the first operation alone",
    "the operations in the reverse order",
    "magnitudes without their random sign",
    "nothing is erased",
    "the whole picture, not a crop",
)
for _words in CHANGED:
    SAMPLED.add(Kind.SAMPLED, _words, functools.partial(_looked_up, _words))


# --- mixing ----------------------------------------------------------------------------------------------------------------


class MixedGroup(NamedTuple):
    """A group that is mixed with given parameters.

    Attributes:
        images, labels: float64 (N, C, H, W), and rows of probabilities (N, classes).
        params: of the kind ``"mixup"`` or ``"cutmix"``.
        whole: whether the labels are looked at, too.
        ours: what the port makes of the images.
    """

    images: np.ndarray
    labels: np.ndarray
    params: MixParams
    whole: bool
    ours: np.ndarray

    def otherwise(self, share: float | None = None, box: Box | None = None, partner: Callable | None = None) -> np.ndarray:
        """Images, and labels where they are looked at, as one flat array."""
        share, box = self.params.lam if share is None else share, box or self.params.box
        partner = partner or (lambda batch: np.roll(batch, 1, axis=0))
        images = share * self.images + (1 - share) * partner(self.images)
        if box is not None:
            images = self.pasted(self.images, partner(self.images), box)
        return self.flat(images, share * self.labels + (1 - share) * partner(self.labels))

    def with_box(self, box: Box) -> np.ndarray:
        return self.otherwise(box=box)

    def flat(self, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """One flat array."""
        return np.concatenate([images.ravel(), labels.ravel()]) if self.whole else images.ravel()

    @staticmethod
    def pasted(batch: np.ndarray, other: np.ndarray, box: Box) -> np.ndarray:
        """A box of another batch in a batch."""
        made, (top, left, height, width) = batch.copy(), box
        made[..., top : top + height, left : left + width] = other[..., top : top + height, left : left + width]
        return made


MIXING = picture_family("mixing")  # given: MixedGroup
PARTNERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the sample before it": lambda batch: np.roll(batch, 1, axis=0),
    "the next sample": lambda batch: np.roll(batch, -1, axis=0),
    "the reversed batch": lambda batch: batch[::-1],
}


@MIXING
def share_swapped(cases: PictureCases) -> Hypotheses:
    share = _first(cases).given.params.lam
    words = f"a sample's own share is {1 - share:.4f}, expected {share:.4f} = 1 - it"
    yield Hypothesis(Kind.LAMBDA_SWAPPED, words, lambda given: given.otherwise(1 - given.params.lam))


def _with_order(order: Sequence[int]) -> Callable[[MixedGroup], np.ndarray | None]:
    def made(given: MixedGroup) -> np.ndarray | None:
        sides = given.params.box
        return None if sides is None else given.otherwise(box=(sides[order[0]], sides[order[1]], sides[order[2]], sides[order[3]]))

    return made


for _words, _order in (("rows and columns", (1, 0, 3, 2)), ("height and width", (0, 1, 3, 2)), ("top and left", (1, 0, 2, 3))):
    MIXING.add(Kind.AXES_SWAPPED, f"{_words} of the box are exchanged", _with_order(_order))
MIXING.add(Kind.DOES_NOTHING, "the batch is not mixed", lambda given: given.flat(given.images, given.labels))


def _with_partner(partner: Callable, given: MixedGroup) -> np.ndarray | None:
    return given.otherwise(partner=partner)


@MIXING
def other_partner(cases: PictureCases) -> Hypotheses:
    for what, partner in list(PARTNERS.items())[1:]:
        words = f"mixed with {what}, expected the sample before it"
        yield Hypothesis(Kind.MIX_PARTNER, words, functools.partial(_with_partner, partner))


@MIXING
def box_and_rest_exchanged(cases: PictureCases) -> Hypotheses:
    for what, partner in PARTNERS.items():
        words = f"the box holds the sample itself and the rest {what}, expected the other way round"

        def made(given: MixedGroup, partner: Callable = partner) -> np.ndarray | None:
            share, box = given.params.lam, given.params.box
            labels = share * given.labels + (1 - share) * partner(given.labels)
            return None if box is None else given.flat(given.pasted(partner(given.images), given.images, box), labels)

        yield Hypothesis(Kind.LAMBDA_SWAPPED, words, made)


@MIXING
def other_share(cases: PictureCases) -> Hypotheses:
    """Another share in each case, which the port's own images show."""

    def fitted(given: MixedGroup) -> float:
        before = np.roll(given.images, 1, axis=0)
        gap = (given.images - before).ravel()
        return float((given.ours - before).ravel() @ gap / max(gap @ gap, tolerance.TINY))

    first = _first(cases).given
    if all(one.given.params.kind == "mixup" and one.given.ours.shape == one.given.images.shape for one in cases):
        words = f"a sample's own share is {fitted(first):.4f}, expected {first.params.lam:.4f}"
        yield Hypothesis(Kind.LAMBDA, words, lambda given: given.otherwise(fitted(given)), tolerance.PICTURE_FITTED)
