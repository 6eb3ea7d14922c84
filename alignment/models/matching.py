"""Which module of the port is which module of the reference, also where one is missing, extra, moved, renamed or nested otherwise.

Children of matched parents are paired by name, and by an alignment of the two sequences where names differ or are numbers, so
that one missing layer does not shift all that follow it. Where that leaves weights over although both sides have the same
layers in the same order of use, the layers are paired in that order, whatever they lie in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from alignment.frameworks import framework_of
from alignment.frameworks.base import Description, Framework, Module, Piece, call_modules, call_tensors, leave_out
from alignment.models import values
from alignment.models.counterparts import (
    APART,
    Matching,
    Sides,
    Unmatched,
    UnmatchedKind,
    contradicted,
    pair_by_tensors,
    pair_containers,
    pair_shared,
    pair_wrapped,
)
from alignment.models.links import Forms, Link, covered, forms_of, plain, same_kernels
from alignment.models.pairing import Part, joined, paired, part_of
from alignment.models.passes import paired_layers
from alignment.models.stored import occurring, stored
from alignment.models.units import Branches, Unit, Use, lies_turned, units_of, use_of
from alignment.models.unused import unused
from alignment.models.values import Live
from alignment.models.weights import translated
from alignment.strangers import strangers
from mobilenetv3_common.counted import agreed, counted
from mobilenetv3_common.weights import Entry, is_statistic

Tied = tuple[Sequence[str], Sequence[str]]
CLEARLY = 2  # the layers' order of use is believed where names leave so many times as many tensors without a counterpart


@dataclass
class Matched:
    """A matching that holds while the engine knows the port's modules by the reference's paths.

    Attributes:
        matching: by these paths.
        shown: own path of each module of the port -> the path by which the engine knows it (``call_modules``); empty where
            these are the same, or where the two models do not fit.
        links: tensors that the sides hold otherwise.
        forms: pieces in which the engine knows the tensors of the port and of the reference (``call_tensors``).
        paired: own paths of modules of the port -> paths in the reference, for those that are called or nested otherwise.
        tied: second names of tensors of the port and of the reference, by which the engine does not know them: the other side may
            call a function with the first in place of a layer.
    """

    matching: Matching
    shown: dict[str, str]
    links: list[Link] = field(default_factory=list)
    forms: tuple[Forms, Forms] = field(default_factory=lambda: ({}, {}))
    paired: dict[str, str] = field(default_factory=dict)
    tied: Tied = ((), ())

    def name(self, model: Module, number: int) -> None:
        """Let the engine know a model of the port (0) or of the reference (1) by the paths and in the pieces of this matching."""
        if self.tied[number]:
            _leave_out(framework_of(model), model, self.tied[number])
        if number == 0 and self.shown:
            call_modules(model, self.shown)
        if self.forms[number]:
            call_tensors(model, self.forms[number])


def matched(
    port: Module, reference: Module, names: Mapping[str, str], sides: Sides, inputs: Callable[[], tuple],
    links: Sequence[Link] = (),
) -> Matched:  # fmt: skip
    """Match two fresh models, and choose how to call the port's modules and both sides' tensors.

    Args:
        port, reference: the models, which are run in evaluation mode where names differ.
        names: port path -> reference path, for modules or whole prefixes.
        sides: frameworks of the port and of the reference.
        inputs: makes arrays to run them on.
        links: between tensors that a person wrote; where both models can run, others are looked for, and pairs confirmed by values.

    Raises:
        UserError: a link of these does not hold.
    """
    (mine, theirs), models, unknown = sides, (port, reference), _constants((port, reference), sides)
    live = (mine, theirs) if isinstance(mine, Framework) and isinstance(theirs, Framework) else None
    _hide(models, sides, unknown)
    matching, found, fits = _match(models, dict(names), sides, inputs, list(links), live)
    tied: Tied = ((), ())
    if not fits:
        again = lambda: _match(models, dict(names), sides, inputs, list(links), live)  # noqa: E731
        (matching, found, fits), unknown, tied = _by_one_name(models, sides, again, inputs, (matching, found, fits), unknown)
    if live and any(APART in note for note in matching.notes):
        again = lambda: _match(models, dict(names), sides, inputs, list(links), live)  # noqa: E731
        kept = _with_own_constants(models, live, inputs, again, (matching, found), (unknown, tied))
        (matching, found, fits), unknown = kept or ((matching, found, fits), unknown)
    if live and (not fits or any(APART in note for note in matching.notes)):
        laid_out = _with_layouts(models, dict(names), live, inputs, list(links), (matching, found))
        matching, found, fits = laid_out or (matching, found, fits)
    if not fits and live and any(more := _left_over(models, live, matching, found, inputs)):
        without = unknown[0] | more[0], unknown[1] | more[1]
        left, said = lacking(matching, found, mine.entries(port), theirs.entries(reference)), _left_over_notes(models, live, more)
        _hide(models, sides, without, tied)
        other = _match(models, dict(names), sides, inputs, list(links), live)
        if lacking(*other[:2], mine.entries(port), theirs.entries(reference)) < left:
            (matching, found, fits), unknown = other, without
            matching.notes += said
        else:
            _hide(models, sides, unknown, tied)
    return _as_known(models, sides, matching, found, fits, unknown, tied)


def _by_one_name(
    models: tuple[Module, Module],
    sides: Sides,
    again: Callable[[], tuple[Matching, list[Link], bool]],
    inputs: Callable[[], tuple],
    so_far: tuple[Matching, list[Link], bool],
    unknown: tuple[Forms, Forms],
) -> tuple[tuple[Matching, list[Link], bool], tuple[Forms, Forms], Tied]:
    """What ``again`` matches where each tensor of several names goes by one: its first, or those of modules that the pass calls."""
    (mine, theirs), (port, reference) = sides, models
    lacks = lambda one: lacking(one[0], one[1], mine.entries(port), theirs.entries(reference))  # noqa: E731
    for known_as in (_second_names, partial(_idle_names, inputs)):
        hidden = known_as(mine, port), known_as(theirs, reference)
        if not any(hidden):
            continue
        left = lacks(so_far)
        more = unknown[0] | {name: [] for name in hidden[0]}, unknown[1] | {name: [] for name in hidden[1]}
        _hide(models, sides, more, hidden)
        other = again()
        if lacks(other) < left:
            return other, more, hidden
        _hide(models, sides, unknown)
    return so_far, unknown, ((), ())


def _with_layouts(
    models: tuple[Module, Module], names: dict[str, str], live: Live, inputs: Callable[[], tuple], links: list[Link],
    so_far: tuple[Matching, list[Link]],
) -> tuple[Matching, list[Link], bool] | None:  # fmt: skip
    """The matching once a module's own tensors are known to hold layers' weights with other axes; None where it fits no better."""
    if not _may_lie_otherwise(models, live, *so_far):
        return None
    found = stored(models, live, inputs())
    named = covered(links)
    more = [one for one in found.links if not (named[0] & {*one.port} or named[1] & {*one.reference})]
    if not found.confirmed or not more:
        return None
    entries = live[0].entries(models[0]), live[1].entries(models[1])
    other = _match(models, found.names | names, live, inputs, [*links, *more], live)
    lacks = [lacking(*one[:2], *entries) for one in (so_far, other)]
    if lacks[1] > lacks[0] or (lacks[1] == lacks[0] and not _occurs_more(models, live, inputs(), (so_far, other[:2]))):
        return None
    count = agreed(f"{sum(len(link.reference) for link in more)} tensors are stored differently in the port")
    other[0].notes.append(f"{count}, first {more[0].words()}")
    return other


def _may_lie_otherwise(models: tuple[Module, Module], sides: Live, matching: Matching, links: Sequence[Link]) -> bool:
    """Whether as many numbers have no counterpart on both sides, or a side has matrices of its own for the other's layers."""
    names, named = matching.renaming(), covered(links)
    held: list[Counter[tuple]] = []
    own: list[dict[str, tuple[int, ...]]] = []
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        modules = side.modules(model, every_path=True)
        entries = [entry for entry in side.entries(model) if entry.role == "parameter"]
        theirs = {entry.canonical: translated(entry.canonical, names) if number == 0 else entry.canonical for entry in entries}
        held.append(Counter((theirs[e.canonical], e.shape) for e in entries if e.canonical not in named[number]))
        raw = [e for e in entries if len(e.shape) > 1 and not side.knows(modules[e.canonical.rpartition(".")[0]])]
        own.append({e.canonical: plain(e.shape) for e in raw})
    left = [sum(math.prod(shape) * count for (_, shape), count in rest.items()) for rest in (held[0] - held[1], held[1] - held[0])]
    if any(left):
        return left[0] == left[1]
    pairs = {name: translated(name, names) for name in own[0]}
    pairs |= {link.port[0]: link.reference[0] for link in links if len(link.port) == len(link.reference) == 1}
    same = {(a, b) for a, b in pairs.items() if a in own[0] and own[1].get(b) == own[0][a]}
    return len(same) < max(map(len, own))


