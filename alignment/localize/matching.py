"""Which module of the port is which module of the reference, also where one is missing, extra, moved, renamed or nested otherwise.

Children of matched parents are paired by name, and by an alignment of the two sequences where names differ or are numbers, so
that one missing layer does not shift all that follow it. Where that leaves weights over although both sides have the same
layers in the same order of use, the layers are paired in that order, whatever they lie in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from alignment.frameworks import framework_of
from alignment.frameworks.base import Framework, Module
from alignment.localize.pairing import Part, joined, paired, part_of, same_layers
from alignment.weights import translated

UnmatchedKind = Literal["missing", "extra", "replaced", "moved"]
Sides = tuple[Framework, Framework]
Orders = Callable[[], tuple[list[str], list[str]]]


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


@dataclass
class Matching:
    """Reference path -> port path for every module that both have, and those that only one has.

    Attributes:
        paths: as said.
        unmatched: in the order of definition.
        notes: what is called or nested otherwise in the port, and paired all the same.
    """

    paths: dict[str, str] = field(default_factory=dict)
    unmatched: list[Unmatched] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def renaming(self) -> dict[str, str]:
        """Port path -> reference path."""
        return {own: other for other, own in self.paths.items()}

    def fits(self, port: Module, reference: Module, sides: Sides) -> bool:
        """Whether every tensor of each side has its counterpart of the same shape on the other."""
        names = self.renaming()
        ours = sorted((translated(e.canonical, names), e.shape) for e in sides[0].entries(port))
        return ours == sorted((e.canonical, e.shape) for e in sides[1].entries(reference))


@dataclass
class Matched:
    """A matching that holds while the engine knows the port's modules by the reference's paths.

    Attributes:
        matching: by these paths.
        shown: own path of each module of the port -> the path by which the engine knows it (``call_modules``); empty where
            these are the same, or where the two models do not fit.
    """

    matching: Matching
    shown: dict[str, str]


def matched(port: Module, reference: Module, names: Mapping[str, str], sides: Sides, inputs: Callable[[], tuple]) -> Matched:
    """Match two fresh models, and choose how to call the port's modules.

    Args:
        port, reference: the models, which are run in evaluation mode where names differ.
        names: port path -> reference path, for modules or whole prefixes.
        sides: frameworks of the port and of the reference.
        inputs: makes arrays to run them on.
    """

    def orders() -> tuple[list[str], list[str]]:
        arrays = inputs()
        return order_of_use(sides[0], port, arrays), order_of_use(sides[1], reference, arrays)

    matching = match_modules(port, reference, names, sides, orders)
    if not matching.fits(port, reference, sides):
        return Matched(matching, {})
    back, other = matching.renaming(), sides[1].modules(reference, every_path=True)
    shown = {}
    for own in sides[0].modules(port, every_path=True):
        path = translated(own, back)
        shown[own] = path if own in back or path not in other else f"({own})"
    if all(own == path for own, path in shown.items()):
        return Matched(matching, {})
    unmatched = [replace(u, path=shown[u.own]) if u.kind == "extra" else u for u in matching.unmatched]
    return Matched(Matching({o: shown[own] for o, own in matching.paths.items()}, unmatched, matching.notes), shown)


def match_modules(
    port: Module,
    reference: Module,
    names: Mapping[str, str] | None = None,
    frameworks: Sides | None = None,
    orders: Orders | None = None,
) -> Matching:
    """Match the modules of two models.

    Args:
        port, reference: models of any of the frameworks.
        names: port path -> reference path where the names differ, for modules or for whole prefixes (``"res2"`` ->
            ``"layer1"``).
        frameworks: of the port and of the reference; found out by themselves where they have no layers of a project.
        orders: gives the paths of the port's and of the reference's modules in the order of use (``order_of_use``), and is
            asked only where names differ; the order of definition where None.

    Raises:
        UserError: one of the two is not a model.
    """
    sides = frameworks or (framework_of(port), framework_of(reference))
    used: tuple[list[str], list[str]] | None = None

    def ranks(number: int) -> dict[str, int]:
        nonlocal used
        used = used or (orders() if orders is not None else ([], []))
        return {path: place for place, path in enumerate(used[number])}

    given, matching = dict(names or {}), Matching({"": ""})
    _Matcher(*sides, given, matching, ranks).children(port, reference, "", "")
    if matching.fits(port, reference, sides):
        return matching
    other = _by_path(port, reference, given, sides)
    if not other.fits(port, reference, sides):
        other = _by_layers(port, reference, given, sides, ranks) or matching
    return other if other.fits(port, reference, sides) else matching


def order_of_use(framework: Framework, model: Module, inputs: tuple) -> list[str]:
    """Paths of a model's modules in the order in which their first calls end; empty where the model raises."""
    before = framework.training(model)
    framework.set_training(model, False)
    try:
        calls = framework.call(model, inputs, watched=framework.modules(model)).calls
    except Exception:  # a port may raise anything; the search says so
        return []
    finally:
        framework.set_training(model, before)
    return list(dict.fromkeys(key.partition("#")[0] for key in calls))


