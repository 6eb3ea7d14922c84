"""Pairs modules of two models by name, kind, weights and order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from alignment.frameworks.base import Framework, Module

How = Literal["same", "moved", "replaced"]


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


def part_of(framework: Framework, path: str, module: Module) -> Part:
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


def paired(own: Sequence[Part], other: Sequence[Part], wanted: Mapping[str, str], numbered: bool) -> Pairs:
    """The children of two matched modules, in the reference's order; what only the port has stands where the port has it.

    Args:
        own, other: of the port and of the reference, in the order of definition or use.
        wanted: path of each of the port's -> the path in the reference that its name stands for.
        numbered: whether all names are numbers, which a missing layer shifts: they then say little.
    """
    paths = {part.path for part in other}
    same: dict[str, str] = {}
    if not numbered:  # a name that somebody gave goes before one that happens to be the same
        for part in sorted(own, key=lambda part: wanted[part.path].rpartition(".")[2] == part.name):
            if wanted[part.path] in paths and wanted[part.path] not in same.values():
                same[part.path] = wanted[part.path]
    rest = [part for part in own if part.path not in same], [part for part in other if part.path not in same.values()]
    same |= _sequence(*rest, wanted, numbered)
    how: dict[str, How] = {}
    missing = [part for part in other if part.path not in same.values()]
    extra = [part for part in own if part.path not in same]
    for theirs in missing:
        found = [part for part in extra if part.path not in same and _alike(part, theirs, numbered)]
        if len(found) == 1 or (found and numbered):
            same[found[0].path] = theirs.path
            how[theirs.path] = "moved" if numbered else "same"
    in_order = {mine: theirs for mine, theirs in same.items() if how.get(theirs) != "moved"}
    for theirs in missing:
        gap = _before(theirs, other, {path: path for path in in_order.values()})
        for part in extra:
            if theirs.path not in same.values() and part.path not in same and _before(part, own, in_order) == gap:
                same[part.path] = theirs.path
                weights = theirs.parameters or part.parameters
                how[theirs.path] = "replaced" if weights and theirs.kind != part.kind else "same"
    return _in_order(own, other, same, how, in_order)


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


def _sequence(own: Sequence[Part], other: Sequence[Part], wanted: Mapping[str, str], numbered: bool) -> dict[str, str]:
    """The best pairing in order: path in the port -> path in the reference."""
    score = [[0.0] * (len(other) + 1) for _ in range(len(own) + 1)]
    alike = [[_similarity(a, b, wanted[a.path] == b.path, numbered) for b in other] for a in own]
    for i in range(len(own) - 1, -1, -1):
        for j in range(len(other) - 1, -1, -1):
            with_pair = alike[i][j] + score[i + 1][j + 1] if alike[i][j] > 0 else 0.0
            score[i][j] = max(score[i + 1][j], score[i][j + 1], with_pair)
    pairs: dict[str, str] = {}
    i = j = 0
    while i < len(own) and j < len(other):
        if alike[i][j] > 0 and score[i][j] == alike[i][j] + score[i + 1][j + 1]:
            pairs[own[i].path] = other[j].path
            i, j = i + 1, j + 1
        elif score[i][j] == score[i][j + 1]:
            j += 1
        else:
            i += 1
    return pairs


def _similarity(a: Part, b: Part, same_name: bool, numbered: bool) -> float:
    if bool(a.shapes) != bool(b.shapes):
        return 0.0
    alike = 3.0 * _share(a.shapes, b.shapes) + 1.5 * _share(a.forms, b.forms) + (1.0 if a.kind == b.kind else 0.0)
    if a.shapes and alike < 1.0:
        return 0.0
    return alike + (0.1 if same_name and numbered else 0.0)


def _share(a: Sequence[Any], b: Sequence[Any]) -> float:
    """How much two collections have in common, 0..1."""
    mine, theirs = Counter(a), Counter(b)
    whole = (mine | theirs).total()
    return (mine & theirs).total() / whole if whole else 0.0
