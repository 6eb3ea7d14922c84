"""Two modules as sequences of calls, aligned by what the calls compute: the same values, and the operations that give them."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.frameworks.base import Operation, Trace
from alignment.models.forms.axes import MOST_AXES, Order, turned
from alignment.models.links import plain

MASKED = -3.0  # stands for -inf
TAKING = frozenset({"getitem", "split", "unbind", "gather", "index_select"})  # parts of what they get
SEVERAL = 3  # different numbers that tell an array from others
LAYOUT = frozenset({"transpose", "reshape", "flatten", "unsqueeze", "squeeze"})  # of another form, no mistake by themselves


def equal(a: np.ndarray, b: np.ndarray, rtol: float = tolerance.OPERATION_RTOL) -> bool:
    """Whether two arrays of one size hold equal values in the same order; shapes may differ.

    Each element is held to its own size: one of -1e9 in a mask does not hide what stands beside it.
    """
    if a.size != b.size:
        return False
    if (a.dtype.kind == "b") is not (b.dtype.kind == "b") and a.size and (a == a.flat[0]).all():
        return False  # a condition that holds everywhere is no array of ones
    if not {"f", "c"} & {a.dtype.kind, b.dtype.kind}:
        return bool(np.array_equal(a.ravel(), b.ravel()))
    x, y = _finite(a), _finite(b)
    if x.size != y.size:  # complex numbers against others
        return False
    some = np.abs(y[y != 0])
    scale = float(np.median(some)) if some.size else 0.0
    share = (
        tolerance.OPERATION_ATOL / tolerance.OPERATION_RTOL if rtol <= tolerance.OPERATION_RTOL else 1
    )  # sums of what was rounded
    return bool((np.abs(x - y) <= rtol * np.abs(y) + rtol * share * scale).all())


def _finite(array: np.ndarray) -> np.ndarray:
    """As float64, flat, of complex numbers both parts.

    Some numbers stand for values that are not finite, and for those that a mask puts in the place of -inf.
    """
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    values = np.nan_to_num(array.ravel().astype(np.float64), nan=5.0, posinf=2.0, neginf=MASKED)
    return np.where(values <= tolerance.MASKING, MASKED, values)


KEPT = 1 << 18  # random numbers that are kept for the next array of this size


class _Values:
    """Arrays that can be found by what they hold."""

    def __init__(self, arrays: Sequence[np.ndarray], rtol: float) -> None:
        self.arrays, self.rtol = arrays, rtol
        self._by_size: dict[int, list[int]] = defaultdict(list)
        for number, array in enumerate(arrays):
            self._by_size[array.size].append(number)
        self._marks: dict[int, float] = {}

    def like(self, array: np.ndarray) -> list[int]:
        """Numbers of the arrays with equal values."""
        if array.size == 0:
            return []
        mark, room = _mark(array, self.rtol)
        near = [n for n in self._by_size[array.size] if abs(self._mark(n) - mark) <= room]
        return [n for n in near if equal(self.arrays[n], array, self.rtol)]

    def _mark(self, number: int) -> float:
        if number not in self._marks:
            self._marks[number] = _mark(self.arrays[number], self.rtol)[0]
        return self._marks[number]


def _mark(array: np.ndarray, rtol: float) -> tuple[float, float]:
    """A number that equal arrays share, and how far it may be off: their product with fixed random numbers."""
    values = _finite(array)
    factors, length = (_kept_factors if values.size <= KEPT else _factors)(values.size)
    with np.errstate(over="ignore", invalid="ignore"):  # a mask may hold the smallest number that there is
        size, mark = float(np.linalg.norm(values)), float(values @ factors)
    return mark, 10 * rtol * size * length + tolerance.TINY


def _factors(size: int) -> tuple[np.ndarray, float]:
    """Fixed random numbers, and their norm."""
    factors = np.random.default_rng(size).standard_normal(size)
    return factors, float(np.linalg.norm(factors))


_kept_factors = functools.lru_cache(64)(_factors)


def _place(one: Operation) -> tuple:
    """The place of the source that makes a call, and those that lead there."""
    return one.file, one.line, one.function, one.site, one.callers, one.outer


def varied(array: np.ndarray) -> bool:
    """Whether an array holds numbers that tell it from others, in whatever order: not two alone, as those of one-hot rows."""
    return array.dtype.kind == "f" and array.size > 1 and len(np.unique(array)) >= min(array.size, SEVERAL)


class _Sorted:
    """Arrays with their numbers in ascending order."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = arrays
        self._kinds: dict[tuple[int, str], list[int]] = defaultdict(list)
        for number, array in enumerate(arrays):
            self._kinds[array.size, array.dtype.kind].append(number)

    @functools.cache  # noqa: B019  they live as long as the pair of traces
    def __getitem__(self, number: int) -> np.ndarray:
        return np.sort(self.arrays[number], axis=None)

    def has(self, others: _Sorted, number: int, rtol: float) -> bool:
        """Whether the numbers of one of some other arrays are those of one of these."""
        array = others.arrays[number]
        return any(equal(others[number], self[n], rtol) for n in self._kinds.get((array.size, array.dtype.kind), []))


