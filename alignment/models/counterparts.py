"""What has which counterpart, and the containers around paired layers, which are paired by what they hold or compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from alignment import tolerance
from alignment.frameworks.base import Description, Module
from alignment.models import values
from alignment.models.forms import Adapters
from alignment.models.links import Link, covered
from alignment.models.units import words_of_name
from alignment.models.values import Live
from alignment.models.weights import translated
from alignment.strangers import strangers

UnmatchedKind = Literal["missing", "extra", "replaced", "moved"]
Sides = tuple[Description, Description]


@dataclass(frozen=True)
class Unmatched:
    """A module that only one side has, or that stands elsewhere.

    Attributes:
        kind: ``"missing"`` (in the port), ``"extra"`` (in the port), ``"replaced"`` (by another one of the port) or ``"moved"``
            (among its siblings; it is paired all the same).
        path: in the reference; of an extra one, the reference's path of its parent and its own name.
        module: its class, for people.
        parameters: how many numbers its parameters hold, or those of what replaces it.
        own: path in the port of an extra one, of what replaces one, and of one that has moved.
        instead: class of what replaces it.
        follows: of an extra one, the path in the reference of the module before it; its parent's where there is none.
        alters: whether one that has moved has weights of other shapes there.
    """

    kind: UnmatchedKind
    path: str
    module: str
    parameters: int
    own: str = ""
    instead: str = ""
    follows: str = ""
    alters: bool = False


APART = "; with these pairs and the same random weights the two models still differ"  # of a note


@dataclass
class Matching:
    """Reference path -> port path for every module that both have, and those that only one has.

    Attributes:
        paths: as said.
        unmatched: in the order of definition.
        notes: what is called or nested otherwise in the port, and paired all the same.
        adapters: what the port's modules are in the reference's terms, as far as the search has found it out.
    """

    paths: dict[str, str] = field(default_factory=dict)
    unmatched: list[Unmatched] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    adapters: Adapters = field(default_factory=Adapters)

    def confirm(self) -> None:
        """Say that the models agree with these pairs once the mistakes are fixed, where it was said that they differ."""
        self.notes = [note.replace(APART, "; with these pairs the models agree once the mistakes are fixed") for note in self.notes]

    def renaming(self) -> dict[str, str]:
        """Port path -> reference path."""
        return {own: other for other, own in self.paths.items()}


def pair_shared(models: tuple[Module, Module], sides: Sides, matching: Matching) -> None:
    """Layers of one side's own where the other has one layer at several paths: each is paired with the path that is most like its.

    They are left over otherwise, but for the first; what is wrong, if anything, is that their tensors are not the same one.
    """
    shapes: list[dict[str, dict[str, tuple]]] = [{}, {}]
    paths: list[dict[int, list[str]]] = [{}, {}]
    tensors: list[dict[str, set[int]]] = [{}, {}]
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        for entry, tensor in side.described(model):
            path, _, last = entry.canonical.rpartition(".")
            shapes[number].setdefault(path, {})[last] = entry.shape
            tensors[number].setdefault(path, set()).add(id(tensor))
        for path, module in side.modules(model, every_path=True).items():
            if path in shapes[number]:
                paths[number].setdefault(id(module), []).append(path)
    for number, kind in ((0, "extra"), (1, "missing")):
        for places in (group for group in paths[1 - number].values() if len(group) > 1):
            pairs = [pair if number else pair[::-1] for pair in matching.paths.items()]  # its own path first
            known = [mine for mine, theirs in pairs if theirs in places]
            rest = {one.own or one.path: one for one in matching.unmatched if one.kind == kind}
            taken = set[int]().union(*(tensors[number].get(path, set()) for path in known))
            alone = [path for path in rest if shapes[number].get(path) == shapes[1 - number][places[0]]]
            alone = [path for path in alone if not tensors[number][path] & taken]
            held = [path for group in paths[number].values() if {*group} & {*known} for path in group]
            if not alone or not known or len(held + alone) != len(places):
                continue
            found = _most_alike([*held, *alone], places)
            matching.unmatched = [one for one in matching.unmatched if one not in [rest[path] for path in alone]]
            again = [(mine, theirs) for mine, theirs in pairs if mine not in held] + found
            matching.paths = dict(pair if number else pair[::-1] for pair in again)


def _most_alike(mine: Sequence[str], theirs: Sequence[str]) -> list[tuple[str, str]]:
    """Each path with one of the others, those first that have most of their names in common."""
    words = {path: words_of_name(path) for path in (*mine, *theirs)}
    alike = {(a, b): len(words[a] & words[b]) / len(words[a] | words[b]) for a in mine for b in theirs}
    found: dict[str, str] = {}
    for a, b in sorted(alike, key=lambda pair: -alike[pair]):
        if a not in found and b not in found.values():
            found[a] = b
    return [*found.items()]


def pair_containers(port: Module, reference: Module, sides: Sides, matching: Matching, links: Sequence[Link] = ()) -> None:
    """Containers that hold the same paired layers and linked tensors on both sides, the outermost first."""
    known = [side.modules(model) for side, model in zip(sides, (port, reference), strict=True)]

    def title(number: int, path: str) -> str:
        return sides[number].layer(known[number][path]).title

    for own, others in list(_chains((port, reference), sides, matching.paths, links)):
        if len(own) == len(others):
            matching.paths |= zip(others, own, strict=True)
            continue
        for other in others:  # one is wrapped once more: in what, and whether that computes something, is not said by what it holds
            same = [path for path in own if title(0, path) == title(1, other)]
            if len(same) == 1 and same[0] not in matching.paths.values():
                matching.paths[other] = same[0]


def _chains(
    models: tuple[Module, Module], sides: Sides, paired: Mapping[str, str], links: Sequence[Link]
) -> Iterator[tuple[list[str], list[str]]]:
    """Containers of the port and of the reference that are not paired and hold the same paired layers, the outermost first.

    One that holds a tensor of a link besides, or only some of those that a link joins, is another one; and so is a list of modules,
    which nothing calls, beside a module that is called.
    """
    holding: list[dict[tuple[frozenset[str], frozenset[tuple], bool], list[str]]] = [{}, {}]
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        known = (set(paired.values()), set(paired))[number]
        for path, module in side.modules(model).items():
            if path not in known and side.children(module):
                inside = frozenset(other for other, own in paired.items() if (own, other)[number].startswith(f"{path}."))
                held = inside, _linked(links, number, path), side.has_forward(module)
                holding[number].setdefault(held, []).append(path)
    for held, others in holding[1].items():
        if held[0] and held in holding[0]:
            yield holding[0][held], others


def _linked(links: Sequence[Link], number: int, path: str) -> frozenset[tuple]:
    """The links whose tensors a module holds; those of which it holds a part with the names of these."""
    found: set[tuple] = set()
    for place, link in enumerate(links):
        names = (link.port, link.reference)[number]
        inside = tuple(name for name in names if name.startswith(f"{path}."))
        if inside:
            found.add((place,) if inside == names else (place, *inside))
    return frozenset(found)


def contradicted(paths: Mapping[str, str], links: Sequence[Link]) -> bool:
    """Whether links say of the tensors of paired modules, reference path -> port path, that the two are not each other's."""
    linked = [set().union(*({name.rpartition(".")[0] for name in names} for names in side), ()) for side in
              zip(*((link.port, link.reference) for link in links), strict=True)] or [set(), set()]  # fmt: skip
    held = [(own, other) for other, own in paths.items() if own in linked[0] or other in linked[1]]
    return any(_linked(links, 0, own) != _linked(links, 1, other) for own, other in held if other and own)


