"""Mistakes in the operations of an augmentation, in what a transform does with drawn parameters, and in a data set's samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Hypotheses, Hypothesis
from alignment.localize.hypotheses.pictures import PictureCases, first_wrong, picture_family
from mobilenetv3_common.sampling import SampleParams


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
    words = f"{first_wrong(cases).given.name} does nothing"
    yield Hypothesis(Kind.DOES_NOTHING, words, lambda given: given.made("Identity", 0.0))


@OPERATION
def other_way(cases: PictureCases) -> Hypotheses:
    if (name := first_wrong(cases).given.name) in SIGNED:
        words = f"{name} goes the other way: its magnitude has the wrong sign"
        yield Hypothesis(Kind.SIGN, words, lambda given: given.otherwise(given.name, -given.magnitude))


def _operated(name: str, magnitude: float | None, given: Operated) -> np.ndarray | None:
    return given.otherwise(name, given.magnitude if magnitude is None else magnitude)


@OPERATION
def other_operation(cases: PictureCases) -> Hypotheses:
    name, magnitude, _ = first_wrong(cases).given
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
    name, magnitude, _ = first_wrong(cases).given
    for other in MAGNITUDES if magnitude else ():
        words = f"{name} by {other(magnitude):.4g}, expected {magnitude:g}"

        def made(given: Operated, other: Callable[[float], float] = other) -> np.ndarray | None:
            return given.otherwise(given.name, other(given.magnitude))

        yield Hypothesis(Kind.MAGNITUDE, words, made)


# --- transforms as they are applied --------------------------------------------------------------------------------------


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


# --- samples -------------------------------------------------------------------------------------------------------------

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
