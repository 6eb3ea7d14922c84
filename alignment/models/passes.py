"""Which layers of two models are the same, whatever they lie in and are called: a list of named passes over one score.

Each pass pairs some of what the passes before it have left over. Units are plain data (``alignment/models/units.py``).
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from alignment.models.layouts import layouts
from alignment.models.links import Link, covered, is_stack, plain
from alignment.models.pairing import best_moves, of_a_kind
from alignment.models.sequence import Sequenced, Sequencer, above, likeness, shared
from alignment.models.units import Unit, Use, lies_turned, words_of_tensor
from mobilenetv3_common.weights import Entry

MOST_PARTS = 8  # layers whose weights one layer of the other side may hold: the gates of an LSTM
MOST_TENSORS = 3  # of a layer that may hold others: its weight taken apart into direction and length, and its bias
MOST = 0.75  # of a module's layers lie in one module of the other side: then the others are looked for there
SAME_SHAPE = 0.5  # what the very same shape adds to the score of two loose tensors, beside one that differs in axes of 1
SAME_TENSORS = 4.0  # the least score of two units whose tensors have the same names and shapes


def in_order(s: Sequencer) -> None:
    """The best pairing that keeps both orders, of layers of the same tensors and packed ones."""
    own, other = s.heavy
    for i, j, a, b in best_moves(len(own), len(other), lambda i, j: _moves(s, own, other, i, j)):
        s.take(own[i : i + a], other[j : j + b])


def _moves(s: Sequencer, own: list[Unit], other: list[Unit], i: int, j: int) -> Iterable[tuple[float, tuple[int, int]]]:
    if (value := s.score(own[i], other[j])) > 0:
        yield value, (1, 1)
    for whole, units, start, number in ((other[j], own, i, 0), (own[i], other, j, 1)):
        for count in range(2, min(MOST_PARTS, len(units) - start) + 1):
            parts = units[start : start + count]
            behind = sum(part.rows for part in parts) in (whole.rows, whole.columns) and s.packs(whole, parts, number)
            if behind or s.beside(whole, parts, number):
                move = (count, 1) if number == 0 else (1, count)
                mark = likeness(own[i], other[j]) + s.given_alike(own[i], other[j])
                yield 2.0 * (count + 1) + (1.0 if behind else 0.5) + mark, move
    for wholes, units, number in ((other[j : j + 2], own[i:], 0), (own[i : i + 2], other[j:], 1)):
        for count in range(2, min(MOST_PARTS, len(units) // 2) + 1 if len(wholes) == 2 else 0):
            if s.chained(wholes, units[: 2 * count], number):
                yield 4.0 * (count + 1) + 1.0 + likeness(own[i], other[j]), ((2 * count, 2) if number == 0 else (2, 2 * count))


def in_homes(s: Sequencer) -> None:
    """The same again where layers are left over: what has no counterpart may have shifted its neighbours into other modules.

    What is used in another order has one, so where the rest lies says which modules are each other's homes.
    """
    if any(s.left()):
        elsewhere(s)
        s.homes = _homes_of(s.found.pairs)
        s.found = Sequenced()
        in_order(s)


def _homes_of(pairs: Sequence[tuple[Unit, Unit]]) -> dict[str, str]:
    """Modules of the port whose layers are, all but a few, those of one module of the reference, and of no larger one.

    The few are not all of another module of the reference: then one of the port's holds both.
    """
    counts: dict[str, Counter[str]] = {}
    whole: Counter[str] = Counter()
    for mine, theirs in pairs:
        whole.update(above(theirs.path))
        for path in above(mine.path):
            counts.setdefault(path, Counter()).update(above(theirs.path))
    homes = {}
    for path, found in counts.items():
        total = sum(1 for mine, _ in pairs if mine.path.startswith(f"{path}."))
        smallest = [other for other, count in found.items() if count >= MOST * total]
        entire = [other for other, count in found.items() if count == whole[other] < MOST * total]
        same = [other for other, count in found.items() if count == whole[other] == total]  # an inner module may hold most of it
        if total >= 3 and smallest and not any(_apart(one, smallest) for one in entire):
            homes[path] = max(same or smallest, key=lambda other: other.count("."))
    return homes


def _apart(path: str, others: Iterable[str]) -> bool:
    """Whether a module lies in none of some others."""
    return not any(path == other or path.startswith(f"{other}.") for other in others if other)


def elsewhere(s: Sequencer) -> None:
    """Layers of the same tensors that are used in another order, the most alike first."""
    own, other = s.left()
    scored = [(s.score(a, b), -i, -j, a, b) for i, a in enumerate(own) for j, b in enumerate(other)]
    scored = [one for one in scored if one[0] >= SAME_TENSORS]
    while scored:
        nearness = s.nearness()
        best = max(scored, key=lambda one: (one[0] + nearness(one[3], one[4]), one[1], one[2]))
        s.take([best[3]], [best[4]])
        scored = [one for one in scored if one[3] is not best[3] and one[4] is not best[4]]


def packed_apart(s: Sequencer) -> None:
    """Layers that hold those of the other side which are given the same array, with others between them in the order of use."""
    for number, side in ((0, s.other), (1, s.own)):
        for whole in [unit for unit in side if unit.leaf and len(unit.tensors) <= MOST_TENSORS and unit.rows]:
            left = s.left()
            alike = [unit for unit in left[number] if unit.leaf and unit.part.kind == whole.part.kind]
            groups = _given_the_same(s, alike, number) if whole in left[1 - number] else []
            fitting = (group for group in groups if s.packs(whole, group, number))
            if parts := next(fitting, None):
                s.take(*((parts, [whole]) if number == 0 else ([whole], parts)))


def split_apart(s: Sequencer) -> None:
    """Layers of a class in one module that share out the channels of one layer of the other side, with others between them."""
    for number, side in ((0, s.other), (1, s.own)):
        for whole in [unit for unit in side if unit.leaf and "conv" in unit.part.kind]:
            left, groups = s.left(), dict[tuple[str, str], list[Unit]]()
            for unit in left[number] if whole in left[1 - number] else []:
                groups.setdefault((unit.part.title, unit.path.rpartition(".")[0]), []).append(unit)
            if parts := next((g for g in groups.values() if len(g) > 1 and s.splits(whole, g, number)), None):
                s.take(*((parts, [whole]) if number == 0 else ([whole], parts)))


def _given_the_same(s: Sequencer, units: Sequence[Unit], number: int) -> list[list[Unit]]:
    """Two units or more each that are given one array; then those of them that are in one module, or in the blocks of one."""
    inputs, found = s.uses[number].inputs, list[list[Unit]]()
    for unit in (one for one in units if one.path in inputs):
        same = next((group for group in found if np.array_equal(inputs[group[0].path], inputs[unit.path])), None)
        found.append([unit]) if same is None else same.append(unit)
    inside: dict[tuple[int, str], list[Unit]] = {}
    for number, group in enumerate(found):
        for unit in group:
            for module in reversed(above(unit.path)):
                inside.setdefault((number, module), []).append(unit)
    return [group for group in [*found, *inside.values()] if len(group) > 1]


def joined_apart(s: Sequencer) -> None:
    """Two layers whose matrices lie side by side in one of the other side, with others between them in the order of use."""
    for number in (0, 1):
        for whole in s.left()[1 - number]:
            pairs = itertools.combinations(s.left()[number], 2)
            fitting = (pair for pair in pairs if s.beside(whole, pair, number))
            if parts := next(fitting, None):
                s.take(*(([*parts], [whole]) if number == 0 else ([whole], [*parts])))


def namesakes(s: Sequencer) -> None:
    """Layers of one kind at one path, of which a side lacks a tensor, or has others: it is there, and differs."""
    left = [{unit.path: unit for unit in units if unit.leaf} for units in s.left()]
    plain_ones = [{unit.path: unit for unit in units if unit.leaf and not unit.entries} for units in (s.own, s.other)]
    for mine, theirs in ((left[0], left[1]), (plain_ones[0], left[1]), (left[0], plain_ones[1])):
        both = [(unit, theirs[path]) for path, unit in mine.items() if path in theirs and not unit.part.name.isdigit()]
        s.found.pairs += [(one, other) for one, other in both if one.part.kind == other.part.kind]


def stacked(s: Sequencer) -> None:
    """Tensors that one module holds as one with an axis more: the experts of a mixture, numbered layers of the other side."""
    nearness = s.nearness()
    scored: list[tuple[float, int, int, int, Entry, list[Entry], bool]] = []
    for number in (0, 1):
        left, named = s.left(), covered(s.found.links)
        whole = [(unit, entry) for unit in left[1 - number] for entry in unit.entries if entry.canonical not in named[1 - number]]
        numbered = _numbered([(e, unit) for unit in left[number] for e in unit.entries if e.canonical not in named[number]])
        for (i, (unit, entry)), (j, parts) in itertools.product(enumerate(whole), enumerate(numbered)):
            turned = _stacks(entry, [part for part, _ in parts])
            if turned is not None:
                pair = (parts[0][1], unit) if number == 0 else (unit, parts[0][1])
                mark = nearness(*pair) + shared(_last_words(entry), _last_words(parts[0][0]))
                scored.append((mark, -i, -j, number, entry, [part for part, _ in parts], turned))
    used: set[tuple[int, str]] = set()
    for _, _, _, number, entry, inside, lies_over in sorted(scored, key=lambda one: one[:3], reverse=True):
        names = tuple(part.canonical for part in inside)
        both = {(1 - number, entry.canonical), *((number, name) for name in names)}
        if not used & both:
            used |= both
            port, reference = (names, (entry.canonical,)) if number == 0 else ((entry.canonical,), names)
            s.found.links.append(Link(port, reference, transposed=lies_over))


def loose(s: Sequencer) -> None:
    """Tensors of modules with children, and what lies elsewhere, by shape, by what is paired around them, and by name."""
    named = covered(s.found.links)
    mine, theirs = (
        [(entry, unit) for unit in units for entry in unit.entries if entry.canonical not in names]
        for units, names in zip(s.left(), named, strict=True)
    )
    nearness = s.nearness()
    scored = [
        (
            nearness(one, another) + shared(words_of_tensor(a.canonical), words_of_tensor(b.canonical))
            + SAME_SHAPE * (a.shape == b.shape), -i, -j, a, b, turned
        )
        for i, (a, one) in enumerate(mine) for j, (b, another) in enumerate(theirs)
        if a.role == b.role for turned in _turns(a, one, b, another)
    ]  # fmt: skip
    used: set[tuple[int, str]] = set()
    for _, _, _, a, b, turned in sorted(scored, key=lambda one: one[:3], reverse=True):
        if not {(0, a.canonical), (1, b.canonical)} & used:
            used |= {(0, a.canonical), (1, b.canonical)}
            s.found.links.append(Link((a.canonical,), (b.canonical,), transposed=turned))


def in_order_of_reading(s: Sequencer) -> None:
    """Tensors that are left over, where all of both sides stand in one order of first use, whatever they lie in and are called.

    A name that says more for another tensor of the same shape speaks against it: then nothing is paired.
    """
    sides: list[list[tuple[Entry, Unit]]] = []
    for use, units, named in zip(s.uses, s.left(), covered(s.found.links), strict=True):
        loose = {e.canonical: (e, unit) for unit in units for e in unit.entries if e.canonical not in named}
        if min(map(len, [loose, *sides])) < 2:
            return
        sides.append([loose[name] for name in use.reads() if name in loose])
        if len(sides[-1]) < len(loose):
            return
    own, other = sides
    moves = best_moves(len(own), len(other), lambda i, j: _readings(own[i:], other[j:]))
    if sum(a for *_, a, _ in moves) < len(own) or sum(b for *_, b in moves) < len(other):
        return
    pairs = [(own[i : i + a], other[j : j + b]) for i, j, a, b in moves]
    if not any(_says_more(pair, pairs) for pair in pairs):
        s.found.links += [_link_of([e for e, _ in mine], [e for e, _ in theirs]) for mine, theirs in pairs]


Loose = Sequence[tuple[Entry, Unit]]


def _readings(own: Loose, other: Loose) -> Iterable[tuple[float, tuple[int, int]]]:
    """How the first tensors of two sequences can be one another: as they are, turned, in another shape, or as places of a stack."""
    (mine, one), (theirs, another) = own[0], other[0]
    if mine.role == theirs.role and (_turns(mine, one, theirs, another) or _is_vector_of(mine, theirs)):
        yield 2.0 + SAME_SHAPE * (plain(mine.shape) == plain(theirs.shape)), (1, 1)
    for whole, parts, number in ((theirs, own, 0), (mine, other, 1)):
        count = whole.shape[0] if whole.shape else 0
        inside = [part for part, _ in parts[:count]]
        if 1 < count == len(inside) and all(e.role == whole.role for e in inside) and _stacks(whole, inside) is not None:
            yield 1.0 + count, ((count, 1) if number == 0 else (1, count))


def _is_vector_of(a: Entry, b: Entry) -> bool:
    """Whether one tensor is a vector that holds the numbers of the other, one row behind another."""
    fewer, more = sorted((plain(a.shape), plain(b.shape)), key=len)
    return len(fewer) == 1 < len(more) and fewer[0] == math.prod(more)


def _says_more(pair: tuple[Loose, Loose], pairs: Sequence[tuple[Loose, Loose]]) -> bool:
    """Whether the name of the port's tensor has more in common with another tensor of the reference that has the same shape."""
    if len(pair[0]) != 1 or len(pair[1]) != 1:
        return False
    (mine, _), (theirs, _) = pair[0][0], pair[1][0]
    last = lambda one: words_of_tensor(one.canonical.rpartition(".")[2])  # noqa: E731
    rivals = [one for _, others in pairs for one, _ in others if plain(one.shape) == plain(theirs.shape)]
    return len(last(mine) & last(theirs)) < max(len(last(mine) & last(one)) for one in rivals)


