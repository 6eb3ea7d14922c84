"""Tensors of a module's own that hold a layer's weights with other axes: by tap, by head, packed, transposed.

``einsum`` ports, and those of JAX, keep a projection as (inputs, heads, depth) where the other side has a linear layer. Names and
shapes do not say which tensor is which layer's, and in which order its axes lie; values do. The layers of the one side have
random weights and are run; the other side takes them one layer after another, in the order of use, and a choice is right where a
value that the layer gave occurs among the values of its pass. Behind a mistake none does: there a layer is given what the other
side's was given, in the place of the other side's own value, so that those behind it can be found again.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import Call, Module, Trace, arranged, leaves, turned_back
from alignment.models.layouts import PART, Sizes, in_order, inputs_first, layouts
from alignment.models.links import Link, plain
from alignment.models.parts import MOST_PARTS, OUT_PROJECTION, Parts, Whole
from alignment.models.slices import Slice, as_link, slices
from alignment.models.units import use_of, words_of_tensor
from alignment.models.values import Live, Trial
from alignment.strangers import strangers
from mobilenetv3_common.weights import Entry

SECONDS = 16.0  # of the processor, after which nothing more is tried
NEAREST = 4  # tensors that are tried for one of a layer, in the order of use
NAMED = 0.5  # what it counts that a tensor's name stood for the layer's before
BESIDE = 1.5  # as how far apart two tensors of one module count
APART = 6.0  # what it counts that the tensors of one layer lie in two modules
REPLACED = 4  # values of a pass, at most, each behind a mistake
AHEAD = 4  # layers behind one, what each is given shows that the one has its weights
GIVE_UP = 3  # layers, none of which is right
FEW = 4  # passes for a layer behind one for which none was right
MOST_CHOICES = 4000  # among which those are looked for
MOST_TRIALS = 60  # passes for one layer


@dataclass(frozen=True)
class _HeldAt:
    """Where a tensor of a layer may lie on the other side.

    Attributes:
        own: canonical name of the tensor there.
        layout: of its axes.
        place: of the part, of so many.
        count: parts; 0 where they are not of one size.
        slice: the part then.
    """

    own: str
    layout: str
    place: int
    count: int
    slice: Slice | None = None


@dataclass
class HeldOtherwise:
    """What was found.

    Attributes:
        links: of tensors that a module holds itself.
        names: port path -> reference path of layers that both sides have.
        confirmed: how many layers gave what the other side computes, too.
    """

    links: list[Link] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    confirmed: int = 0


class _LayerByLayer:
    """One side's own tensors, and the layers of the other one whose weights they may hold.

    Args:
        models: whose own tensors are meant, and the one with layers.
        sides: their frameworks.
        inputs: of both.
        end: when to stop, by ``time.thread_time``.
    """

    def __init__(self, models: tuple[Module, Module], sides: Live, inputs: tuple, end: float) -> None:
        self.trial, self.end = Trial(models, sides, inputs), end
        self.side = sides[0]
        modules = self.trial.modules
        self.own = {
            entry.canonical: entry for entry, _ in self.trial.described if not sides[0].knows(modules[_holder(entry.canonical)])
        }
        self.entries = {entry.canonical: entry for entry, _ in self.trial.described}
        self.tensors = {entry.canonical: tensor for entry, tensor in self.trial.described}
        self.rank = self.ranked()
        by_layer: dict[str, list[Entry]] = {}
        for entry in self.trial.entries[1]:
            by_layer.setdefault(_holder(entry.canonical), []).append(entry)
        order = use_of(sides[1], models[1], inputs).order
        theirs = sides[1].modules(models[1], every_path=True)
        self.parts = Parts(dict(self.trial.calls), dict(self.trial.state), (self.own, self.entries), self.trial.entries[1])
        self.calls, self.state, self.wholes = self.parts.calls, self.parts.state, self.parts.wholes
        attentions = [path for path in by_layer if self.parts.projected(path)]
        behind = {f"{path}{OUT_PROJECTION}" for path in attentions}
        alone = {path for path in by_layer if sides[1].children(theirs[path]) and path not in attentions}
        self.layers = [
            layer for called in order if called not in behind
            for path in ([called, f"{called}{OUT_PROJECTION}"] if called in attentions else [called])
            if path in by_layer and path in self.calls and path not in alone
            for layer in self.parts.divided(path, by_layer[path])
        ]  # fmt: skip
        idle = [path for path in by_layer if path in alone or path not in self.calls]  # a list of parameters is never called
        self.loose = self.placed([entry for path in idle for entry in by_layer[path]])
        self.by_layer, self.divided = by_layer, set[str]()  # layers that were looked for in other parts
        self.taken: dict[str, list[tuple[_HeldAt, str]]] = {}  # own name -> its parts, and which tensor of the layers each is
        self.known: dict[tuple[Sizes, Sizes, int], str] = {}  # layouts that were right
        self.signs: dict[str, list[np.ndarray]] = {}
        self.called: set[tuple[str, str]] = set()  # names of tensors, and what they were called on the other side
        self.values: list[np.ndarray] = []
        self.watched = {
            path: module for path, module in self.side.modules(self.trial.port).items()
            if self.side.knows(module) and self.side.own_tensors(module) and not self.side.children(module)
        }  # fmt: skip
        self.replaced: dict[int, list[np.ndarray]] = {}  # number of a call -> what it gives instead
        self.behind, self.home = 0, ""
        self.confirmed = 0
        self.inputs_first: dict[str, bool] = {}  # own matrices by which the first product that they occur in multiplies

    def placed(self, loose: list[Entry]) -> list[Entry]:
        """Put tensors that modules around layers hold among the layers, where several may hold one; the others are given back.

        What shows that such a tensor has its values is the first call that computes something with it: ``gain * x``.
        """
        sizes = Counter(math.prod(mine.shape) for mine in self.own.values())
        theirs = self.trial.sides[1].modules(self.trial.reference, every_path=True)
        watched = {path.partition("[")[0]: theirs[path.partition("[")[0]] for path, _ in self.layers}
        alike = Counter(entry.shape for entry in loose)
        rivals = [entry for entry in loose if sizes[math.prod(entry.shape)] > 1 or alike[entry.shape] > 1]
        traced = self.trial.sides[1].traced(self.trial.reference, self.trial.inputs, watched=watched) if rivals else None
        if traced is None:
            return loose
        uses = {
            entry.canonical: use for entry in rivals if (use := _first_computed(traced, self.state[entry.canonical])) is not None
        }
        called = {one.name.removeprefix("call "): number for number, one in reversed(list(enumerate(traced.operations)))}
        whens = [called.get(path.partition("[")[0], -1) for path, _ in self.layers]
        for entry in sorted((one for one in rivals if one.canonical in uses), key=lambda one: uses[one.canonical][0]):
            number, given, output = uses[entry.canonical]
            name = f"{entry.canonical}.value"
            self.calls[entry.canonical] = Call((given,), {}, output)
            self.state[name], self.wholes[name] = self.state[entry.canonical], Whole(entry.canonical, 1)
            place = next((place for place, when in enumerate(whens) if when > number), len(whens))
            self.layers.insert(place, (entry.canonical, [replace(entry, canonical=name)]))
            whens.insert(place, number)
        return [entry for entry in loose if entry.canonical not in uses]

    def ranked(self) -> dict[str, int]:
        """The places of all tensors in the order of use."""
        held: dict[str, list[str]] = {}
        for name in self.entries:
            held.setdefault(name if name in self.own else _holder(name), []).append(name)
        modules = {path: module for path, module in self.trial.modules.items() if path in held and path not in self.own}
        names = {id(tensor): name if name in self.own else _holder(name) for name, tensor in self.tensors.items()}
        used = [*self.side.first_uses(self.trial.port, self.trial.inputs, modules, names), *held]
        return {name: place for place, name in enumerate(dict.fromkeys(name for one in used for name in held[one]))}

    def run(self) -> None:
        """Choose for one layer after another."""
        self.take_loose()
        if not self.values:
            return  # it does not run, or the engine cannot see its values
        right: tuple[_HeldAt, ...] | None = ()
        number = -1
        while (number := number + 1) < len(self.layers):
            path, entries = self.layers[number]
            if time.thread_time() > self.end:
                self.take_named(self.layers[number:])
                return
            self.begin(number)
            if number == GIVE_UP and not self.confirmed:
                return  # the two compute something else from the start
            wrong = self.lacks_input(path)  # no choice can be right there
            choices = self.choices(entries)[: None if right is not None and not wrong else FEW]
            if self.is_placed(path, entries) and not wrong:
                found = next((one for one in choices if self.right(path, entries, one)), None)
                guess = None if found else self.likeliest(entries[0])
                self.take(entries, found or ([guess] if guess else []), found is not None)
                continue
            right = None if wrong else next((one for one in choices if self.right(path, entries, one)), None)
            if right is None and number and choices:
                right = self.exchanged(number, choices)  # two that were given one value, and whose outputs are both there
            if right is None and wrong:
                right = self.given_right(path, entries, choices)
            if right is None and not wrong and (count := self.in_other_parts(number)):
                right, number = (), number + count - 1
                continue
            if right is None and number and choices and not wrong:
                right = self.given_right(path, entries, choices)
            self.take(entries, right or next(iter(choices), ()), right is not None)

    def in_other_parts(self, number: int) -> int:
        """Take a layer of which no choice is right in other parts, where each of these is; how many there are, or 0."""
        path = self.layers[number][0].partition("[")[0]
        if path in self.divided or path not in self.by_layer or self.layers[number][0] not in (path, f"{path}[0]"):
            return 0
        self.divided.add(path)
        entries, before, layers = self.by_layer[path], self.now(), list(self.layers)
        last = number + sum(one.startswith(f"{path}[") or one == path for one, _ in layers[number:])
        divisions, in_parts = self.parts.divisions(path, entries), last - number > 1
        for division in divisions[in_parts:]:
            parts = self.parts.divide(path, entries, division)
            self.layers[:] = [*layers[:number], *parts, *layers[last:]]
            if len(parts) > 1 and all(self.take_right(number + place) for place in range(len(parts))):
                return len(parts)
            self.back_to(before)
        self.layers[:] = layers
        if in_parts:
            self.parts.divide(path, entries, divisions[0])  # as they were
        return 0

    def take_right(self, number: int) -> bool:
        """Take the choice of a layer that is right, if there is one."""
        path, entries = self.layers[number]
        self.begin(number)
        right = next((one for one in self.choices(entries) if self.right(path, entries, one)), None)
        self.take(entries, right or (), right is not None)
        return right is not None

    def now(self) -> tuple:
        """What was chosen so far."""
        arrays = {name: self.side.array(tensor) for name, tensor in self.tensors.items()}
        taken = {own: list(parts) for own, parts in self.taken.items()}
        chosen = (self.values, dict(self.known), set(self.called), dict(self.wholes))
        return arrays, taken, *chosen, (self.behind, self.home, self.confirmed)

    def back_to(self, before: tuple) -> None:
        """Choose anew from there."""
        arrays, taken, self.values, known, called, wholes, (self.behind, self.home, self.confirmed) = before
        self.taken, self.known, self.called = {own: list(parts) for own, parts in taken.items()}, dict(known), set(called)
        self.wholes.clear()
        self.wholes.update(wholes)
        for name, array in arrays.items():
            self.side.assign(self.tensors[name], array)

    def is_placed(self, path: str, entries: Sequence[Entry]) -> bool:
        """Whether what stands for a layer is a tensor that a module around layers holds."""
        whole = self.wholes.get(entries[0].canonical)
        return whole is not None and whole.name == path

    def take_named(self, layers: Sequence[tuple[str, list[Entry]]]) -> None:
        """Choose without a pass for the layers that are left over when time is up, where names say which tensor is which."""
        for _, entries in layers:
            choice = next(iter(self.choices(entries)), ())
            if choice and all(self.named(held, entry) for held, entry in zip(choice, entries, strict=True)):
                self.keep(entries, choice, False)

    def take_loose(self) -> None:
        """Tensors that modules around layers hold are those of their shapes and names: positions, a first token, a gain."""
        for entry in self.loose:
            if guess := self.likeliest(entry):
                self.take([entry], [guess], False)
        self.behind, self.home = 0, ""
        trace = _traced(self.trial, self.replaced, self.watched)
        self.values = _floating(trace)
        self.inputs_first = _multiplied(trace, {name: self.side.array(self.tensors[name]) for name in self.own})

    def likeliest(self, entry: Entry) -> _HeldAt | None:
        """Where a tensor is held by its shape and name."""
        words = words_of_tensor(entry.canonical)
        free = [name for name, mine in self.own.items() if name not in self.taken and plain(mine.shape) == plain(entry.shape)]
        called = lambda name: (_numberless(name), _numberless(entry.canonical)) in self.called  # noqa: E731
        near = lambda name: (called(name), len(words_of_tensor(name) & words), -self.distance(name))  # noqa: E731
        own = max(free, key=near, default="")
        return _HeldAt(own, layouts(self.own[own].shape, entry.shape)[0], 0, 1) if own else None

    def choices(self, entries: Sequence[Entry]) -> list[tuple[_HeldAt, ...]]:
        """Where the tensors of a layer may lie, the likeliest first."""
        most = max(1, int(MOST_CHOICES ** (1 / len(entries))))  # of each: a layer of somebody's own may have many tensors
        shapes = [entry.shape for entry in entries]
        every = [self.places(entry, shapes[:number].count(entry.shape)) for number, entry in enumerate(entries)]
        columns = [one for one in entries if (whole := self.wholes.get(one.canonical)) is not None and whole.columns]
        near = MOST_PARTS if columns else NEAREST  # what is added up at last may be computed where it is given
        each = [nearest(places, near)[:most] for places in every]
        apart = [one for one in itertools.chain(self.at_home(every), itertools.product(*each)) if self.fits_together(one)]

        def order(choice: Sequence[_HeldAt]) -> float:
            pairs = list(zip(choice, entries, strict=True))
            called = sum((_tail(held.own), _tail(entry.canonical)) in self.called for held, entry in pairs)
            named = NAMED * sum(self.named(held, entry) for held, entry in pairs)
            follows = sum(self.follows(held, entry) for held, entry in pairs)
            return self.spread(choice) + APART * (len(self.holders(choice)) - 1) - called - named - NEAREST * follows

        return sorted(dict.fromkeys(apart), key=order)[:MOST_TRIALS]

    def at_home(self, every: Sequence[Sequence[_HeldAt]]) -> Iterator[tuple[_HeldAt, ...]]:
        """The choices of tensors that one module holds, of the modules that are used nearest."""
        homes = [dict.fromkeys(_holder(held.own) for held in places) for places in every]
        both = [home for home in homes[0] if all(home in others for others in homes)] if len(every) > 1 else []
        for home in both[:NEAREST]:
            yield from itertools.product(*([held for held in places if _holder(held.own) == home][:NEAREST] for places in every))

    def fits_together(self, choice: Sequence[_HeldAt]) -> bool:
        """Whether no two tensors lie in one place, and the parts of one lie alike, one behind another."""
        if len({(held.own, held.place) for held in choice}) < len(choice):
            return False
        parts: dict[str, list[_HeldAt]] = {}
        for held in choice:
            parts.setdefault(held.own, []).append(held)
        equal = {own: held for own, held in parts.items() if held[0].slice is None}
        return all(
            len({one.layout for one in held}) == 1 and min(one.place for one in held) == (first := len(self.taken.get(own, ())))
            and max(one.place for one in held) < first + len(held)
            for own, held in equal.items()
        )  # fmt: skip

    def holders(self, choice: Sequence[_HeldAt]) -> set[str]:
        """The modules that hold the tensors of a choice: those of one layer lie in one, as a rule."""
        return {_holder(held.own) for held in choice}

    def named(self, held: _HeldAt, entry: Entry) -> bool:
        """Whether the last name of a tensor stood for the layer's in a layer that was right: ``g`` for a ``weight_g``."""
        return held.own in self.own and (_last(held.own), _last(entry.canonical)) in self.called

    def spread(self, choice: Sequence[_HeldAt]) -> float:
        """How unlikely a choice is: tensors that are used far from each other, or from the last ones, or lie in a new way."""
        new = [held.own for held in choice if held.own not in self.taken]
        fresh = [self.rank[own] for own in new]
        far = sum(map(self.distance, new)) / len(fresh) + max(fresh) - min(fresh) if fresh else 0.0
        turned = sum(a > b for a, b in itertools.pairwise(fresh))
        begun = len(choice) - len(fresh)
        mixed = float(0 < begun < len(choice))
        return far + 0.2 * turned - 0.5 * begun + mixed + sum(self.strange(held) for held in choice)

    def follows(self, held: _HeldAt, entry: Entry) -> bool:
        """Whether the tensor holds a tensor of the same name but for its numbers: of another one of numbered blocks."""
        return any(_numberless(name) == _numberless(entry.canonical) for _, name in self.taken.get(held.own, ()))

    def beside(self, one: str, other: str) -> bool:
        """Whether two layers were given the same array: their weights may lie in one tensor."""
        first, second = self.given(one), self.given(other)
        return first is not None and second is not None and np.array_equal(first, second)

    def distance(self, name: str) -> float:
        """How far from the last ones a tensor is used; one of the same module is near, whenever it is used."""
        far = float(abs(self.rank[name] - self.behind))
        home = (name in self.own and _holder(name)) or _holder(_holder(name))
        return min(far, BESIDE) if home and home == self.home else far

    def strange(self, held: _HeldAt) -> float:
        """How unlikely a layout is beside those that were right."""
        first, multiplied = inputs_first(held.layout), self.inputs_first.get(held.own)
        turned = float(multiplied is not None and first is not None and multiplied != first)
        if held.layout in self.known.values():
            return turned
        others = [inputs_first(layout) for layout in self.known.values()]
        against = others.count(not first) > len(others) / 4 if first is not None else False
        return (3.0 if "(" in held.layout.partition("->")[0] else 0.1) + 0.2 * against + turned

    def places(self, entry: Entry, before: int = 0) -> list[_HeldAt]:
        """Where one tensor may lie, of a layer that has so many of the same shape before it."""
        found: list[tuple[float, _HeldAt]] = []
        size = math.prod(entry.shape)
        for name, mine in self.entries.items():
            parts = self.taken.get(name, [])
            alike = name in self.own or _last(name) == _last(entry.canonical)
            if alike and mine.role == entry.role and all(held.slice for held, _ in parts):
                found += [(self.distance(name) + 0.01 * place, held) for place, held in enumerate(self.slices(name, entry))]
            if any(held.slice for held, _ in parts):
                continue
            count = math.prod(mine.shape) // size if size and math.prod(mine.shape) % size == 0 else 0
            if not 1 <= count <= MOST_PARTS or len(parts) >= count or mine.role != entry.role:
                continue
            last = name.rpartition(".")[2]
            if name not in self.own and (plain(mine.shape[1:]) != plain(entry.shape[1:]) or last != _last(entry.canonical)):
                continue
            far = self.distance(name) - bool(words_of_tensor(last) & words_of_tensor(entry.canonical))
            if parts:
                layout = parts[0][0].layout
                next_ones = [_HeldAt(name, layout, at, count) for at in range(len(parts), min(len(parts) + before + 1, count))]
                goes_on = self.follows(next_ones[0], entry) or self.beside(_holder(parts[-1][1]), _holder(entry.canonical))
                near = -1.0 if goes_on else self.distance(name) + BESIDE  # the last row of a stack may be another module's
                fits = (goes_on or name in self.own) and layout in self.ways(name, entry, count)
                found += [(near, held) for held in next_ones] if fits else []
                continue
            known = self.known.get((mine.shape, entry.shape, count))
            every = self.ways(name, entry, count)
            ordered = dict.fromkeys([known, *every] if known else every)
            found += [
                (far + 0.01 * place + 0.001 * (before - at), _HeldAt(name, text, at, count))
                for place, text in enumerate(ordered) for at in range(min(before + 1, count))
            ]  # fmt: skip
        found.sort(key=lambda one: one[0])
        return [held for _, held in found]

    def slices(self, name: str, entry: Entry) -> list[_HeldAt]:
        """Where one tensor may lie beside others of other sizes."""
        taken = [held.slice for held, _ in self.taken.get(name, []) if held.slice is not None]
        used = [one for _, entries in self.layers for one in entries]
        number = next((number for number, one in enumerate(used) if one.canonical == entry.canonical), None)
        every = slices(self.entries[name].shape, [one.shape for one in used], number) if number is not None else ()
        free = [
            one for one in dict.fromkeys(every) if (name in self.own or not one.turned)
            and all((one.turned, one.axis) == (o.turned, o.axis) and (one.stop <= o.start or o.stop <= one.start) for o in taken)
        ]  # fmt: skip
        return [_HeldAt(name, one.layout, one.start, 0, one) for one in free]

    def ways(self, name: str, entry: Entry, count: int) -> Sequence[str]:
        """Layouts of a tensor: a layer of the framework has its own, and may hold the rows of several layers."""
        every = layouts(self.entries[name].shape, entry.shape, count)
        if name in self.own:
            return every
        if count == 1:
            return every[:1]
        weight = self.entries.get(f"{_holder(name)}.weight")
        if weight is None or len(weight.shape) == 1:
            return []  # a normalisation is not packed
        return [one for one in every if one.startswith("(") and in_order(one)]

    def fill(self, held: _HeldAt, array: np.ndarray) -> None:
        """Put a layer's tensor where it is held."""
        entry, tensor = self.entries[held.own], self.tensors[held.own]
        own = entry.to_canonical(self.side.array(tensor))
        if held.slice is not None:
            self.side.assign(tensor, entry.to_own(np.asarray(held.slice.into(own, array), order="C")))
            return
        if held.count > 1:
            parts = np.array(arranged(own, held.layout))
            parts[held.place] = array
            array = parts
        self.side.assign(tensor, entry.to_own(np.asarray(arranged(array, turned_back(held.layout)), order="C")))

    def right(self, path: str, entries: Sequence[Entry], choice: Sequence[_HeldAt]) -> bool:
        """Whether the values of a pass hold what the layer gave."""
        if time.thread_time() > self.end:
            return False
        before = [(self.tensors[held.own], self.side.array(self.tensors[held.own])) for held in choice]
        self.load(entries, choice)
        values = self.seen()
        if any(_among(self.signs[path], values)):
            self.values = values
            return True
        for tensor, array in before:
            self.side.assign(tensor, array)
        return False

    def lacks_input(self, path: str) -> bool:
        """Whether what a layer was given is nowhere in the pass."""
        given = self.given(path)
        return given is not None and given.dtype.kind == "f" and not any(_among([np.sort(given.ravel())], self.values))

    def seen(self) -> list[np.ndarray]:
        """The values of a pass."""
        return _floating(_traced(self.trial, self.replaced, self.watched))

    def given_right(
        self, path: str, entries: Sequence[Entry], choices: Sequence[tuple[_HeldAt, ...]]
    ) -> tuple[_HeldAt, ...] | None:
        """The choice that is right once the layer is given what it was given on the other side; of the likeliest tensors alone."""
        given, before = self.given(path), dict(self.replaced)
        if given is None or given.dtype.kind != "f" or len(before) >= REPLACED:
            return None
        for choice in choices:
            if time.thread_time() > self.end:
                return None
            if instead := self.instead(entries, choice, given):
                self.replaced = before | instead
                if self.right(path, entries, choice):
                    return choice
                self.replaced = before
        return None

    def instead(self, entries: Sequence[Entry], choice: Sequence[_HeldAt], given: np.ndarray) -> dict[int, list[np.ndarray]]:
        """What the call has to give from whose result the tensors of a choice make something: the other side's value."""
        kept = [(self.tensors[held.own], self.side.array(self.tensors[held.own])) for held in choice]
        self.load(entries, choice)
        trace = _traced(self.trial, self.replaced, self.watched)
        own = [np.sort(self.side.array(tensor).ravel()) for tensor, _ in kept]
        own += [np.sort(self.state[entry.canonical].ravel()) for entry in entries]  # a part may be cut out first
        for tensor, array in kept:
            self.side.assign(tensor, array)
        layers = {f"call {_holder(held.own)}" for held in choice if held.own not in self.own}
        for one in trace.operations:
            held = [value for value in one.inputs if any(_among(own, [trace.values[value]]))]
            others = [value for value in one.inputs if value not in held and trace.values[value].size == given.size]
            if others and (held or one.name in layers):
                return _given_instead(trace, others[0], given)
        return {}

    def begin(self, number: int) -> None:
        """Note what shows that a layer has its weights: what it gave, or the next layer was given, and what is not there before."""
        path = self.layers[number][0]
        behind = (self.given(other) for other, _ in self.layers[number + 1 :] if not self.beside(path, other))
        later = itertools.islice((one for one in behind if one is not None), AHEAD)
        every = [*leaves(self.calls[path].output, np.ndarray)[:1], *later]
        signs = [np.sort(one.ravel()) for one in every if one.dtype.kind == "f"]
        self.signs[path] = [one for one, there in zip(signs, _among(signs, self.values), strict=True) if not there]

    def given(self, path: str) -> np.ndarray | None:
        """The first array that a layer was given."""
        call = self.calls.get(path)
        return None if call is None else next(iter(leaves(call.args, np.ndarray)), None)

    def exchanged(self, number: int, choices: Sequence[tuple[_HeldAt, ...]]) -> tuple[_HeldAt, ...] | None:
        """The choice that is right once layers before this one, which were given one array, are exchanged."""
        path, entries = self.layers[number]
        group = self.alike(number)
        if len(group) < 2 or len(group) > 4:
            return None
        taken = [one for parts in self.taken.values() for one in parts]
        before = {path: [one for one in taken if _holder(one[1]) == path] for path in group}
        for order in list(itertools.permutations(group))[1:]:
            self.exchange(before, dict(zip(group, order, strict=True)))
            for choice in choices[:NEAREST]:
                if self.right(path, entries, choice):
                    return choice
        self.exchange(before, {one: one for one in group})
        return None

    def alike(self, number: int) -> list[str]:
        """The layers before one that were given the same array as the last of them, and have tensors of the same shapes."""
        found: list[str] = []
        first: tuple[str, list[Sizes]] | None = None
        for path, entries in reversed(self.layers[:number]):
            if self.is_placed(path, entries):
                continue  # a factor of what one of them gave
            shapes = [entry.shape for entry in entries]
            if first is not None and (shapes != first[1] or not self.beside(path, first[0])):
                break
            first = first or (path, shapes)
            found.insert(0, path)
        return found

    def exchange(self, before: Mapping[str, list[tuple[_HeldAt, str]]], to: Mapping[str, str]) -> None:
        """Let the tensors that held one layer's weights hold another's."""
        for one, held in before.items():
            for place, name in held:
                other = f"{to[one]}.{name.rpartition('.')[2]}"
                parts = self.taken[place.own]
                parts[next(i for i, (part, _) in enumerate(parts) if part.place == place.place)] = (place, other)
                self.fill(place, self.state[other])

    def take(self, entries: Sequence[Entry], choice: Sequence[_HeldAt], right: bool) -> None:
        """Keep a choice; the pass goes on with one that was not seen to be right."""
        self.keep(entries, choice, right)
        if choice and not right:
            self.load(entries, choice)
            self.values = self.seen()

    def keep(self, entries: Sequence[Entry], choice: Sequence[_HeldAt], right: bool) -> None:
        """Note a choice; what was right is tried first from then on."""
        for entry, held in zip(entries, choice, strict=False):
            self.taken.setdefault(held.own, []).append((held, entry.canonical))
            for name in [one for _, one in self.taken[held.own]] if right else ():  # one that is right shows that those before are
                self.called.add((_tail(held.own), _tail(name)))
                self.called.add((_numberless(held.own), _numberless(name)))
                self.called.add((_last(held.own), _last(name)))
            if right:
                self.known[self.entries[held.own].shape, entry.shape, held.count] = held.layout
        if choice:
            last = max(choice, key=lambda held: self.rank[held.own]).own
            if right or self.rank[last] - self.behind < NEAREST:
                self.behind = max(self.behind, self.rank[last] + 1)
                self.home = (last in self.own and _holder(last)) or _holder(_holder(last))
            self.confirmed += right

    def load(self, entries: Sequence[Entry], choice: Sequence[_HeldAt]) -> None:
        """Give the tensors of a choice the layer's weights."""
        for entry, held in zip(entries, choice, strict=True):
            self.fill(held, self.state[entry.canonical])


