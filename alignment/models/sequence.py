"""Pairs the layers of two models in the order of use, whatever they lie in and are called.

One layer of a side may hold the weights of several of the other (a packed query-key-value); they become links between tensors.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from alignment.models.links import Link, as_links, covered, is_stack, plain, same_kernels, solved
from alignment.models.units import Unit, Use, lies_turned, may_turn, words_of_tensor
from mobilenetv3_common.weights import Entry

MOST_PARTS = 8  # layers whose weights one layer of the other side may hold: the gates of an LSTM

MOST = 0.75  # of a module's layers lie in one module of the other side: then the others are looked for there


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
    """Pairs the units of two models.

    Args:
        own, other: units of the port and of the reference in the order of use, without those that a person has paired.
        uses: of the port and of the reference.
    """

    own: list[Unit]
    other: list[Unit]
    uses: tuple[Use, Use]
    found: Sequenced = field(default_factory=Sequenced)
    _homes: dict[str, str] = field(default_factory=dict)

    def paired(self) -> Sequenced:
        """The pairs and links."""
        heavy = [[unit for unit in side if unit.entries] for side in (self.own, self.other)]
        self._kept = [{unit.path: unit for unit in side} for side in heavy]
        self._in_order(*heavy)
        if any(self._left(heavy)):  # what has no counterpart may have shifted its neighbours into other modules
            self._elsewhere(*self._left(heavy))  # what is used in another order has one: where the rest lies says the home of both
            self._homes = self._homes_of(self.found.pairs)
            self.found = Sequenced()
            self._in_order(*heavy)
        self._elsewhere(*self._left(heavy))
        self._packed_apart()
        self._joined_apart(heavy)
        self._namesakes(heavy)
        self._stacked(heavy)
        self._loose(*self._left(heavy))
        self._loose_parts(heavy)
        self._other_width(*heavy)
        self._light()
        return self.found

    # --- layers of the same tensors, and packed ones ------------------------------------------------------------------------

    def _in_order(self, own: list[Unit], other: list[Unit]) -> None:
        """The best pairing that keeps both orders."""
        rows, columns = len(own), len(other)
        score = np.zeros((rows + 1, columns + 1))
        step: dict[tuple[int, int], tuple[int, int]] = {}
        for i in range(rows - 1, -1, -1):
            for j in range(columns - 1, -1, -1):
                best, move = (score[i + 1, j], (1, 0)) if score[i + 1, j] > score[i, j + 1] else (score[i, j + 1], (0, 1))
                for value, (a, b) in self._moves(own, other, i, j):
                    if value + score[i + a, j + b] >= best:
                        best, move = value + score[i + a, j + b], (a, b)
                score[i, j], step[i, j] = best, move
        i = j = 0
        while i < rows and j < columns:
            a, b = step[i, j]
            if a and b:
                self._take(own[i : i + a], other[j : j + b])
            i, j = i + a, j + b

    def _moves(self, own: list[Unit], other: list[Unit], i: int, j: int) -> Iterable[tuple[float, tuple[int, int]]]:
        if (value := self._alike(own[i], other[j])) > 0:
            yield value, (1, 1)
        for whole, units, start, number in ((other[j], own, i, 0), (own[i], other, j, 1)):
            for count in range(2, min(MOST_PARTS, len(units) - start) + 1):
                parts = units[start : start + count]
                behind = sum(part.rows for part in parts) in (whole.rows, whole.columns) and self._packs(whole, parts, number)
                if behind or _side_by_side(whole, parts) is not None:
                    move = (count, 1) if number == 0 else (1, count)
                    yield 2.0 * (count + 1) + (1.0 if behind else 0.5) + _likeness(own[i], other[j]), move

    def _alike(self, mine: Unit, theirs: Unit) -> float:
        """How well two units fit; 0 where they do not."""
        mark = _likeness(mine, theirs) + (1.0 if mine.part.kind == theirs.part.kind else 0.0)
        if mine.path != theirs.path and self._exchanged(mine, theirs):
            return 0.0
        if any(self._homes.get(path, theirs.path) not in (theirs.path, *_above(theirs.path)) for path in _above(mine.path)):
            return 0.0
        if mine.tensors == theirs.tensors:
            return 4.0 + mark
        if not (mine.leaf or theirs.leaf) or not _same_numbers(mine, theirs):
            return 0.0  # of two, one may be an attention that holds its projections itself
        return 3.0 + mark

    def _homes_of(self, pairs: Sequence[tuple[Unit, Unit]]) -> dict[str, str]:
        """Modules of the port whose layers are, all but a few, those of one module of the reference, and of no larger one."""
        counts: dict[str, Counter[str]] = {}
        for mine, theirs in pairs:
            for path in _above(mine.path):
                counts.setdefault(path, Counter()).update(_above(theirs.path))
        homes = {}
        for path, found in counts.items():
            total = sum(1 for mine, _ in pairs if mine.path.startswith(f"{path}."))
            smallest = [other for other, count in found.items() if count >= MOST * total]
            if total >= 3 and smallest:
                homes[path] = max(smallest, key=lambda other: other.count("."))
        return homes

    def _exchanged(self, mine: Unit, theirs: Unit) -> bool:
        """Whether one of the two has a namesake that could be its counterpart: layers whose names are exchanged are no renaming."""
        namesakes = [
            (one, others[one.path])
            for one, others in ((mine, self._kept[1]), (theirs, self._kept[0]))
            if one.path in others and not one.part.name.isdigit()
        ]
        return len(namesakes) == 2 or any(one.tensors == other.tensors for one, other in namesakes)

    def _packs(self, whole: Unit, parts: Sequence[Unit], number: int) -> bool:
        """Whether one unit can hold the weights of several; ``number`` is the side of these."""
        if len({part.path.rpartition(".")[0] for part in parts}) > 2 or any(part.path == whole.path for part in parts):
            return False
        if not all(part.rows for part in parts):
            return False  # a scale of a module's own is no part of a layer
        solution, _ = _packed(whole, parts)
        if solution is None:
            return False
        if len(whole.entries) > 2 or not whole.leaf:  # a recurrent layer, or an attention that packs its own projections
            return True
        given = [self.uses[number].inputs.get(part.path) for part in parts]
        first = given[0]
        return first is None or all(one is not None and np.array_equal(first, one) for one in given)

    def _take(self, mine: list[Unit], theirs: list[Unit]) -> None:
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
            solution, turned = _packed(whole, parts)
            if solution is None:
                links = [link if packed else _reversed(link) for link in _side_by_side(whole, parts) or ()]
            else:
                links = as_links(solution, packed)
            if turned:
                matrices = {entry.canonical for entry in whole.entries if len(entry.shape) == 2}
                links = [replace(link, transposed=bool(matrices & {*link.port, *link.reference})) for link in links]
        self.found.links += links
        self.found.groups.append((mine, theirs, links))

    # --- what the order does not tell ---------------------------------------------------------------------------------------

    def _left(self, heavy: list[list[Unit]]) -> list[list[Unit]]:
        """Units whose tensors have no counterpart yet."""
        named = covered(self.found.links)
        taken = [{id(unit) for pair in self.found.pairs for unit in pair[side : side + 1]} for side in (0, 1)]
        return [
            [u for u in units if id(u) not in taken[side] and not all(e.canonical in named[side] for e in u.entries)]
            for side, units in enumerate(heavy)
        ]

    def _elsewhere(self, own: list[Unit], other: list[Unit]) -> None:
        """Layers of the same tensors that are used in another order, the most alike first."""
        scored = [(self._alike(a, b), -i, -j, a, b) for i, a in enumerate(own) for j, b in enumerate(other)]
        scored = [one for one in scored if one[0] >= 4.0]
        while scored:
            nearness = self._nearness()
            best = max(scored, key=lambda one: (one[0] + nearness(one[3], one[4]), one[1], one[2]))
            self._take([best[3]], [best[4]])
            scored = [one for one in scored if one[3] is not best[3] and one[4] is not best[4]]

    def _packed_apart(self) -> None:
        """Layers that hold those of the other side which are given the same array, with others between them in the order of use."""
        for number, side in ((0, self.other), (1, self.own)):
            for whole in [unit for unit in side if unit.leaf and len(unit.tensors) <= 2 and unit.rows]:
                left = self._left([[one for one in units if one.entries] for units in (self.own, self.other)])
                alike = [unit for unit in left[number] if unit.leaf and unit.part.kind == whole.part.kind]
                groups = self._given_the_same(alike, number) if whole in left[1 - number] else []
                fitting = (g for g in groups if sum(part.rows for part in g) == whole.rows and self._packs(whole, g, number))
                if parts := next(fitting, None):
                    self._take(*((parts, [whole]) if number == 0 else ([whole], parts)))

    def _joined_apart(self, heavy: list[list[Unit]]) -> None:
        """Two layers whose matrices lie side by side in one of the other side, with others between them in the order of use."""
        for number in (0, 1):
            for whole in self._left(heavy)[1 - number]:
                pairs = itertools.combinations(self._left(heavy)[number], 2)
                fitting = (pair for pair in pairs if _side_by_side(whole, pair) is not None)
                if parts := next(fitting, None):
                    self._take(*(([*parts], [whole]) if number == 0 else ([whole], [*parts])))

    def _given_the_same(self, units: Sequence[Unit], number: int) -> list[list[Unit]]:
        """Two units or more each that are given one array; then those of them that are in one module."""
        inputs, found = self.uses[number].inputs, list[list[Unit]]()
        for unit in (one for one in units if one.path in inputs):
            same = next((group for group in found if np.array_equal(inputs[group[0].path], inputs[unit.path])), None)
            found.append([unit]) if same is None else same.append(unit)
        inside: dict[tuple[int, str], list[Unit]] = {}
        for number, group in enumerate(found):
            for unit in group:
                inside.setdefault((number, unit.path.rpartition(".")[0]), []).append(unit)
        return [group for group in [*found, *inside.values()] if len(group) > 1]

    def _nearness(self) -> Callable[[Unit, Unit], float]:
        """How far the modules around two units hold layers that are paired with each other: 1 for each two that hold no others."""
        together: Counter[tuple[str, str]] = Counter()
        ours: Counter[str] = Counter()
        theirs: Counter[str] = Counter()
        linked = [(a[0], b[0]) for a, b, _ in self.found.groups if len(a) == len(b) == 1 and (a[0], b[0]) not in self.found.pairs]
        for mine, other in [*self.found.pairs, *linked]:
            ours.update(_above(mine.path))
            theirs.update(_above(other.path))
            together.update((a, b) for a in _above(mine.path) for b in _above(other.path))

        def near(mine: Unit, other: Unit) -> float:
            both = [(a, b) for a in _above(f"{mine.path}.") for b in _above(f"{other.path}.") if (a, b) in together]
            return sum(together[a, b] / max(ours[a], theirs[b]) for a, b in both)

        return near

    def _namesakes(self, heavy: list[list[Unit]]) -> None:
        """Layers of one kind at one path, of which a side lacks a tensor, or has others: it is there, and differs."""
        left = [{unit.path: unit for unit in units if unit.leaf} for units in self._left(heavy)]
        plain_ones = [{unit.path: unit for unit in units if unit.leaf and not unit.entries} for units in (self.own, self.other)]
        for mine, theirs in ((left[0], left[1]), (plain_ones[0], left[1]), (left[0], plain_ones[1])):
            both = [(unit, theirs[path]) for path, unit in mine.items() if path in theirs and not unit.part.name.isdigit()]
            self.found.pairs += [(one, other) for one, other in both if one.part.kind == other.part.kind]

    def _stacked(self, heavy: list[list[Unit]]) -> None:
        """Tensors that one module holds as one with an axis more: the experts of a mixture, numbered layers of the other side."""
        nearness = self._nearness()
        scored: list[tuple[float, int, int, int, Entry, list[Entry], bool]] = []
        for number in (0, 1):
            left, named = self._left(heavy), covered(self.found.links)
            whole = [
                (unit, entry) for unit in left[1 - number] for entry in unit.entries if entry.canonical not in named[1 - number]
            ]
            numbered = _numbered([(e, unit) for unit in left[number] for e in unit.entries if e.canonical not in named[number]])
            for (i, (unit, entry)), (j, parts) in itertools.product(enumerate(whole), enumerate(numbered)):
                turned = _stacks(entry, [part for part, _ in parts])
                if turned is not None:
                    pair = (parts[0][1], unit) if number == 0 else (unit, parts[0][1])
                    mark = nearness(*pair) + _shared(_last_words(entry), _last_words(parts[0][0]))
                    scored.append((mark, -i, -j, number, entry, [part for part, _ in parts], turned))
        used: set[tuple[int, str]] = set()
        for _, _, _, number, entry, inside, lies_over in sorted(scored, key=lambda one: one[:3], reverse=True):
            names = tuple(part.canonical for part in inside)
            both = {(1 - number, entry.canonical), *((number, name) for name in names)}
            if not used & both:
                used |= both
                port, reference = (names, (entry.canonical,)) if number == 0 else ((entry.canonical,), names)
                self.found.links.append(Link(port, reference, transposed=lies_over))

    def _loose(self, own: list[Unit], other: list[Unit]) -> None:
        """Tensors of modules with children, and what lies elsewhere, by shape, by what is paired around them, and by name."""
        named = covered(self.found.links)
        mine, theirs = (
            [(entry, unit) for unit in units for entry in unit.entries if entry.canonical not in names]
            for units, names in zip((own, other), named, strict=True)
        )
        nearness = self._nearness()
        scored = [
            (nearness(one, another) + _shared(words_of_tensor(a.canonical), words_of_tensor(b.canonical)), -i, -j, a, b, turned)
            for i, (a, one) in enumerate(mine) for j, (b, another) in enumerate(theirs)
            if a.role == b.role for turned in _turns(a, one, b, another)
        ]  # fmt: skip
        used: set[tuple[int, str]] = set()
        for _, _, _, a, b, turned in sorted(scored, key=lambda one: one[:3], reverse=True):
            if not {(0, a.canonical), (1, b.canonical)} & used:
                used |= {(0, a.canonical), (1, b.canonical)}
                self.found.links.append(Link((a.canonical,), (b.canonical,), transposed=turned))

    def _loose_parts(self, heavy: list[list[Unit]]) -> None:
        """A tensor of a module's own that one module of the other side holds as several, one behind another."""
        for number in (0, 1):
            left, named = self._left(heavy), covered(self.found.links)
            free = [[(unit, [e for e in unit.entries if e.canonical not in named[side]]) for unit in left[side]] for side in (0, 1)]
            for unit, entries in free[1 - number]:
                for whole in entries:
                    fitting = ((other, self._parts_of(whole, loose)) for other, loose in free[number])
                    found = [(_likeness(other, unit), parts) for other, parts in fitting if parts]
                    if found:
                        parts = max(found, key=lambda one: one[0])[1]
                        names = tuple(part.canonical for part in parts), (whole.canonical,)
                        self.found.links.append(Link(*(names if number == 0 else names[::-1])))
                        taken = [*parts, whole]
                        free = [[(u, [e for e in es if e not in taken]) for u, es in side] for side in free]

    @staticmethod
    def _parts_of(whole: Entry, loose: Sequence[Entry]) -> list[Entry]:
        """Those of a module's tensors that make up a larger one; none where they do not."""
        parts = [e for e in loose if e.role == whole.role and len(e.shape) > 1 and e.shape[1:] == whole.shape[1:]]
        rows = sum(part.shape[0] for part in parts)
        return parts if 2 <= len(parts) <= MOST_PARTS and whole.shape[:1] == (rows,) else []

    def _other_width(self, own: list[Unit], other: list[Unit]) -> None:
        """Layers of one kind between the same neighbours: another width there is a finding, not a layer more and one less."""
        own_left, other_left = self._left([own, other])
        gaps = self._gaps(own, other)
        for unit in own_left:
            for other_unit in other_left:
                whole = (
                    unit.leaf and other_unit.leaf
                ) or unit.tensors == other_unit.tensors  # a normalisation may hold its activation
                if gaps[id(unit)] == gaps[id(other_unit)] and whole and unit.part.kind == other_unit.part.kind:
                    self.found.pairs.append((unit, other_unit))
                    other_left.remove(other_unit)
                    break
        own_left, other_left = self._left([own, other])
        for kind in dict.fromkeys(unit.part.kind for unit in other_left):
            mine, theirs = ([u for u in side if u.part.kind == kind and u.leaf] for side in (own_left, other_left))
            if len(mine) == len(theirs):
                self.found.pairs += zip(mine, theirs, strict=True)

    def _gaps(self, own: Sequence[Unit], other: Sequence[Unit]) -> dict[int, int]:
        """For every unit the number of the last pair or group before it, in its side's order."""
        numbers: dict[int, int] = {}
        joined = [([a], [b]) for a, b in self.found.pairs] + [(a, b) for a, b, _ in self.found.groups]
        for number, sides in enumerate(joined, start=1):
            numbers |= {id(unit): number for side in sides for unit in side}
        gaps: dict[int, int] = {}
        for units in (own, other):
            last = 0
            for unit in units:
                last = numbers.get(id(unit), last)
                gaps[id(unit)] = last
        return gaps

    def _light(self) -> None:
        """Layers without weights: those between the same two layers with weights, in order, or by kind where numbers differ."""
        gaps = self._gaps(self.own, self.other)
        taken = {id(unit) for pair in self.found.pairs for unit in pair}
        between: list[dict[int, list[Unit]]] = [{}, {}]
        for side, units in enumerate((self.own, self.other)):
            for unit in units:
                if not unit.entries and id(unit) not in taken:
                    between[side].setdefault(gaps[id(unit)], []).append(unit)
        for gap in between[1]:
            if len(between[0].get(gap, [])) != len(between[1][gap]):  # what gives its input back stands for nothing
                for units_between in between:
                    units_between[gap] = [unit for unit in units_between.get(gap, []) if unit.part.kind != "identity"]
        for gap, theirs in between[1].items():
            mine = between[0].get(gap, [])
            if len(mine) == len(theirs) and all(_family(a) == _family(b) for a, b in zip(mine, theirs, strict=True)):
                self.found.pairs += zip(mine, theirs, strict=True)
                continue
            for unit in theirs:
                match = next((one for one in mine if one.part.kind == unit.part.kind), None)
                if match is not None:
                    mine = mine[mine.index(match) + 1 :]
                    self.found.pairs.append((match, unit))


