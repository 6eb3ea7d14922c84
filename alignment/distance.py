"""How far two arrays of any numbers lie from each other, found block by block, without overflow and without underflow.

Squares of float64 overflow from 1e154 and vanish below 1e-162; NaN or 0 then stood where a distance should. So every block is
scaled by a power of two, which changes no digit, before anything is squared or added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

_SAFE = 1e-280  # squares below it lose digits, or vanish
_RANGE = 300  # exponents, of 2, within which squares and their sums are exact enough
LOWEST = -100_000  # an exponent below that of every number, of long doubles, too


@dataclass
class Scaled:
    """A number of any size: ``part * 2 ** exponent``."""

    part: float = 0.0
    exponent: int = LOWEST

    def add(self, part: float, exponent: int) -> None:
        """Add another such number to it."""
        if part == 0:
            return
        above = max(self.exponent, exponent)
        self.part = math.ldexp(self.part, self.exponent - above) + math.ldexp(part, exponent - above)
        self.exponent = above

    def grow(self, part: float, exponent: int) -> None:
        """Make it another such number where that one is larger; both are at least 0."""
        if part > 0 and _ldexp(part, exponent - self.exponent) > self.part:
            self.part, self.exponent = part, exponent

    def root(self) -> Scaled:
        """Its square root."""
        odd = self.exponent % 2
        return Scaled(math.sqrt(math.ldexp(self.part, odd)), (self.exponent - odd) // 2)

    def number(self) -> float:
        """As a float; infinity where it is too large for one."""
        return _ldexp(self.part, self.exponent)


def quotient(a: Scaled, b: Scaled) -> float:
    """``a / b``; 0 for 0 / 0, infinity for a number over 0."""
    if b.part == 0:
        return 0.0 if a.part == 0 else math.copysign(math.inf, a.part)
    return _ldexp(a.part / b.part, a.exponent - b.exponent)


def _ldexp(part: float, exponent: int) -> float:
    try:
        return math.ldexp(part, exponent)
    except OverflowError:
        return math.copysign(math.inf, part)


def scaled(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Finite numbers as float64 of at most 1, and the exponent that was taken out of them; 0 where all are 0."""
    peak = np.abs(values).max(initial=0)
    if peak == 0:
        return np.zeros(values.shape), 0
    exponent = int(np.frexp(peak)[1])
    return np.ldexp(values, -exponent).astype(np.float64), exponent


