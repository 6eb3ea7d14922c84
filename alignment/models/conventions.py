"""Modules that both sides have and call otherwise: the batch or the sequence first, channels last, a list for a dictionary.

How the port calls such a module is read off its own call: each array in it is one of the reference's, or one with its axes in
another order. So the module can be given the reference's own input, and what it gives can be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import Call, leaves, mapped

MOST_AXES = 5
Order = tuple[int, ...]
MaybeArrays = Sequence["np.ndarray | None"]


@dataclass(frozen=True)
class Slot:
    """An array that is one of the other side's.

    Attributes:
        number: of that, in order.
        order: of its axes, as ``numpy.transpose`` takes it.
    """

    number: int
    order: Order


@dataclass(frozen=True)
class Convention:
    """How the port's module is called, and what it returns, where the reference's is called otherwise.

    Attributes:
        ours: positional and named arguments of the port's module, with slots in the place of arrays.
        theirs: those of the reference's, likewise; None where the port's call lacks one of its arrays.
        returned: what the port's module returns, with slots in the place of arrays; None where it returns other arrays.
        outputs: for each array that the reference's module returns, where it is among the port's; of the first ones alone where the
            port's returns fewer.
    """

    ours: Any
    theirs: Any
    returned: Any
    outputs: tuple[Slot, ...]

    def said(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """A call of the reference's module as one of the port's."""
        return _filled(self.ours, leaves((args, kwargs), np.ndarray))

    def back(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """A call of the port's module as one of the reference's."""
        return _filled(self.theirs, leaves((args, kwargs), np.ndarray))

    def given_back(self, output: Any) -> Any:
        """What the reference's module returns, as the port's does."""
        return _filled(self.returned, leaves(output, np.ndarray))

    def heard(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays that the port's module returns, as the reference's; the rest behind them, as it is."""
        if any(slot.number >= len(outputs) or outputs[slot.number].ndim != len(slot.order) for slot in self.outputs):
            return list(outputs)
        known = {slot.number for slot in self.outputs}
        rest = [array for number, array in enumerate(outputs) if number not in known]
        return [outputs[slot.number].transpose(slot.order) for slot in self.outputs] + rest

    def cotangents(self, arrays: MaybeArrays) -> list[np.ndarray | None]:
        """Gradients of the reference's outputs as those of the port's."""
        made: list[np.ndarray | None] = [None] * max(slot.number + 1 for slot in self.outputs)
        for slot, array in zip(self.outputs, arrays, strict=False):
            made[slot.number] = None if array is None else array.transpose(_inverse(slot.order))
        return made

    def cotangents_back(self, arrays: MaybeArrays, kinds: Sequence[str]) -> list[np.ndarray | None]:
        """Gradients of the port's floating outputs as those of the reference's, whose outputs are of some kinds of numbers."""
        given, floating = iter(arrays), [slot for slot, kind in zip(self.outputs, kinds, strict=False) if kind == "f"]
        made = {slot.number: next(given, None) for slot in sorted(floating, key=lambda slot: slot.number)}
        turned = [_turned(made.get(slot.number), slot.order) for slot in self.outputs]
        return turned + [None] * (len(kinds) - len(turned))

    def inputs(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        """Gradients of the floating arguments of the port's module as those of the reference's: sums where one is given twice."""
        return _summed(leaves(self.ours, Slot), gradients, leaves(call, np.ndarray))

    def inputs_back(self, gradients: MaybeArrays, call: Any) -> list[np.ndarray | None]:
        """Gradients of the floating arguments of the reference's module as those of the port's call."""
        return _summed(leaves(self.theirs, Slot), gradients, leaves(call, np.ndarray))


def learned(mine: Call, its: Call) -> Convention | None:
    """The convention of a call of the port and one of the reference; None where they are called alike, or nothing shows how."""
    ours, theirs = ((call.args, call.kwargs) for call in (mine, its))
    arrays, others = leaves(ours, np.ndarray), leaves(theirs, np.ndarray)
    slots = _slots(arrays, others)
    if slots is None or _numbers(ours) - _numbers(theirs):
        return None
    back = [next((Slot(n, _inverse(s.order)) for n, s in enumerate(slots) if s.number == j), None) for j in range(len(others))]
    gives, wants = leaves(mine.output, np.ndarray), leaves(its.output, np.ndarray)
    order = next((slot.order for slot in slots if slot.order != tuple(range(len(slot.order)))), None)
    outputs = _outputs(gives, wants, None if order is None else _inverse(order))
    if outputs is None:
        return None
    alike = len(gives) >= len(wants) and all(
        slot == Slot(n, tuple(range(len(slot.order)))) for found in (slots, outputs) for n, slot in enumerate(found)
    )
    if alike and _form(ours) == _form(theirs):
        return None
    of_port = [next((Slot(n, _inverse(s.order)) for n, s in enumerate(outputs) if s.number == k), None) for k in range(len(gives))]
    return Convention(
        _with(ours, slots),
        None if None in back else _with(theirs, [slot for slot in back if slot]),
        None if None in of_port else _with(mine.output, [slot for slot in of_port if slot]),
        tuple(outputs),
    )


def orders_of(convention: Convention | None) -> tuple[Order, ...]:
    """The orders of axes, other than its own, in which an array of the port's is one of the reference's."""
    if convention is None:
        return ()
    orders = [*(slot.order for slot in convention.outputs), *(_inverse(slot.order) for slot in leaves(convention.ours, Slot))]
    return tuple(dict.fromkeys(order for order in orders if order != tuple(range(len(order)))))


def turned(array: np.ndarray, orders: Sequence[Order]) -> Iterator[np.ndarray]:
    """An array, and the same with its axes in other orders."""
    yield array
    yield from (array.transpose(order) for order in orders if len(order) == array.ndim)


def same_numbers(array: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays hold the same numbers, with their axes in one order or another."""
    return any(_equal(array, other, order) for order in _orders(array, other))


def _slots(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[Slot] | None:
    """Which of the other side's arrays each is; by its numbers, else by place and shape. None where one is none of them."""
    found: list[Slot] = []
    for number, array in enumerate(arrays):
        free = [n for n in range(len(others)) if n not in {slot.number for slot in found}]
        candidates = sorted([*free, *(n for n in range(len(others)) if n not in free)], key=lambda n: (n not in free, n != number))
        slot = next(
            (Slot(n, order) for n in candidates for order in _orders(array, others[n]) if _equal(array, others[n], order)), None
        )
        if slot is None and number < len(others):
            slot = _by_shape(array, others[number], number)
        if slot is None:
            return None
        found.append(slot)
    return found


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


def _turned(array: np.ndarray | None, order: Order) -> np.ndarray | None:
    return None if array is None else array.transpose(order)


def _summed(slots: Sequence[Slot], gradients: MaybeArrays, arrays: Sequence[np.ndarray]) -> list[np.ndarray | None]:
    """The gradient of each floating array from those of the other side's floating arguments, each of which is one of them."""
    sums: dict[int, np.ndarray] = {}
    given = iter(gradients)
    for slot in slots:
        if arrays[slot.number].dtype.kind == "f" and (gradient := next(given, None)) is not None:
            gradient = gradient.transpose(_inverse(slot.order))
            sums[slot.number] = sums[slot.number] + gradient if slot.number in sums else gradient
    return [sums.get(number) for number, array in enumerate(arrays) if array.dtype.kind == "f"]


def _with(call: Any, slots: Sequence[Slot]) -> Any:
    """A call with slots in the place of its arrays, in order."""
    given = iter(slots)
    return mapped(call, np.ndarray, lambda _: next(given))


def _filled(template: Any, arrays: Sequence[np.ndarray]) -> Any:
    return mapped(template, Slot, lambda slot: arrays[slot.number].transpose(slot.order))


def _numbers(call: Any) -> set[Any]:
    """Numbers among the arguments, which may be sizes of this input alone."""
    return {value for value in leaves(call, (int, float)) if not isinstance(value, bool)}


def _form(call: Any) -> Any:
    """The structure of a call: its containers and names, without the arrays."""
    if isinstance(call, np.ndarray):
        return "array"
    if isinstance(call, dict):
        return {key: _form(value) for key, value in call.items()}
    if isinstance(call, tuple | list):
        return [_form(value) for value in call]
    return type(call).__name__