def pair_by_tensors(models: tuple[Module, Module], sides: Live, matching: Matching, links: Sequence[Link], inputs: tuple) -> None:
    """Modules of a user's own that hold the same tensors, whatever these are called, and that take the same arrays.

    Of two mere containers the layers in them have told already whether they are one, unless all that they hold is packed or held
    otherwise on one side.
    """
    names, named = matching.renaming(), covered(links)
    modules = [side.modules(model) for side, model in zip(sides, models, strict=True)]
    known = set(matching.paths.values()), set(matching.paths)
    found: list[dict[frozenset, list[str]]] = [{}, {}]
    linked: list[set[str]] = [set(), set()]  # modules of which every tensor is in a link

    def holds(own: str, other: str) -> bool:
        if sides[0].has_forward(modules[0][own]) is not sides[1].has_forward(modules[1][other]):
            return False
        of_their_own = bool(sides[0].own_tensors(modules[0][own]) or sides[1].own_tensors(modules[1][other]))
        return of_their_own or (own in linked[0] and other in linked[1])

    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        tensors = [entry.canonical for entry in side.entries(model)]
        groups = {frozenset((link.port, link.reference)[number]): place for place, link in enumerate(links)}
        for path, module in modules[number].items():
            if path in known[number] or side.knows(module):
                continue
            inside = frozenset(name for name in tensors if name.startswith(f"{path}."))
            whole = {place: group for group, place in groups.items() if group <= inside}
            if inside <= named[number]:
                linked[number].add(path)
            if inside and (inside & named[number]) <= frozenset().union(*whole.values()):
                held = {translated(name, names) if number == 0 else name for name in inside - named[number]}
                found[number].setdefault(frozenset(held | whole.keys()), []).append(path)
    both = [(own, other) for held, others in found[1].items() if len(found[0].get(held, ())) == len(others)
            for own, other in zip(found[0][held], others, strict=True) if holds(own, other)]  # fmt: skip
    trial = _trial(models, matching, links, sides, inputs) if both else None
    matching.paths |= {other: own for own, other in both if trial is not None and trial.takes(own, other)}


def _trial(
    models: tuple[Module, Module], matching: Matching, links: Sequence[Link], sides: Live, inputs: tuple
) -> values.Trial | None:
    """The two models with the same random weights; None where the reference does not run, which is somebody else's to report."""
    with strangers("reference") as raised:
        trial = values.Trial(models, sides, inputs)
    if raised.error is not None:
        return None
    trial.load(matching.paths, links)
    return trial


def pair_wrapped(models: tuple[Module, Module], matching: Matching, links: Sequence[Link], sides: Live, inputs: tuple) -> None:
    """Containers of which one side has more around the same layers: those are paired that give the same from random weights."""
    chains = [one for one in _chains(models, sides, matching.paths, links) if len(one[0]) != len(one[1])]
    if not chains:
        return
    trial = _trial(models, matching, links, sides, inputs)
    if trial is None:
        return
    for own, others in chains:
        for other in others:
            given = [path for path in own if path not in matching.paths.values()] if other in trial.calls else []
            same = next((path for path in given if trial.error(path, other) <= tolerance.PAIRED_AGREE), None)
            if same is not None:
                matching.paths[other] = same
        if len(own) == 1 and own[0] not in matching.paths.values() and trial.same_calls(others):
            matching.paths[others[0]] = own[0]