def _link_of(mine: Sequence[Entry], theirs: Sequence[Entry]) -> Link:
    """The link between tensors that ``_readings`` puts together."""
    names = tuple(e.canonical for e in mine), tuple(e.canonical for e in theirs)
    if len(mine) != len(theirs):
        whole, parts = (mine[0], theirs) if len(mine) == 1 else (theirs[0], mine)
        return Link(*names, transposed=bool(_stacks(whole, parts)))
    a, b = mine[0], theirs[0]
    if plain(a.shape) == plain(b.shape):
        return Link(*names)
    return Link(*names, transposed=True) if lies_turned(a, b) else Link(*names, layout=layouts(a.shape, b.shape)[0])


def stacked_inside(s: Sequencer) -> None:
    """Tensors of one shape in one module, all of which one tensor of a module of the other side holds on an axis more."""
    for number in (0, 1):
        nearness, left, named = s.nearness(), s.left(), covered(s.found.links)
        free = [[(unit, [e for e in unit.entries if e.canonical not in named[side]]) for unit in left[side]] for side in (0, 1)]
        for unit, entries in free[1 - number]:
            single = [entry for entry in entries if [one.shape for one in entries].count(entry.shape) == 1]
            for whole in single:
                fitting = [(other, parts) for other, loose in free[number] if (parts := _places_of(whole, loose))]
                near = [nearness(*((other, unit) if number == 0 else (unit, other))) for other, _ in fitting]
                if fitting:
                    parts = fitting[near.index(max(near))][1]
                    names = tuple(part.canonical for part in parts), (whole.canonical,)
                    s.found.links.append(Link(*(names if number == 0 else names[::-1])))
                    free[number] = [(one, [e for e in held if e not in parts]) for one, held in free[number]]