def _numbered(entries: Sequence[tuple[Entry, Unit]]) -> list[list[tuple[Entry, Unit]]]:
    """Tensors whose names differ in one number alone, by that number; a name may be in two such rows."""
    rows: dict[tuple[str, int, str], dict[int, tuple[Entry, Unit]]] = {}
    for entry, unit in entries:
        for found in re.finditer(r"\d+", entry.canonical):
            start, stop = found.span()
            rows.setdefault((entry.canonical[:start], start, entry.canonical[stop:]), {})[int(found.group())] = entry, unit
    return [[row[number] for number in sorted(row)] for row in rows.values() if len(row) > 1]


def _last_words(entry: Entry) -> frozenset[str]:
    """Words of the last names of a tensor and of the layer that holds it, without those that are numbers alone."""
    words = re.split(r"[._]", ".".join(entry.canonical.split(".")[-2:]).lower())
    return frozenset(word for word in words if not word.isdigit())


def _stacks(whole: Entry, parts: Sequence[Entry]) -> bool | None:
    """Whether the matrices in a tensor with an axis more lie transposed; None where it does not hold the parts."""
    shapes = {part.shape for part in parts}
    if not is_stack([whole], parts) or len(shapes) != 1 or any(part.role != whole.role for part in parts):
        return None
    shape = shapes.pop()
    if whole.shape[1:] == shape:
        return False
    return True if len(shape) == 2 and whole.shape[1:] == shape[::-1] else None


