"""Mistakes in what is cut out of a picture, and in how it is resized."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Hypotheses, Hypothesis
from alignment.localize.hypotheses.pictures import PictureCases, first_wrong, picture_family
from alignment.strangers import strangers
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import Box


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
    box = first_wrong(cases).given.box
    for moves in itertools.product((0, 1, -1), repeat=4):

        def moved(size: object, *box: int, moves: tuple[int, ...] = moves) -> tuple[int, ...]:
            return tuple(side + move for side, move in zip(box, moves, strict=True))

        words = f"the box off by one: {moved(None, *box)} (top, left, height, width), expected {box}"
        if any(moves):
            yield Hypothesis(Kind.BOX, words, functools.partial(_boxed, moved))


# --- beyond the border -----------------------------------------------------------------------------------------------------


class Cut(NamedTuple):
    """A box that leaves its picture (H, W, 3), which is black there, and what is then made of what was cut out."""

    box: Box
    picture: np.ndarray
    finish: Callable[[Image.Image], np.ndarray]


BEYOND = picture_family("beyond")  # given: Cut


Fill = Callable[[np.ndarray, int], np.ndarray]


def _filled(fill: Fill, given: Cut) -> np.ndarray:
    top, left, height, width = given.box
    border = max(height, width)
    padded = fill(given.picture, min(border, *(side - 1 for side in given.picture.shape[:2])))
    moved = (padded.shape[0] - given.picture.shape[0]) // 2
    top, left = (min(max(place + moved, 0), side) for place, side in zip((top, left), padded.shape[:2], strict=True))
    return given.finish(Image.fromarray(np.ascontiguousarray(padded[top : top + height, left : left + width])))


def _bordered(mode: str, picture: np.ndarray, size: int, **given: int) -> np.ndarray:
    return np.pad(picture, ((size, size), (size, size), (0, 0)), mode, **given)  # type: ignore[call-overload]


def _mean_colour(picture: np.ndarray, size: int) -> np.ndarray:
    made = _bordered("constant", picture, size)
    border = np.ones(made.shape[:2], bool)
    border[size:-size, size:-size] = False
    made[border] = [round(255 * level) for level in TrainPreset().mean]
    return made


def _inside(given: Cut) -> np.ndarray:
    top, left, height, width = given.box
    rows, columns = given.picture.shape[:2]
    top, left = min(max(top, 0), rows - height), min(max(left, 0), columns - width)
    return given.finish(Image.fromarray(np.ascontiguousarray(given.picture[top : top + height, left : left + width])))


_FILLS: dict[str, Fill] = {
    "its reflection": functools.partial(_bordered, "reflect"),
    "its reflection with the edge twice": functools.partial(_bordered, "symmetric"),
    "its edge repeated": functools.partial(_bordered, "edge"),
    "its other side": functools.partial(_bordered, "wrap"),
    "white": functools.partial(_bordered, "constant", constant_values=255),
    "grey of level 128": functools.partial(_bordered, "constant", constant_values=128),
    "the mean colour": _mean_colour,
}
for _words, _fill in _FILLS.items():
    BEYOND.add(Kind.PADDING, f"beyond the border of a picture there is {_words}, expected black", functools.partial(_filled, _fill))
BEYOND.add(Kind.BOX, "a crop that leaves the picture is moved into it, expected black beyond the border", _inside)


# --- resizing ------------------------------------------------------------------------------------------------------------

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

        sizes = first_wrong(cases).given.sizes
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