@dataclass
class PairedCalls:
    """The calls of one module of the port and of the reference, over the same input.

    Attributes:
        ours, theirs: the calls.
        exact: by number of a value of the port's: the reference's values that equal it in shape too, or are made as it is.
        flat: the same, where the shape may differ; of a weight, where it may lie transposed; of what is only extended along axes
            of size 1, what is extended.
        held: numbers of the reference's values that the port has, in the same shape or made in the same way -> of the port's.
        orders: in which the axes of the port's arrays may stand otherwise.
        rtol: within which two values are equal.
    """

    ours: Trace
    theirs: Trace
    exact: list[set[int]]
    flat: list[set[int]]
    held: dict[int, list[int]]
    orders: Sequence[Order] = ()
    rtol: float = tolerance.OPERATION_RTOL

    @functools.cached_property
    def reshaped(self) -> frozenset[int]:
        """The reference's values that only lay out what the port has in another shape, but for axes of size 1."""
        made = {value for one in self.theirs.operations if one.name in LAYOUT for value in one.outputs}
        both = [(self.ours.values[mine], value) for mine, values in enumerate(self.flat) for value in values if value in made]
        return frozenset(value for array, value in both if plain(array.shape) != plain(self.theirs.values[value].shape))

    def known(self, operation: Operation, tables: bool = False, beyond: bool = False) -> bool:
        """Whether all that a call of the port got is among the reference's values.

        With ``tables`` also what no call has made, with ``beyond`` also what goes into one of the reference's.
        """
        made = set(self.ours.given) | {value for one in self.ours.operations for value in one.outputs} if tables else set()
        right = self.carried if beyond else frozenset()
        return all(self.flat[value] or value in right or (tables and value not in made) for value in operation.inputs)

    def diverges(self, operation: Operation) -> bool:
        """Whether a call of the port gave something that the reference has nowhere, or raised."""
        return not operation.outputs or not all(self.exact[value] for value in main(operation))

    def lacking(self, operation: Operation) -> bool:
        """Whether a call of the reference gave something that the port has nowhere."""
        return not all(value in self.held for value in main(operation))

    def agree(self, ours: int, theirs: int) -> bool:
        """Whether a value of the port is one of the reference."""
        return theirs in self.flat[ours]

    def in_any_order(self, value: int) -> bool:
        """Whether the reference has the numbers of a value of the port's, in whatever order."""
        return self._sorted[1].has(self._sorted[0], value, self.rtol)

    def had_in_any_order(self, value: int) -> bool:
        """Whether the port has the numbers of a value of the reference's, in whatever order."""
        return self._sorted[0].has(self._sorted[1], value, self.rtol)

    @functools.cached_property
    def _sorted(self) -> tuple[_Sorted, _Sorted]:
        return _Sorted(self.ours.values), _Sorted(self.theirs.values)

    @functools.cached_property
    def carried(self) -> frozenset[int]:
        """The port's values that the reference has, or that go into one: of what parts are taken of, all parts are such."""
        found = {n for n, like in enumerate(self.flat) if like and varied(self.ours.values[n])}
        taken: dict[int, list[Operation]] = defaultdict(list)
        for one in self.ours.operations:
            if one.name in TAKING and one.inputs:
                taken[one.inputs[0]].append(one)
        for one in reversed(self.ours.operations):
            parts = taken[one.inputs[0]] if one.name in TAKING and one.inputs else [one]
            if found.intersection(one.outputs) and all(found.issuperset(part.outputs) for part in parts):
                found |= set(one.inputs)
        return frozenset(found)

    @functools.cached_property
    def _right_places(self) -> frozenset[tuple]:
        return frozenset(map(_place, (one for one in self.ours.operations if self.carried.intersection(one.outputs))))

    def carries(self, operation: Operation) -> bool:
        """Whether what a call of the port gives goes into something that the reference has, here or when it is made again."""
        return _place(operation) in self._right_places

    def candidates(self, tables: bool = False, beyond: bool = False) -> Iterator[Operation]:
        """The port's calls whose inputs agree, and whose output occurs nowhere in the reference, in order.

        With ``tables`` a table that the port alone holds agrees, too. With ``beyond`` so does what goes into something that the
        reference has, and what makes it is none of these calls.

        Those come last that compute from nothing, that take every row of a value one after another, or behind which all is the
        reference's again (a mask of another number), and
        those that give the reference's numbers in another shape, which are none where what is computed from them is the reference's
        again: of other axes of size 1 all of it, of other shapes some of it.
        """
        healing, made_up = dict[int, bool](), dict[int, bool]()
        suspects = [one for one in self.ours.operations if one.file and self.known(one, tables, beyond) and self.diverges(one)]
        suspects = [one for one in suspects if not (beyond and self.carries(one))]
        others = [one for one in suspects if self.other_numbers(one)]
        reshaped = [one for one in others if self._taken_up(one)]
        rows = self._rows()
        heals = lambda one: one.number in rows or not one.inputs or self._heals(one, made_up, whatever=True)  # noqa: E731
        later = [one for one in others if one not in reshaped and heals(one)]
        yield from (one for one in others if one not in reshaped and one not in later)
        yield from (one for one in suspects if one not in others and not self._heals(one, healing))
        yield from reshaped
        yield from later

    def _rows(self) -> set[int]:
        """Numbers of the calls by which the port takes all rows of a value, each by itself: a loop over the samples."""
        loops: dict[tuple, dict[str, int]] = defaultdict(dict)
        for one in self.ours.operations:
            if one.name == "getitem" and len(one.inputs) == 1:
                loops[one.file, one.line, one.function, one.site, one.inputs[0]][str(one.attributes.get("index"))] = one.number
        whole = [(found, self.ours.values[key[-1]].shape) for key, found in loops.items()]
        every = [found for found, shape in whole if shape and set(found) == {str((row,)) for row in range(shape[0])}]
        return {number for found in every for number in found.values()}

    def other_numbers(self, operation: Operation) -> bool:
        """Whether a call of the port gave something that the reference has nowhere but for axes of size 1, or raised."""
        return not operation.outputs or not all(self._same_but_for_ones(value) for value in main(operation))

    def _taken_up(self, operation: Operation) -> bool:
        """Whether a call gives the reference's numbers in another shape, and a call that computes from them gives them, too.

        Or it puts numbers into another order, in which the reference has them.
        """
        values = set(main(operation))
        if not values or not all(self.flat[value] for value in values):
            return False
        arrays = [self.ours.values[value] for value in (*operation.inputs[:1], *main(operation)[:1])]
        if operation.name in LAYOUT and len(arrays) == 2 and not equal(arrays[0], arrays[1], self.rtol):
            return True
        for one in (one for one in self.ours.operations if one.number > operation.number and values & set(one.inputs)):
            if one.name in LAYOUT:
                values |= set(main(one))
            elif one.outputs and all(self.flat[value] for value in main(one)):
                return True
        return False

    def _same_but_for_ones(self, value: int) -> bool:
        shapes = {plain(array.shape) for array in turned(self.ours.values[value], self.orders)}
        return bool(self.exact[value]) or any(plain(self.theirs.values[other].shape) in shapes for other in self.flat[value])

    def _heals(self, operation: Operation, known: dict[int, bool], whatever: bool = False) -> bool:
        """Whether all that follows from a call is the reference's again.

        Args:
            operation: the call.
            known: by number of a call, what is known of this.
            whatever: the call, and those that follow until they agree, may give any numbers; else those of the reference.
        """
        waiting, followed = [operation], dict[int, tuple[Operation, list[Operation]]]()
        while waiting:  # a loop over time makes chains of calls that are too long for a function that calls itself
            one = waiting.pop()
            if one.number not in known and one.number not in followed:
                followed[one.number] = one, self._until(one, whatever, known)
                waiting += followed[one.number][1]
        for number in sorted(followed, reverse=True):  # what follows has a higher number
            following = followed[number][1]
            known[number] = known.get(number, False) or (bool(following) and all(known[one.number] for one in following))
        return known[operation.number]

    def _until(self, operation: Operation, whatever: bool, known: dict[int, bool]) -> list[Operation]:
        """The calls that must heal for a call to; none where it heals, as ``known`` then says, or cannot."""
        outputs = set(main(operation))
        agrees = bool(outputs) and not self.diverges(operation) and not (whatever and self._passes_on(operation))
        if agrees:
            known[operation.number] = True
        if agrees or bool(outputs & set(self.ours.results)) or not (whatever or not self.other_numbers(operation)):
            return []
        return [one for one in self.ours.operations if one.number > operation.number and outputs & set(one.inputs)]

    def _passes_on(self, operation: Operation) -> bool:
        """Whether a call gives back what it got: a mask that is true everywhere; that it agrees says nothing of the mask."""
        values = [self.ours.values[value] for value in operation.inputs]
        return any(equal(one, self.ours.values[value], self.rtol) for value in main(operation) for one in values)

    def maker(self, value: int) -> Operation | None:
        """The call of the reference that gave a value."""
        return next((one for one in self.theirs.operations if value in one.outputs and value not in one.inputs), None)

    def own_maker(self, value: int) -> Operation | None:
        """The call of the port that gave a value."""
        return next((one for one in self.ours.operations if value in one.outputs and value not in one.inputs), None)


