"""How well layers of two models fit, whatever they lie in and are called: the score of the passes that pair them, and their state.

One layer of a side may hold the weights of several of the other (a packed query-key-value); they become links between tensors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from alignment.models.links import Link, as_links, covered, plain, same_kernels, solved
from alignment.models.units import Unit, Use, lies_turned, may_turn
from mobilenetv3_common.weights import Entry

AS_MANY = 0.5  # less than what the names of two layers add


@dataclass
class Sequenced:
    """What was paired.

    Attributes:
        pairs: of units that are the same layer.
        links: between tensors, for what is packed, split or called otherwise.
        groups: units of the port and of the reference that such links join, in the order of use.
    """

    pairs: list[tuple[Unit, Unit]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    groups: list[tuple[list[Unit], list[Unit], list[Link]]] = field(default_factory=list)


@dataclass
class Sequencer:
    """Two models while their units are paired, and the score by which the passes (``alignment.models.passes``) pair them.

    Args:
        own, other: units of the port and of the reference in the order of use, without those that a person has paired.
        uses: of the port and of the reference.

    Attributes:
        found: what is paired so far.
        homes: modules of the port -> modules of the reference in which their layers must lie, where that is known.
    """

    own: list[Unit]
    other: list[Unit]
    uses: tuple[Use, Use]
    found: Sequenced = field(default_factory=Sequenced)
    homes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heavy = [[unit for unit in side if unit.entries] for side in (self.own, self.other)]
        self.kept = [{unit.path: unit for unit in side} for side in self.heavy]

    def score(self, mine: Unit, theirs: Unit) -> float:
        """How well two units fit; 0 where they do not."""
        mark = likeness(mine, theirs) + (1.0 if mine.part.kind == theirs.part.kind else 0.0)
        if mine.path != theirs.path and self._exchanged(mine, theirs):
            return 0.0
        if any(self.homes.get(path, theirs.path) not in (theirs.path, *above(theirs.path)) for path in above(mine.path)):
            return 0.0
        if mine.tensors == theirs.tensors:
            return 4.0 + mark
        if not (mine.leaf or theirs.leaf) or not same_numbers(mine, theirs):
            return 0.0  # of two, one may be an attention that holds its projections itself
        return 3.0 + mark

    def _exchanged(self, mine: Unit, theirs: Unit) -> bool:
        """Whether one of the two has a namesake that could be its counterpart: layers whose names are exchanged are no renaming."""
        namesakes = [
            (one, others[one.path])
            for one, others in ((mine, self.kept[1]), (theirs, self.kept[0]))
            if one.path in others and not one.part.name.isdigit()
        ]
        return len(namesakes) == 2 or any(one.tensors == other.tensors for one, other in namesakes)

    def given_alike(self, mine: Unit, theirs: Unit) -> float:
        """What it adds to the score of a packed layer that both are given as many numbers: of a sample, or of each token."""
        given = [use.inputs.get(unit.path) for use, unit in zip(self.uses, (mine, theirs), strict=True)]
        return AS_MANY if given[0] is not None and given[1] is not None and given[0].size == given[1].size else 0.0

    def beside(self, whole: Unit, parts: Sequence[Unit], number: int) -> bool:
        """Whether one unit can hold the matrices of several side by side; ``number`` is the side of these."""
        if side_by_side(whole, parts) is None:
            return False
        given = [self.uses[side].inputs.get(unit.path) for side, unit in [(1 - number, whole), *((number, part) for part in parts)]]
        rows = {one.size // one.shape[-1] for one in given if one is not None and one.ndim and one.dtype.kind == "f"}
        return len(rows) <= 1  # what is concatenated has as many rows

    def packs(self, whole: Unit, parts: Sequence[Unit], number: int) -> bool:
        """Whether one unit can hold the weights of several; ``number`` is the side of these."""
        given = [self.uses[number].inputs.get(part.path) for part in parts]
        known = [one for one in given if one is not None]
        of_one = len(known) == len(given) and _of_one(known)
        places = {part.path.rpartition(".")[0] for part in parts}
        numbered = len({re.sub(r"\d+", "", part.path) for part in parts}) == 1  # a layer of each block
        if (len(places) > 2 and not (numbered or of_one)) or any(part.path == whole.path for part in parts):
            return False
        if not all(part.rows for part in parts):
            return False  # a scale of a module's own is no part of a layer
        solution, _ = packing(whole, parts)
        if solution is None:
            return False
        if not whole.leaf or (len(whole.entries) > 2 and "conv" not in whole.part.kind):
            return True  # a recurrent layer, or an attention that packs its own projections
        return given[0] is None or of_one

    def splits(self, whole: Unit, parts: Sequence[Unit], number: int) -> bool:
        """Whether one unit can hold the weights of several that share out its channels; ``number`` is the side of these."""
        given = [self.uses[number].inputs.get(part.path) for part in parts]
        taken, known = self.uses[1 - number].inputs.get(whole.path), [one.size for one in given if one is not None]
        if taken is None or len(known) < len(parts) or sum(known) != taken.size:
            return False
        return packing(whole, parts)[0] is not None

    def chained(self, wholes: Sequence[Unit], parts: Sequence[Unit], number: int) -> list[tuple[Unit, list[Unit]]]:
        """The parts of a packed layer and of the normalisation behind it, which may stand behind each part; none if it is not so.

        Args:
            wholes: the packed layer, and the one behind it, which has a number for each channel.
            parts: as many of each kind, in the order of use.
            number: the side of the parts.
        """
        layer, behind = wholes
        if behind.rows or behind.part.kind == layer.part.kind or not (layer.leaf and behind.leaf):
            return []
        half = len(parts) // 2
        for first, rest in ((list(parts[::2]), list(parts[1::2])), (list(parts[:half]), list(parts[half:]))):
            kinds = {part.part.kind for part in first}, {part.part.kind for part in rest}
            if kinds == ({layer.part.kind}, {behind.part.kind}) and packing(behind, rest)[0] and self.packs(layer, first, number):
                return [(layer, first), (behind, rest)]
        return []

    def take(self, mine: list[Unit], theirs: list[Unit]) -> None:
        if len(mine) > 1 and len(theirs) > 1:
            number = int(len(mine) < len(theirs))
            for whole, parts in self.chained(*((mine, theirs, 1) if number else (theirs, mine, 0))):
                self.take(*(([whole], parts) if number else (parts, [whole])))
            return
        if len(mine) == len(theirs) == 1:
            a, b = mine[0], theirs[0]
            if a.tensors == b.tensors:
                self.found.pairs.append((a, b))
                if a.part.kind != b.part.kind and may_turn(a, b):  # a square matrix may lie either way: values say how
                    both = zip(sorted(a.entries, key=_last), sorted(b.entries, key=_last), strict=True)
                    self.found.links += [Link((x.canonical,), (y.canonical,)) for x, y in both if _square(x)]
                return
            links = [
                Link((x.canonical,), (y.canonical,), transposed=lies_turned(x, y))
                for x, y in zip(a.entries, b.entries, strict=True)
            ]
            if a.part.kind == b.part.kind:
                pairs = zip(links, a.entries, b.entries, strict=True)
                links = [link for link, x, y in pairs if _last(x) != _last(y) or x.shape != y.shape]
            if a.part.kind == b.part.kind:
                self.found.pairs.append((a, b))
        else:
            packed = len(mine) == 1
            whole, parts = (mine[0], theirs) if packed else (theirs[0], mine)
            solution, turned = packing(whole, parts)
            if solution is None:
                links = [link if packed else _reversed(link) for link in side_by_side(whole, parts) or ()]
            else:
                links = as_links(solution, packed)
            if turned:
                matrices = {entry.canonical for entry in whole.entries if len(entry.shape) >= 2}
                links = [replace(link, transposed=bool(matrices & {*link.port, *link.reference})) for link in links]
        self.found.links += links
        self.found.groups.append((mine, theirs, links))

    def left(self) -> list[list[Unit]]:
        """Units of both sides whose tensors have no counterpart yet."""
        named = covered(self.found.links)
        taken = [{id(pair[side]) for pair in self.found.pairs} for side in (0, 1)]
        return [
            [u for u in units if id(u) not in taken[side] and not all(e.canonical in named[side] for e in u.entries)]
            for side, units in enumerate(self.heavy)
        ]

    def nearness(self) -> Callable[[Unit, Unit], float]:
        """How far the modules around two units hold layers that are paired with each other: 1 for each two that hold no others."""
        together: Counter[tuple[str, str]] = Counter()
        ours: Counter[str] = Counter()
        theirs: Counter[str] = Counter()
        linked = [(a[0], b[0]) for a, b, _ in self.found.groups if len(a) == len(b) == 1 and (a[0], b[0]) not in self.found.pairs]
        for mine, other in [*self.found.pairs, *linked]:
            ours.update(above(mine.path))
            theirs.update(above(other.path))
            together.update((a, b) for a in above(mine.path) for b in above(other.path))

        def near(mine: Unit, other: Unit) -> float:
            both = [(a, b) for a in above(f"{mine.path}.") for b in above(f"{other.path}.") if (a, b) in together]
            return sum(together[a, b] / max(ours[a], theirs[b]) for a, b in both)

        return near


def _of_one(given: Sequence[np.ndarray]) -> bool:
    """Whether layers are given one array, or some of them tokens of it: the query of a class token, and all the others' keys."""
    whole = max(given, key=lambda one: one.size)
    if all(np.array_equal(whole, one) for one in given):
        return True
    if len({one.shape[-1:] for one in given}) > 1 or whole.ndim < 3:
        return False
    tokens = {row.tobytes() for row in whole.reshape(-1, whole.shape[-1])}
    return all(row.tobytes() in tokens for one in given for row in one.reshape(-1, one.shape[-1]))


