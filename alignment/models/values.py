"""Pairs of layers and links between tensors, confirmed by values: with the same random weights both models must give the same.

What order and names leave open is tried: which part of a packed tensor comes first, in how many groups its rows lie, and which of
several layers of the same shapes is which.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import STATISTICS, Call, Framework, Module, Tensor, leaves
from alignment.models.calibration import padding_rows, random_values
from alignment.models.links import Link, covered, forms_of, is_stack, plain, same_kernels, same_kind
from alignment.models.outputs import orders_of, put_in_order
from alignment.models.weights import translated
from alignment.strangers import strangers
from mobilenetv3_common.weights import Entry, in_canonical

SECONDS = 20.0  # of the processor, after which nothing more is tried
MATRICES = 4  # of one module, of which every choice is tried
MUCH_LESS = 0.7  # times the difference that there was
PASSES = 64  # through the port, to tell layers of the same shapes apart
Live = tuple[Framework, Framework]  # sides whose models can be run


@dataclass
class Confirmed:
    """What values say of pairs and links.

    Attributes:
        paths: reference path -> port path of the layers that were given, of which some may be exchanged.
        links: in the order and grouping under which the two sides agree, where there is one.
        agrees: whether the two models give the same then.
        apart: paths in the reference of modules that one side alone calls, and of those whose outputs differ although the models
            agree: they hold the same layers, and compute something else besides.
    """

    paths: dict[str, str]
    links: list[Link]
    agrees: bool
    apart: set[str]


class _Stop(Exception):
    """No layer of the reference was given what this layer of the port is given."""


class Trial:
    """Copies of two models, of which the reference has random weights, and has been run.

    Args:
        models: port and reference, which are left as they are.
        sides: their frameworks.
        inputs: of both.
    """

    def __init__(self, models: tuple[Module, Module], sides: Live, inputs: tuple) -> None:
        self.sides, self.inputs = sides, inputs
        self.port, self.reference = (side.copy(model) for side, model in zip(sides, models, strict=True))
        reference = self.reference
        for side, model in zip(sides, (self.port, reference), strict=True):
            side.set_training(model, False)
            side.without_inplace(model)
        self.described: list[tuple[Entry, Tensor]] = sides[0].described(self.port)
        self.held: dict[str, list[tuple[Entry, Tensor]]] = {}
        for entry, tensor in self.described:
            self.held.setdefault(entry.canonical.rpartition(".")[0], []).append((entry, tensor))
        self.tensors = {entry.own: tensor for entry, tensor in self.described}
        theirs = sides[1].described(reference)
        self.entries = [entry for entry, _ in self.described], [entry for entry, _ in theirs]
        rng = np.random.default_rng(0)
        rows = padding_rows(sides[1], reference)
        for entry, tensor in theirs:
            values = sides[1].array(tensor)
            if entry.role == "parameter":
                drawn = random_values(rng, entry.canonical, values)
                if (row := rows.get(entry.canonical)) is not None:
                    drawn[row] = 0
                sides[1].assign(tensor, drawn)
            elif entry.canonical.endswith(STATISTICS):
                variance = entry.canonical.endswith("running_var")
                sides[1].assign(tensor, (rng.uniform(0.5, 1.5, values.shape) if variance else rng.normal(0, 0.2, values.shape)))
        self.arrays = {entry.own: sides[1].array(tensor) for entry, tensor in theirs}
        self.state = in_canonical((entry, self.arrays[entry.own]) for entry in self.entries[1])
        self.calls = sides[1].call(reference, inputs, watched=sides[1].modules(reference)).calls
        self.modules = sides[0].modules(self.port, every_path=True)
        put_in_order(sides[0], self.modules, {path: order for path, order in orders_of(self.calls).items() if path == ""})

    def load(self, paths: Mapping[str, str], links: Sequence[Link]) -> None:
        """Give the port the reference's weights."""
        names, named = {own: other for other, own in paths.items()}, covered(links)[0]
        for entry, tensor in self.described:
            values = self.state.get(translated(entry.canonical, names))
            if entry.canonical not in named and values is not None and values.shape == entry.shape:
                self.sides[0].assign(tensor, entry.to_own(values))
        self.load_links(links)

    def load_links(self, links: Sequence[Link]) -> None:
        """Give the port's tensors that links name the reference's weights."""
        ours, theirs = forms_of(links, *self.entries)
        state = self.state | in_canonical((piece, self.arrays[own]) for own, pieces in theirs.items() for piece in pieces)
        for own, pieces in ours.items():
            array = pieces[0].into(state[pieces[0].canonical], None)
            for piece in pieces[1:]:
                array = piece.into(state[piece.canonical], array)
            self.sides[0].assign(self.tensors[own], array)

    def takes(self, own: str, other: str) -> bool:
        """Whether a module of the port runs on what the reference's was given."""
        call = self.calls.get(other)
        with strangers("port"):  # arguments in another order, or whatever the port raises
            return call is not None and bool(self.sides[0].call(self.modules[own], call.args, call.kwargs).outputs)
        return False

    def error(self, own: str, other: str) -> float:
        """Relative L2 between what a module of the port gives for the reference's input and what the reference's gave."""
        call = self.calls[other]
        with strangers("port"):  # another signature, or whatever the port raises
            return _difference(self.sides[0].call(self.modules[own], call.args, call.kwargs).outputs, call.output)
        return math.inf

    def same_calls(self, paths: Sequence[str]) -> bool:
        """Whether modules of the reference, one in another, get and give the same: each but one only passes on."""
        calls = [self.calls.get(path) for path in paths]
        both = [leaves((call.args, call.kwargs, call.output), np.ndarray) for call in calls if call is not None]
        same = all(len(one) == len(both[0]) and all(map(np.array_equal, one, both[0])) for one in both)
        return len(both) == len(paths) and same

    def calls_of_port(self) -> dict[str, Call]:
        """What each module of the port got and gave; nothing where it raises."""
        with strangers("port"):
            return self.sides[0].call(self.port, self.inputs, watched=self.modules).calls
        return {}

    def apart(self, mine: Call, other: str) -> float:
        """Relative L2 between what a module of the port gave in a run and what the reference's gave, but for axes of 1."""
        return _difference(_as(mine.output, self.calls[other].output), self.calls[other].output)

    def agreeing(self, pairs: Mapping[str, str]) -> int:
        """How many modules, reference path -> port path, got the same in a run of the whole port, and how many gave the same."""
        ours = self.calls_of_port()
        both = [(ours[own], self.calls[other]) for other, own in pairs.items() if own in ours and other in self.calls]
        values = [(part(mine), part(theirs)) for mine, theirs in both for part in (_given, lambda call: call.output)]
        return sum(_difference(_as(mine, theirs), theirs) <= tolerance.PAIRED_AGREE for mine, theirs in values)


