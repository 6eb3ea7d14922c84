"""Boxes that are drawn: what is compared of two samples of them, and by which mistake one has another distribution.

A mistake is drawn itself, by a model of boxes in numpy, and named only where the port's sample has its distribution, and not the
right one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.comparison import Measurement
from alignment.comparisons.context import Context
from alignment.distributions import gap, same_shares, same_values
from alignment.draws import Draws
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from mobilenetv3_common import sampling

Range = tuple[float, float]
SIZES = ("area", "aspect", "height", "width")
AXES = (([1, 0, 3, 2], "rows and columns"), ([0, 1, 3, 2], "height and width"), ([1, 0, 2, 3], "top and left"))
NONE = (-1, -1, -1, -1)  # where no box is drawn


def measures(boxes: np.ndarray, height: int, width: int) -> dict[str, np.ndarray]:
    """What is compared of boxes (top, left, height, width) in a picture: shares of it, and the logarithm of width / height."""
    top, left, h, w = boxes.T.astype(np.float64)
    return {
        "area": h * w / (height * width),
        "aspect": np.log(w / h),
        "height": h / height,
        "width": w / width,
        "top": top / np.maximum(height - h, 1),  # 0 where the box leaves no choice
        "left": left / np.maximum(width - w, 1),
    }


def _inside(boxes: np.ndarray, height: int, width: int) -> bool:
    return bool((boxes[:, :2] >= 0).all() and (boxes[:, 2:] > 0).all() and (boxes[:, :2] + boxes[:, 2:] <= (height, width)).all())


def box_rows(name: str, ours: np.ndarray, theirs: np.ndarray, height: int, width: int) -> Iterator[Quantity]:
    """Rows for two samples of boxes: each measure, and how often single boxes occur (a fallback's, or those of tiny pictures)."""
    row = Quantity(f"{name}.inside", [len(ours)])
    if not _inside(ours, height, width):
        yield row.fail("a box does not lie in the picture")
        return
    yield row
    expected = measures(theirs, height, width)
    for measure, values in measures(ours, height, width).items():
        yield same_values(f"{name}.{measure}", values, expected[measure])
    size = min(len(ours), len(theirs))
    yield same_shares(f"{name}.boxes", *(map(tuple, boxes[:size].tolist()) for boxes in (ours, theirs)))


def reason(rows: Iterable[Quantity]) -> str:
    """Why the first row that fails does; ``""`` where none does."""
    return next((f"{row.name}: {row.reason}" for row in rows if not row.passed), "")


# --- a function that draws boxes, by itself --------------------------------------------------------------------------------


class Function(NamedTuple):
    """A function that draws boxes, how often it is asked, and for pictures of which size."""

    name: str
    height: int
    width: int
    times: int


FUNCTIONS = {
    "crop": Function("random_resized_crop_box", 375, 500, 10000),
    "erase": Function("random_erasing_box", 1000, 1000, 4000),
}


def asked_boxes(what: str, rng: np.random.Generator, height: int, width: int, times: int, *ranges: Range) -> np.ndarray:
    """The boxes of one of FUNCTIONS, int64 (times, 4); erasing has its ranges by default."""
    function = getattr(sampling, FUNCTIONS[what].name)
    return np.array([function(rng, height, width, *ranges) or NONE for _ in range(times)])


def expected_boxes(draws: Draws, what: str) -> np.ndarray:
    """The independent boxes for one of FUNCTIONS."""
    _, height, width, count = FUNCTIONS[what]
    found = draws.crops(count, height, width) if what == "crop" else draws.erasures(count, height, width)
    return found[found[:, 0] >= 0]


class AskedBoxes:
    """The boxes of one function that is asked by itself with one generator, and so more often than samples are drawn.

    Args:
        draws: the independent part.
        what: one of FUNCTIONS.
    """

    def __init__(self, draws: Draws, what: str) -> None:
        self.draws, self.what = draws, what

    def measure(self, context: Context, role: str) -> dict[str, np.ndarray]:
        if role == "reference":
            return {"boxes": expected_boxes(self.draws, self.what)}
        _, height, width, count = FUNCTIONS[self.what]
        ranges = self.draws.ranges(self.what) if self.what == "crop" else ()
        return {"boxes": asked_boxes(self.what, np.random.default_rng([context.seed, height]), height, width, count, *ranges)}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        name, height, width, _ = FUNCTIONS[self.what]
        return list(box_rows(f"draws.{name}", np.asarray(port["boxes"]), np.asarray(reference["boxes"]), height, width))

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        measured = reason(self.judge(port, reference))
        if not measured:
            return None
        name, height, width, _ = FUNCTIONS[self.what]
        law = Law(height, width, *self.draws.ranges(self.what), erasing=self.what == "erase")
        part, hint = box_hint(np.asarray(port["boxes"]), law, np.asarray(reference["boxes"]))
        return Finding("data", f"{name}: {self.what} {part}".rstrip(), *hint, measured)


# --- by what mistake -------------------------------------------------------------------------------------------------------


class Law(NamedTuple):
    """How boxes are drawn in a picture.

    Attributes:
        height, width: of the picture.
        scale, ratio: ranges of the area's share and of the aspect ratio.
        uniform: whether the aspect ratio itself is uniform, and not its logarithm.
        erasing: whether the ratio is height / width, and a box must be smaller than the picture, as for random erasing.
    """

    height: int
    width: int
    scale: Range
    ratio: Range
    uniform: bool = False
    erasing: bool = False

    def boxes(self, count: int) -> np.ndarray:
        """Boxes (count, 4); what ten tries do not place is left out."""
        rng = np.random.default_rng(count)
        area = self.height * self.width * rng.uniform(*self.scale, (count, 10))
        low, high = self.ratio
        aspect = (
            rng.uniform(low, high, (count, 10)) if self.uniform else np.exp(rng.uniform(np.log(low), np.log(high), (count, 10)))
        )
        w, h = np.rint(np.sqrt(area * aspect)).astype(int), np.rint(np.sqrt(area / aspect)).astype(int)
        if self.erasing:
            w, h = h, w
        margin = int(self.erasing)
        fits = (w > 0) & (h > 0) & (w <= self.width - margin) & (h <= self.height - margin)
        first = fits.argmax(axis=1), fits.any(axis=1)
        h, w = (side[np.arange(count), first[0]][first[1]] for side in (h, w))
        places = rng.random((2, len(h)))
        return np.stack(
            [(places[0] * (self.height - h + 1)).astype(int), (places[1] * (self.width - w + 1)).astype(int), h, w], axis=1
        )


def apart(ours: np.ndarray, theirs: np.ndarray, height: int, width: int, only: tuple[str, ...] = ()) -> float:
    """How far two samples of boxes lie apart, in units of what chance allows: above 1, they have not one distribution."""
    a, b = measures(ours, height, width), measures(theirs, height, width)
    gaps = [gap(a[name], b[name]) for name in only or a]
    return max(max(found.largest / found.allowed, found.beyond / found.allowed_beyond) for found in gaps)


def _common(boxes: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The most frequent box and its share."""
    ((box, number),) = Counter(map(tuple, boxes.tolist())).most_common(1)
    return box, number / len(boxes)


def box_hint(ours: np.ndarray, law: Law, expected: np.ndarray) -> tuple[str, Hint]:
    """Which part of a law of boxes is another one in the port (``""`` where unknown), and how."""
    size = law.height, law.width
    for order, words in AXES:
        if not reason(box_rows("boxes", ours[:, order], expected, *size)):
            return "axes", (Kind.AXES_SWAPPED, f"{words} of the box are exchanged")
    if not _inside(ours, *size):
        return "box", (Kind.POSITION, "a box does not lie in the picture")
    if law.height != law.width and apart(ours, law._replace(height=law.width, width=law.height).boxes(len(ours)), *size) <= 1:
        return "axes", (Kind.AXES_SWAPPED, "drawn for a picture whose height and width are exchanged")
    (fallback, share), (instead, _) = _common(expected), _common(ours)
    if share > 0.1 and fallback != instead:
        return "fallback", (Kind.POSITION, f"where no box fits it is {instead}, expected {fallback}")
    sizes = [list(map(tuple, boxes[: min(len(ours), len(expected)), 2:].tolist())) for boxes in (ours, expected)]
    if apart(ours, expected, *size, SIZES) <= 1 and same_shares("", *sizes).passed:
        found = measures(ours, *size)
        places = ", ".join(f"{name} {_shown((found[name].min(), found[name].max()))}" for name in ("top", "left"))
        return "position", (Kind.POSITION, f"{places} of the free rows and columns; expected to be uniform from 0 to 1")
    for laws in _other_laws(ours, law):
        tried = [(apart(ours, other.boxes(len(ours)), *size, SIZES), part, words, other) for part, words, other in laws]
        score, part, words, other = min(tried, key=lambda one: one[0], default=(2.0, "", "", law))
        if score <= 1:
            return part, (Kind.UNIFORM_FOR_LOG if other.uniform else Kind.RANGE, words)
    return "", NO_HINT


def _near(value: float, expected: float) -> list[float]:
    """What a bound may be meant to be, of which a sample shows ``value``."""
    guesses = (round(value, 2), float(Fraction(value).limit_denominator(12)), round(value, 1))
    return [guess for guess in dict.fromkeys(guesses) if guess != expected and guess > 0]


def _shown(values: Range) -> str:
    return f"{values[0]:.4g} to {values[1]:.4g}"


def _other_laws(ours: np.ndarray, law: Law) -> Iterator[list[tuple[str, str, Law]]]:
    """Other laws that the sample suggests, the smallest changes first: the part, the words for it, the law."""
    found = measures(ours, law.height, law.width)
    low, high = (float(np.exp(end)) for end in (found["aspect"].min(), found["aspect"].max()))
    seen = {
        "scale": ((float(found["area"].min()), float(found["area"].max())), law.scale, "area shares"),
        "ratio": ((1 / high, 1 / low) if law.erasing else (low, high), law.ratio, "aspect ratios"),
    }
    uniform = "the aspect ratio is uniform, expected uniform in its logarithm"
    yield [("ratio", uniform, law._replace(uniform=True))]
    guesses = {part: [_near(value, bound) for value, bound in zip(*ends[:2], strict=True)] for part, ends in seen.items()}
    for both in (False, True):
        tried = []
        for part, (_, (lowest, highest), words) in seen.items():
            lows, highs = guesses[part]
            ranges = itertools.product(lows, highs) if both else [*((x, highest) for x in lows), *((lowest, x) for x in highs)]
            for a, b in ranges:
                if a < b:
                    other = law._replace(scale=(a, b)) if part == "scale" else law._replace(ratio=(a, b))
                    tried.append((part, f"{words} of {_shown((a, b))}, expected {_shown((lowest, highest))}", other))
        yield tried
