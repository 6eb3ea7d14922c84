"""Pairs the children of two matched modules by name, kind, weights and order: a list of named passes over one score."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from alignment.frameworks.base import Description, Module

How = Literal["same", "moved", "replaced"]
Move = tuple[float, tuple[int, int]]  # score; how many of both sequences it takes


@dataclass(frozen=True)
class Part:
    """A module as pairing looks at it.

    Attributes:
        path, name: in its model, and in its parent.
        kind, title: what it computes, without the number of dimensions; its class's name.
        shapes: of the parameters and buffers in it, each sorted, since layouts differ.
        parameters: how many numbers its parameters hold; those of its buffers where it has none.
        forms: of the layers in it: kind, kernel, and whether it is grouped.
        tensors: shapes of its own parameters and buffers, each sorted.
    """

    path: str
    name: str
    module: Module
    kind: str
    title: str
    shapes: tuple[tuple[int, ...], ...]
    parameters: int
    forms: tuple[tuple, ...]
    tensors: tuple[tuple[int, ...], ...]


Pairs = list[tuple["Part | None", "Part | None", How]]


def joined(prefix: str, name: str) -> str:
    """A path of two parts."""
    return f"{prefix}.{name}" if prefix else name


def part_of(framework: Description, path: str, module: Module) -> Part:
    """A module of a model, at a path."""
    layer, entries = framework.layer(module), framework.entries(module)
    shapes = tuple(sorted(tuple(sorted(e.shape)) for e in entries))
    tensors = tuple(sorted(tuple(sorted(e.shape)) for e in entries if "." not in e.canonical))
    counted = [e.shape for e in entries if e.role == "parameter"] or [e.shape for e in entries]
    parameters = sum(map(math.prod, counted))
    kernels = {e.canonical.removesuffix("weight").rstrip("."): e.shape[2:] for e in entries if e.canonical.endswith("weight")}
    below = {name: framework.layer(m) for name, m in framework.modules(module).items() if not framework.children(m)}
    forms = tuple(sorted((_plain(m.kind), kernels.get(n, ()), m.settings.get("groups", 1) > 1) for n, m in below.items()))
    return Part(path, path.rpartition(".")[2], module, _plain(layer.kind), layer.title, shapes, parameters, forms, tensors)


def _plain(kind: str) -> str:
    return re.sub(r"[123]d", "", kind)


@dataclass
class Siblings:
    """The children of two matched modules while they are paired.

    Attributes:
        own, other: of the port and of the reference, in the order of definition or use.
        wanted: path of each of the port's -> the path in the reference that its name stands for.
        numbered: whether all names are numbers, which a missing layer shifts: they then say little.
        same: path in the port -> path in the reference, of those that are paired.
        how: path in the reference -> how, where that is said.
        between: paths in the reference of those that are paired since nothing else stands between the same neighbours.
    """

    own: Sequence[Part]
    other: Sequence[Part]
    wanted: Mapping[str, str]
    numbered: bool
    same: dict[str, str] = field(default_factory=dict)
    how: dict[str, How] = field(default_factory=dict)
    between: set[str] = field(default_factory=set)

    def left(self) -> tuple[list[Part], list[Part]]:
        """Those of the port and of the reference that are not paired yet."""
        taken = set(self.same.values())
        return [part for part in self.own if part.path not in self.same], [part for part in self.other if part.path not in taken]

    def in_order(self) -> dict[str, str]:
        """Those pairs that stand in the same order on both sides."""
        return {own: other for own, other in self.same.items() if self.how.get(other) != "moved" and other not in self.between}


def by_name(s: Siblings) -> None:
    """Those of the same name; a name that somebody gave goes before one that happens to be the same."""
    paths = {part.path for part in s.other}
    for part in sorted(s.own, key=lambda part: s.wanted[part.path].rpartition(".")[2] == part.name):
        if not s.numbered and s.wanted[part.path] in paths and s.wanted[part.path] not in s.same.values():
            s.same[part.path] = s.wanted[part.path]


def by_order(s: Siblings) -> None:
    """The best pairing that keeps both orders."""
    own, other = s.left()
    alike = [[similarity(a, b, s.wanted[a.path] == b.path, s.numbered) for b in other] for a in own]
    for i, j, _, _ in best_moves(len(own), len(other), lambda i, j: [(alike[i][j], (1, 1))] if alike[i][j] > 0 else []):
        s.same[own[i].path] = other[j].path


def by_weights(s: Siblings) -> None:
    """Those of one kind, with weights of one form, that stand in different places."""
    for theirs in s.left()[1]:
        found = [part for part in s.left()[0] if _alike(part, theirs, s.numbered)]
        if len(found) == 1 or (found and s.numbered):
            s.same[found[0].path] = theirs.path
            s.how[theirs.path] = "moved" if s.numbered else "same"


def by_neighbours(s: Siblings) -> None:
    """Those that stand between the same neighbours, whatever they are: one replaces the other."""
    for theirs in s.left()[1]:
        gap = _before(theirs, s.other, {path: path for path in s.in_order().values()})
        part = next((one for one in s.left()[0] if _before(one, s.own, s.in_order()) == gap), None)
        if part is not None:
            s.same[part.path] = theirs.path
            s.how[theirs.path] = "replaced" if (theirs.parameters or part.parameters) and not of_a_kind(theirs, part) else "same"
            s.between.add(theirs.path)


SiblingsPass = Callable[[Siblings], None]
PASSES: tuple[SiblingsPass, ...] = (by_name, by_order, by_weights, by_neighbours)


def paired(
    own: Sequence[Part], other: Sequence[Part], wanted: Mapping[str, str], numbered: bool, passes: Iterable[SiblingsPass] = PASSES
) -> Pairs:
    """The children of two matched modules, in the reference's order; what only the port has stands where the port has it.

    Args:
        own, other, wanted, numbered: of ``Siblings``.
        passes: that pair them, in order.
    """
    siblings = Siblings(own, other, wanted, numbered)
    for one in passes:
        one(siblings)
    return _in_order(own, other, siblings.same, siblings.how, siblings.in_order())


def best_moves(rows: int, columns: int, moves: Callable[[int, int], Iterable[Move]]) -> list[tuple[int, int, int, int]]:
    """The best alignment of two sequences that keeps both orders: (row, column, rows taken, columns taken) of each move.

    Args:
        rows, columns: lengths of the sequences.
        moves: gives the score of each move that can be made from a row and a column, with how many of both it takes.
    """
    score = np.zeros((rows + 1, columns + 1))
    step: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best, move = (score[i + 1, j], (1, 0)) if score[i + 1, j] > score[i, j + 1] else (score[i, j + 1], (0, 1))
            for value, (a, b) in moves(i, j):
                if value + score[i + a, j + b] >= best:
                    best, move = value + score[i + a, j + b], (a, b)
            score[i, j], step[i, j] = best, move
    found, i, j = [], 0, 0
    while i < rows and j < columns:
        a, b = step[i, j]
        if a and b:
            found.append((i, j, a, b))
        i, j = i + a, j + b
    return found


def _in_order(
    own: Sequence[Part], other: Sequence[Part], same: Mapping[str, str], how: Mapping[str, How], in_order: Mapping[str, str]
) -> Pairs:
    partner = {path: part for part in own if (path := same.get(part.path))}
    pairs: Pairs = [(partner.get(theirs.path), theirs, how.get(theirs.path, "same")) for theirs in other]
    for mine in own:
        if mine.path not in same:
            before = _before(mine, own, in_order)
            place = max((i + 1 for i, (_, theirs, _) in enumerate(pairs) if theirs and theirs.path in before), default=0)
            while place < len(pairs) and pairs[place][1] is None:
                place += 1
            pairs.insert(place, (mine, None, "same"))
    return pairs


def _before(part: Part, siblings: Sequence[Part], known: Mapping[str, str]) -> frozenset[str]:
    """The paired modules that stand before one, by the reference's paths."""
    return frozenset(known[one.path] for one in siblings[: siblings.index(part)] if one.path in known)