def _turns(a: Entry, one: Unit, b: Entry, another: Unit) -> list[bool]:
    """Whether a tensor can be another one as it is, or transposed: a matrix of a module's own in place of a linear layer's."""
    layers = [unit for unit in (one, another) if unit.leaf and unit.part.kind in ("conv", "linear", "batch_norm")]
    if any(unit.part.kind == "batch_norm" for unit in layers) or len(layers) == 2:
        return []
    if layers and any(unit.part.kind in ("conv", "linear", "batch_norm") for unit in (one, another) if unit not in layers):
        return []
    if plain(a.shape) == plain(b.shape):
        return [False]
    return [True] if (layers or one.own or another.own) and len(a.shape) == 2 and a.shape[::-1] == b.shape else []


def _same_numbers(mine: Unit, theirs: Unit) -> bool:
    """Whether two layers hold tensors of the same numbers in the same order, under other names or in other shapes."""
    both = zip(mine.entries, theirs.entries, strict=False)
    turned = may_turn(mine, theirs)
    same = len(mine.entries) == len(theirs.entries) and all(
        a.role == b.role and (plain(a.shape) == plain(b.shape) or same_kernels(a.shape, b.shape) or (turned and lies_turned(a, b)))
        for a, b in both
    )
    of_a_kind = mine.part.kind == theirs.part.kind or mine.own != theirs.own  # a normalisation of somebody's own
    return same and (of_a_kind or any(len(plain(entry.shape)) > 1 for entry in mine.entries))


def _packed(whole: Unit, parts: Sequence[Unit]) -> tuple[list[tuple[tuple[str, ...], tuple[str, ...], bool]] | None, bool]:
    """How one unit holds the weights of several (``solved``), and whether its matrix lies transposed."""
    inside = [entry for part in parts for entry in part.entries]
    solution = solved(whole.entries, inside)
    if solution is not None or not whole.columns:
        return solution, False
    turned = [replace(entry, shape=entry.shape[::-1]) if len(entry.shape) == 2 else entry for entry in whole.entries]
    return solved(turned, inside), True


def _side_by_side(whole: Unit, parts: Sequence[Unit]) -> list[Link] | None:
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


def _shared(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(len(a | b), 1)


def _above(path: str) -> list[str]:
    """The modules that a path lies in, the whole model left out."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _likeness(mine: Unit, theirs: Unit) -> float:
    """How much two names have in common, below 1."""
    return 0.9 * _shared(mine.words, theirs.words)


def _family(unit: Unit) -> str:
    """What a layer without weights is for: an activation may be another one by mistake, a pooling is none."""
    return next((name for name in ("pool", "dropout") if name in unit.part.kind), "")
