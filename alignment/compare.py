"""Compare one quantity of the two frameworks: strict rules first, then the measured noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from alignment import tolerance

KINK_FLIPS = "kink flip(s)"
ZERO_BUT_FOR_ROUNDING = "zero but for rounding"


@dataclass
class Quantity:
    """The outcome of one comparison, as it stands in alignment.json.

    Attributes:
        name: what was compared.
        shape: shape of the array; of a group of tensors, their number.
        mean_abs_diff, max_abs_diff: between the two frameworks' float32 (or exact) values; None where not comparable.
        paddle_error, ref_error: relative L2 of Paddle's float32 result, and of the noise floor, against float64 truth.
        float64_diff: relative L2 between the frameworks in exact mode.
        passed: the verdict.
        reason: why it failed, or what is special about it; empty otherwise.
    """

    name: str
    shape: list[int]
    mean_abs_diff: float | None = None
    max_abs_diff: float | None = None
    paddle_error: float | None = None
    ref_error: float | None = None
    float64_diff: float | None = None
    passed: bool = True
    reason: str = ""

    def fail(self, reason: str) -> Quantity:
        self.passed = False
        self.reason = f"{self.reason}; {reason}" if self.reason else reason
        return self


@dataclass
class Lanes:
    """One quantity as the different runs computed it; absent runs are None.

    Attributes:
        paddle32, ref32: float32, as shipped.
        ulp32: the reference in float32 with everything it is given moved by one ulp.
        paddle64, ref64: exact mode; ``ref64`` is the truth.
        ulp64: the reference in exact mode with everything it is given moved by one float64 ulp.
    """

    paddle32: np.ndarray | None = None
    ref32: np.ndarray | None = None
    ulp32: np.ndarray | None = None
    paddle64: np.ndarray | None = None
    ref64: np.ndarray | None = None
    ulp64: np.ndarray | None = None


class Change(NamedTuple):
    """How far a tensor of one lane lies from the truth, and the truth's norm (both L2)."""

    distance: float
    scale: float

    @property
    def share(self) -> float:
        return relative(self.distance, self.scale)


@dataclass
class Leeway:
    """What a comparison may take into account beyond the quantity's own noise floor.

    Attributes:
        flips: kink inputs that float32 put on the other side of their kink.
        pooled32, pooled64: relative floors of the quantity's siblings; a single tensor's floor can be small by luck.
        float32: judge float32 at all.
        change64: what one-ulp changes do to the float64 truth, where the caller has measured it already.
    """

    flips: int = 0
    pooled32: float = 0.0
    pooled64: float = 0.0
    float32: bool = True
    change64: Change | None = None


def strict_problem(a: np.ndarray | None, b: np.ndarray | None, finite: bool = True) -> str:
    """Why two arrays cannot be equal whatever their values: absence, shape, type, NaN or infinity; "" where none.

    Args:
        a, b: Paddle's and the reference's array.
        finite: whether NaN and infinity are faults in themselves.
    """
    if a is None or b is None:
        return "missing in " + " and ".join(side for side, x in (("paddle", a), ("ref", b)) if x is None)
    if a.shape != b.shape:
        return f"shape {a.shape} in paddle, {b.shape} in ref"
    if a.dtype != b.dtype:
        return f"type {a.dtype} in paddle, {b.dtype} in ref"
    if finite and a.dtype.kind == "f":
        for side, x in (("paddle", a), ("ref", b)):
            bad = x.size - int(np.isfinite(x).sum())
            if bad:
                return f"{bad} NaN or infinite value(s) in {side}"
    return ""


def norm(array: np.ndarray) -> float:
    """L2 norm, computed in float64."""
    flat = array.reshape(-1).astype(np.float64, copy=False)
    return float(np.sqrt(flat @ flat))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """L2 norm of the difference, computed in float64."""
    return norm(np.subtract(a, b, dtype=np.float64))


def relative(error: float, scale: float) -> float:
    """error / scale; 0 for 0 / 0, infinity for an error against a zero truth."""
    return error / scale if scale > 0 else (0.0 if error == 0 else float("inf"))


def judge_equal(name: str, paddle: np.ndarray | None, ref: np.ndarray | None) -> Quantity:
    """Pass only where shape, type and every bit of the value agree. NaN never passes."""
    some = paddle if paddle is not None else ref
    quantity = Quantity(name, list(some.shape) if some is not None else [])
    problem = strict_problem(paddle, ref)
    if problem:
        return quantity.fail(problem)
    assert paddle is not None and ref is not None
    if paddle.dtype.kind in "US":
        differing = int((paddle != ref).sum())
        quantity.mean_abs_diff = quantity.max_abs_diff = float(differing > 0)
    else:
        difference = np.abs(paddle.astype(np.float64) - ref.astype(np.float64))
        quantity.mean_abs_diff = float(difference.mean()) if difference.size else 0.0
        quantity.max_abs_diff = float(difference.max()) if difference.size else 0.0
        differing = int((paddle != ref).sum())
    if differing:
        first = np.unravel_index(int(np.argmax((paddle != ref).reshape(-1))), paddle.shape)
        quantity.fail(f"{differing} of {paddle.size} value(s) differ, first at {tuple(map(int, first))}")
    return quantity