def _given(call: Call) -> tuple:
    return call.args, call.kwargs


def _as(mine: Any, theirs: Any) -> list[np.ndarray]:
    """Arrays of the port in the shapes of the reference's, where they differ in axes of 1 alone."""
    pairs = zip(leaves(mine, np.ndarray), leaves(theirs, np.ndarray), strict=False)
    return [a.reshape(b.shape) if plain(a.shape) == plain(b.shape) else a for a, b in pairs]


def _difference(outputs: Sequence[np.ndarray], output: Any) -> float:
    expected = leaves(output, np.ndarray)
    if not outputs or len(outputs) < min(len(expected), 1) or outputs[0].shape != expected[0].shape:
        return math.inf
    pairs = [(a, b) for a, b in zip(outputs, expected, strict=False) if a.shape == b.shape and b.dtype.kind == "f"]
    found = max((relative(distance(a, b), norm(b)) for a, b in pairs), default=0.0)
    return found if np.isfinite(found) else math.inf


def confirmed(
    models: tuple[Module, Module], layers: dict[str, str], containers: dict[str, str], links: Sequence[Link],
    fixed: tuple[Mapping[str, str], Sequence[Link]], sides: Live, inputs: tuple,
) -> Confirmed:  # fmt: skip
    """See whether the two models agree under a pairing; where not, look for the pairing under which they do.

    Args:
        models: port and reference.
        layers: reference path -> port path of the layers.
        containers: likewise of all modules.
        links: between tensors.
        fixed: layers (port path -> reference path) and links that a person gave, which stay.
        sides: frameworks of the two.
        inputs: of both models.
    """
    found = Confirmed(dict(layers), list(links), False, set())
    end = time.thread_time() + SECONDS
    with strangers("reference") as raised:  # a reference that does not run is somebody else's to report
        trial = Trial(models, sides, inputs)
    if raised.error is not None:
        return found
    trial.load(found.paths, found.links)
    if trial.error("", "") > tolerance.PAIRED_AGREE:
        _try_forms(trial, found, containers, fixed[1], end)
    _try_layouts(trial, found, containers, fixed[1], end)
    if trial.error("", "") > tolerance.PAIRED_AGREE:
        _try_exchanges(trial, found, fixed[0], end)
    if trial.error("", "") > tolerance.PAIRED_AGREE:
        _try_own(trial, found, containers, fixed[1], end)
    found.agrees = trial.error("", "") <= tolerance.PAIRED_AGREE
    ours = trial.calls_of_port()
    for other, own in (containers | found.paths).items() if ours else ():
        alone = (own in ours) != (other in trial.calls)
        if alone or (found.agrees and own in ours and trial.apart(ours[own], other) > tolerance.PAIRED_APART):
            found.apart.add(other)
    return found