def _places_of(whole: Entry, loose: Sequence[Entry]) -> list[Entry]:
    """Those of a module's tensors that are the places of a stack; none where others of their shape are left over."""
    alike = [e for e in loose if e.role == whole.role and e.shape and plain(e.shape) == plain(whole.shape[1:]) != ()]
    return alike if len(alike) > 1 and is_stack([whole], alike) else []


def loose_parts(s: Sequencer) -> None:
    """A tensor that one module of the other side holds as several of its own, one behind another, or side by side."""
    for number in (0, 1):
        left, named = s.left(), covered(s.found.links)
        free = [[(unit, [e for e in unit.entries if e.canonical not in named[side]]) for unit in left[side]] for side in (0, 1)]
        for unit, entries in free[1 - number]:
            for whole in entries:
                fitting = ((other, _parts_of(whole, loose, way), way) for other, loose in free[number] for way in (False, True))
                found = [(likeness(other, unit), parts, columns) for other, parts, columns in fitting if parts]
                if found:
                    _, parts, columns = max(found, key=lambda one: one[0])
                    names = tuple(part.canonical for part in parts), (whole.canonical,)
                    port, reference = names if number == 0 else names[::-1]
                    s.found.links.append(Link(port, reference, columns=columns))
                    taken = [*parts, whole]
                    free = [[(u, [e for e in es if e not in taken]) for u, es in side] for side in free]