def _occurs_more(
    models: tuple[Module, Module], sides: Live, inputs: tuple, matchings: Sequence[tuple[Matching, list[Link]]]
) -> bool:
    """Whether more of what the reference's modules give occurs in the port under the second of two matchings."""
    before, after = (_occurring(models, sides, inputs, *matching) for matching in matchings)
    return after > before >= 0


def _occurring(models: tuple[Module, Module], sides: Live, inputs: tuple, matching: Matching, links: list[Link]) -> int:
    """How many of the reference's modules give what occurs in the port; -1 where it cannot be seen."""
    with strangers("reference"):
        trial = values.Trial(models, sides, inputs)
        trial.load(matching.paths, links)
        return occurring(trial)
    return -1


def _as_known(
    models: tuple[Module, Module], sides: Sides, matching: Matching, found: list[Link], fits: bool, unknown: tuple[Forms, Forms],
    tied: Tied,
) -> Matched:  # fmt: skip
    """How the port's modules and both sides' tensors are called under a matching."""
    (mine, theirs), (port, reference) = sides, models
    entries = mine.entries(port), theirs.entries(reference)
    matching.unmatched = [one for one in matching.unmatched if not _is_elsewhere(one, matching, found, entries)]
    forms = forms_of(found, *entries)
    forms = forms[0] | unknown[0], forms[1] | unknown[1]
    back = matching.renaming()
    paired = {own: path for own, path in back.items() if own != path}
    paths, own_paths = (side.modules(model, every_path=True) for side, model in ((theirs, reference), (mine, port)))
    same = {(id(own_paths[own]), id(paths[path])) for own, path in back.items() if own in own_paths and path in paths}
    shown = {
        own: path if own in back or path not in paths or (id(module), id(paths[path])) in same else f"({own})"
        for own, module in own_paths.items()
        for path in (translated(own, back),)
    }
    crossed = not fits and any(path == f"({own})" for own, path in shown.items())  # what one side alone has keeps its own name then
    if crossed or all(own == path for own, path in shown.items()):
        return Matched(matching, {}, found, forms, paired, tied)
    unmatched = [replace(u, path=shown[u.own]) if u.kind == "extra" else u for u in matching.unmatched]
    renamed = {path: shown[own] for path, own in matching.paths.items()}
    return Matched(Matching(renamed, unmatched, matching.notes), shown, found, forms, paired, tied)


