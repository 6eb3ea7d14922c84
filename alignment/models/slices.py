"""Tensors of different sizes in one, one behind another: queries and keys of fewer heads, the input and the state of a cell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alignment.models.layouts import Sizes
from alignment.models.links import Link

MOST = 4  # tensors in one


@dataclass(frozen=True)
class Slice:
    """A part of a tensor.

    Attributes:
        turned: whether the tensor, a matrix, lies transposed.
        axis: of the part on which others lie before and behind it.
        start, size: of the part on that axis.
    """

    turned: bool
    axis: int
    start: int
    size: int

    @property
    def layout(self) -> str:
        return "a b -> b a" if self.turned else "a b -> a b"

    @property
    def stop(self) -> int:
        return self.start + self.size

    def into(self, whole: np.ndarray, part: np.ndarray) -> np.ndarray:
        """The whole tensor, which holds the part in its place."""
        given = np.array(whole.T if self.turned else whole)
        given[(slice(None),) * self.axis + (slice(self.start, self.stop),)] = part
        return given.T if self.turned else given


def slices(whole: Sizes, shapes: Sequence[Sizes], number: int) -> Iterator[Slice]:
    """Where one of several tensors may lie in a larger one, which holds it and its neighbours, the likeliest place first.

    Args:
        whole: shape of the larger one.
        shapes: of the tensors of the other side, in the order in which they are used.
        number: which of them is meant.
    """
    part = shapes[number]
    for turned, axis in itertools.product((False, True) if len(part) == 2 else (False,), range(len(part))):
        held = whole[::-1] if turned else whole
        for together in _neighbours(held, shapes, number, axis):
            if len({shapes[one][axis] for one in together}) == 1:
                continue  # equal parts
            others = [shapes[one][axis] for one in together if one != number]
            sums = {sum(some) for count in range(len(others) + 1) for some in itertools.combinations(others, count)}
            before = sum(shapes[one][axis] for one in together if one < number)
            yield from (Slice(turned, axis, start, part[axis]) for start in sorted(sums, key=lambda one: (one != before, one)))


def _neighbours(held: Sizes, shapes: Sequence[Sizes], number: int, axis: int) -> Iterator[tuple[int, ...]]:
    """Tensors, this one among them, that are as large as another one together: used one after another, or any two."""
    other = _but(held, axis)
    fits = [len(one) == len(held) and _but(one, axis) == other for one in shapes]
    for first, last in itertools.product(range(max(0, number - MOST + 1), number + 1), range(number + 1, number + MOST + 1)):
        run = tuple(range(first, last))
        several = 1 < len(run) <= MOST and last <= len(shapes) and all(fits[one] for one in run)
        if several and sum(shapes[one][axis] for one in run) == held[axis]:
            yield run
    for one in (one for one in range(len(shapes)) if one != number and fits[one] and fits[number]):
        if shapes[one][axis] + shapes[number][axis] == held[axis]:
            yield (min(one, number), max(one, number))


def _but(shape: Sizes, axis: int) -> Sizes:
    return (*shape[:axis], *shape[axis + 1 :])


def as_link(own: str, whole: Sizes, held: Sequence[tuple[Slice, str]], turned_back: bool) -> Link | None:
    """The tensor of a side that holds others of the other side; None where there is a gap.

    Args:
        own: its name.
        whole: its shape.
        held: the parts, and the tensors that they are.
        turned_back: whether the tensor is the reference's.
    """
    parts = sorted(held, key=lambda one: one[0].start)
    one = parts[0][0]
    stops = [0, *itertools.accumulate(part.size for part, _ in parts)]
    placed = [(part.turned, part.axis, part.start) for part, _ in parts]
    if placed != [(one.turned, one.axis, at) for at in stops[:-1]] or stops[-1] != (whole[::-1] if one.turned else whole)[one.axis]:
        return None
    names = tuple(name for _, name in parts)
    link = Link((own,), names, transposed=one.turned, columns=one.axis == 1)
    return replace(link, port=names, reference=(own,)) if turned_back else link
