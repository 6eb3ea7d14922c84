"""Modules that both sides have and call otherwise: the batch or the sequence first, channels last, a list for a dictionary.

How the port calls such a module is read off its own call: each array in it is one of the reference's, or one with its axes in
another order. So the module can be given the reference's own input, and what it gives can be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import Call, leaves, mapped
from alignment.models.forms.adapter import CallAdapter, Given, MaybeArrays, Order, form
from alignment.strangers import Refused

MOST_AXES = 5
MOSTLY = 0.75  # of a mask's values


@dataclass(frozen=True)
class Slot:
    """An array that is one of the other side's.

    Attributes:
        number: of that, in order.
        order: of its axes, as ``numpy.transpose`` takes it.
        negated: whether it is true where the other side's is false: a mask of what is valid, for one of what is padding.
    """

    number: int
    order: Order
    negated: bool = False

    def filled(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The array, of those of the other side.

        Raises:
            Refused: there is none with these axes.
        """
        if self.number >= len(arrays) or arrays[self.number].ndim != len(self.order):
            raise Refused(f"no array of {len(self.order)} axes is given in place {self.number + 1}")
        array = arrays[self.number].transpose(self.order)
        return ~array if self.negated else array


@form
@dataclass(frozen=True)
class Rearranged(CallAdapter):
    """A module whose arguments and outputs are the other side's in another order, structure, or order of axes.

    Attributes:
        arguments: positional and named ones of the module, with slots in the place of arrays.
        slots: for each array that the other side's module returns, where it is among the module's; of the first ones alone where
            the module returns fewer.
        structure: of what the other side's module returns, with slots in the place of arrays.
        reverse: the other side's module called as this one; None where the call lacks an array of the other, or the module
            returns other arrays.
    """

    arguments: Any
    slots: tuple[Slot, ...]
    structure: Any = None
    reverse: Rearranged | None = None

    @property
    def orders(self) -> tuple[Order, ...]:
        orders = [*(slot.order for slot in self.slots), *(_inverse(slot.order) for slot in leaves(self.arguments, Slot))]
        return tuple(dict.fromkeys(order for order in orders if order != tuple(range(len(order)))))

    def given(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return _filled(self.arguments, leaves((args, kwargs), np.ndarray))

    def outputs(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The rest stands behind the other side's, as it is."""
        if any(slot.number >= len(arrays) or arrays[slot.number].ndim != len(slot.order) for slot in self.slots):
            return arrays
        known = {slot.number for slot in self.slots}
        rest = [array for number, array in enumerate(arrays) if number not in known]
        return [arrays[slot.number].transpose(slot.order) for slot in self.slots] + rest

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        made: list[np.ndarray | None] = [None] * max(slot.number + 1 for slot in self.slots)
        for slot, array in zip(self.slots, arrays, strict=False):
            made[slot.number] = None if array is None else array.transpose(_inverse(slot.order))
        return made

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        """Sums, where one of the other side's arrays is given twice."""
        arrays, given = leaves(call, np.ndarray), iter(gradients)
        sums: dict[int, np.ndarray] = {}
        for slot in leaves(self.arguments, Slot):
            if arrays[slot.number].dtype.kind == "f" and (gradient := next(given, None)) is not None:
                gradient = gradient.transpose(_inverse(slot.order))
                sums[slot.number] = sums[slot.number] + gradient if slot.number in sums else gradient
        return [sums.get(number) for number, array in enumerate(arrays) if array.dtype.kind == "f"]

    def returned(self, output: Any) -> Any:
        return _filled(self.structure, leaves(output, np.ndarray))

    def gives(self, count: int) -> int:
        return len(self.slots)

    def unused(self, arrays: Sequence[np.ndarray]) -> set[int]:
        return set(range(len(arrays))) - {slot.number for slot in leaves(self.arguments, Slot)}

    def taken(self, given: Sequence[Given]) -> list[Given]:
        numbers = [slot.number for slot in leaves(self.arguments, Slot)]
        return [given[number] for number in numbers] if max(numbers, default=0) < len(given) else list(given)

    def with_others(self, arrays: Sequence[np.ndarray]) -> Iterator[CallAdapter]:
        unused, slots = sorted(self.unused(arrays)), leaves(self.arguments, Slot)
        for place, slot in enumerate(slots):
            for number in (n for n in unused if arrays[n].shape == arrays[slot.number].shape):
                given = [*slots[:place], replace(slot, number=number), *slots[place + 1 :]]
                yield replace(self, arguments=_with(self.arguments, given, Slot), reverse=None)

    def back(self) -> CallAdapter | None:
        return self.reverse

    @classmethod
    def learned(cls, mine: Call, its: Call) -> CallAdapter | None:
        ours, theirs = ((call.args, call.kwargs) for call in (mine, its))
        arrays, others = leaves(ours, np.ndarray), leaves(theirs, np.ndarray)
        slots = _slots(arrays, others)
        if slots is None or _numbers(ours) - _numbers(theirs):
            return None
        gives, wants = leaves(mine.output, np.ndarray), leaves(its.output, np.ndarray)
        order = next((slot.order for slot in slots if slot.order != tuple(range(len(slot.order)))), None)
        outputs = _outputs(gives, wants, None if order is None else _inverse(order))
        if outputs is None:
            return None
        alike = len(gives) >= len(wants) and all(
            slot == Slot(n, tuple(range(len(slot.order)))) for found in (slots, outputs) for n, slot in enumerate(found)
        )
        if alike and structure(ours) == structure(theirs):
            return None
        back, of_port = _inverted(slots, len(others)), _inverted(outputs, len(gives))
        reverse = None
        if back is not None and of_port is not None:
            reverse = cls(_with(theirs, back), tuple(of_port), _with(mine.output, of_port))
        return cls(_with(ours, slots), tuple(outputs), reverse=reverse)


def _inverted(slots: Sequence[Slot], count: int) -> list[Slot] | None:
    """Where each of so many arrays of the other side is among these; None where one is nowhere."""
    found = {slot.number: replace(slot, number=n, order=_inverse(slot.order)) for n, slot in reversed(list(enumerate(slots)))}
    return [found[number] for number in range(count)] if all(number in found for number in range(count)) else None


def turned(array: np.ndarray, orders: Sequence[Order]) -> Iterator[np.ndarray]:
    """An array, and the same with its axes in other orders."""
    yield array
    yield from (array.transpose(order) for order in orders if len(order) == array.ndim)


def is_cut(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether one of two arrays, its axes in any order, is the other without places at the beginning or at the end of one axis."""
    small, large = sorted((a, b), key=lambda one: one.size)
    if small.ndim != large.ndim or not 1 < small.ndim <= MOST_AXES or small.size in (0, large.size):
        return False
    for order in itertools.permutations(range(small.ndim)):
        array = small.transpose(order)
        longer = [axis for axis, (few, many) in enumerate(zip(array.shape, large.shape, strict=True)) if few != many]
        if len(longer) == 1 and (count := array.shape[longer[0]]) < large.shape[longer[0]]:
            for places in (range(count), range(-count, 0)):
                part = large.take(places, longer[0], mode="wrap")
                if relative(distance(array, part), norm(part)) <= tolerance.SAME:
                    return True
    return False


def same_numbers(array: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays hold the same numbers, with their axes in one order or another."""
    return any(_equal(array, other, order) for order in _orders(array, other))


def _slots(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[Slot] | None:
    """Which of the other side's arrays each is; by its numbers, else by place and shape. None where one is none of them.

    None also where another array, which is none of these, has the shape, too.
    """
    found: list[Slot] = []
    guessed: list[np.ndarray] = []
    for number, array in enumerate(arrays):
        free = [n for n in range(len(others)) if n not in {slot.number for slot in found}]
        candidates = sorted([*free, *(n for n in range(len(others)) if n not in free)], key=lambda n: (n not in free, n != number))
        slot = next(
            (Slot(n, order) for n in candidates for order in _orders(array, others[n]) if _equal(array, others[n], order)), None
        )
        slot = slot or next((Slot(n, order, True) for n in candidates for order in _negated(array, others[n])), None)
        if slot is None and number < len(others):
            slot = _by_shape(array, others[number], number)
            guessed.append(array)
        if slot is None:
            return None
        found.append(slot)
    left = [other for number, other in enumerate(others) if number not in {slot.number for slot in found}]
    return None if any(_by_shape(array, other, 0) for array in guessed for other in left) else found


def _negated(array: np.ndarray, other: np.ndarray) -> Iterator[Order]:
    """The orders of axes in which a mask is true where another one is false, for the most part: one of the two may be wrong."""
    if array.dtype == other.dtype == np.bool_:
        yield from (order for order in _orders(array, other) if (array != other.transpose(order)).mean() > MOSTLY)


def _by_shape(array: np.ndarray, other: np.ndarray, number: int) -> Slot | None:
    if array.shape == other.shape:
        return Slot(number, tuple(range(array.ndim)))
    orders = list(_orders(array, other))
    return Slot(number, orders[0]) if len(orders) == 1 else None


def _outputs(gives: Sequence[np.ndarray], wants: Sequence[np.ndarray], order: Order | None) -> list[Slot] | None:
    """Where each of the reference's outputs is among the port's, whose numbers may be wrong; as many as the port gives."""
    if not gives:
        return None
    found = []
    for number, want in enumerate(wants[: len(gives)]):
        give = gives[number]
        equal = next((one for one in _orders(want, give) if _equal(want, give, one)), None)
        if equal is None and order is not None and len(order) == give.ndim == want.ndim:
            equal = order if give.transpose(order).shape == want.shape else None
        if equal is None:
            if give.ndim != want.ndim:
                return None
            equal = tuple(range(give.ndim))
        found.append(Slot(number, equal))
    return found


def _orders(array: np.ndarray, other: np.ndarray) -> Iterator[Order]:
    """The orders of an array's axes that give another one's shape, its own first."""
    if array.ndim == other.ndim <= MOST_AXES and array.dtype.kind == other.dtype.kind:
        for order in itertools.permutations(range(other.ndim)):
            if tuple(other.shape[axis] for axis in order) == array.shape:
                yield order


def _equal(array: np.ndarray, other: np.ndarray, order: Order) -> bool:
    turned = other.transpose(order)
    return turned.shape == array.shape and bool(relative(distance(array, turned), norm(turned)) <= tolerance.SAME)


def _inverse(order: Order) -> Order:
    return tuple(int(axis) for axis in np.argsort(order))


def _with(call: Any, slots: Sequence[Slot], kind: type = np.ndarray) -> Any:
    """A call with slots in the place of its arrays, in order."""
    given = iter(slots)
    return mapped(call, kind, lambda _: next(given))


def _filled(template: Any, arrays: Sequence[np.ndarray]) -> Any:
    return mapped(template, Slot, lambda slot: slot.filled(arrays))


def _numbers(call: Any) -> set[Any]:
    """Numbers among the arguments, which may be sizes of this input alone."""
    return {value for value in leaves(call, (int, float)) if not isinstance(value, bool)}


def structure(call: Any) -> Any:
    """The structure of a call, or of what it returned: containers and names, without the arrays."""
    if isinstance(call, np.ndarray):
        return "array"
    if isinstance(call, dict):
        return {key: structure(value) for key, value in call.items()}
    if isinstance(call, tuple | list):
        return [structure(value) for value in call]
    return type(call).__name__