# --- which part of a packed tensor is which -----------------------------------------------------------------------------------


def _try_forms(trial: Trial, found: Confirmed, containers: Mapping[str, str], fixed: Sequence[Link], end: float) -> None:
    """Choose order and groups of the parts of each packed layer under which the module around it agrees.

    Where none around it can be compared, or one is wrong besides, more layers must get or give the same in a pass of the port.
    """
    first: tuple[int, tuple[int, ...]] | None = None
    for places in _packed_layers(trial, [*enumerate(found.links)], fixed):
        links = [found.links[place] for place in places]
        best: tuple[float, list[Link]] = (math.inf, links)
        for own, other in _around(links, containers, trial):
            before = trial.error(own, other)
            if not math.isfinite(before):
                continue
            best = (before, links)
            for groups, order in _forms(trial, links, first):
                if best[0] <= tolerance.PAIRED_AGREE or time.thread_time() > end:
                    break
                changed = same_kind(links, groups, order)
                trial.load_links(changed)
                if (error := trial.error(own, other)) < best[0]:
                    best = (error, changed)
                    first = (groups, order) if error <= tolerance.PAIRED_AGREE else first
            if best[0] <= tolerance.PAIRED_AGREE:
                break
            best = (math.inf, links)
        if best[0] > tolerance.PAIRED_AGREE and (form := _agreed_form(trial, links, first, {**containers, **found.paths}, end)):
            best, first = (0.0, same_kind(links, *form)), form
        trial.load_links(best[1])
        for place, link in zip(places, best[1], strict=True):
            found.links[place] = link


def _packed_layers(trial: Trial, links: Sequence[tuple[int, Link]], fixed: Sequence[Link]) -> list[list[int]]:
    """Places of the links of each packed layer; those of a normalisation behind one are its own, as its channels are."""
    shapes = [{entry.canonical: entry.shape for entry in entries} for entries in trial.entries]
    layers: dict[str, list[int]] = {}
    before, parts = "", 0
    for place, link in links:
        fewer, more = sorted((link.port, link.reference), key=len)
        open_order = len(fewer) < len(more) and not (link.added and len(more) == 2) and _stack_of(trial, link) is None
        if link in fixed or not open_order:
            continue
        holder = fewer[0].rpartition(".")[0]
        vector = len(shapes[fewer is link.reference].get(fewer[0], ())) == 1
        if holder != before and not (vector and holder not in layers and len(more) == parts and before):
            before, parts = holder, len(more)
        layers.setdefault(before, []).append(place)
    return list(layers.values())


def _agreed_form(
    trial: Trial, links: Sequence[Link], first: tuple[int, tuple[int, ...]] | None, pairs: Mapping[str, str], end: float
) -> tuple[int, tuple[int, ...]] | None:
    """Groups and order under which more of the paired modules get or give the same in a pass of the port; None where none does."""
    trial.load_links(links)
    agreeing = trial.agreeing(pairs)
    for form in _forms(trial, links, first):
        if time.thread_time() > end:
            return None
        trial.load_links(same_kind(links, *form))
        if trial.agreeing(pairs) > agreeing:
            return form
    return None


