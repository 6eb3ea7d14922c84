"""Tensors that the two sides hold otherwise: packed in one and split in the other, added, or called and shaped otherwise.

A ``Link`` says which tensors of the port are which of the reference. Of two sides with one tensor and several, the one holds the
rows of the several one behind another, or by groups (heads): rows of the first, the second, ... in every group. Where it has an
axis more than each of the several, its first axis counts them (the experts of a mixture).
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alignment.frameworks.base import Arranged, Columns, Piece, arranged, turned_back
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry

Forms = dict[str, list[Piece]]


@dataclass(frozen=True)
class Link:
    """Tensors of the port that are tensors of the reference.

    Attributes:
        port, reference: names, the module's own path and the canonical last name (``weight``, ``bias``, ``running_mean``, ...).
        groups: in how many equal groups the rows of the packed tensor lie; 1 where the parts lie one behind another.
        transposed: whether the packed tensor (of the port, where both sides have one) lies transposed; of one with an axis
            more, whether each of its matrices does; of kernels of single channels, whether the parts do.
        added: whether the tensors of a side are added up: they are as long as all of the other side together.
        channels_last: whether a matrix holds the kernels of a convolution (outputs, inputs, *kernel) with the inputs behind the
            kernel's axes: a patch embedding as a linear layer.
        columns: whether the parts of a packed matrix lie side by side: two embeddings, or two linear layers whose outputs are added
            up, as one on what they are given, joined. Of one that lies transposed they lie one below another, each transposed.
        layout: how the axes of the packed tensor become those of its parts, of two single ones those of the port's the reference's,
            in the words of einops (``alignment.frameworks.base.arranged``); empty where the other attributes say it.
    """

    port: tuple[str, ...]
    reference: tuple[str, ...]
    groups: int = 1
    transposed: bool = False
    added: bool = False
    channels_last: bool = False
    columns: bool = False
    layout: str = ""

    def words(self) -> str:
        return f"{' + '.join(self.port)} of the port, {' + '.join(self.reference)} of the reference"


def forms_of(links: Iterable[Link], port: Sequence[Entry], reference: Sequence[Entry]) -> tuple[Forms, Forms]:
    """The pieces in which the engine knows the tensors of the port and of the reference: own name -> pieces.

    Args:
        links: of the two models.
        port, reference: their entries, without pieces.

    Raises:
        UserError: a link names no tensor, names one twice, or its shapes do not fit together.
    """
    found: tuple[Forms, Forms] = {}, {}
    known = [{entry.canonical: entry for entry in entries} for entries in (port, reference)]
    seen: set[tuple[str, str]] = set()
    for link in links:
        for side, names, entries in zip(("port", "reference"), (link.port, link.reference), known, strict=True):
            for name in names:
                if name not in entries:
                    near = difflib.get_close_matches(name, list(entries), 1)
                    also = f"; did you mean {near[0]!r}?" if near else ""
                    raise UserError(f"--names: the {side} has no tensor {name!r}{also}")
                if (side, name) in seen:
                    raise UserError(f"--names: the tensor {name} of the {side} is named twice")
                seen.add((side, name))
        ours, theirs = (
            [entries[name] for name in names] for names, entries in zip((link.port, link.reference), known, strict=True)
        )
        parts = _parts(link, ours, theirs)
        for number, pieces in enumerate(parts):
            for piece in pieces:
                found[number].setdefault(piece.own, []).append(piece)
    return found


def _parts(link: Link, ours: list[Entry], theirs: list[Entry]) -> tuple[list[Piece], list[Piece]]:
    """The pieces of both sides of one link."""
    if link.layout:
        return _laid_out(link, ours, theirs)
    if len(ours) == len(theirs) == 1:
        return [_whole(link, ours[0], theirs[0])], []
    # ``packed``: one tensor, or several that are added up; ``parts``: those that lie in it.
    port_is_packed = len(ours) == 1
    if link.added:
        port_is_packed = len({entry.shape for entry in ours}) == 1 and _rows(ours[:1]) == _rows(theirs)
    packed, parts = (ours, theirs) if port_is_packed else (theirs, ours)
    if len(packed) > 1 and not link.added:
        raise UserError(f"--names: {link.words()}: one of the two sides must be one tensor (or added: true)")
    if is_stack(packed, parts):
        names = _named_in(packed[0], parts, port_is_packed)
        slices = [_slice(link, packed[0], part, name, number) for number, (part, name) in enumerate(zip(parts, names, strict=True))]
        return (slices, _single(parts, names)) if port_is_packed else (_single(parts, names), slices)
    if link.columns:
        return _side_by_side(link, packed, parts, port_is_packed)
    if link.transposed and len(packed[0].shape) > 2:
        return _turned_kernels(link, packed[0], parts, port_is_packed)
    shape = packed[0].shape[::-1] if link.transposed else packed[0].shape
    sizes = [part.shape[0] if part.shape else 0 for part in parts]
    same = all(plain(part.shape[1:]) == plain(shape[1:]) for part in parts)
    same = same and all(entry.shape == packed[0].shape for entry in packed)
    if not same or not shape or sum(sizes) != shape[0]:
        raise UserError(f"--names: {link.words()}: shapes {_shapes(ours)} and {_shapes(theirs)} do not fit together")
    if link.groups < 1 or any(size % link.groups for size in sizes):
        raise UserError(f"--names: {link.words()}: {sizes} rows do not lie in {link.groups} groups")
    names = _named_in(packed[0], parts, port_is_packed)
    made: list[Piece] = []
    for number, entry in enumerate(packed):
        start = 0
        for name, part, size in zip(names, parts, sizes, strict=True):
            stop = start + size // link.groups
            turned = entry.transposed != link.transposed
            made.append(Piece(name, entry.own, part.shape, turned, entry.role, shape, link.groups, start, stop, number > 0))
            start = stop
    return (made, _single(parts, names)) if port_is_packed else (_single(parts, names), made)


def _turned_kernels(link: Link, packed: Entry, parts: Sequence[Entry], port_is_packed: bool) -> tuple[list[Piece], list[Piece]]:
    """The pieces of kernels of single channels, each part of which holds its own with the channels last: (kernel, channels)."""
    rows, names, made, start = plain(packed.shape[1:]), _named_in(packed, parts, port_is_packed), list[Piece](), 0
    if len(rows) != 1 or any(part.shape[:-1] != rows for part in parts) or sum(part.shape[1] for part in parts) != packed.shape[0]:
        raise UserError(f"--names: {link.words()}: shapes {packed.shape} and {_shapes(parts)} do not fit together")
    for name, part in zip(names, parts, strict=True):
        stop = start + part.shape[1]
        whole = (packed.transposed, packed.role, packed.shape)
        made.append(Piece(name, packed.own, part.shape, *whole, 1, start, stop, turned=True))
        start = stop
    return (made, _single(parts, names)) if port_is_packed else (_single(parts, names), made)


def _laid_out(link: Link, ours: list[Entry], theirs: list[Entry]) -> tuple[list[Piece], list[Piece]]:
    """The pieces of a link with a layout."""
    packed, parts = (ours, theirs) if len(ours) == 1 else (theirs, ours)
    whole, several = packed[0], len(parts) > 1
    said = f"--names: {link.words()}: layout {link.layout!r}"
    if len(packed) > 1 or replace(link, layout="") != Link(link.port, link.reference):
        raise UserError(f"{said} stands alone: it takes one tensor on one side, and no other key")
    try:
        made = arranged(np.empty(whole.shape, np.int8), link.layout)
        back = arranged(made, turned_back(link.layout))
    except ValueError as error:
        size = "; say all sizes of a split axis but one, as in '(h d) -> h d, h=4'" if "infer" in str(error) else ""
        raise UserError(f"{said} does not fit {whole.shape}: {str(error).strip().splitlines()[-1].strip()}{size}") from error
    wanted = [(len(parts), *part.shape) if several else part.shape for part in parts]
    if back.shape != whole.shape or any(made.shape != shape for shape in wanted):
        raise UserError(f"{said} makes {made.shape} of {whole.shape}, expected {wanted[0]}")
    names = _named_in(whole, parts, packed is ours)
    pieces: list[Piece] = []
    for number, (name, part) in enumerate(zip(names, parts, strict=True)):
        place = number if several else None
        form = (name, whole.own, part.shape, whole.transposed, whole.role, whole.shape)
        pieces.append(Arranged(*form, layout=link.layout, place=place))
    return (pieces, _single(parts, names)) if packed is ours else (_single(parts, names), pieces)


def _side_by_side(
    link: Link, packed: Sequence[Entry], parts: Sequence[Entry], port_is_packed: bool
) -> tuple[list[Piece], list[Piece]]:
    whole = packed[0]
    shape = whole.shape[::-1] if link.transposed else whole.shape
    rows, kernel = plain(shape[:1]), plain(shape[2:])
    widths = [part.shape[1] if len(part.shape) > 1 else 0 for part in parts]
    alike = all(plain(part.shape[:1]) == rows and plain(part.shape[2:]) == kernel for part in parts)
    if len(shape) < 2 or not alike or sum(widths) != shape[1] or link.added or link.groups != 1:
        raise UserError(f"--names: {link.words()}: shapes {_shapes(packed)} and {_shapes(parts)} do not lie side by side")
    names, stops = _named_in(whole, parts, port_is_packed), list(itertools.accumulate(widths))
    turned = whole.transposed != link.transposed
    made: list[Piece] = [
        Columns(name, whole.own, part.shape, turned, whole.role, shape, 1, stop - width, stop)
        for name, part, width, stop in zip(names, parts, widths, stops, strict=True)
    ]
    return (made, _single(parts, names)) if port_is_packed else (_single(parts, names), made)


def is_stack(packed: Sequence[Entry], parts: Sequence[Entry]) -> bool:
    """Whether one tensor has an axis more than each of several, but for axes of size 1, and as many places on it as these are."""
    count, *inside = packed[0].shape or (0,)
    if len(packed) > 1 or not inside or count != len(parts):
        return False
    return all(len(part.shape) == len(inside) or _is_place(part, inside) for part in parts)


def _is_place(part: Entry, inside: Sequence[int]) -> bool:
    """Whether a part holds the numbers of one place of a stack in another shape: (outputs, 1) in a row of as many."""
    return part.shape != (1, *inside) and plain(part.shape) == plain(inside)


def _slice(link: Link, packed: Entry, part: Entry, name: str, number: int) -> Piece:
    inside, turned = packed.shape[1:], link.transposed and len(part.shape) == 2
    fits = part.shape == (inside[::-1] if turned else inside) or (not turned and _is_place(part, inside))
    if not fits or link.groups != 1 or link.added:
        raise UserError(f"--names: {link.words()}: shapes {part.shape} and {packed.shape} do not fit together")
    return Piece(name, packed.own, part.shape, packed.transposed, packed.role, packed.shape, 1, number, number + 1, turned=turned)


def _named_in(packed: Entry, parts: Sequence[Entry], port_is_packed: bool) -> list[str]:
    """Names of the parts of a packed tensor, by which the engine knows them on both sides: those in the reference."""
    names = [part.canonical for part in parts]
    if port_is_packed:
        return names
    return [packed.canonical] if len(parts) == 1 else [f"{packed.canonical}[{label}]" for label in _labels(names)]


def _single(parts: Sequence[Entry], names: Sequence[str]) -> list[Piece]:
    """Those parts as whole tensors of the other side, where they have other names there."""
    if list(names) == [part.canonical for part in parts]:
        return []
    return [
        Piece(name, part.own, part.shape, part.transposed, part.role, part.shape, 1, 0, part.shape[0])
        for name, part in zip(names, parts, strict=True)
    ]


def _rows(entries: Sequence[Entry]) -> int:
    return sum(entry.shape[0] for entry in entries if entry.shape)


def _whole(link: Link, mine: Entry, theirs: Entry) -> Piece:
    shape = mine.shape[::-1] if link.transposed else mine.shape
    matrix = same_kernels(shape, theirs.shape)
    if (plain(shape) != plain(theirs.shape) and not matrix) or (link.channels_last and not matrix):
        raise UserError(f"--names: {link.words()}: shapes {mine.shape} and {theirs.shape} do not fit together")
    turned, rows = mine.transposed != link.transposed, shape[0] if shape else 1
    last = link.channels_last
    return Piece(theirs.canonical, mine.own, theirs.shape, turned, mine.role, shape, 1, 0, rows, channels_last=last)


def same_kernels(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether of two tensors one is a matrix that can hold the kernels of the other, one output a row."""
    fewer, more = sorted((a, b), key=len)
    return len(fewer) == 2 < len(more) and fewer[0] == more[0] and fewer[1] == math.prod(more[1:])