def _is_elsewhere(one: Unmatched, matching: Matching, links: Sequence[Link], entries: tuple[list[Entry], list[Entry]]) -> bool:
    """Whether a module that one side alone has holds nothing but tensors that the other side holds elsewhere, or unknown ones."""
    sides = {"missing": [(1, one.path)], "extra": [(0, one.own)], "replaced": [(1, one.path), (0, one.own)]}.get(one.kind, [])
    paired, known = (set(matching.paths.values()), set(matching.paths)), covered(links)
    for number, path in sides:
        held = [entry.canonical for entry in entries[number] if f"{entry.canonical}.".startswith(f"{path}.")]
        if not held and not one.parameters:
            return False  # a layer that computes something without tensors
        if not all(name in known[number] or name.rpartition(".")[0] in paired[number] for name in held):
            return False
    return bool(sides)


def _second_names(framework: Description, model: Module) -> tuple[str, ...]:
    """Own names under which tensors go that another name has already: a head tied to the embedding, one module at two paths."""
    found, seen = [], set()
    for entry, tensor in framework.described(model):
        if id(tensor) in seen and not isinstance(entry, Piece):
            found.append(entry.own)
        seen.add(id(tensor))
    return tuple(found)


def _idle_names(inputs: Callable[[], tuple], framework: Description, model: Module) -> tuple[str, ...]:
    """Own names of parameters of modules that the pass does not call, and that a called one holds, too: a shared embedding."""
    together: dict[int, list[Entry]] = {}
    for entry, tensor in framework.described(model):
        if entry.role == "parameter":
            together.setdefault(id(tensor), []).append(entry)
    if all(len(group) == 1 for group in together.values()):
        return ()
    called = {key.partition("#")[0] for key in framework.calls_of(model, inputs())}
    idle = [[entry for entry in group if entry.canonical.rpartition(".")[0] not in called] for group in together.values()]
    pairs = zip(idle, together.values(), strict=True)
    return tuple(entry.own for alone, group in pairs if len(alone) < len(group) for entry in alone)


def _hide(models: tuple[Module, Module], sides: Sides, unknown: tuple[Forms, Forms], tied: Tied = ((), ())) -> None:
    """From now on the engine does not know these tensors of the two models."""
    for number, model in enumerate(models):
        call_tensors(model, unknown[number])
        _leave_out(sides[number], model, tied[number])


def _leave_out(framework: Description, model: Module, names: Sequence[str]) -> None:
    """The modules that hold tensors under these names do not know them either; one at two paths holds them under its first."""
    for path, module in framework.modules(model).items():
        leave_out(module, [name for name in framework.own_tensors(module) if path and f"{path}.{name}" in names])


def _left_over(
    models: tuple[Module, Module], sides: Live, matching: Matching, links: Sequence[Link], inputs: Callable[[], tuple]
) -> tuple[Forms, Forms]:
    """Parameters on which no output of their own side depends, and constants, under their own names, that the other side lacks.

    They have no counterpart, or one of their shape has none: a pooler may have taken the place of another layer. A constant may lie
    in a frozen layer here, and in an attribute or a buffer of another name there: a wrong one shows in what is computed with it.
    """
    names, named = matching.renaming(), covered(links)
    held: list[dict[tuple, str]] = []
    shapes: list[Counter[tuple]] = []
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        entries = side.entries(model)
        free = [entry for entry in entries if entry.canonical not in named[number]]
        held.append({(translated(e.canonical, names) if number == 0 else e.canonical, e.shape): e.own for e in free})
        shapes.append(Counter(plain(entry.shape) for entry in entries))
    found: list[Forms] = []
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        alone = {own for key, own in held[number].items() if key not in held[1 - number]}
        more = shapes[number] - shapes[1 - number]
        entries = side.entries(model) if alone else []
        lacked = alone | {entry.own for entry in entries if plain(entry.shape) in more}
        unread = unused(side, model, inputs) if lacked else []
        fixed = _fixed(side, model) if alone else set()
        found.append({own: [] for own in [*(own for own in unread if own in lacked), *sorted(alone & fixed)]})
    return found[0], found[1]