@dataclass
class Distance:
    """What is known of two arrays of one type after some of their blocks.

    Attributes:
        size: elements of the whole array.
        dtype: of both.
        bad: NaN and infinite values of each side, but for masked ones.
        masked: elements that are minus infinity in both.
        differing, first: elements that differ, and the flat index of the first of them; -1 where there is none.
        mean: of the absolute differences.
        largest: absolute difference.
    """

    size: int
    dtype: np.dtype
    bad: list[int] = field(default_factory=lambda: [0, 0])
    masked: int = 0
    differing: int = 0
    first: int = -1
    mean: float = 0.0
    largest: Scaled = field(default_factory=Scaled)
    peak: Scaled = field(default_factory=Scaled)
    squares: list[Scaled] = field(default_factory=lambda: [Scaled(), Scaled(), Scaled()])  # of the difference and both sides
    product: Scaled = field(default_factory=Scaled)
    _done: int = 0

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """The next block of both, flat."""
        different = x != y
        if self.first < 0 and different.any():
            self.first = self._done + int(np.argmax(different))
        self.differing += int(different.sum())
        self._done += x.size
        kind = self.dtype.kind
        if kind in "US":
            return
        if kind in "fc":
            x, y = self._finite(x, y)
            if any(self.bad):
                return  # the verdict is known
        self._add_gap(*gap(x, y))
        sides = [scaled(parts(side) if kind == "c" else side.astype(np.float64) if kind in "iub" else side) for side in (x, y)]
        for squares, (values, power) in zip(self.squares[1:], sides, strict=True):
            squares.add(float(values @ values), 2 * power)
            self.peak.grow(float(np.abs(values).max(initial=0.0)), power)
        self.product.add(float(sides[0][0] @ sides[1][0]), sides[0][1] + sides[1][1])

    def _finite(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both with 0 where both are minus infinity, as a mask of logits is; what else is not finite is counted."""
        unsound = [~np.isfinite(values) for values in (x, y)]
        if not any(some.any() for some in unsound):
            return x, y
        if self.dtype.kind == "f":
            mask = np.isneginf(x) & np.isneginf(y)
            self.masked += int(mask.sum())
            unsound = [some & ~mask for some in unsound]
            x, y = (np.where(mask, self.dtype.type(0), values) for values in (x, y))
        for side, some in enumerate(unsound):
            self.bad[side] += int(some.sum())
        return x, y

    def _add_gap(self, sizes: np.ndarray, exponent: int) -> None:
        values, power = scaled(sizes)
        self.squares[0].add(float(values @ values), 2 * (power + exponent))
        self.largest.grow(float(values.max(initial=0.0)), power + exponent)
        self.mean += _ldexp(float(values.sum()) / self.size, power + exponent)

    def relative(self) -> float:
        """L2 norm of the difference over that of the second array."""
        return quotient(self.squares[0].root(), self.squares[2].root())

    def furthest(self) -> float:
        """The largest absolute difference over the root mean square of the second array."""
        norm = self.squares[2].root()
        return quotient(self.largest, Scaled(norm.part / math.sqrt(max(1, self.size - self.masked)), norm.exponent))

    def cosine(self) -> float:
        """Of the angle between the two; 1 where both are 0, 0 where one is."""
        a, b = (squares.root() for squares in self.squares[1:])
        if a.part == 0 or b.part == 0:
            return float(a.part == b.part)
        return quotient(self.product, Scaled(a.part * b.part, a.exponent + b.exponent))

    def subnormal(self) -> bool:
        """Whether no number reaches the smallest normal one of the type."""
        return self.peak.part > 0 and self.peak.exponent <= np.finfo(self.dtype).minexp


def parts(values: np.ndarray) -> np.ndarray:
    """Real and imaginary parts of complex numbers, one after the other."""
    return np.ascontiguousarray(values).view(values.real.dtype)


def gap(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Absolute differences, and an exponent that was taken out of them."""
    if x.dtype.kind == "b":
        return (x != y).astype(np.float64), 0
    if x.dtype.kind in "iu":  # exact in unsigned numbers, where float64 would lose a difference of 1 beyond 2 ** 53
        a, b = (values.astype(np.uint64) for values in (x, y))
        return np.where(x > y, a - b, b - a).astype(np.float64), 0
    if x.dtype.kind == "c":
        (real, first), (imaginary, second) = gap(x.real, y.real), gap(x.imag, y.imag)
        above = max(first, second)
        return np.hypot(np.ldexp(real, first - above - 1), np.ldexp(imaginary, second - above - 1)), above + 1
    if x.dtype.itemsize < 8:
        return np.abs(np.subtract(x, y, dtype=np.float64)), 0
    peak = max(np.abs(x).max(initial=0), np.abs(y).max(initial=0))
    power = 1 if peak > np.finfo(x.dtype).max / 2 else 0
    return np.abs(np.ldexp(x, -power) - np.ldexp(y, -power)) if power else np.abs(x - y), power


def norm(array: np.ndarray) -> float:
    """L2 norm of real or complex numbers, computed in float64; infinity where it is too large for one, NaN where one is in it."""
    flat = array.reshape(-1)
    flat = (parts(flat) if flat.dtype.kind == "c" else flat).astype(np.float64, copy=False)
    with np.errstate(over="ignore", under="ignore"):
        total = float(flat @ flat)
    if _SAFE < total < math.inf or not np.isfinite(flat).all():
        return math.sqrt(total)
    values, exponent = scaled(flat)
    return _ldexp(math.sqrt(float(values @ values)), exponent)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """L2 norm of the difference, computed in float64."""
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which is what is wanted
        return norm(np.subtract(a, b, dtype=np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64))


def relative(error: float, scale: float) -> float:
    """error / scale; 0 for 0 / 0, infinity for an error against a zero truth, or one that is too large for a number."""
    if not scale > 0 or math.isinf(scale):
        return 0.0 if error == 0 else math.inf
    return error / scale


def out_of_range(*arrays: np.ndarray | None) -> int:
    """The exponent to take out of arrays so that their squares are within float64's range; 0 for usual numbers, and all float32."""
    given = (array for array in arrays if array is not None and array.size and array.dtype.kind in "fc")
    wide = [array for array in given if array.dtype.itemsize >= 8]
    peaks = [np.abs(array).max() if array.dtype.kind == "c" else max(array.max(), -array.min()) for array in wide]
    exponents = [int(np.frexp(peak)[1]) for peak in peaks if peak > 0 and np.isfinite(peak)]
    largest = max(exponents, default=0)
    return largest if abs(largest) > _RANGE else 0
