"""Compare one quantity of the port with the reference's: strict rules first, then the measured noise floor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from alignment import tolerance
from alignment.distance import distance, gap, norm, out_of_range, relative
from mobilenetv3_common.counted import counted

IN_EXACT_MODE = "exact mode differs by"  # what the reason of a row that failed in exact mode holds


@dataclass
class Quantity:
    """The outcome of one comparison.

    Attributes:
        name: what was compared.
        shape: shape of the array; of a group of tensors, their number.
        mean_abs_diff, max_abs_diff: between the two sides' float32 (or exact) values; None where not comparable.
        port_error, reference_error: relative L2 of the port's float32 result, and of the noise floor, against float64 truth.
        float64_diff: relative L2 between the two sides in exact mode.
        flips: kink inputs that float32 put on the other side of their kink, where that was taken into account.
        noise: whether the truth is zero but for rounding, so that relative differences say nothing.
        passed: the verdict.
        reason: for people: why it failed, or what is special about it; empty otherwise.
    """

    name: str
    shape: list[int]
    mean_abs_diff: float | None = None
    max_abs_diff: float | None = None
    port_error: float | None = None
    reference_error: float | None = None
    float64_diff: float | None = None
    flips: int = 0
    noise: bool = False
    passed: bool = True
    reason: str = ""

    def note(self, remark: str) -> Quantity:
        """Add to the reason."""
        self.reason = f"{self.reason}; {remark}" if self.reason else remark
        return self

    def fail(self, reason: str) -> Quantity:
        """The comparison has failed; an earlier reason is kept."""
        self.passed = False
        return self.note(reason)

    @property
    def is_rounding(self) -> bool:
        """Whether it failed in exact mode alone, by no more than what the reference's own float32 differs from its float64."""
        within = None not in (self.float64_diff, self.reference_error) and self.float64_diff <= self.reference_error  # type: ignore[operator]
        return not self.passed and within and self.reason.startswith(IN_EXACT_MODE)

    def as_json(self) -> dict[str, Any]:
        """As it stands in alignment.json, whose names are published."""
        named = {"port_error": "paddle_error", "reference_error": "ref_error"}
        return {named.get(name, name): value for name, value in vars(self).items()}


@dataclass
class Lanes:
    """One quantity as the different runs computed it; absent runs are None.

    Attributes:
        port32, reference32: float32, as shipped.
        ulp32: the reference in float32 with everything it is given moved by one ulp.
        port64, reference64: exact mode; ``reference64`` is the truth.
        ulp64: the reference in exact mode with everything it is given moved by one float64 ulp.
    """

    port32: np.ndarray | None = None
    reference32: np.ndarray | None = None
    ulp32: np.ndarray | None = None
    port64: np.ndarray | None = None
    reference64: np.ndarray | None = None
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
        summation32, summation64: relative L2 errors that the order of summation, which is the framework's own, may leave.
        nothing32, nothing64: L2 errors that a quantity that is zero but for rounding may have, whatever its own floor: of the
            norm of what it is part of (``Leeway.part_of``).
    """

    flips: int = 0
    pooled32: float = 0.0
    pooled64: float = 0.0
    float32: bool = True
    change64: Change | None = None
    summation32: float = 0.0
    summation64: float = 0.0
    nothing32: float = 0.0
    nothing64: float = 0.0

    def part_of(self, norm: float) -> Leeway:
        """The same for a part of something of this L2 norm: where it is zero but for rounding, rounding is that of the whole."""
        return replace(self, nothing32=tolerance.BASE_FLOOR_32 * norm, nothing64=tolerance.SUMMATION_64 * norm)


def summation32(shapes: Iterable[tuple[int, ...]], across: bool) -> float:
    """What adding one number after another may leave of float32, where values of these shapes are added up (relative L2).

    Args:
        shapes: of arrays, samples first: a sum runs along an axis of a sample, or over the places of a channel.
        across: whether sums run over samples too, as a BatchNorm's in training do.
    """
    return min(tolerance.SUMMATION_32, _longest_sum(shapes, across) ** 0.5 * tolerance.SUMMED_32)


def summation64(shapes: Iterable[tuple[int, ...]]) -> float:
    """What it may do to all gradients together in float64, which are sums over the samples and places of inputs of these shapes."""
    return min(tolerance.EXACT_RTOL, max(tolerance.SUMMATION_64, _longest_sum(shapes, across=True) * tolerance.SUMMED_64))


def rounded_by(shape: Sequence[int]) -> float:
    """How many times what one-ulp changes do to an array of this shape rounding may do: a vector's numbers are sums."""
    return tolerance.SUM_FACTOR if is_vector(shape) else tolerance.TRAJECTORY_FACTOR


