"""Decoding, and evaluation's transform: normalise, centre crop, resize, each on pictures that leave the others nothing to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.loading import first_pictures, part, pictures
from alignment.comparisons.data.transformed import Transform, Transformed, found
from alignment.finding import NO_HINT, Finding
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import explains
from alignment.localize.hypotheses.picture_boxes import RESIZING, Resized, window_hint, window_of
from alignment.localize.hypotheses.pictures import NORMALISATION, PIXELS, Levels, by_level, in_every_case, pixels
from alignment.project import DataPart, Side
from alignment.tolerance import PICTURE_FITTED
from mobilenetv3_common.presets import EvalPreset, TrainPreset

SIZE = 64
EVAL = EvalPreset(SIZE * 8 // 7, SIZE)
TRAIN = TrainPreset(SIZE)


class Decoding(Transformed):
    """A file to pixels, where a data set shows this step."""

    def __init__(self, context: Context, backend: str) -> None:
        self.index, self.backend = first_pictures(context.material.index("val")), backend
        files = [self.index.path(number) for number in range(min(4, len(self.index)))]
        kinds = {"evaluation": EVAL, "training": TRAIN}
        super().__init__({"decode": {f"{kind}{n}": (p, file) for kind, p in kinds.items() for n, file in enumerate(files)}})

    def call(self, context: Context, side: Side, args: tuple[Any, ...]) -> np.ndarray | None:
        preset, file = args
        dataset: Any = part(side).ImageDataset(self.index, preset, context.seed, self.backend)
        return np.asarray(dataset.decode(file)) if hasattr(dataset, "decode") else None

    def explain_stage(self, stage: str, calls: Sequence[Transform], reference: Measurement) -> Finding:
        return found("decode", calls)


class EvalTransform(Transformed):
    """The transform of evaluation.

    Args:
        context: whose pictures, and whose reference predicts what a mistake would give.
        backend: the decoder.
    """

    function = "eval_transform"

    def __init__(self, context: Context, backend: str) -> None:
        made, exact = pictures(context, backend), EvalPreset(SIZE, SIZE)
        self.right = part(context.reference)
        plain = {f"picture{n}": (picture.resize((SIZE, SIZE)), exact) for n, picture in enumerate(made)}
        cropped = {}
        for more in range(10):  # odd and even margins, which are rounded in different ways
            for size in ((SIZE + more, SIZE + more), (SIZE + 9, SIZE + more), (SIZE + more, SIZE + 9)):
                cropped[f"{size[0]}x{size[1]}"] = (made[more % 4].resize(size), EvalPreset(min(size), SIZE))
        whole = {f"picture{n}": (picture, EVAL) for n, picture in enumerate(made)}
        super().__init__({"plain": plain, "cropped": cropped, "whole": whole})

    def explain_stage(self, stage: str, calls: Sequence[Transform], reference: Measurement) -> Finding:
        if stage == "plain":
            return explain_plain(self.right, calls, EVAL, self.function)
        if stage == "cropped":
            return self._explain_cropped(calls)
        finish = lambda picture: np.asarray(self.right.eval_transform(picture, EvalPreset(min(picture.size), SIZE)))  # noqa: E731
        cases = [one.observed(Resized(one.args[0], _eval_sizes(one.args[0]), finish), PICTURE_FITTED) for one in calls]
        hint = in_every_case(RESIZING, cases)
        return found("resize", calls, hint if hint[0] else OTHER_RESIZING)

    def _explain_cropped(self, calls: Sequence[Transform]) -> Finding:
        """A picture whose shorter side is right is to be cropped alone."""
        levels = levels_of(self.right)
        wrong = [one for one in calls if one.differs]
        wholes = [normalised(np.asarray(one.args[0]), levels) for one in wrong]
        pairs = [(window_of(one.ours, whole), window_of(one.right, whole)) for one, whole in zip(wrong, wholes, strict=True)]
        corners = [(ours, right) for ours, right in pairs if ours is not None and right is not None]
        if len(corners) == len(pairs) and corners:
            return found("center_crop", calls, window_hint(corners))
        for what, sized in (("a square", lambda w, h: (min(w, h),) * 2), ("the longer side", _longer_side)):
            if all(self._resized_to(sized(*one.args[0].size), one) for one in wrong):
                size = sized(*wrong[0].args[0].size)
                return found("resize", calls, (Kind.TARGET_SIZE, f"resized to {what}: {size[0]} x {size[1]}"))
        first = calls[0] if not wrong else wrong[0]
        square = first.args[0].width == first.args[0].height
        return found("center_crop" if square or first.ours.shape != first.right.shape else "resize", calls)

    def _resized_to(self, size: tuple[int, int], one: Transform) -> bool:
        if min(size) < SIZE or size == one.args[0].size:
            return False
        picture = one.args[0].resize(size, Image.Resampling.BILINEAR)
        return explains(np.asarray(self.right.eval_transform(picture, EvalPreset(min(size), SIZE))), one.ours, one.right)


OTHER_RESIZING = Kind.INTERPOLATION_OR_SIZE, "resized otherwise: another interpolation or target size"


def levels_of(right: DataPart) -> np.ndarray:
    """What each of the 256 levels becomes in each channel: float32 (3, 256)."""
    every = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    return np.asarray(right.eval_transform(Image.fromarray(every), EvalPreset(16, 16))).reshape(3, 256)


def normalised(picture: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Pixels (H, W, 3) as what each level becomes: float32 (3, H, W)."""
    return np.stack([levels[c][picture[..., c]] for c in range(3)])