def _fixed(side: Description, model: Module) -> set[str]:
    """Own names of the tensors that no training changes; none of a model for inference alone, where all are frozen."""
    described = side.described(model)
    trained = {entry.own for entry, tensor in described if entry.role == "parameter" and side.trainable(tensor)}
    held = {entry.own for entry, _ in described if not is_statistic(entry.canonical)}
    return held - trained if trained else set()


def _pair_alone(models: tuple[Module, Module], sides: Live, matching: Matching, links: list[Link]) -> bool:
    """Pair a linear layer and a convolution by 1 x 1 of one size that alone are left over, wherever they are used; is there one?"""
    names, named = matching.renaming(), covered(links)
    paired = set(matching.paths.values()), set(matching.paths)
    held: list[dict[tuple, list[tuple[str, list[Entry]]]]] = []
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        modules: dict[str, list[Entry]] = {}
        for entry in side.entries(model):
            path = entry.canonical.rpartition(".")[0]
            if path not in paired[number] and entry.canonical not in named[number] and path not in names:
                modules.setdefault(path, []).append(entry)
        kinds: dict[tuple, list[tuple[str, list[Entry]]]] = {}
        for path, entries in modules.items():
            key = tuple(sorted((entry.canonical.rpartition(".")[2], plain(entry.shape)) for entry in entries))
            kinds.setdefault(key, []).append((path, entries))
        held.append(kinds)
    found = False
    for key, ours in held[0].items():
        theirs = held[1].get(key, [])
        if len(ours) != 1 or len(theirs) != 1:
            continue
        (own, mine), (other, right) = ours[0], theirs[0]
        shapes = {len(entry.shape) for entry in [*mine, *right] if len(plain(entry.shape)) > 1}
        if len(shapes) == 2 and own and other:
            matching.paths[other] = own
            last = {entry.canonical.rpartition(".")[2]: entry.canonical for entry in mine}
            pairs = [(last[e.canonical.rpartition(".")[2]], e.canonical, e.shape) for e in right]
            links += [Link((a,), (b,)) for a, b, shape in pairs if len(shape) > 1]
            found = True
    return found


def _left_over_notes(models: tuple[Module, Module], sides: Sides, left: tuple[Forms, Forms]) -> list[str]:
    """What is said of parameters on which no output depends, and of constants that the other side has no tensor for."""
    notes = []
    for number, (side, other) in enumerate((("port", "reference"), ("reference", "port"))):
        fixed = _fixed(sides[number], models[number])
        for own, words in (
            (
                [name for name in left[number] if name not in fixed],
                f"no output of the {side} depends on {{}}, which the {other} lacks",
            ),
            ([name for name in left[number] if name in fixed], f"of the {side}'s constants, {{}} have no tensor in the {other}"),
        ):
            if own:
                notes.append(words.format(f"{', '.join(own[:3])}{' and others' if len(own) > 3 else ''}"))
    return notes


def _constants(models: tuple[Module, Module], sides: Sides) -> tuple[Forms, Forms]:
    """Constants that one side alone keeps, under their own names: index tables, masks, sines of positions.

    They are buffers, or parameters that no training changes where the other side keeps none of these. They are no weights, so
    nothing is loaded into them; a wrong one shows in what is computed with it. The other side has no tensor of their shape besides
    those that this side's trained parameters stand for.
    """
    kinds: list[Counter[tuple]] = [Counter(), Counter()]
    trained: list[Counter[tuple]] = [Counter(), Counter()]
    kept: list[dict[str, tuple]] = [{}, {}]
    frozen: list[dict[str, tuple]] = [{}, {}]
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        for entry, tensor in side.described(model):
            kind = plain(entry.shape), entry.role == "buffer" and side.array(tensor).dtype.kind != "f"
            kinds[number][kind] += 1
            if entry.role == "buffer":
                kept[number] |= {} if is_statistic(entry.canonical) else {entry.own: kind}
            elif side.trainable(tensor):
                trained[number][kind] += 1
            else:
                frozen[number][entry.own] = kind
        if not trained[number]:  # a model for inference alone: what is frozen there is no constant
            trained[number], frozen[number] = Counter(frozen[number].values()), {}

    stacks = [_stacks_of_statistics(models[number], models[1 - number], (sides[number], sides[1 - number])) for number in (0, 1)]

    def alone(number: int, constants: dict[str, tuple]) -> Forms:
        without = {own: kind for own, kind in constants.items() if own not in stacks[number]}
        return {own: [] for own, kind in without.items() if kinds[1 - number][kind] <= trained[number][kind]}

    ours, theirs = (alone(number, frozen[number]) for number in (0, 1))
    return alone(0, kept[0]) | (ours if not theirs else {}), alone(1, kept[1]) | (theirs if not ours else {})