def plain(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without its ones: what differs in them alone holds the same numbers in the same order."""
    return tuple(size for size in shape if size != 1)


def _row(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one output's numbers, where a kernel of 1 x 1 is none: a linear layer may hold such convolutions."""
    return tuple(shape[1:2]) + plain(shape[2:])


def _shapes(entries: Sequence[Entry]) -> str:
    return " + ".join(str(entry.shape) for entry in entries)


def _labels(names: Sequence[str]) -> list[str]:
    """What tells names apart: the one component in which they differ, or their number."""
    split = [name.split(".") for name in names]
    if len({len(parts) for parts in split}) == 1:
        for column in zip(*split, strict=True):
            if len(set(column)) == len(names):
                return list(column)
    return [str(number) for number in range(len(names))]


def labelled(names: Sequence[str], label: str) -> str:
    """The tensor that is known by a label among others; the first where it is none of theirs."""
    return dict(zip(_labels(names), names, strict=True)).get(label, names[0])


def covered(links: Iterable[Link]) -> tuple[set[str], set[str]]:
    """The tensors of the port and of the reference that links name."""
    every = list(links)
    return {name for link in every for name in link.port}, {name for link in every for name in link.reference}


def solved(packed: Sequence[Entry], parts: Sequence[Entry]) -> list[tuple[tuple[str, ...], tuple[str, ...], bool]] | None:
    """How the tensors of one layer can hold those of several ones; None where the shapes rule it out.

    Args:
        packed: tensors of the layer.
        parts: tensors of the several ones, in the order of use.

    Returns:
        Names of packed tensors, names of the parts in them, and whether the former (or, where these are fewer, the latter)
        are added up.
    """
    found: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = []
    trailing = list(dict.fromkeys(_row(entry.shape) for entry in [*packed, *parts]))
    if any(not entry.shape for entry in [*packed, *parts]):
        return None
    for rest in trailing:
        whole, inside = ([e for e in side if _row(e.shape) == rest] for side in (packed, parts))
        if not whole or not inside or math.prod(rest) == 0:
            return None
        rows, given = _rows(whole), _rows(inside)
        if rows == given:
            waiting = list(inside)
            for entry in whole:
                taken: list[Entry] = []
                while waiting and _rows(taken) < entry.shape[0]:
                    taken.append(waiting.pop(0))
                if _rows(taken) != entry.shape[0]:
                    return None
                found.append(((entry.canonical,), tuple(e.canonical for e in taken), False))
        elif not rest and (added := _added(whole, inside)) is not None:
            found += [(*both, True) for both in added]
        elif not rest and (added := _added(inside, whole)) is not None:
            found += [(single, double, True) for double, single in added]
        else:
            return None
    return found


def _added(double: Sequence[Entry], single: Sequence[Entry]) -> list[tuple[tuple[str, ...], tuple[str, ...]]] | None:
    """Two vectors each, which are added up, and those of the other side that are together as long as one of the two.

    They are the two biases of each direction of a recurrent layer. None where the shapes rule it out.
    """
    waiting = list(single)
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for first, second in itertools.zip_longest(double[::2], double[1::2]):
        taken: list[Entry] = []
        while waiting and _rows(taken) < first.shape[0]:
            taken.append(waiting.pop(0))
        if second is None or first.shape != second.shape or _rows(taken) != first.shape[0]:
            return None
        found.append(((first.canonical, second.canonical), tuple(entry.canonical for entry in taken)))
    return None if waiting else found


def as_links(solution: Iterable[tuple[tuple[str, ...], tuple[str, ...], bool]], port_is_packed: bool) -> list[Link]:
    """The links of ``solved``."""
    return [
        Link(whole, parts, added=added) if port_is_packed else Link(parts, whole, added=added) for whole, parts, added in solution
    ]


def same_kind(links: Sequence[Link], groups: int, order: Sequence[int]) -> list[Link]:
    """Links of one layer with the parts in another order and grouping."""
    changed = []
    for link in links:
        longer = max(link.port, link.reference, key=len)
        if len(longer) != len(order) or (link.added and len(order) == 2):
            changed.append(link)
            continue
        parts = tuple(longer[place] for place in order)
        port, reference = (parts, link.reference) if longer is link.port else (link.port, parts)
        changed.append(replace(link, port=port, reference=reference, groups=groups))
    return changed


def by_module(entries: Iterable[Entry]) -> Mapping[str, list[Entry]]:
    """Entries by the path of the module that holds them."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.canonical.rpartition(".")[0], []).append(entry)
    return found
