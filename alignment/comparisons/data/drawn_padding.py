"""Crops of a picture's own size out of the picture with a border of black around it, as they are drawn."""

from __future__ import annotations

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.distributions import same_shares
from alignment.draws import Draws
from alignment.finding import Finding
from alignment.kinds import Kind
from mobilenetv3_common import sampling

TIMES, HEIGHT, WIDTH, PADDING = 6000, 24, 32, 3  # 49 places, each about 120 times


class DrawnPadding:
    """The boxes of ``sampling.padded_crop_box``, by their own size and by where they begin.

    Args:
        draws: the independent part; nothing is measured where it draws no such crops.
    """

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        if (theirs := getattr(self.draws, "padded_crops", None)) is None:
            return {}
        if role == "reference":
            return {"boxes": theirs(TIMES, HEIGHT, WIDTH, PADDING)}
        rng = np.random.default_rng([context.seed, PADDING])
        return {"boxes": np.array([sampling.padded_crop_box(rng, HEIGHT, WIDTH, PADDING) for _ in range(TIMES)])}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        if not port:
            return []
        ours, theirs = (np.asarray(side["boxes"]) for side in (port, reference))
        size = Quantity("draws.padded_crop_box.size", [len(ours)])
        if other := {tuple(box) for box in ours[:, 2:].tolist()} - {tuple(box) for box in theirs[:, 2:].tolist()}:
            size.fail(f"a crop of {sorted(other)[0]} pixels, expected {tuple(theirs[0, 2:].tolist())}")
        places = (map(tuple, boxes[:, :2].tolist()) for boxes in (ours, theirs))
        return [size, same_shares("draws.padded_crop_box.places", *places)]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        wrong = next((row for row in self.judge(port, reference) if not row.passed), None)
        if wrong is None:
            return None
        ours, theirs = (np.asarray(side["boxes"]) for side in (port, reference))
        if wrong.name.endswith("size"):
            kind, words = Kind.BOX, "the crop has not the picture's own size"
        elif (found := _range(ours)) != (expected := _range(theirs)):
            kind, words = Kind.RANGE, f"begins at {found}; expected {expected}"
        else:
            kind, words = Kind.POSITION, "not every place is equally likely"
        return Finding("data", "padded_crop_box", kind, words, f"{wrong.name}: {wrong.reason}")


def _range(boxes: np.ndarray) -> str:
    (top, left), (bottom, right) = boxes[:, :2].min(axis=0), boxes[:, :2].max(axis=0)
    return f"rows {top} to {bottom} and columns {left} to {right}"