def _stacks_of_statistics(model: Module, other: Module, sides: Sides) -> set[str]:
    """Own names of buffers in which several means or variances of the other side may lie, as many numbers as this side lacks."""
    here, there = (
        [entry for entry in side.entries(one) if entry.role == "buffer"] for side, one in zip(sides, (model, other), strict=True)
    )
    theirs = Counter(plain(entry.shape) for entry in there if is_statistic(entry.canonical))
    theirs -= Counter(plain(entry.shape) for entry in here if is_statistic(entry.canonical))
    lacking = sum(math.prod(shape) * count for shape, count in theirs.items())
    others = [entry for entry in here if not is_statistic(entry.canonical) and entry.shape]
    found = [entry for entry in others if entry.shape[0] > 1 and theirs.get(plain(entry.shape[1:]), 0) >= entry.shape[0]]
    return {entry.own for entry in found} if 0 < sum(math.prod(entry.shape) for entry in found) <= lacking else set()


def _with_own_constants(
    models: tuple[Module, Module],
    sides: Live,
    inputs: Callable[[], tuple],
    again: Callable[[], tuple[Matching, list[Link], bool]],
    so_far: tuple[Matching, list[Link]],
    hidden: tuple[tuple[Forms, Forms], Tied],
) -> tuple[tuple[Matching, list[Link], bool], tuple[Forms, Forms]] | None:
    """What ``again`` matches without constants of other values, and what the engine does not know then; None where it fits less."""
    kept, (unknown, tied) = _own_constants(models, sides, *so_far), hidden
    if not any(kept):
        return None
    without, seen = (unknown[0] | kept[0], unknown[1] | kept[1]), _occurring(models, sides, inputs(), *so_far)
    _hide(models, sides, without, tied)
    other = again()
    if other[2] and _occurring(models, sides, inputs(), *other[:2]) >= seen:
        return other, without
    _hide(models, sides, unknown, tied)
    return None


def _own_constants(models: tuple[Module, Module], sides: Live, matching: Matching, links: Sequence[Link]) -> tuple[Forms, Forms]:
    """Buffers that are paired although both constructors make other values: each may be a constant of its side's own formula."""
    names = matching.renaming()
    held = [
        {e.canonical: (e.own, side.array(t)) for e, t in side.described(m) if e.role == "buffer" and not is_statistic(e.canonical)}
        for side, m in zip(sides, models, strict=True)
    ]
    pairs = {name: translated(name, names) for name in held[0]}
    pairs |= {link.port[0]: link.reference[0] for link in links if len(link.port) == len(link.reference) == 1}
    other = [
        (held[0][a], held[1][b])
        for a, b in pairs.items()
        if a in held[0] and b in held[1] and not np.array_equal(held[0][a][1].ravel(), held[1][b][1].ravel())
    ]
    return {mine[0]: [] for mine, _ in other}, {theirs[0]: [] for _, theirs in other}


def _is_guessed(matching: Matching, names: Mapping[str, str], entries: Sequence[Entry]) -> bool:
    """Whether layers were paired by other names than those that a person gave, and not by numbers alone."""
    layers = {e.canonical.rpartition(".")[0] for e in entries}
    numbered = all(path.rpartition(".")[2].isdigit() for path, own in matching.paths.items() if own != path)
    return not numbered and any(own != path and own not in names for path, own in matching.paths.items() if path in layers)


def _match(
    models: tuple[Module, Module],
    names: dict[str, str],
    sides: Sides,
    inputs: Callable[[], tuple],
    links: list[Link],
    live: Live | None,
) -> tuple[Matching, list[Link], bool]:
    """The matching by own paths, the links, and whether every tensor has its counterpart then."""
    entries = sides[0].entries(models[0]), sides[1].entries(models[1])
    forms_of(links, *entries)  # what a person wrote holds, or is refused

    @cache
    def used() -> tuple[Use, Use]:
        arrays = inputs()
        return use_of(sides[0], models[0], arrays), use_of(sides[1], models[1], arrays)

    ranks = lambda number: {path: place for place, path in enumerate(used()[number].order)}  # noqa: E731
    matching = Matching({"": ""})
    _Matcher(*sides, names, matching, ranks).children(*models, "", "")
    if contradicted(matching.paths, links):  # no names are the same then
        left = 1 + lacking(matching, links, *entries)
    elif (by_names := _by_names(models, names, sides, inputs, matching, links, live)) is not None:
        return by_names
    else:
        left = lacking(matching, links, *entries)
    other, found = _by_layers(models, names, sides, used(), links)
    lacks = lacking(other, found, *entries)
    for branches in ("in turn", "together"):
        if lacks:
            again, more = _by_layers(models, names, sides, used(), links, branches)
            if (fewer := lacking(again, more, *entries)) < lacks:
                other, found, lacks = again, more, fewer
    if lacks and live and _pair_alone(models, live, other, found):
        lacks = lacking(other, found, *entries)
    fewer_left = lacks < left or lacking(matching, links, *entries, shapes=False)
    same_layers = lacks and fewer_left and not lacking(other, found, *entries, shapes=False)
    if (lacks * CLEARLY > left and not same_layers) or (len(found) > len(links) and not live):
        return matching, links, False
    if not lacks and live:
        other, found = _confirmed(models, other, found, names, links, live, inputs())
    if live:
        pair_by_tensors(models, live, other, found, inputs())
        pair_wrapped(models, other, found, live, inputs())
    return other, found, not lacks