def nearest(places: Sequence[_HeldAt], count: int) -> list[_HeldAt]:
    """Those in the first few tensors."""
    names = list(dict.fromkeys(held.own for held in places))[:count]
    return [held for held in places if held.own in names]


def _first_computed(trace: Trace, array: np.ndarray) -> tuple[int, np.ndarray, np.ndarray] | None:
    """Place of the first call that makes other numbers of an array, what else it is given, and what it gives."""
    held = np.sort(array.ravel())
    same = {number for number, value in enumerate(trace.values) if value.dtype.kind == "f" and _same_numbers(value, held)}
    for place, one in enumerate(trace.operations):
        others = [trace.values[value] for value in one.inputs if value not in same and trace.values[value].dtype.kind == "f"]
        made = [trace.values[value] for value in one.outputs if value not in same and trace.values[value].dtype.kind == "f"]
        used = same.intersection(one.inputs) or (array.size == 1 and _is_argument(array.item(), one.attributes))
        if used and others and made:
            return place, others[0], made[0]
    return None


def _is_argument(number: float, attributes: Mapping[str, object]) -> bool:
    """Whether a call is given a number, as a tensor without axes is written down."""
    given = [value for value in attributes.values() if isinstance(value, float)]
    return any(math.isclose(number, value, rel_tol=tolerance.PAIRED_AGREE) for value in given)