def main(operation: Operation) -> list[int]:
    """What a call gave that counts: all parts of what it splits; else the first (maxima, not their indices)."""
    return operation.outputs if operation.name in ("split", "unbind") else operation.outputs[:1]


def aligned(ours: Trace, theirs: Trace, orders: Sequence[Order] = (), rtol: float = tolerance.OPERATION_RTOL) -> PairedCalls:
    """Find the values of the two passes that are equal, where the axes of the port's may stand in some other orders."""
    there = _Values(theirs.values, rtol)
    orders = tuple(dict.fromkeys([*orders, *_exchanged(ours, theirs)]))
    made = {value for one in ours.operations for value in one.outputs} | set(ours.given)
    exact: list[set[int]] = []
    flat: list[set[int]] = []
    held: dict[int, list[int]] = defaultdict(list)
    laid = _laid_otherwise(ours, theirs)
    for number, array in enumerate(ours.values):
        found, same = [], set[int]()
        for other_way in turned(array, orders):
            like = there.like(other_way)
            found += like
            same |= {one for one in like if _alike(theirs.values[one], other_way) or laid(number, one)}
        for other in same:
            held[other].append(number)
        if not found and number not in made and array.ndim == 2:  # the weight of a linear layer
            found = there.like(array.T)
        exact.append(same)
        flat.append(set(found))
    for one in (one for one in ours.operations if one.name == "expand" and one.inputs):
        for value in (value for value in one.outputs if not flat[value]):
            flat[value] = flat[one.inputs[0]]
    for one in (one for one in ours.operations if _only_casts(one, ours.values)):
        (given,), (made_here, *_) = one.inputs, one.outputs
        exact[made_here] = exact[made_here] or exact[given]
        flat[made_here] = flat[made_here] or flat[given]
    return PairedCalls(ours, theirs, exact, flat, dict(held), orders, rtol)