def _by_names(
    models: tuple[Module, Module], names: dict[str, str], sides: Sides, inputs: Callable[[], tuple], matching: Matching,
    links: list[Link], live: Live | None,
) -> tuple[Matching, list[Link], bool] | None:  # fmt: skip
    """The matching where names, or the order of definition, say all; None where they do not."""
    entries = sides[0].entries(models[0]), sides[1].entries(models[1])
    if not lacking(matching, links, *entries):
        if live and _is_guessed(matching, names, entries[1]):
            matching, _ = _confirmed(models, matching, links, names, links, live, inputs())
        return matching, links, True
    other = _by_path(*models, names, sides)
    if not lacking(other, links, *entries):
        return other, links, True
    if lacking(other, links, *entries, shapes=False):
        return None
    shaped = _otherwise_shaped(models, matching, links, sides, entries) if live else None  # what differs is no name
    if shaped is None:
        return matching, links, False
    if live and any(link.transposed for link in shaped):
        matching, shaped = _confirmed(models, matching, shaped, names, links, live, inputs())
    return matching, shaped, True


def _otherwise_shaped(
    models: tuple[Module, Module], matching: Matching, links: Sequence[Link], sides: Sides, entries: tuple[list[Entry], list[Entry]]
) -> list[Link] | None:
    """Links between tensors of one name that hold the same numbers in another shape.

    A linear layer stands for a convolution by 1 x 1, or for a class of somebody's own that holds its matrix transposed; then the
    square ones of such classes may lie either way. None where a tensor is of another size.
    """
    names, (ours, theirs) = matching.renaming(), covered(links)
    known, found = {e.canonical: e for e in entries[1] if e.canonical not in theirs}, list(links)
    modules = [side.modules(model, every_path=True) for side, model in zip(sides, models, strict=True)]
    square: list[Link] = []
    for entry in (one for one in entries[0] if one.canonical not in ours):
        other = known.pop(translated(entry.canonical, names), None)
        if other is None:
            return None
        link = Link((entry.canonical,), (other.canonical,))
        paths = entry.canonical.rpartition(".")[0], other.canonical.rpartition(".")[0]
        known_to = [side.knows(inside[path]) for side, inside, path in zip(sides, modules, paths, strict=True)]
        either_way = not all(known_to) and len(entry.shape) == len(other.shape) == 2
        if entry.shape == other.shape:
            square += [link] if either_way and entry.shape[0] == entry.shape[1] else []
        elif plain(entry.shape) == plain(other.shape) or same_kernels(entry.shape, other.shape):
            found.append(link)
        elif either_way and lies_turned(entry, other):
            found.append(replace(link, transposed=True))
        else:
            return None
    if known:
        return None
    return found + (square if any(link.transposed for link in found) else [])


def _confirmed(
    models: tuple[Module, Module],
    matching: Matching,
    links: list[Link],
    names: Mapping[str, str],
    fixed: list[Link],
    sides: Live,
    inputs: tuple,
) -> tuple[Matching, list[Link]]:
    """The matching and the links under which the two models give the same from random weights, where there are such."""
    modules = sides[1].modules(models[1])
    parents = {path for path, module in modules.items() if sides[1].children(module) and not sides[1].own_tensors(module)}
    layers = {other: own for other, own in matching.paths.items() if other not in parents}
    paired = {"", *matching.paths}
    found = values.confirmed(models, layers, matching.paths, links, (names, fixed), sides, inputs)
    if found.paths != layers:
        matching.paths = {"": ""} | found.paths
        pair_containers(*models, sides, matching, found.links)
        if not found.agrees:  # a container that only a pass cut short has paired may compute something else besides
            matching.paths = {path: own for path, own in matching.paths.items() if path not in parents or path in paired}
        other = next(other for other, own in found.paths.items() if own != layers[other])
        matching.notes = [
            "layers of the same shapes were told apart by what they are given and give, with random weights, "
            f"first {other}, called {found.paths[other]} in the port"
        ]
    holding = {entry.canonical.rpartition(".")[0] for entry in sides[1].entries(models[1])}
    for path in found.apart - (holding & layers.keys()):
        matching.paths.pop(path, None)
    if not found.agrees and matching.notes:
        matching.notes[-1] += APART
    return matching, found.links


