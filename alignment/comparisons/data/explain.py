"""The first transform of the data pipeline that is wrong, each tried by itself on the same picture and parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import first_pictures, part
from alignment.comparisons.data.pixels import every_operation
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import explains
from alignment.localize.hypotheses.pictures import (
    box_hint,
    by_level,
    normalisation_hint,
    pixel_hint,
    resize_hint,
    window_hint,
    window_of,
)
from alignment.project import Side
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import SampleParams

SIZE = 64
EVAL = EvalPreset(SIZE * 8 // 7, SIZE)
TRAIN = TrainPreset(SIZE)


REPEATS = 20  # of equal calls, to see whether their results are: a coin agrees with itself so often once in a million


@dataclass
class _Sample:
    """One call of a function of both data parts with equal arguments."""

    context: Context
    name: str
    args: tuple[Any, ...]

    def __post_init__(self) -> None:
        self.ours, self.theirs = (self.of(side) for side in self.context.sides.values())

    def of(self, side: Side) -> np.ndarray:
        return np.asarray(getattr(part(side), self.name)(*self.args))

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        return self.ours, self.theirs

    @property
    def differs(self) -> bool:
        return differ(self.pair)

    @functools.cached_property
    def random(self) -> bool:
        """Whether the port gives other pictures for equal arguments; ``ours`` is then one that differs from the reference's."""
        for _ in range(REPEATS):
            again = self.of(self.context.port)
            if not np.array_equal(again, self.ours, equal_nan=True):
                self.ours = self.ours if self.differs else again
                return True
        return False

    def found(self, location: str, hint: Hint = NO_HINT) -> Finding:
        """The finding, unless the port gives different pictures for equal arguments: then that is the mistake."""
        if self.random:
            words = "two identical calls give different pictures: random numbers from a global generator"
            hint = Kind.GLOBAL_GENERATOR, words
        return found(location, self.pair, hint)


def differ(pair: tuple[np.ndarray, np.ndarray]) -> bool:
    return pair[0].shape != pair[1].shape or pair[0].dtype != pair[1].dtype or bool((pair[0] != pair[1]).any())


def _measured(pair: tuple[np.ndarray, np.ndarray]) -> str:
    ours, theirs = pair
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {ours.shape} in the port, {theirs.dtype} {theirs.shape} in the reference"
    gap = np.abs(ours.astype(np.float64) - theirs)
    return f"{int((gap > 0).sum())} of {gap.size} values differ, by {gap.max():.3g} at most"


def found(location: str, pair: tuple[np.ndarray, np.ndarray], hint: Hint = NO_HINT) -> Finding:
    kind, words = hint if hint[0] else pixel_hint(*pair)
    return Finding("data", location, kind, words, _measured(pair))


@functools.cache
def _picture(context_index: Any, number: int, backend: str) -> Image.Image:
    return decode_image(context_index.path(number), backend)