def _by_path(port: Module, reference: Module, names: Mapping[str, str], sides: Sides) -> Matching:
    """Modules of equal paths, after the names given."""
    own, other = (side.modules(model, every_path=True) for side, model in zip(sides, (port, reference), strict=True))
    called = {translated(path, names): path for path in own}
    matching = Matching({path: called[path] for path in other if path in called} | {"": ""})
    kept = set(matching.paths.values())
    _note_rest(matching, "extra", [part_of(sides[0], path, module) for path, module in own.items() if path not in kept])
    _note_rest(matching, "missing", [part_of(sides[1], path, module) for path, module in other.items() if path not in called])
    return matching


def _by_layers(
    port: Module, reference: Module, names: Mapping[str, str], sides: Sides, ranks: Callable[[int], dict[str, int]]
) -> Matching | None:
    """Layers paired in the order of use, whatever they lie in; None where those with weights are not the same."""
    own, other = (_layers(side, model, ranks(i)) for i, (side, model) in enumerate(zip(sides, (port, reference), strict=True)))
    known = {part.path: part for part in other}
    given = [(part, known[path]) for part in own if (path := translated(part.path, names)) != part.path and path in known]
    taken = [{part.path for part in side} for side in zip(*given, strict=True)] or [set(), set()]
    rest = [[part for part in parts if part.path not in known] for parts, known in zip((own, other), taken, strict=True)]
    pairs = same_layers(*rest)
    if pairs is None:
        return None
    matching = Matching({"": ""} | {theirs.path: mine.path for mine, theirs in [*given, *pairs]})
    kept = set(matching.paths.values())
    _note_rest(matching, "extra", [part for part in own if part.path not in kept])
    _note_rest(matching, "missing", [part for part in other if part.path not in matching.paths])
    _pair_containers(port, reference, sides, matching)
    moved = [(mine, theirs) for mine, theirs in pairs if mine.path != theirs.path and theirs.tensors]
    if moved:
        mine, theirs = moved[0]
        matching.notes.append(
            f"{len(moved)} layers with weights lie elsewhere in the port and are paired in the order of use, "
            f"first {theirs.path} ({theirs.title}), called {mine.path} in the port"
        )
    return matching


def _layers(side: Framework, model: Module, rank: Mapping[str, int]) -> list[Part]:
    """What computes by itself or has tensors of its own, in the order of use; at the end, as defined, what is not called."""
    found = [part_of(side, p, m) for p, m in side.modules(model).items() if side.own_tensors(m) or not side.children(m)]
    return sorted(found, key=lambda part: rank.get(part.path, len(rank)))


def _note_rest(matching: Matching, kind: UnmatchedKind, parts: Sequence[Part]) -> None:
    own = kind == "extra"
    matching.unmatched += [Unmatched(kind, p.path, p.title, p.parameters, p.path if own else "") for p in parts]


def _pair_containers(port: Module, reference: Module, sides: Sides, matching: Matching) -> None:
    """Containers that hold the same paired layers on both sides, the outermost first."""
    leaves = dict(matching.paths)
    holding: list[dict[frozenset[str], list[str]]] = [{}, {}]
    for number, (side, model) in enumerate(zip(sides, (port, reference), strict=True)):
        for path, module in side.modules(model).items():
            if path and side.children(module):
                inside = frozenset(other for other, own in leaves.items() if (own, other)[number].startswith(f"{path}."))
                holding[number].setdefault(inside, []).append(path)
    for inside, others in holding[1].items():
        if inside:
            matching.paths |= {o: own for o, own in zip(others, holding[0].get(inside, []), strict=False) if o not in leaves}


def _as_used(parts: list[Part], rank: Mapping[str, int]) -> list[Part]:
    """Siblings in the order in which the first layer of each is called."""
    first = {part.path: [place for path, place in rank.items() if f"{path}.".startswith(f"{part.path}.")] for part in parts}
    return sorted(parts, key=lambda part: min(first[part.path], default=len(rank)))


@dataclass
class _Matcher:
    """Pairs the children of matched parents, from the whole model downwards."""

    port: Framework
    reference: Framework
    names: dict[str, str]
    matching: Matching
    ranks: Callable[[int], dict[str, int]]

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
                    self.matching.notes.append(f"{there.path} ({there.title}) is called {mine.path} in the port")
                self.matching.paths[there.path] = mine.path
                self.children(mine.module, there.module, mine.path, there.path)
            follows = there.path if there is not None and mine is not None else follows

    def _note(self, kind: UnmatchedKind, path: str, part: Part, parameters: int | None = None, **more: Any) -> None:
        count = part.parameters if parameters is None else parameters
        self.matching.unmatched.append(Unmatched(kind, path, part.title, count, **more))