def lacking(
    matching: Matching, links: Sequence[Link], port: Sequence[Entry], reference: Sequence[Entry], shapes: bool = True
) -> int:
    """How many tensors have no counterpart of the same shape on the other side.

    Args:
        matching: of the modules.
        links: between tensors; those that they name have one.
        port, reference: entries of the two models.
        shapes: whether a counterpart must be of the same shape.
    """
    names, named = matching.renaming(), covered(links)
    ours = Counter((translated(e.canonical, names), shapes and e.shape) for e in port if e.canonical not in named[0])
    theirs = Counter((e.canonical, shapes and e.shape) for e in reference if e.canonical not in named[1])
    return ((ours - theirs) + (theirs - ours)).total()


def match_modules(
    port: Module, reference: Module, names: Mapping[str, str] | None = None, frameworks: Sides | None = None
) -> Matching:
    """Match the modules of two models in the order of definition.

    Args:
        port, reference: models of any of the frameworks.
        names: port path -> reference path where the names differ, for modules or for whole prefixes (``"res2"`` ->
            ``"layer1"``).
        frameworks: of the port and of the reference; found out by themselves where they have no layers of a project.

    Raises:
        UserError: one of the two is not a model.
    """
    sides = frameworks or (framework_of(port), framework_of(reference))
    return _match((port, reference), dict(names or {}), sides, tuple, [], None)[0]


def order_of_use(framework: Description, model: Module, inputs: tuple) -> list[str]:
    """Paths of a model's modules in the order in which their first calls end; empty where the model raises."""
    return use_of(framework, model, inputs).order


def _by_path(port: Module, reference: Module, names: Mapping[str, str], sides: Sides) -> Matching:
    """Modules of equal paths, after the names given."""
    own, other = (side.modules(model, every_path=True) for side, model in zip(sides, (port, reference), strict=True))
    called = {translated(path, names): path for path in own}
    matching = Matching({path: called[path] for path in other if path in called} | {"": ""})
    kept = set(matching.paths.values())
    for kind, side, modules, paths in (("extra", sides[0], own, kept), ("missing", sides[1], other, set(called))):
        rest = [(path, module) for path, module in modules.items() if path not in paths]
        layers = [part_of(side, path, m) for path, m in rest if side.own_tensors(m) or not side.children(m)]
        _note_rest(matching, "extra" if kind == "extra" else "missing", layers)
    if matching.unmatched or any(own != path for path, own in matching.paths.items()):
        pair_containers(port, reference, sides, matching)
    return matching


def _by_layers(
    models: tuple[Module, Module], names: Mapping[str, str], sides: Sides, uses: tuple[Use, Use], links: Sequence[Link],
    branches: Branches = "used",
) -> tuple[Matching, list[Link]]:  # fmt: skip
    """Layers paired in the order of use, whatever they lie in, and links between tensors that a side packs or calls otherwise.

    Args:
        models: port and reference.
        names: port path -> reference path, as a person gave them.
        sides: frameworks of the two.
        uses: how they use their modules.
        links: between tensors that a person wrote.
        branches: the order of parallel branches: that of use, or one of their own.
    """
    own, other = (units_of(side, model, use, branches) for side, model, use in zip(sides, models, uses, strict=True))
    known = {unit.path: unit for unit in other}
    given = [(unit, known[path]) for unit in own if (path := translated(unit.path, names)) != unit.path and path in known]
    taken = [{unit.path for unit in side} for side in zip(*given, strict=True)] or [set(), set()]
    named = covered(links)
    rest = [
        [u.without(named[n]) for u in units if u.path not in taken[n] and not (u.entries and not u.without(named[n]).entries)]
        for n, units in enumerate((own, other))
    ]
    found = paired_layers(rest[0], rest[1], uses)
    found.links = [_as_used_in(link, uses) for link in found.links] if branches == "together" else found.links
    whole = [(mine, theirs) for mine, theirs in found.pairs if bool(mine.path) != bool(theirs.path)]
    found.pairs = [pair for pair in found.pairs if pair not in whole]
    found.links += [link for mine, theirs in whole for link in _own_tensors(mine, theirs)]
    every = [*links, *found.links]
    named = covered(every)
    matching = Matching({"": ""} | {theirs.path: mine.path for mine, theirs in [*given, *found.pairs]})
    kept = set(matching.paths.values())
    for number, (units, paths) in enumerate(((own, kept), (other, set(matching.paths)))):
        alone = [u for u in units if u.path and u.path not in paths]
        alone = [u for u in alone if not u.entries or not all(e.canonical in named[number] for e in u.entries)]
        _note_rest(matching, "missing" if number else "extra", [unit.part for unit in alone])
    pair_shared(models, sides, matching)
    pair_containers(*models, sides, matching, every)
    moved = [(mine, theirs) for mine, theirs in found.pairs if mine.path != theirs.path and theirs.entries]
    if moved:
        matching.notes.append(_moved(*moved[0], len(moved)))
    if found.links:
        count = agreed(f"{sum(len(link.reference) for link in found.links)} tensors are stored differently in the port")
        matching.notes.append(f"{count}, first {found.links[0].words()}")
    return matching, every