def _pictures(context: Context, count: int = 4) -> list[Image.Image]:
    index = first_pictures(context.material.index("val"))
    return [_picture(index, i * len(index) // count, context.image_backend) for i in range(count)]


def decoding(context: Context) -> Finding | None:
    """A file to pixels."""
    for preset in (EVAL, TRAIN):
        index = first_pictures(context.material.index("val"))
        for number in range(min(4, len(index))):
            pair = []
            for side in context.sides.values():
                dataset: Any = part(side).ImageDataset(index, preset, context.seed, context.image_backend)
                if not hasattr(dataset, "decode"):
                    return None  # a data set that does not show this step has it looked at with its samples
                pair.append(np.asarray(dataset.decode(index.path(number))))
            if differ((pair[0], pair[1])):
                return found("decode", (pair[0], pair[1]))
    return None


def evaluation(context: Context) -> Finding | None:
    """Normalise, centre crop, resize: each on pictures that leave the others nothing to do."""
    levels = _levels(context)
    for picture in _pictures(context):
        exact = picture.resize((SIZE, SIZE))
        trial = _Sample(context, "eval_transform", (exact, EvalPreset(SIZE, SIZE)))
        if trial.differs or trial.random:
            return _plain_finding(trial, exact, levels, EvalPreset(SIZE, SIZE), "eval_transform")
    for more in range(10):  # odd and even margins, which are rounded in different ways
        for size in ((SIZE + more, SIZE + more), (SIZE + 9, SIZE + more), (SIZE + more, SIZE + 9)):
            picture = _pictures(context)[more % 4].resize(size)
            trial = _Sample(context, "eval_transform", (picture, EvalPreset(min(size), SIZE)))
            if trial.differs:
                return _cropped_finding(trial, picture, levels)
    for picture in _pictures(context):
        trial = _Sample(context, "eval_transform", (picture, EVAL))
        if trial.differs:
            sizes = _eval_sizes(picture)
            return trial.found("resize", resize_hint(picture, sizes, functools.partial(_finished, context), *trial.pair))
    return None


def _plain_finding(
    trial: _Sample, picture: Image.Image, levels: np.ndarray, preset: EvalPreset | TrainPreset, chain: str
) -> Finding:
    """The place where nothing but scaling to 0..1 and normalising should be done.

    Args:
        trial: whose pictures differ.
        picture: what was given.
        levels: what each of the 256 levels becomes in each channel.
        preset: mean and standard deviation.
        chain: the name of all transforms together, where none of them is to blame alone.
    """
    given = np.asarray(picture)
    if by_level(trial.ours, given):
        return trial.found("normalize", normalisation_hint(trial.ours, given, preset))
    crop = "center_crop" if chain == "eval_transform" else "crop"
    if trial.ours.shape != trial.theirs.shape:
        return trial.found(crop if chain == "eval_transform" else "resize")
    kind, words = pixel_hint(*trial.pair)
    if chain == "train_transform" and kind in (Kind.MIRRORED, Kind.UPSIDE_DOWN):
        return trial.found("hflip", (Kind.FLIP_INVERTED, f"{words}, where no flip was drawn"))
    if kind in (Kind.AXES_SWAPPED, Kind.MIRRORED, Kind.UPSIDE_DOWN):
        return trial.found(chain, (kind, words))
    framed = np.pad(given, ((8, 8), (8, 8), (0, 0)))  # a crop beyond the border is black
    if (corner := window_of(trial.ours, _normalised(framed, levels))) is not None:
        return trial.found(crop, window_hint((corner[0] - 8, corner[1] - 8), (0, 0)))
    return trial.found(chain if trial.random else "resize", (Kind.INTERPOLATION_OR_SIZE, "a picture of the right size is resized"))


def _normalised(picture: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Pixels (H, W, 3) as what each level becomes: float32 (3, H, W)."""
    return np.stack([levels[c][picture[..., c]] for c in range(3)])


def _cropped_finding(trial: _Sample, picture: Image.Image, levels: np.ndarray) -> Finding:
    """The place where a picture whose shorter side is right is to be cropped alone."""
    whole = _normalised(np.asarray(picture), levels)
    expected = window_of(trial.theirs, whole)
    if (found := window_of(trial.ours, whole)) is not None and expected is not None:
        return trial.found("center_crop", window_hint(found, expected))
    short, context = min(picture.size), trial.context
    for what, size in (("a square", (short, short)), ("the longer side", _scaled(picture, short / max(picture.size), round))):
        if min(size) >= SIZE:
            made = made_by_reference(
                context, "eval_transform", picture.resize(size, Image.Resampling.BILINEAR), EvalPreset(min(size), SIZE)
            )
            if size != picture.size and explains(made, *trial.pair):
                return trial.found("resize", (Kind.TARGET_SIZE, f"resized to {what}: {size[0]} x {size[1]}"))
    square = picture.width == picture.height
    return trial.found("center_crop" if square or trial.ours.shape != trial.theirs.shape else "resize")


def _levels(context: Context) -> np.ndarray:
    """What each of the 256 levels becomes in each channel: float32 (3, 256)."""
    every = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    return made_by_reference(context, "eval_transform", Image.fromarray(every), EvalPreset(16, 16)).reshape(3, 256)


def made_by_reference(context: Context, name: str, *args: Any) -> np.ndarray:
    return np.asarray(getattr(part(context.reference), name)(*args))


def _finished(context: Context, resized: Image.Image) -> np.ndarray:
    return made_by_reference(context, "eval_transform", resized, EvalPreset(min(resized.size), SIZE))


def _scaled(picture: Image.Image, scale: float, rounded: Callable[[float], int]) -> tuple[int, int]:
    return max(1, rounded(picture.width * scale)), max(1, rounded(picture.height * scale))


def _eval_sizes(picture: Image.Image) -> dict[str, tuple[int, int]]:
    """Target sizes of evaluation's resizing: the right one, and those that people take in its place."""
    wanted, short, long = EVAL.resize_size, min(picture.size), max(picture.size)
    return {
        "the shorter side": _scaled(picture, wanted / short, int),
        "the shorter side, the longer one rounded": _scaled(picture, wanted / short, round),
        "the shorter side, the longer one rounded up": _scaled(picture, wanted / short, math.ceil),
        "a square": (wanted, wanted),
        "the longer side": _scaled(picture, wanted / long, int),
        "the size of the crop": _scaled(picture, SIZE / short, int),
        "a square of the size of the crop": (SIZE, SIZE),
        "one pixel more": _scaled(picture, (wanted + 1) / short, int),
        "one pixel less": _scaled(picture, (wanted - 1) / short, int),
    }


def training(context: Context) -> Finding | None:
    """Normalise, crop, resize, flip, every augmentation, erase: one at a time, each on the reference's own picture before it."""
    levels = _levels(context)
    for picture in _pictures(context):
        square = picture.resize((SIZE, SIZE))
        plain = SampleParams((0, 0, SIZE, SIZE), False, (), None)
        trial = _Sample(context, "train_transform", (square, TRAIN, plain))
        if trial.differs or trial.random:
            return _plain_finding(trial, square, levels, TRAIN, "train_transform")
        for look in (_crop, _flip, _operation, _erase, _order):
            if finding := look(context, picture, square, plain, levels):
                return finding
    return None


def _trained(context: Context, picture: Any, params: SampleParams) -> np.ndarray:
    return made_by_reference(context, "train_transform", picture, TRAIN, params)


def _crop(context: Context, picture: Image.Image, square: Image.Image, plain: SampleParams, levels: np.ndarray) -> Finding | None:
    """Crops of the output's size, which need no resizing; then of others."""
    given: Any = np.asarray(picture) if context.image_backend == "cv2" else picture  # OpenCV's pictures are arrays
    whole = _normalised(np.asarray(picture), levels)
    corners = ((0, 0), (3, 7), (max(picture.height - SIZE, 0), max(picture.width - SIZE, 0)))
    boxes = [(top, left, SIZE, SIZE) for top, left in corners]
    for box in (*boxes, (2, 1, picture.height - 5, picture.width - 4), (4, 9, picture.height // 2, picture.width // 3)):
        trial = _Sample(context, "train_transform", (given, TRAIN, replace(plain, crop=box)))
        if not trial.differs:
            continue
        same_size = box[2:] == (SIZE, SIZE)
        if same_size and (found := window_of(trial.ours, whole)) is not None:
            return trial.found("crop", window_hint(found, box[:2]))
        size = picture.height, picture.width
        hint = box_hint(box, lambda other: _trained(context, given, replace(plain, crop=other)), *trial.pair, size)
        if hint[0] or same_size:
            return trial.found("crop", hint)
        top, left, height, width = box
        cut = picture.crop((left, top, left + width, top + height))
        finish = lambda resized: _trained(context, resized, plain)  # noqa: E731
        return trial.found("resize", resize_hint(cut, {"the crop's size": (SIZE, SIZE)}, finish, *trial.pair))
    return None


def _flip(context: Context, picture: Image.Image, square: Image.Image, plain: SampleParams, levels: np.ndarray) -> Finding | None:
    trial = _Sample(context, "train_transform", (square, TRAIN, replace(plain, flip=True)))
    if not trial.differs:
        return None
    unflipped = _trained(context, square, plain)
    if explains(unflipped, *trial.pair, 1e-12):
        return trial.found("hflip", (Kind.FLIP_MISSING, "the picture is not mirrored"))
    if explains(unflipped[:, ::-1], *trial.pair, 1e-12):
        return trial.found("hflip", (Kind.UPSIDE_DOWN, "the picture is flipped upside down, expected left to right"))
    return trial.found("hflip")


def _operation(
    context: Context, picture: Image.Image, square: Image.Image, plain: SampleParams, levels: np.ndarray
) -> Finding | None:
    first = picture is _pictures(context)[0]
    every = [(name, size) for name, sizes in every_operation(context).items() for size in sizes] if first else []
    for name, magnitude in dict.fromkeys([*_operations(), *every]):
        trial = _Sample(context, "train_transform", (square, TRAIN, replace(plain, ops=((name, magnitude),))))
        if trial.differs:
            return trial.found(f"apply_op:{name}", operation_hint(context, trial, square, plain, name, magnitude))
    return None


def _erase(context: Context, picture: Image.Image, square: Image.Image, plain: SampleParams, levels: np.ndarray) -> Finding | None:
    box = (5, 9, 20, 17)
    trial = _Sample(context, "train_transform", (square, TRAIN, replace(plain, erase=box)))
    if not trial.differs:
        return None
    unerased = _trained(context, square, plain)
    if explains(unerased, *trial.pair, 1e-12):
        return trial.found("erase", (Kind.DOES_NOTHING, "nothing is erased"))
    hint = box_hint(box, lambda other: _trained(context, square, replace(plain, erase=other)), *trial.pair)
    if not hint[0] and trial.ours.shape == trial.theirs.shape:
        inside = trial.ours[:, 5:25, 9:26]
        outside = trial.ours.copy()
        outside[:, 5:25, 9:26] = 0
        if not differ((outside, trial.theirs)):
            words = f"the erased region holds {inside.min():.3g} to {inside.max():.3g}, expected 0 after normalisation"
            hint = Kind.ERASE_VALUE, words
    return trial.found("erase", hint)


def _order(context: Context, picture: Image.Image, square: Image.Image, plain: SampleParams, levels: np.ndarray) -> Finding | None:
    """Transforms that are right one at a time, done together."""
    first, second, box = ("Rotate", 17.0), ("Posterize", 4.0), (5, 9, 20, 17)
    both = replace(plain, ops=(first, second))
    turned = replace(plain, flip=True, ops=(first,))
    erased = replace(plain, flip=True, ops=(first,), erase=box)
    for params, words, made in (
        (
            both,
            "the operations are done in the reverse order",
            lambda: _trained(context, square, replace(both, ops=(second, first))),
        ),
        (both, "only the first of two operations is done", lambda: _trained(context, square, replace(both, ops=(first,)))),
        (both, "only the last of two operations is done", lambda: _trained(context, square, replace(both, ops=(second,)))),
        (
            turned,
            "the picture is mirrored after the operations, expected before",
            lambda: _trained(context, square, replace(turned, flip=False))[:, :, ::-1],
        ),
        (erased, "", lambda: None),
    ):
        trial = _Sample(context, "train_transform", (square, TRAIN, params))
        if trial.differs and (not words or explains(made(), *trial.pair, 1e-12)):
            return trial.found("train_transform", (Kind.CALL_ORDER, words) if words else NO_HINT)
    for params in (both, turned):
        trial = _Sample(context, "train_transform", (square, TRAIN, params))
        if trial.differs:
            return trial.found("train_transform")
    return None


SIGNED = {"ShearX": 0.2, "ShearY": 0.2, "TranslateX": 9.0, "TranslateY": 9.0, "Rotate": 17.0} | dict.fromkeys(
    ("Brightness", "Color", "Contrast", "Sharpness"), 0.4
)


def _operations() -> list[tuple[str, float]]:
    both = [(name, sign * size) for name, large in SIGNED.items() for size in (large, large / 2) for sign in (1, -1)]
    plain = [(name, 0.0) for name in ("Identity", "AutoContrast", "Equalize", "Invert")]
    return [*both, *plain, *[("Posterize", bits) for bits in (4.0, 5.0, 7.0)], ("Solarize", 128.0), ("Solarize", 77.0)]


def operation_hint(context: Context, trial: _Sample, square: Image.Image, plain: SampleParams, name: str, magnitude: float) -> Hint:
    """Whether the operation was done with another magnitude, or another operation in its place.

    What explains the picture at hand must give the port's picture of low contrast, too: on one with all levels AutoContrast does
    nothing, and is no Identity.
    """
    faint = Image.fromarray(np.asarray(square) // 3 + 60)
    again = _Sample(context, trial.name, (faint, TRAIN, replace(plain, ops=((name, magnitude),))))

    def same(operation: str, size: float) -> bool:
        done = replace(plain, ops=((operation, size),))
        return explains(_trained(context, square, done), *trial.pair, 1e-9) and not differ(
            (_trained(context, faint, done), again.ours)
        )

    if same("Identity", 0.0):
        return Kind.DOES_NOTHING, f"{name} does nothing"
    if name in SIGNED and same(name, -magnitude):
        return Kind.SIGN, f"{name} goes the other way: its magnitude has the wrong sign"
    for other, size in _operations():
        if other != name and same(other, size):
            did, expected = (f"{one} by {much:g}" if much else one for one, much in ((other, size), (name, magnitude)))
            return Kind.OTHER_OPERATION, f"it does {did}, expected {expected}"
    factors = (0.5, 2.0, 0.1, 10.0, math.pi / 180, 180 / math.pi, SIZE / 331, 331 / SIZE)
    others = [*range(9)] if name == "Posterize" else [magnitude * factor for factor in factors]
    others += [abs(magnitude), -abs(magnitude), magnitude + 1, magnitude - 1, 256 - magnitude, 255 - magnitude]
    others += [math.tan(math.radians(magnitude)), math.tan(magnitude), math.atan(magnitude), 1 + magnitude]
    for size in others if magnitude else ():
        try:
            if size != magnitude and same(name, size):
                return Kind.MAGNITUDE, f"{name} by {size:.4g}, expected {magnitude:g}"
        except (ValueError, OverflowError, ZeroDivisionError):
            continue
    return Kind.OPERATION, f"{name} is computed otherwise"