def _try_layouts(trial: Trial, found: Confirmed, containers: Mapping[str, str], fixed: Sequence[Link], end: float) -> None:
    """Choose how matrices lie: square ones of a module's own as they are or transposed, kernels in a linear layer channels last.

    A choice is right where a module around the matrices then agrees, or where more modules of the port get or give the same.
    It is not enough that the outputs differ less: beside a mistake of the port a wrong choice may do that.
    """
    shapes = [{entry.canonical: entry.shape for entry in entries} for entries in trial.entries]
    turns: dict[int, str] = {}
    for place, link in enumerate(found.links):
        if link in fixed:
            continue
        if (stack := _stack_of(trial, link)) is not None and len(stack) == 3 and stack[1] == stack[2]:
            turns[place] = "transposed"
        if len(link.port) != 1 or len(link.reference) != 1:
            continue
        mine, theirs = shapes[0][link.port[0]], shapes[1][link.reference[0]]
        if mine == theirs and len(mine) == 2 and mine[0] == mine[1]:
            turns[place] = "transposed"
        elif same_kernels(mine, theirs) and not link.transposed:
            turns[place] = "channels_last"
    together: dict[tuple[str, str], list[int]] = {}
    for place in turns:
        link = found.links[place]
        holding = [(link.port[0].rpartition(".")[0], link.reference[0].rpartition(".")[0])]
        alone = len(link.port) == len(link.reference)  # of several, none is the counterpart of the layer that holds them all
        for own, other in [*(holding if alone else []), *_around([link], containers, trial)]:
            if other not in trial.calls:
                continue
            if math.isfinite(trial.error(own, other)):
                together.setdefault((own, other), []).append(place)
                break
    for around, places in together.items():
        _turned(trial, found, around, {place: turns[place] for place in places}, {**containers, **found.paths}, end)


def _stack_of(trial: Trial, link: Link) -> tuple[int, ...] | None:
    """The shape of a tensor that has an axis more than each of several of the other side; None of another link."""
    both = zip((link.port, link.reference), trial.entries, strict=True)
    sides = [[entry for entry in entries if entry.canonical in names] for names, entries in both]
    fewer, more = sorted(sides, key=len)
    return fewer[0].shape if len(fewer) == 1 < len(more) and is_stack(fewer, more) else None


def _turned(
    trial: Trial, found: Confirmed, around: tuple[str, str], turns: Mapping[int, str], pairs: Mapping[str, str], end: float
) -> None:
    """Turn those matrices of a module that are to be turned. Around those of the whole model itself no mistake can be left out."""
    least = MUCH_LESS if around == ("", "") else 0.0

    def turned(places: Iterable[int]) -> tuple[list[Link], float, int]:
        links = list(found.links)
        for place in places:
            link = links[place]
            if turns[place] == "transposed":
                links[place] = replace(link, transposed=not link.transposed)
            else:
                links[place] = replace(link, channels_last=not link.channels_last)
        trial.load_links(links)
        return links, trial.error(*around), trial.agreeing(pairs)

    counts = range(2, len(turns) + 1) if len(turns) <= MATRICES else [len(turns)]
    several = [places for count in counts for places in itertools.combinations(turns, count)]
    _, error, agreeing = turned([])
    for places in [*((place,) for place in turns), *several]:
        if error <= tolerance.PAIRED_CLOSE or time.thread_time() > end:
            break
        links, now, agree = turned(places)
        close = now <= tolerance.PAIRED_AGREE and now < MUCH_LESS * error
        if close or (error > tolerance.PAIRED_AGREE and (agree > agreeing or (agree >= agreeing and now < least * error))):
            found.links, error, agreeing = links, now, agree
    trial.load_links(found.links)


def _around(links: Sequence[Link], containers: Mapping[str, str], trial: Trial) -> Iterator[tuple[str, str]]:
    """The paired modules that hold all tensors of links, the innermost first: port path, reference path."""
    holding = [
        (other, own)
        for other, own in containers.items()
        if other in trial.calls
        and all(name.startswith(f"{own}." if own else "") for link in links for name in link.port)
        and all(name.startswith(f"{other}." if other else "") for link in links for name in link.reference)
    ]
    for other, own in sorted(holding, key=lambda pair: -len(pair[0])):
        yield own, other