def explain_plain(right: DataPart, calls: Sequence[Transform], preset: EvalPreset | TrainPreset, chain: str) -> Finding:
    """The place where nothing but scaling to 0..1 and normalising should be done.

    Args:
        right: the reference's part.
        calls: of which some are wrong.
        preset: mean and standard deviation.
        chain: the name of all transforms together, where none of them is to blame alone.
    """
    wrong = [one for one in calls if one.differs] or [*calls]
    given = [np.asarray(one.args[0]) for one in wrong]
    if all(by_level(one.ours, picture) for one, picture in zip(wrong, given, strict=True)):
        m, s = np.array(preset.mean), np.array(preset.std)
        raw = [np.asarray(one.args[0]).transpose(2, 0, 1).astype(np.float64) for one in calls]
        cases = [one.observed(Levels(levels, m, s), PICTURE_FITTED) for one, levels in zip(calls, raw, strict=True)]
        finite = all(np.isfinite(one.ours).all() for one in wrong)
        return found("normalize", calls, in_every_case(NORMALISATION, cases) if finite else NO_HINT)
    crop = "center_crop" if chain == "eval_transform" else "crop"
    if wrong[0].ours.shape != wrong[0].right.shape:
        return found(crop if chain == "eval_transform" else "resize", calls)
    kind, words = in_every_case(PIXELS, [pixels(one.ours, one.right) for one in calls])
    if chain == "train_transform" and kind in (Kind.MIRRORED, Kind.UPSIDE_DOWN):
        return found("hflip", calls, (Kind.FLIP_INVERTED, f"{words}, where no flip was drawn"))
    if kind in (Kind.AXES_SWAPPED, Kind.MIRRORED, Kind.UPSIDE_DOWN):
        return found(chain, calls, (kind, words))
    framed = [np.pad(picture, ((8, 8), (8, 8), (0, 0))) for picture in given]  # a crop beyond the border is black
    windows = [window_of(one.ours, normalised(p, levels_of(right))) for one, p in zip(wrong, framed, strict=True)]
    corners = [((top - 8, left - 8), (0, 0)) for top, left in filter(None, windows)]
    if len(corners) == len(windows):
        return found(crop, calls, window_hint(corners))
    random = any(one.random for one in calls)
    return found(chain if random else "resize", calls, (Kind.INTERPOLATION_OR_SIZE, "a picture of the right size is resized"))


def _longer_side(width: int, height: int) -> tuple[int, int]:
    scale = min(width, height) / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


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