def _only_casts(operation: Operation, values: Sequence[np.ndarray]) -> bool:
    """Whether a call gives the numbers that it got as numbers of another kind: a mask of 0 and 1 as one of truth values."""
    if len(operation.inputs) != 1 or len(operation.outputs) != 1:
        return False
    given, made = values[operation.inputs[0]], values[operation.outputs[0]]
    return given.shape == made.shape and given.dtype.kind != made.dtype.kind and np.array_equal(given, made)


def _exchanged(ours: Trace, theirs: Trace) -> list[Order]:
    """The orders of axes in which one side alone computes, there and back again: the sequence before the batch."""
    counts: list[Counter[Order]] = []
    for side in (ours, theirs):
        orders = (tuple(one.attributes.get("order", ())) for one in side.operations if one.name == "transpose")
        counts.append(Counter(order for order in orders if order == (1, 0, *range(2, len(order)))))
    there = any(order and 0 in (n := [one[order] for one in counts]) and max(n) > 1 for order in counts[0] | counts[1])
    return [(1, 0, *range(2, axes)) for axes in range(3, MOST_AXES + 1)] if there else []


def _laid_otherwise(ours: Trace, theirs: Trace) -> Callable[[int, int], bool]:
    """Whether two values of equal numbers differ in shape alone: the same calculation made both, of pixels in rows or one by one.

    Not where the shapes differ in axes of size 1, which another call may extend, or where the port returns the value.
    """
    mine, its = ({v: one.name for one in side.operations for v in one.outputs if v not in one.inputs} for side in (ours, theirs))
    results = set(ours.results)

    def laid(one: int, other: int) -> bool:
        name = mine.get(one, "")
        shapes = plain(ours.values[one].shape), plain(theirs.values[other].shape)
        return bool(name) and name == its.get(other) and name not in LAYOUT and one not in results and shapes[0] != shapes[1]

    return laid


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and (one.dtype.kind == "b") is (other.dtype.kind == "b")


def constant(pair: PairedCalls, value: int) -> bool:
    """Whether the reference holds a value, as a weight or a table, and no call makes it."""
    return pair.maker(value) is None and value not in pair.theirs.given