def _forms(trial: Trial, links: Sequence[Link], first: tuple[int, tuple[int, ...]] | None) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Groups and orders to try, the one that was right elsewhere first."""
    longest = max((max(link.port, link.reference, key=len) for link in links), key=len)
    count = len(longest)
    shapes = {entry.canonical: entry.shape for entry in trial.entries[links[0].port != longest]}
    rows = math.gcd(*(shapes[name][0] for name in longest if name in shapes)) if all(n in shapes for n in longest) else 1
    if first is not None and len(first[1]) == count and rows % first[0] == 0:
        yield first
    orders = list(itertools.permutations(range(count))) if count <= 4 else [tuple(range(count))]
    divisors = [n for n in range(1, rows + 1) if rows % n == 0] if not any(link.columns for link in links) else [1]
    for groups in divisors if count <= 3 else divisors[:1]:
        for order in orders:
            yield groups, order


# --- which of several layers of the same shapes is which ----------------------------------------------------------------------


def _try_exchanges(trial: Trial, found: Confirmed, fixed: Mapping[str, str], end: float) -> None:
    """Pair each layer of the port with one that the reference gave the same input, until the outputs agree.

    Where several layers of the reference were given it (parallel branches), one is chosen, and another one in the next pass.
    """
    theirs: dict[str, list[Entry]] = {}
    for entry in trial.entries[1]:
        theirs.setdefault(entry.canonical.rpartition(".")[0], []).append(entry)
    pairs, forms = {}, {}
    for other, own in found.paths.items():
        form = _form(entry for entry, _ in trial.held.get(own, ()))
        if own not in fixed and form and form == _form(theirs.get(other, ())):
            pairs[own], forms[other] = other, form
    choices: list[int] = []
    shown: dict[str, str] = {}
    for _ in range(PASSES):
        if time.thread_time() > end:
            break
        attempt = _Attempt(trial, pairs, forms, choices)
        if attempt.agrees():
            found.paths |= {other: own for own, other in attempt.paired.items()}
            return
        if len(attempt.paired) > len(shown):  # it came further before it met a mistake of the port
            shown = dict(attempt.paired)
        picks = [(choices[i] if i < len(choices) else 0, count) for i, count in enumerate(attempt.counts)]
        while picks and picks[-1][0] + 1 >= picks[-1][1]:
            picks.pop()
        if not picks:
            break
        choices = [pick for pick, _ in picks[:-1]] + [picks[-1][0] + 1]
    found.paths |= {other: own for own, other in _exchanged(pairs, shown).items()}
    trial.load(found.paths, found.links)


def _try_own(trial: Trial, found: Confirmed, containers: Mapping[str, str], fixed: Sequence[Link], end: float) -> None:
    """Exchange the tensors of two classes of somebody's own that go by other names on each side (``g`` and ``weight`` of a norm).

    Likewise two of one shape that lie in one module, of which names do not say which is which. It is right where the models then
    agree, or where more of the paired modules get or give the same.
    """
    bundles: dict[tuple[str, str], list[int]] = {}
    for place, link in enumerate(found.links):
        if link not in fixed and len(link.port) == len(link.reference) == 1:
            bundles.setdefault((_holder(link.port[0]), _holder(link.reference[0])), []).append(place)
    pairs = {**containers, **found.paths}
    agreeing = trial.agreeing(pairs)
    for one, other in _exchangeable(trial, found.links, list(bundles.values())):
        if time.thread_time() > end:
            return
        links = list(found.links)
        for a, b in zip(one, other, strict=True):
            links[a] = replace(links[a], reference=found.links[b].reference)
            links[b] = replace(links[b], reference=found.links[a].reference)
        trial.load_links(links)
        now = trial.agreeing(pairs)
        if now > agreeing or trial.error("", "") <= tolerance.PAIRED_AGREE:
            found.links, agreeing = links, now
        trial.load_links(found.links)


def _exchangeable(trial: Trial, links: Sequence[Link], bundles: Sequence[list[int]]) -> Iterator[tuple[list[int], list[int]]]:
    """Places of links whose tensors may be exchanged: of bundles of the same names and shapes, and of two beside each other."""
    forms = [{_own_form(trial, links[place]): place for place in places} for places in bundles]
    for one, other in itertools.combinations(forms, 2):
        if one.keys() == other.keys():
            yield list(one.values()), [other[form] for form in one]
    shapes = {place: _own_form(trial, links[place])[2:] for places in bundles for place in places}
    for a, b in itertools.combinations(shapes, 2):
        beside = _holder(links[a].port[0]) == _holder(links[b].port[0])
        if beside and shapes[a] == shapes[b] and _own_form(trial, links[a]) != _own_form(trial, links[b]):
            yield [a], [b]


def _holder(name: str) -> str:
    return name.rpartition(".")[0]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _own_form(trial: Trial, link: Link) -> tuple:
    """Last names and shape of the tensors of a link between two."""
    shape = next(entry.shape for entry in trial.entries[1] if entry.canonical == link.reference[0])
    return link.port[0].rpartition(".")[2], link.reference[0].rpartition(".")[2], shape, link.transposed, link.channels_last


def _exchanged(pairs: Mapping[str, str], shown: Mapping[str, str]) -> dict[str, str]:
    """The pairs, port path -> reference path, after the exchanges that a pass has shown before it met a mistake of the port.

    What it has paired was given the same numbers on both sides; how far it comes says which of parallel layers is which.
    """
    found = dict(pairs)
    for own, other in shown.items():
        holder = next(one for one, its in found.items() if its == other)
        found[holder], found[own] = found[own], other
    return found


def _form(entries: Iterable[Entry]) -> tuple:
    """Last names and shapes of a layer's tensors."""
    return tuple(sorted((entry.canonical.rpartition(".")[2], entry.shape) for entry in entries))