def _as_used_in(link: Link, uses: tuple[Use, Use]) -> Link:
    """A link whose parts stand in the order in which their layers are used."""
    ranks = [{path: place for place, path in enumerate(use.order)} for use in uses]
    rank = lambda number: lambda name: ranks[number].get(name.rpartition(".")[0], -1)  # noqa: E731
    return replace(link, port=tuple(sorted(link.port, key=rank(0))), reference=tuple(sorted(link.reference, key=rank(1))))


def _moved(mine: Unit, theirs: Unit, count: int) -> str:
    """What is said of layers that are paired though they have other places; of the first by name."""
    has, are = ("has", "is") if count == 1 else ("have", "are")
    return (
        f"{counted(count, 'layer')} with weights {has} another place in the port and {are} paired by order of use, "
        f"first {theirs.path} ({theirs.part.title}), called {mine.path} in the port"
    )


def _own_tensors(mine: Unit, theirs: Unit) -> Iterator[Link]:
    """A model's own tensors are those of a module of the other: the tensors are paired, and not what computes with them."""
    names = {entry.canonical.rpartition(".")[2]: entry.canonical for entry in mine.entries}
    for entry in theirs.entries:
        if own := names.get(entry.canonical.rpartition(".")[2]):
            yield Link((own,), (entry.canonical,))


def _note_rest(matching: Matching, kind: UnmatchedKind, parts: Sequence[Part]) -> None:
    own = kind == "extra"
    matching.unmatched += [Unmatched(kind, p.path, p.title, p.parameters, p.path if own else "") for p in parts]


def _as_used(parts: list[Part], rank: Mapping[str, int]) -> list[Part]:
    """Siblings in the order in which the first layer of each is called."""
    first = {part.path: [place for path, place in rank.items() if f"{path}.".startswith(f"{part.path}.")] for part in parts}
    return sorted(parts, key=lambda part: min(first[part.path], default=len(rank)))


@dataclass
class _Matcher:
    """Pairs the children of matched parents, from the whole model downwards."""

    port: Description
    reference: Description
    names: dict[str, str]
    matching: Matching
    ranks: Callable[[int], dict[str, int]]
    renamed: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)  # what is said of equal parts of several blocks

    def children(self, port: Module, reference: Module, ours: str, theirs: str) -> None:
        own = [part_of(self.port, joined(ours, name), child) for name, child in self.port.children(port)]
        other = [part_of(self.reference, joined(theirs, name), child) for name, child in self.reference.children(reference)]
        default = {part.path: joined(theirs, part.name) for part in own}
        wanted = {path: self.names.get(path, name) for path, name in default.items()}
        numbered = all(part.name.isdigit() for part in [*own, *other]) and wanted == default
        if not numbered and set(wanted.values()) != {part.path for part in other}:  # names do not tell, the order of use may
            own, other = (_as_used(parts, self.ranks(number)) for number, parts in enumerate((own, other)))
        follows = theirs
        for mine, there, how in paired(own, other, wanted, numbered):
            if there is None:
                assert mine is not None
                self._note("extra", joined(theirs, mine.name), mine, own=mine.path, follows=follows)
            elif mine is None:
                self._note("missing", there.path, there)
            elif how == "replaced":
                heavier = max(there, mine, key=lambda part: part.parameters)
                self._note("replaced", there.path, there, heavier.parameters, own=mine.path, instead=mine.title)
            else:
                if how == "moved":
                    self._note("moved", there.path, there, own=mine.path, alters=mine.shapes != there.shapes)
                elif wanted[mine.path] != there.path and not numbered:
                    self._note_name(mine, there)
                self.matching.paths[there.path] = mine.path
                self.children(mine.module, there.module, mine.path, there.path)
            follows = there.path if there is not None and mine is not None else follows

    def _note_name(self, mine: Part, there: Part) -> None:
        """One line for a name that is another one in every block."""
        said = self.renamed.setdefault((there.name, mine.name, there.title), [])
        said.append(f"{there.path} ({there.title}) is called {mine.path} in the port")
        more = f", and so in {counted(len(said) - 1, 'more place')}"
        if len(said) == 1:
            self.matching.notes += said
        else:
            self.matching.notes = [f"{said[0]}{more}" if note.startswith(said[0]) else note for note in self.matching.notes]

    def _note(self, kind: UnmatchedKind, path: str, part: Part, parameters: int | None = None, **more: Any) -> None:
        count = part.parameters if parameters is None else parameters
        self.matching.unmatched.append(Unmatched(kind, path, part.title, count, **more))