def _tail(name: str) -> str:
    """The last two parts of a name."""
    return ".".join(name.split(".")[-2:])


def _among(wanted: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> list[bool]:
    """Which sorted arrays are among values, in any order of their numbers."""
    return [any(_same_numbers(value, one) for value in values) for one in wanted]


def _traced(trial: Trial, replaced: Mapping[int, list[np.ndarray]], watched: Mapping[str, Module] | None = None) -> Trace:
    """A pass of the side that was given the weights."""
    with strangers("port"):  # with such weights it may raise anything
        return trial.sides[0].traced(trial.port, trial.inputs, watched=watched, changes=replaced) or Trace()
    return Trace()


def _multiplied(trace: Trace, arrays: Mapping[str, np.ndarray]) -> dict[str, bool]:
    """Of matrices that stand in a product whether their rows belong to what is multiplied: ``x @ weight``."""
    found: dict[str, bool] = {}
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
    for one in trace.operations:
        if one.name != "matmul" or len(one.inputs) != 2:
            continue
        second = trace.values[one.inputs[1]]
        for name, array in matrices.items():
            if second.shape == array.shape and np.array_equal(second, array):
                turned = any(bool(value) for argument, value in one.attributes.items() if argument.startswith("transpose"))
                found.setdefault(name, not turned)
    return found


def _floating(trace: Trace) -> list[np.ndarray]:
    return [one for one in trace.values if one.dtype.kind == "f"]


def _given_instead(trace: Trace, value: int, given: np.ndarray) -> dict[int, list[np.ndarray]]:
    """The call that gave a value, and what it has to give instead; nothing where it gave that."""
    array = trace.values[value]
    maker = next((one for one in trace.operations if value in one.outputs and value not in one.inputs), None)
    if maker is None or sorted(array.shape) != sorted(given.shape):
        return {}
    turned = _turned_like(given, array.shape).astype(array.dtype)
    if relative(distance(array, turned), norm(turned)) <= tolerance.PAIRED_AGREE:
        return {}  # what is wrong is what is made of it
    return {maker.number: [turned if one == value else trace.values[one] for one in maker.outputs]}


def _turned_like(array: np.ndarray, shape: Sizes) -> np.ndarray:
    """An array with its axes in the order in which another one has them; those of one size keep theirs."""
    if array.shape == shape or sorted(array.shape) != sorted(shape):
        return array
    axes = list(range(array.ndim))
    return array.transpose([axes.pop(next(n for n, axis in enumerate(axes) if array.shape[axis] == size)) for size in shape])


def occurring(trial: Trial) -> int:
    """How many of the reference's modules give what occurs in a pass of the port, in any order of the numbers."""
    values = _floating(_traced(trial, {}))
    given = [one for call in trial.calls.values() for one in leaves(call.output, np.ndarray)[:1] if one.dtype.kind == "f"]
    return sum(_among([np.sort(one.ravel()) for one in given], values))


def _numberless(name: str) -> str:
    """A name without the numbers of blocks."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "", name)


def _same_numbers(value: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether an array holds the numbers of a sorted one."""
    size = norm(wanted)
    if value.size != wanted.size or abs(norm(value) - size) > tolerance.PAIRED_AGREE * size:
        return False
    return relative(distance(np.sort(value.ravel()), wanted), size) <= tolerance.PAIRED_AGREE


def _holder(name: str) -> str:
    return name.rpartition(".")[0]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def stored(models: tuple[Module, Module], sides: Live, inputs: tuple) -> HeldOtherwise:
    """How the own tensors of a side hold the weights of the other side's layers.

    Args:
        models: port and reference, which are left as they are.
        sides: their frameworks.
        inputs: of both.

    Returns:
        What was found; nothing where a model does not run, or has no tensors of its own.
    """
    end = time.thread_time() + SECONDS
    best = HeldOtherwise()
    for turned in (False, True):
        pair = (models[::-1], sides[::-1]) if turned else (models, sides)
        with strangers("reference") as raised:  # whose model runs is somebody else's to report
            search = _LayerByLayer(*pair, inputs, end)  # type: ignore[arg-type]
        if raised.error is not None or not search.layers:
            continue
        search.run()
        found = _as_found(search, turned)
        if found.confirmed > best.confirmed:
            best = found
        if 2 * found.confirmed > len(search.layers):
            break
    return best


def _as_found(search: _LayerByLayer, turned: bool) -> HeldOtherwise:
    found = HeldOtherwise(links=_of_parts(search, turned), confirmed=search.confirmed)
    pairs = [(own, parts[0][1]) for own, parts in search.taken.items() if own not in search.own and len(parts) == 1]
    shapes = {entry.canonical: entry.shape for _, entries in search.layers for entry in entries}
    reshaped = {_holder(own) for own, name in pairs if search.entries[own].shape != shapes.get(name, search.entries[own].shape)}
    reshaped |= {_holder(own) for own, name in pairs if name in search.wholes}  # the bias of a layer in parts is one of its own
    for own, parts in search.taken.items():
        held = sorted(parts, key=lambda one: one[0].place)
        names = tuple(name for _, name in held)
        if held[0][0].count > 1 and all(search.wholes[name].count == 1 for name in names if name in search.wholes):
            names = tuple(search.wholes[name].name if name in search.wholes else name for name in names)
        if any(name in search.wholes for name in names):
            continue
        if held[0][0].slice is not None:
            shape, slices_of = search.entries[own].shape, [(one.slice, name) for one, name in held if one.slice is not None]
            link = as_link(own, shape, slices_of, turned)
            found.links += [link] if link is not None else []
            continue
        if own not in search.own and len(names) == 1 and _holder(own) not in reshaped:
            found.names[_holder(names[0])] = _holder(own)
            continue
        if len(names) != held[0][0].count:
            continue
        layout = held[0][0].layout
        plainly = layout == layouts(search.entries[own].shape, search.entries[own].shape)[0]
        link = Link((own,), names, layout="" if plainly else layout)
        if turned:
            link = replace(
                link, port=names, reference=(own,), layout=turned_back(layout) if len(names) == 1 and link.layout else link.layout
            )
        found.links.append(link)
    if not turned:
        found.names = {own: other for other, own in found.names.items()}
    return found


def _of_parts(search: _LayerByLayer, turned: bool) -> list[Link]:
    """Links between a layer's tensor and those that hold its parts, where all were found and lie alike."""
    held = {name: (own, parts[0][0]) for own, parts in search.taken.items() for _, name in parts if parts[0][0].count == 1}
    found: dict[Whole, list[tuple[str, str]]] = {}
    for name, whole in search.wholes.items():
        if name in held:
            found.setdefault(whole, []).append((held[name][0], held[name][1].layout))
    links = []
    for whole, parts in found.items():
        owns, ways = tuple(own for own, _ in parts), {way for _, way in parts}
        shape = search.entries[owns[0]].shape
        plainly = ways == {layouts(shape, shape)[0]}
        mine, theirs = ((whole.name,), owns) if turned else (owns, (whole.name,))
        if whole.count == 1:
            way = "" if plainly else ways.pop()
            links.append(Link(mine, theirs, layout=turned_back(way) if way and turned else way))
        elif len(parts) == whole.count and len(ways) == 1 and (plainly or not whole.columns):
            links.append(Link(mine, theirs, layout="" if plainly else _of_several(ways.pop(), whole.count), columns=whole.columns))
    return links


def _of_several(layout: str, count: int) -> str:
    """How a tensor becomes its parts, one behind another on its first axis, each of which becomes it again by a layout."""
    pattern, comma, sizes = turned_back(layout).partition(",")
    left, _, right = pattern.partition("->")
    first, *rest = re.findall(r"\([^)]*\)|\S+", left)
    rows = first.strip("()")
    return f"{' '.join([f'({PART} {rows})', *rest])} -> {PART} {right.strip()}, {PART}={count}{comma}{sizes}"