def is_vector(shape: Sequence[int]) -> bool:
    """Whether at most one axis is longer than 1: each number of its gradient is a sum over samples and places."""
    return sum(length > 1 for length in shape) <= 1


def _longest_sum(shapes: Iterable[tuple[int, ...]], across: bool) -> int:
    counts = [max([1, *one[1:], math.prod(one[2:]), math.prod(one[1:-1])]) * (one[0] if across else 1) for one in shapes if one]
    return max(counts, default=1)


def strict_problem(a: np.ndarray | None, b: np.ndarray | None, finite: bool = True) -> str:
    """Why two arrays cannot be equal whatever their values: absence, shape, type, NaN or infinity; "" where none.

    Args:
        a, b: the port's and the reference's array.
        finite: whether NaN and infinity are faults in themselves.
    """
    if a is None or b is None:
        return "missing in " + " and ".join(side for side, x in (("the port", a), ("the reference", b)) if x is None)
    if a.shape != b.shape:
        return f"shape {a.shape} in the port, {b.shape} in the reference"
    if a.dtype != b.dtype:
        return f"type {a.dtype} in the port, {b.dtype} in the reference"
    if finite and a.dtype.kind in "fc":
        for side, x in (("the port", a), ("the reference", b)):
            bad = x.size - int(np.isfinite(x).sum())
            if bad:
                return f"{counted(bad, 'NaN or infinite value')} in {side}"
    return ""


def without_masked(*arrays: np.ndarray | None) -> list[Any]:
    """The arrays with 0 in the places where all of them hide a score, by -inf or by a type's lowest number: nothing differs there.

    A mask of such numbers would let all else pass that stands beside it. Infinity with the other sign comes of an overflow, and
    equals nothing.

    Args:
        arrays: of one quantity; those that are None are left out. Where shapes differ, or nothing else is in them (a loss that
            has overflowed), nothing is changed.
    """
    given = [array for array in arrays if array is not None]
    if not given or any(a.dtype.kind != "f" or a.shape != given[0].shape for a in given):
        return list(arrays)
    shared = np.logical_and.reduce([np.isneginf(array) for array in given])
    shared |= np.logical_and.reduce([hidden(array) for array in given])
    if not shared.any() or shared.all():
        return list(arrays)
    return [None if array is None else np.where(shared, array.dtype.type(0), array) for array in arrays]


def hidden(array: np.ndarray) -> np.ndarray:
    """Where an array of floating numbers holds the lowest of float32, bfloat16 or float64, which only hides a score."""
    return np.isin(array, tolerance.LOWEST)


def where_derived(gradients: Mapping[str, np.ndarray | None], right: Mapping[str, np.ndarray | None]) -> dict[str, Any]:
    """Gradients with zeros where the right ones of the same names are NaN or infinite.

    There the input hits a point without a derivative, such as a root or a norm of exactly 0: what a framework gives is
    arbitrary, and no mistake of the port. Gradients of other shapes than the right ones stay as they are.
    """
    found = dict(gradients)
    for name, b in right.items():
        a = gradients.get(name)
        if a is not None and b is not None and a.shape == b.shape and not np.isfinite(b).all():
            found[name] = np.where(np.isfinite(b), a, a.dtype.type(0))
    return found


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)


def _scaled_down(array: np.ndarray, power: int) -> np.ndarray:
    """The numbers by ``2 ** power`` smaller, in float64; as they are for 0."""
    if power == 0:
        return array
    if array.dtype.kind == "c":
        return _scaled_down(array.real, power) + 1j * _scaled_down(array.imag, power)
    return np.ldexp(array.astype(np.float64), -power)


def _differences(quantity: Quantity, a: np.ndarray, b: np.ndarray) -> None:
    """Mean and largest absolute difference of finite numbers of one shape; 0 where there are none."""
    sizes, power = gap(a, b)
    with np.errstate(over="ignore"):
        sizes = np.ldexp(sizes, power) if power else sizes
        quantity.mean_abs_diff, quantity.max_abs_diff = (float(f(sizes)) if sizes.size else 0.0 for f in (np.mean, np.max))


