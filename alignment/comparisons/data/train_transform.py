"""Training's transform: normalise, crop, resize, flip, every augmentation, erase: one at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.comparisons.data.eval_transform import (
    OTHER_RESIZING,
    SIZE,
    TRAIN,
    explain_plain,
    levels_of,
    normalised,
)
from alignment.comparisons.data.loading import part, pictures
from alignment.comparisons.data.transformed import Transform, Transformed, differ, found
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.augmentations import APPLIED, OPERATION, Applied, Operated, usual_operations
from alignment.localize.hypotheses.hypothesis import Observed
from alignment.localize.hypotheses.picture_boxes import BEYOND, BOXES, RESIZING, Boxed, Cut, Resized, window_hint, window_of
from alignment.localize.hypotheses.pictures import in_every_case
from mobilenetv3_common.sampling import SampleParams

PLAIN = SampleParams((0, 0, SIZE, SIZE), False, (), None)
ERASED = (5, 9, 20, 17)
FIRST, SECOND = ("Rotate", 17.0), ("Posterize", 4.0)
TOGETHER = {  # transforms that are right one at a time
    "operations": replace(PLAIN, ops=(FIRST, SECOND)),
    "flipped and turned": replace(PLAIN, flip=True, ops=(FIRST,)),
    "flipped, turned and erased": replace(PLAIN, flip=True, ops=(FIRST,), erase=ERASED),
}


class TrainTransform(Transformed):
    """The transform of training.

    Args:
        context: whose pictures, and whose reference predicts what a mistake would give.
        backend: the decoder; OpenCV's pictures are arrays.
    """

    function = "train_transform"

    def __init__(self, context: Context, backend: str) -> None:
        self.right = part(context.reference)
        stages: dict[str, dict[str, tuple[Any, ...]]] = {"plain": {}, "crop": {}, "padded": {}, "crop and resize": {}, "flip": {}}
        stages |= {f"operation {name}": {} for name, _ in usual_operations()} | {"erase": {}, "together": {}}
        for n, picture in enumerate(pictures(context, backend)):
            square, given = picture.resize((SIZE, SIZE)), np.asarray(picture) if backend == "cv2" else picture
            stages["plain"][f"{n}"] = (square, TRAIN, PLAIN)
            corners = ((0, 0), (3, 7), (max(picture.height - SIZE, 0), max(picture.width - SIZE, 0)))
            for box in ((*corner, SIZE, SIZE) for corner in corners):  # of the output's size, which need no resizing
                stages["crop"][f"{n} {box}"] = (given, TRAIN, replace(PLAIN, crop=box))
            for box in ((-9, 4, SIZE, SIZE), (picture.height - SIZE + 7, picture.width - SIZE + 5, SIZE, SIZE)):
                stages["padded"][f"{n} {box}"] = (given, TRAIN, replace(PLAIN, crop=box))
            for box in ((2, 1, picture.height - 5, picture.width - 4), (4, 9, picture.height // 2, picture.width // 3)):
                stages["crop and resize"][f"{n} {box}"] = (given, TRAIN, replace(PLAIN, crop=box))
            stages["flip"][f"{n}"] = (square, TRAIN, replace(PLAIN, flip=True))
            faint = Image.fromarray(np.asarray(square) // 3 + 60)  # on one with all levels AutoContrast does nothing
            for name, size in usual_operations():
                for what, image in (("", square), (" faint", faint)):
                    stages[f"operation {name}"][f"{n}{what} {size:g}"] = (image, TRAIN, replace(PLAIN, ops=((name, size),)))
            stages["erase"][f"{n}"] = (square, TRAIN, replace(PLAIN, erase=ERASED))
            stages["together"] |= {f"{n} {name}": (square, TRAIN, params) for name, params in TOGETHER.items()}
        super().__init__(stages)

    def _made(self, picture: Any, params: SampleParams) -> np.ndarray:
        """What the reference makes."""
        return np.asarray(self.right.train_transform(picture, TRAIN, params))

    def explain_stage(self, stage: str, calls: Sequence[Transform], reference: Measurement) -> Finding:
        if stage == "plain":
            return explain_plain(self.right, calls, TRAIN, self.function)
        if stage.startswith("operation "):
            name = stage.partition(" ")[2]
            return found(f"apply_op:{name}", calls, self._operation_hint(name, calls))
        if stage == "erase":
            return found("erase", calls, self._erase_hint(calls))
        if stage == "padded":
            return self._explain_padded(calls)
        if stage.startswith("crop"):
            return self._explain_crop(calls, stage == "crop")
        hint = in_every_case(APPLIED[stage], self._applied(calls))
        return found("hflip" if stage == "flip" else "train_transform", calls, hint)

    def _explain_crop(self, calls: Sequence[Transform], same_size: bool) -> Finding:
        wrong = [one for one in calls if one.differs]
        if same_size:
            levels = levels_of(self.right)
            windows = [window_of(one.ours, normalised(np.asarray(one.args[0]), levels)) for one in wrong]
            corners = [(window, one.args[2].crop[:2]) for window, one in zip(windows, wrong, strict=True) if window is not None]
            if corners and len(corners) == len(wrong):
                return found("crop", calls, window_hint(corners))
        cases = []
        for one in calls:
            picture, params = one.args[0], one.args[2]
            made = lambda box, picture=picture, params=params: self._made(picture, replace(params, crop=box))  # noqa: E731
            cases.append(one.observed(Boxed(params.crop, made, np.asarray(picture).shape[:2])))
        hint = in_every_case(BOXES, cases)
        if hint[0] or same_size:
            return found("crop", calls, hint)
        finish = lambda resized: self._made(resized, PLAIN)  # noqa: E731
        cases = []
        for one in calls:
            (top, left, height, width), picture = one.args[2].crop, Image.fromarray(np.asarray(one.args[0]))
            cut = picture.crop((left, top, left + width, top + height))
            cases.append(one.observed(Resized(cut, {"the crop's size": (SIZE, SIZE)}, finish)))
        hint = in_every_case(RESIZING, cases)
        return found("resize", calls, hint if hint[0] else OTHER_RESIZING)

    def _explain_padded(self, calls: Sequence[Transform]) -> Finding:
        finish = lambda cut: self._made(cut, PLAIN)  # noqa: E731
        cases = [one.observed(Cut(one.args[2].crop, np.asarray(one.args[0]), finish)) for one in calls]
        return found("crop", calls, in_every_case(BEYOND, cases))

    def _operation_hint(self, name: str, calls: Sequence[Transform]) -> Hint:
        cases = []
        for one in calls:
            made = lambda other, size, picture=one.args[0]: self._made(picture, replace(PLAIN, ops=((other, size),)))  # noqa: E731
            cases.append(one.observed(Operated(name, one.args[2].ops[0][1], made)))
        hint = in_every_case(OPERATION, cases)
        return hint if hint[0] else (Kind.OPERATION, f"{name} is computed otherwise")

    def _erase_hint(self, calls: Sequence[Transform]) -> Hint:
        cases = []
        for one in calls:
            made = lambda box, picture=one.args[0]: self._made(picture, replace(PLAIN, erase=box))  # noqa: E731
            cases.append(one.observed(Boxed(ERASED, made)))
        for family, given in ((APPLIED["erase"], self._applied(calls)), (BOXES, cases)):
            if (hint := in_every_case(family, given))[0]:
                return hint
        wrong = [one for one in calls if one.differs]
        if not wrong or any(one.ours.shape != one.right.shape for one in wrong):
            return NO_HINT
        top, left, height, width = ERASED
        box = np.s_[:, top : top + height, left : left + width]
        for one in wrong:
            outside = one.ours.copy()
            outside[box] = 0
            if differ(outside, one.right):
                return NO_HINT
        inside = wrong[0].ours[box]
        return Kind.ERASE_VALUE, f"the erased region holds {inside.min():.3g} to {inside.max():.3g}, expected 0 after normalisation"

    def _applied(self, calls: Sequence[Transform]) -> list[Observed]:
        return [one.observed(Applied(one.args[2], functools.partial(self._made, one.args[0]))) for one in calls]