def _parts_of(whole: Entry, loose: Sequence[Entry], columns: bool) -> list[Entry]:
    """Those of a module's tensors that make up a larger one, in which they may be columns; none where they do not."""
    if columns:
        parts = [
            e for e in loose if e.role == whole.role and len(e.shape) == len(whole.shape) == 2 and e.shape[0] == whole.shape[0]
        ]
        return parts if 2 <= len(parts) <= MOST_PARTS and sum(part.shape[1] for part in parts) == whole.shape[1] else []
    parts = [e for e in loose if e.role == whole.role and len(e.shape) > 1 and e.shape[1:] == whole.shape[1:]]
    rows = sum(part.shape[0] for part in parts)
    return parts if 2 <= len(parts) <= MOST_PARTS and whole.shape[:1] == (rows,) else []


def other_width(s: Sequencer) -> None:
    """Layers of a kind between the same neighbours: another width there is a finding, not a layer more and one less."""
    own_left, other_left = s.left()
    gaps = _gaps(s, *s.heavy)
    for unit in own_left:
        for other_unit in other_left:
            whole = (unit.leaf and other_unit.leaf) or unit.tensors == other_unit.tensors  # a normalisation may hold its activation
            if gaps[id(unit)] == gaps[id(other_unit)] and whole and of_a_kind(unit.part, other_unit.part):
                s.found.pairs.append((unit, other_unit))
                other_left.remove(other_unit)
                break
    own_left, other_left = s.left()
    for kind in dict.fromkeys(unit.part.kind for unit in other_left):
        mine, theirs = ([u for u in side if u.part.kind == kind and u.leaf] for side in (own_left, other_left))
        if len(mine) == len(theirs):
            s.found.pairs += zip(mine, theirs, strict=True)