def _alike(a: Part, b: Part, numbered: bool) -> bool:
    """Whether two modules that stand in different places can be the same one: of one kind, and with weights of one form."""
    if a.kind != b.kind or bool(a.shapes) != bool(b.shapes):
        return False
    return (a.shapes == b.shapes and (bool(a.shapes) or numbered)) or (numbered and a.forms == b.forms)


def of_a_kind(a: Part, b: Part) -> bool:
    """Whether one of two modules can stand for the other: a linear layer for a convolution by 1 x 1, transposed for plain."""
    kinds = {a.kind, b.kind}
    if kinds == {"conv", "linear"}:
        conv = a if a.kind == "conv" else b
        return all(set(kernel) == {1} and not grouped for _, kernel, grouped in conv.forms)
    return len(kinds) == 1 or kinds == {"conv", "conv_transpose"}


def similarity(a: Part, b: Part, same_name: bool, numbered: bool) -> float:
    """How well two modules fit; 0 where they do not."""
    if bool(a.shapes) != bool(b.shapes):
        return 0.0
    alike = 3.0 * _share(a.shapes, b.shapes) + 1.5 * _share(a.forms, b.forms) + float(of_a_kind(a, b))
    if a.shapes and alike < 1.0:
        return 0.0
    return alike + (0.1 if same_name and numbered else 0.0)


def _share(a: Sequence[Any], b: Sequence[Any]) -> float:
    """How much two collections have in common, 0..1."""
    mine, theirs = Counter(a), Counter(b)
    whole = (mine | theirs).total()
    return (mine & theirs).total() / whole if whole else 0.0