def same_numbers(mine: Unit, theirs: Unit) -> bool:
    """Whether two layers hold tensors of the same numbers in the same order, under other names or in other shapes."""
    both = list(zip(mine.entries, theirs.entries, strict=False))
    turned = may_turn(mine, theirs)
    same = len(mine.entries) == len(theirs.entries) and all(
        a.role == b.role and (plain(a.shape) == plain(b.shape) or same_kernels(a.shape, b.shape) or (turned and lies_turned(a, b)))
        for a, b in both
    )
    of_a_kind = mine.part.kind == theirs.part.kind or mine.own != theirs.own  # a normalisation of somebody's own
    return same and (of_a_kind or any(min(len(a.shape), len(b.shape)) > 1 for a, b in both))


def packing(whole: Unit, parts: Sequence[Unit]) -> tuple[list[tuple[tuple[str, ...], tuple[str, ...], bool]] | None, bool]:
    """How one unit holds the weights of several (``solved``), and whether its matrix lies transposed."""
    inside = [entry for part in parts for entry in part.entries]
    if all(part.tensors.keys() == whole.tensors.keys() for part in parts):  # which is whose is said by the names
        of = {name: [entry for entry in inside if _last(entry) == name] for name in whole.tensors}
        if all(_holds(entry, of[_last(entry)]) for entry in whole.entries):
            return [((entry.canonical,), tuple(one.canonical for one in of[_last(entry)]), False) for entry in whole.entries], False
        order = list(map(_last, whole.entries))
        inside.sort(key=lambda entry: order.index(_last(entry)))
    solution = solved(whole.entries, inside)
    matrices = [entry for entry in inside if len(entry.shape) > 1]
    if solution is None and matrices and all(len(entry.shape) > 1 for entry in whole.entries):
        solution = solved(whole.entries, matrices)  # what holds the packed layer may hold some of the biases itself
    if solution is None and (kernels := [entry for entry in whole.entries if len(entry.shape) > 2]):
        return solved(whole.entries, _as_kernels(parts, kernels[0].shape[1:])), True
    if solution is not None or not whole.columns:
        return solution, False
    turned = [replace(entry, shape=entry.shape[::-1]) if len(entry.shape) == 2 else entry for entry in whole.entries]
    return solved(turned, inside), True