def _gaps(s: Sequencer, own: Sequence[Unit], other: Sequence[Unit]) -> dict[int, int]:
    """For every unit the number of the last pair or group before it, in its side's order."""
    numbers: dict[int, int] = {}
    joined = [([a], [b]) for a, b in s.found.pairs] + [(a, b) for a, b, _ in s.found.groups]
    for number, sides in enumerate(joined, start=1):
        numbers |= {id(unit): number for side in sides for unit in side}
    gaps: dict[int, int] = {}
    for units in (own, other):
        last = 0
        for unit in units:
            last = numbers.get(id(unit), last)
            gaps[id(unit)] = last
    return gaps


def light(s: Sequencer) -> None:
    """Layers without weights: those between the same two layers with weights, in order, or by kind where numbers differ."""
    gaps = _gaps(s, s.own, s.other)
    taken = {id(unit) for pair in s.found.pairs for unit in pair}
    between: list[dict[int, list[Unit]]] = [{}, {}]
    for side, units in enumerate((s.own, s.other)):
        for unit in units:
            if not unit.entries and id(unit) not in taken:
                between[side].setdefault(gaps[id(unit)], []).append(unit)
    for gap in between[1]:
        if len(between[0].get(gap, [])) != len(between[1][gap]) or _shifted(between[0][gap], between[1][gap]):
            for units_between in between:  # what gives its input back stands for nothing
                units_between[gap] = [unit for unit in units_between.get(gap, []) if unit.part.kind != "identity"]
    for gap, theirs in between[1].items():
        mine = between[0].get(gap, [])
        if len(mine) == len(theirs) and all(_family(a) == _family(b) for a, b in zip(mine, theirs, strict=True)):
            s.found.pairs += zip(mine, theirs, strict=True)
            continue
        for unit in theirs:
            match = next((one for one in mine if one.part.kind == unit.part.kind), None)
            if match is not None:
                mine = mine[mine.index(match) + 1 :]
                s.found.pairs.append((match, unit))


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
    if whole.shape[1:] == shape or plain(whole.shape[1:]) == plain(shape):
        return False
    return True if len(shape) == 2 and whole.shape[1:] == shape[::-1] else None


