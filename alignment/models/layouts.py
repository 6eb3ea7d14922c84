"""How the axes of a tensor may lie that holds another one, or several: by tap, by head, packed, transposed."""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
from collections.abc import Iterator, Sequence

SPLIT = 10  # how much less plain a layout is that splits an axis than one that takes two axes the other way round
PART = "part"  # the axis of a layout that counts the parts
Sizes = tuple[int, ...]


@functools.cache
def layouts(whole: Sizes, part: Sizes, count: int = 1) -> Sequence[str]:
    """Layouts by which a tensor holds so many others of one shape, the plainest first.

    Args:
        whole: its shape.
        part: the shape of each other.
        count: how many there are.
    """
    if math.prod(whole) != count * math.prod(part):
        return ()
    found: list[tuple[int, str]] = []
    for axis, groups in _divided(whole, count):
        for split in _split(whole, part, axis, groups, count):
            found += _arranged(split, part, count > 1)
    return tuple(dict.fromkeys(text for _, text in sorted(found, key=lambda one: one[0])))


def _divided(whole: Sizes, count: int) -> Iterator[tuple[int, int]]:
    """Which axis may count the parts, and in how many groups around them; one axis that there is not where there is one part."""
    if count == 1:
        yield -1, 1
    for axis, size in enumerate(whole if count > 1 else ()):
        if size % count == 0:
            yield from ((axis, groups) for groups in range(1, size // count + 1) if size // count % groups == 0)


SplitAxes = list[list[tuple[str, int]]]  # of each axis its parts, by name


def _split(whole: Sizes, part: Sizes, axis: int, groups: int, count: int) -> Iterator[SplitAxes]:
    """The axes of a tensor, each split as the axes of a part demand it."""
    options: list[list[list[int]]] = []
    for place, size in enumerate(whole):
        if place == axis:
            options.append([[groups, -count, size // count // groups]])
            continue
        several = [
            [part[i] for i in order]
            for length in range(2, len(part) + 1) if len(part) > len([n for n in whole if n > 1]) - (axis >= 0)
            for order in itertools.permutations([i for i, n in enumerate(part) if n > 1], length)
            if math.prod(part[i] for i in order) == size
        ]  # fmt: skip
        options.append([[size], *several])
    for chosen in itertools.product(*options):
        names = iter(string.ascii_lowercase)
        yield [[(PART if size < 0 else next(names), abs(size)) for size in sizes if size != 1] for sizes in chosen]


def _arranged(axes: SplitAxes, part: Sizes, counted: bool) -> Iterator[tuple[int, str]]:
    """The orders in which the axes' parts make up a shape: how far each is from how they lie, and its layout."""
    atoms = [atom for axis in axes for atom in axis if atom[0] != PART]
    wanted = [size for size in part if size != 1]
    for order in itertools.permutations(range(len(atoms))):
        joined = _joined([atoms[place] for place in order], wanted)
        if joined is None:
            continue
        groups = iter(joined)
        right = [_group(next(groups)) if size != 1 else "1" for size in part]
        left = [_group(axis) if axis else "1" for axis in axes]
        sizes = "".join(f", {name}={size}" for axis in [*axes, *joined] if len(axis) > 1 for name, size in axis)
        turns = sum(a > b for a, b in itertools.combinations(order, 2)) + SPLIT * sum(len(axis) > 1 for axis in axes)
        yield turns, f"{' '.join(left)} -> {' '.join([*([PART] if counted else []), *right])}{_once(sizes)}"


def _once(sizes: str) -> str:
    return "".join(dict.fromkeys(f",{one}" for one in sizes.split(",") if one))


@functools.cache
def inputs_first(layout: str) -> bool | None:
    """Whether a matrix (outputs, inputs, ...) lies with the inputs before the outputs; None of what has one axis."""
    left, _, right = layout.partition(",")[0].partition("->")
    axes = [re.findall(r"[a-z]+", one) for one in re.findall(r"\([^)]*\)|\S+", right) if one != PART]
    names, axes = re.findall(r"[a-z]+", left), [axis for axis in axes if axis]
    return None if len(axes) < 2 else names.index(axes[1][0]) < names.index(axes[0][0])


@functools.cache
def in_order(layout: str) -> bool:
    """Whether the axes of a part lie as they do in the whole."""
    names = re.findall(r"\b[a-z]\b", layout.partition("->")[2].partition(",")[0])
    return names == sorted(names)


def _joined(atoms: Sequence[tuple[str, int]], wanted: Sequence[int]) -> SplitAxes | None:
    """The parts of axes, in this order, joined to axes of the sizes that are wanted; None where they do not fit."""
    found: SplitAxes = []
    waiting = list(atoms)
    for size in wanted:
        axis: list[tuple[str, int]] = []
        while waiting and math.prod(n for _, n in axis) < size:
            axis.append(waiting.pop(0))
        if math.prod(n for _, n in axis) != size:
            return None
        found.append(axis)
    return None if waiting else found


def _group(axis: Sequence[tuple[str, int]]) -> str:
    names = " ".join(name for name, _ in axis)
    return f"({names})" if len(axis) > 1 else names