def _holds(whole: Entry, parts: Sequence[Entry]) -> bool:
    """Whether one tensor can hold the rows of several, one behind another."""
    inside = {plain(one.shape[1:]) for one in parts}
    return whole.shape[:1] == (sum(one.shape[0] for one in parts if one.shape),) and inside == {plain(whole.shape[1:])}


def _as_kernels(parts: Sequence[Unit], kernel: tuple[int, ...]) -> list[Entry]:
    """Tensors of layers of somebody's own whose matrices are kernels of single channels with the channels last, as a layer's."""
    turns = lambda unit, entry: unit.own and len(entry.shape) == 2 and entry.shape[:1] == plain(kernel)  # noqa: E731
    return [
        replace(entry, shape=(entry.shape[1], *kernel)) if turns(part, entry) else entry for part in parts for entry in part.entries
    ]


def side_by_side(whole: Unit, parts: Sequence[Unit]) -> list[Link] | None:
    """Links, of a port that is ``whole``, where one embedding or linear layer holds the matrices of several side by side."""
    kind = whole.part.kind
    if kind not in ("embedding", "linear"):
        return None
    every = [whole, *parts]
    if any(not unit.leaf or unit.own or unit.part.kind != kind for unit in every):
        return None
    matrices = [[entry for entry in unit.entries if len(entry.shape) == 2] for unit in every]
    vectors = [[entry for entry in unit.entries if len(entry.shape) == 1] for unit in every]
    if any(len(found) != 1 for found in matrices) or len({found[0].shape[0] for found in matrices}) > 1:
        return None
    inside = [found[0] for found in matrices[1:]]
    if sum(entry.shape[1] for entry in inside) != matrices[0][0].shape[1]:
        return None
    links = [Link((matrices[0][0].canonical,), tuple(entry.canonical for entry in inside), columns=True)]
    biases = [entry for found in vectors[1:] for entry in found]
    if bool(vectors[0]) != bool(biases) or len(biases) > 2:
        return None
    if biases:  # two are added up, as their layers' outputs are
        bias = (vectors[0][0].canonical,)
        links.append(Link(bias, tuple(entry.canonical for entry in biases), added=len(biases) == 2))
    return links


def _reversed(link: Link) -> Link:
    return replace(link, port=link.reference, reference=link.port)


def _square(entry: Entry) -> bool:
    return len(entry.shape) == 2 and entry.shape[0] == entry.shape[1]


def _last(entry: Entry) -> str:
    return entry.canonical.rpartition(".")[2]


def shared(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(len(a | b), 1)


def above(path: str) -> list[str]:
    """The modules that a path lies in, the whole model left out."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def likeness(mine: Unit, theirs: Unit) -> float:
    """How much two names have in common, below 1."""
    return 0.9 * shared(mine.words, theirs.words)