def _turns(a: Entry, one: Unit, b: Entry, another: Unit) -> list[bool]:
    """Whether a tensor can be another one as it is, or transposed: a matrix of a module's own in place of a linear layer's."""
    whole = ("conv", "conv_transpose", "linear", "batch_norm")
    layers = [unit for unit in (one, another) if unit.leaf and unit.part.kind in whole]
    if any(unit.part.kind == "batch_norm" for unit in layers) or len(layers) == 2:
        return []
    if layers and any(unit.part.kind in (*whole, "layernorm", "groupnorm") for unit in (one, another) if unit not in layers):
        return []
    if plain(a.shape) == plain(b.shape):
        return [False]
    return [True] if (layers or one.own or another.own) and len(a.shape) == 2 and a.shape[::-1] == b.shape else []


def _shifted(mine: Sequence[Unit], theirs: Sequence[Unit]) -> bool:
    """Whether an identity stands against a layer that has one of its kind beside: it is one more, and stands for no other."""
    pairs = [(a.part.kind, b.part.kind) for a, b in zip(mine, theirs, strict=True) if a.part.kind != b.part.kind]
    return any(
        pair[number] == "identity" and any(pair[1 - number] == other[number] for other in pairs)
        for pair in pairs for number in (0, 1)
    )  # fmt: skip


def _family(unit: Unit) -> str:
    """What a layer without weights is for: an activation may be another one by mistake, a pooling is none."""
    return next((name for name in ("pool", "dropout") if name in unit.part.kind), "")


LayersPass = Callable[[Sequencer], None]
PASSES: tuple[LayersPass, ...] = (
    in_order, in_homes, elsewhere, packed_apart, split_apart, joined_apart, namesakes, in_order_of_reading, stacked_inside, stacked,
    loose, loose_parts,
    other_width, light,
)  # fmt: skip


def paired_layers(own: list[Unit], other: list[Unit], uses: tuple[Use, Use], passes: Iterable[LayersPass] = PASSES) -> Sequenced:
    """Pair the units of the port and of the reference, both in the order of use.

    Args:
        own, other: units, without those that a person has paired.
        uses: how the two models use their modules.
        passes: that pair them, in order.
    """
    sequencer = Sequencer(own, other, uses)
    for one in passes:
        one(sequencer)
    return sequencer.found