def judge_measured(name: str, lanes: Lanes, leeway: Leeway | None = None) -> Quantity:
    """Judge a floating quantity by its measured noise floor and, in exact mode, by the proof.

    At least one of the float32 and the exact pair must be present.
    """
    leeway = leeway or Leeway()
    some = next((x for x in (lanes.ref64, lanes.ref32, lanes.paddle64, lanes.paddle32) if x is not None), None)
    quantity = Quantity(name, list(some.shape) if some is not None else [])
    pairs = [(lanes.paddle32, lanes.ref32, "float32"), (lanes.paddle64, lanes.ref64, "float64")]
    pairs = [pair for pair in pairs if pair[0] is not None or pair[1] is not None]
    if not pairs:
        return quantity.fail("nothing to compare")
    for paddle, ref, kind in pairs:
        problem = strict_problem(paddle, ref, finite=False)
        if problem:
            return quantity.fail(f"{kind}: {problem}")
        assert paddle is not None
        if paddle.dtype != kind:
            return quantity.fail(f"{kind} run gave type {paddle.dtype}")
    paddle, ref, kind = pairs[0]
    assert paddle is not None and ref is not None
    with np.errstate(invalid="ignore"):  # infinity less infinity; the next line refuses it
        difference = np.subtract(paddle, ref, dtype=np.float64)
    if not np.isfinite(norm(difference)):
        return quantity.fail(f"{kind}: {strict_problem(paddle, ref)}")
    difference = np.abs(difference)
    quantity.mean_abs_diff, quantity.max_abs_diff = float(difference.mean()), float(difference.max())
    if lanes.paddle32 is not None and lanes.ref64 is not None:
        _judge_float32(quantity, lanes, leeway)
    if lanes.paddle64 is not None:
        _judge_exact(quantity, lanes, leeway)
    return quantity


def _judge_float32(quantity: Quantity, lanes: Lanes, leeway: Leeway) -> None:
    assert lanes.paddle32 is not None and lanes.ref32 is not None and lanes.ref64 is not None
    scale = norm(lanes.ref64)
    error = distance(lanes.paddle32, lanes.ref64)
    floor = distance(lanes.ref32, lanes.ref64)
    if lanes.ulp32 is not None:
        floor = max(floor, distance(lanes.ulp32, lanes.ref32))
    floor = max(floor, max(tolerance.BASE_FLOOR_32, leeway.pooled32) * scale)
    quantity.paddle_error, quantity.ref_error = relative(error, scale), relative(floor, scale)
    if leeway.flips:
        floor = max(floor, tolerance.FLIP_ALLOWANCE * scale)
        quantity.reason = f"{leeway.flips} {KINK_FLIPS}"
    if leeway.float32 and not error <= tolerance.FLOOR_FACTOR * floor:
        quantity.fail(f"float32 error {relative(error, scale):.1e} is {relative(error, floor):.0f} x its noise floor")


def _judge_exact(quantity: Quantity, lanes: Lanes, leeway: Leeway) -> None:
    assert lanes.paddle64 is not None and lanes.ref64 is not None
    change = leeway.change64
    if change is None:
        moved = distance(lanes.ulp64, lanes.ref64) if lanes.ulp64 is not None else 0.0
        change = Change(moved, norm(lanes.ref64))
    floor, scale = change
    error = distance(lanes.paddle64, lanes.ref64)
    quantity.float64_diff = relative(error, scale)
    if scale > 0 and floor >= tolerance.NOISE_SHARE * scale:
        quantity.reason = ZERO_BUT_FOR_ROUNDING
    floor = max(floor, leeway.pooled64 * scale)
    bound = max(tolerance.EXACT_RTOL * scale, tolerance.TRAJECTORY_FACTOR * floor)
    if not error <= bound:
        quantity.fail(f"exact mode differs by {quantity.float64_diff:.1e} (bound {relative(bound, scale):.1e})")


@dataclass
class Group:
    """Many tensors of one kind, kept as one row: the worst values, and every failing tensor by name.

    Attributes:
        name: of the row.
        quantity: the row so far.
        failed: rows of the tensors that failed.
    """

    name: str
    quantity: Quantity = field(init=False)
    failed: list[Quantity] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.quantity = Quantity(self.name, [0])

    def add(self, member: Quantity) -> None:
        row = self.quantity
        row.shape[0] += 1
        for column in ("mean_abs_diff", "max_abs_diff", "paddle_error", "ref_error"):
            row_value, value = getattr(row, column), getattr(member, column)
            if value is not None and (row_value is None or value > row_value):
                setattr(row, column, value)
        noise = member.reason == ZERO_BUT_FOR_ROUNDING
        if member.float64_diff is not None and not noise:
            row.float64_diff = max(row.float64_diff or 0.0, member.float64_diff)
        if KINK_FLIPS in member.reason:
            row.reason = row.reason or member.reason
        if not member.passed:
            self.failed.append(member)

    def rows(self) -> Sequence[Quantity]:
        """The row, and below it those that failed."""
        if self.failed:
            self.quantity.fail(f"{len(self.failed)} of {self.quantity.shape[0]} failed, first {self.failed[0].name}")
        elif self.quantity.shape[0] == 0:
            self.quantity.fail("nothing to compare")
        return [self.quantity, *self.failed]


if __name__ == "__main__":
    import sys

    from alignment.record_diff import main

    sys.exit(main())