class _Attempt:
    """One pass through the port, in which every layer takes the weights of a layer that was given the same in the reference."""

    def __init__(self, trial: Trial, pairs: Mapping[str, str], forms: Mapping[str, tuple], choices: Sequence[int]) -> None:
        self.trial, self.pairs, self.forms, self.choices = trial, pairs, forms, choices
        self.paired: dict[str, str] = {}
        self.counts: list[int] = []

    def agrees(self) -> bool:
        """Whether the outputs are the reference's in the end."""
        framework = self.trial.sides[0]
        handles = [framework.hook(self.trial.modules[own], before=self._choosing(own)) for own in self.pairs]
        with strangers("port") as raised:  # _Stop, or whatever the port raises
            outputs = framework.call(self.trial.port, self.trial.inputs).outputs
        for handle in handles:
            handle.remove()
        return raised.error is None and _difference(outputs, self.trial.calls[""].output) <= tolerance.PAIRED_AGREE

    def _choosing(self, own: str) -> Callable[[Module, tuple], None]:
        def choose(_module: Module, args: tuple) -> None:
            tensors = leaves(args, self.trial.sides[0].tensor_type)
            if not tensors:
                return
            given, form = self.trial.sides[0].array(tensors[0]), self.forms[self.pairs[own]]
            if own in self.paired:
                if self._given_to_another(given, self.paired[own]):
                    del self.paired[own]  # it stands for two layers: which of them it is, a pass does not say
                    raise _Stop(own)
                return
            free = [o for o in self.pairs.values() if o not in self.paired.values() and self.forms[o] == form]
            fitting = [other for other in free if _same_input(given, self.trial.calls.get(other))]
            if not fitting and list(self.forms.values()).count(form) == 1:
                fitting = [self.pairs[own]]  # no other can be meant; what follows tells whether it is given the same (once a batch)
            if not fitting:
                raise _Stop(own)
            fitting.sort(key=lambda other: (_last(other) != self._as_before(own), other != self.pairs[own]))
            pick = 0
            if len(fitting) > 1:
                number = len(self.counts)
                pick = self.choices[number] if number < len(self.choices) else 0
                self.counts.append(len(fitting))
            self.paired[own] = other = fitting[pick]
            self._give(own, other)

        return choose

    def _as_before(self, own: str) -> str | None:
        """The last name of what the layer of this last name was paired with in an earlier block, where a choice is tried."""
        return {_last(mine): _last(theirs) for mine, theirs in self.paired.items()}.get(_last(own)) if self.choices else None

    def _given_to_another(self, given: np.ndarray, other: str) -> bool:
        """Whether a layer of the reference was never given what another one of its form was given."""
        same = {key.partition("#")[0] for key, call in self.trial.calls.items() if _same_input(given, call)}
        return other not in same and any(self.forms.get(one) == self.forms[other] for one in same)

    def _give(self, own: str, other: str) -> None:
        for entry, tensor in self.trial.held.get(own, ()):
            last = entry.canonical.rpartition(".")[2]
            self.trial.sides[0].assign(tensor, entry.to_own(self.trial.state[f"{other}.{last}" if other else last]))


def _same_input(given: np.ndarray, call: Call | None) -> bool:
    """Whether a layer is given the numbers that one of the reference was given, in the same order or, in another shape, any."""
    arrays = leaves((call.args, call.kwargs), np.ndarray) if call is not None else []
    if not arrays or arrays[0].size != given.size or given.dtype.kind != arrays[0].dtype.kind:
        return False
    if arrays[0].shape == given.shape:
        return relative(distance(given, arrays[0]), norm(arrays[0])) <= tolerance.PAIRED_AGREE
    return relative(distance(np.sort(given.ravel()), np.sort(arrays[0].ravel())), norm(arrays[0])) <= tolerance.PAIRED_AGREE