def judge_equal(name: str, port: np.ndarray | None, reference: np.ndarray | None) -> Quantity:
    """Pass only where shape, type and every bit of the value agree. NaN and infinity never pass."""
    some = port if port is not None else reference
    quantity = Quantity(name, list(some.shape) if some is not None else [])
    problem = strict_problem(port, reference)
    if problem:
        return quantity.fail(problem)
    assert port is not None and reference is not None
    differing = int((port != reference).sum())
    if port.dtype.kind in "US":
        quantity.mean_abs_diff = quantity.max_abs_diff = float(differing > 0)
    else:
        _differences(quantity, port, reference)
    if differing:
        first = np.unravel_index(int(np.argmax((port != reference).reshape(-1))), port.shape)
        verb = "differs" if differing == 1 else "differ"
        quantity.fail(f"{differing} of {counted(port.size, 'value')} {verb}, first at {tuple(map(int, first))}")
    return quantity


def judge_close(name: str, port: np.ndarray | None, expected: np.ndarray | None, rtol: float) -> Quantity:
    """Pass where shapes agree, all is finite, and the relative L2 difference is at most ``rtol``; types do not count."""
    some = port if port is not None else expected
    quantity = Quantity(name, list(some.shape) if some is not None else [])
    wide = (array if array is None else _wide(np.asarray(array)) for array in (port, expected))
    ours, theirs = without_masked(*wide)
    problem = strict_problem(ours, theirs)
    if problem:
        return quantity.fail(problem)
    assert ours is not None and theirs is not None
    _differences(quantity, ours, theirs)
    power = out_of_range(ours, theirs)
    ours, theirs = _scaled_down(ours, power), _scaled_down(theirs, power)
    error = relative(distance(ours, theirs), norm(theirs))
    if not error <= rtol:
        quantity.fail(f"relative L2 difference {error:.1e} (bound {rtol:.0e})")
    return quantity


def judge_all_close(
    name: str, port: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], rtol: float
) -> Sequence[Quantity]:
    """The same for many tensors by name, as one row and below it those that failed."""
    group = Group(name)
    for tensor in dict.fromkeys([*expected, *port]):
        group.add(judge_close(f"{name}.{tensor}", port.get(tensor), expected.get(tensor), rtol))
    return group.rows()


def judge_measured(name: str, lanes: Lanes, leeway: Leeway | None = None) -> Quantity:
    """Judge a floating quantity by its measured noise floor and, in exact mode, by the proof.

    At least one of the float32 and the exact pair must be present. Where all lanes have -inf, they are equal.
    """
    leeway = leeway or Leeway()
    lanes = Lanes(*without_masked(*(getattr(lanes, one.name) for one in fields(lanes))))
    some = next((x for x in (lanes.reference64, lanes.reference32, lanes.port64, lanes.port32) if x is not None), None)
    quantity = Quantity(name, list(some.shape) if some is not None else [])
    pairs = [(lanes.port32, lanes.reference32, "float32"), (lanes.port64, lanes.reference64, "float64")]
    pairs = [pair for pair in pairs if pair[0] is not None or pair[1] is not None]
    if not pairs:
        return quantity.fail("nothing to compare")
    for port, reference, kind in pairs:
        problem = strict_problem(port, reference, finite=False)
        if problem:
            return quantity.fail(f"{kind}: {problem}")
        assert port is not None
        if port.dtype != kind:
            return quantity.fail(f"{kind} run gave type {port.dtype}")
    port, reference, kind = pairs[0]
    assert port is not None and reference is not None
    if problem := strict_problem(port, reference):
        return quantity.fail(f"{kind}: {problem}")
    _differences(quantity, port, reference)
    lanes, leeway = _in_range(lanes, leeway)
    if lanes.port64 is not None and leeway.change64 is None:
        moved = distance(lanes.ulp64, lanes.reference64) if lanes.ulp64 is not None else 0.0  # type: ignore[arg-type]
        leeway = replace(leeway, change64=Change(moved, norm(lanes.reference64)))  # type: ignore[arg-type]
    if lanes.port32 is not None and lanes.reference64 is not None:
        _judge_float32(quantity, lanes, leeway)
    if lanes.port64 is not None:
        _judge_exact(quantity, lanes, leeway)
    return quantity


def _in_range(lanes: Lanes, leeway: Leeway) -> tuple[Lanes, Leeway]:
    """The same by a power of two smaller or larger, where squares would overflow or vanish; every verdict is relative."""
    arrays = {one.name: getattr(lanes, one.name) for one in fields(lanes)}
    power = out_of_range(*arrays.values())
    if power == 0:
        return lanes, leeway
    moved = {name: array if array is None else _scaled_down(array, power) for name, array in arrays.items()}
    change = leeway.change64 and Change(*(math.ldexp(value, -power) for value in leeway.change64))
    nothing32, nothing64 = (math.ldexp(value, -power) for value in (leeway.nothing32, leeway.nothing64))
    return Lanes(**moved), replace(leeway, change64=change, nothing32=nothing32, nothing64=nothing64)


def _judge_float32(quantity: Quantity, lanes: Lanes, leeway: Leeway) -> None:
    assert lanes.port32 is not None and lanes.reference32 is not None and lanes.reference64 is not None
    scale = norm(lanes.reference64)
    error = distance(lanes.port32, lanes.reference64)
    if scale == 0 and 0 < error <= tolerance.FLOOR_FACTOR * leeway.nothing32:
        quantity.note("zero but for rounding in float32")
        return  # no relative error can be said
    floor = distance(lanes.reference32, lanes.reference64)
    if lanes.ulp32 is not None:
        floor = max(floor, distance(lanes.ulp32, lanes.reference32))
    floor = max(floor, max(tolerance.BASE_FLOOR_32, leeway.pooled32) * scale)
    if leeway.change64 is not None and _is_rounding(leeway.change64):
        floor = max(floor, leeway.nothing32)
    if not math.isfinite(floor):
        quantity.fail("float32: the noise floor is not finite: the reference, or its one-ulp change, overflows")
        return
    quantity.port_error, quantity.reference_error = relative(error, scale), relative(floor, scale)
    if leeway.flips:
        floor = max(floor, tolerance.FLIP_ALLOWANCE * scale)
        quantity.flips = leeway.flips
        quantity.note(f"{counted(leeway.flips, 'kink flip')}")
    if tolerance.FLOOR_FACTOR * floor < error <= leeway.summation32 * scale:
        floor = leeway.summation32 * scale
        quantity.reference_error = leeway.summation32
        quantity.note("order of summation in float32")
    if leeway.float32 and not error <= tolerance.FLOOR_FACTOR * floor:
        quantity.fail(f"float32 error {relative(error, scale):.1e} is {relative(error, floor):.0f} x its noise floor")


def _is_rounding(change: Change) -> bool:
    """Whether a quantity that is not 0 is zero but for rounding."""
    return change.scale > 0 and change.distance >= tolerance.NOISE_SHARE * change.scale


def _judge_exact(quantity: Quantity, lanes: Lanes, leeway: Leeway) -> None:
    assert lanes.port64 is not None and lanes.reference64 is not None and leeway.change64 is not None
    floor, scale = leeway.change64
    if not math.isfinite(floor):
        quantity.fail("exact mode: one-ulp changes make the reference infinite or NaN")
        return
    error = distance(lanes.port64, lanes.reference64)
    quantity.float64_diff = relative(error, scale)
    nothing = 0.0
    if _is_rounding(leeway.change64) or (scale == 0 and 0 < error <= leeway.nothing64):
        quantity.noise = True
        quantity.note("zero but for rounding")
        nothing = leeway.nothing64
        quantity.float64_diff = quantity.float64_diff if scale > 0 else None
    floor = max(floor, leeway.pooled64 * scale)
    bound = max(tolerance.EXACT_RTOL * scale, tolerance.TRAJECTORY_FACTOR * floor, leeway.summation64 * scale, nothing)
    if not error <= bound:
        quantity.fail(f"{IN_EXACT_MODE} {quantity.float64_diff:.1e} (bound {relative(bound, scale):.1e})")


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
        for column in ("mean_abs_diff", "max_abs_diff", "port_error", "reference_error"):
            row_value, value = getattr(row, column), getattr(member, column)
            if value is not None and (row_value is None or value > row_value):
                setattr(row, column, value)
        if member.float64_diff is not None and not member.noise:
            row.float64_diff = max(row.float64_diff or 0.0, member.float64_diff)
        if member.flips and not row.flips:
            row.flips = member.flips
            row.note(f"{counted(member.flips, 'kink flip')}")
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
