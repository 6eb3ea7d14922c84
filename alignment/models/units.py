"""What a model computes with: its layers, and the tensors that a module with children has itself, in the order of use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from alignment.frameworks.base import Description, Framework, Module, leaves
from alignment.models.calibration import random_values
from alignment.models.links import by_module
from alignment.models.pairing import Part, part_of
from mobilenetv3_common.weights import Entry

Branches = Literal["used", "in turn", "together"]  # the order of parallel branches: ``in_branches``
PROJECTIONS = {"q": 0, "query": 0, "wq": 0, "k": 1, "key": 1, "wk": 1, "kv": 1, "v": 2, "value": 2, "wv": 2}  # in a layer's name


@dataclass
class Use:
    """How a model uses its modules in one pass in evaluation mode.

    Attributes:
        order: paths in the order in which their first calls end; empty where the model raises.
        inputs: the first array that each was first given.
        reads: canonical names of the tensors in the order in which functions, and layers of the framework, are first given them.
    """

    order: list[str] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    reads: Callable[[], list[str]] = list


def use_of(framework: Description, model: Module, inputs: tuple) -> Use:
    """Run a model, and see what it uses when; nothing where it raises."""
    with without_zeros(framework, model):
        calls = framework.calls_of(model, inputs)
    found = Use(list(dict.fromkeys(key.partition("#")[0] for key in calls)))
    for path in found.order:
        call = calls[path]
        arrays = leaves((call.args, call.kwargs), np.ndarray) if call is not None else []
        if arrays:
            found.inputs[path] = arrays[0]
    found.order = with_read(framework, model, inputs, found.order)
    found.order = queries_first(found)
    found.reads = partial(_reads, framework, model, inputs)
    return found


def _reads(framework: Description, model: Module, inputs: tuple) -> list[str]:
    """The order in which a model first uses its tensors; nothing where the engine cannot see it."""
    known = {path: module for path, module in framework.modules(model).items() if framework.knows(module)}
    inside, owners = dict[str, list[str]](), dict[int, str]()
    for entry, tensor in framework.described(model):
        path = entry.canonical.rpartition(".")[0]
        if path in known:
            inside.setdefault(path, []).append(entry.canonical)
        else:
            owners.setdefault(id(tensor), entry.canonical)
    return [name for one in framework.first_uses(model, inputs, known, owners) for name in inside.get(one, [one])]


@contextlib.contextmanager
def without_zeros(framework: Description, model: Module) -> Iterator[None]:
    """Random numbers in parameters that are all 0: behind a gate of zeros, a layer is given the same array as one before it."""
    if not isinstance(framework, Framework):
        yield
        return
    described = ((entry, tensor) for entry, tensor in framework.described(model) if entry.role == "parameter")
    zeros = [(entry, tensor) for entry, tensor in described if not framework.array(tensor).any()]
    rng = np.random.default_rng(0)
    held = [(tensor, framework.array(tensor).copy()) for _, tensor in zeros]
    try:
        for (entry, tensor), (_, array) in zip(zeros, held, strict=True):
            framework.assign(tensor, random_values(rng, entry.canonical, array))
        yield
    finally:
        for tensor, array in held:
            framework.assign(tensor, array)


def with_read(framework: Description, model: Module, inputs: tuple, order: Sequence[str]) -> list[str]:
    """The order of use with the layers that nothing calls, each where a function is first given one of their tensors.

    Those of a module that is not called either stay together: the weights of several experts may be stacked before they are used.
    """
    single = {path: module for path, module in framework.modules(model).items() if not framework.children(module)}
    tensors = {path: framework.own_tensors(module) for path, module in single.items() if path not in order}
    owners = {id(tensor): path for path, held in tensors.items() for tensor in held.values()}
    if not owners or not order:
        return list(order)
    uses = framework.first_uses(model, inputs, {path: single[path] for path in order if path in single}, owners)
    found, behind = list(order), 0
    for path in uses:
        if path not in tensors:
            behind = found.index(path) + 1
        elif path not in found:
            holder = path.rpartition(".")[0]
            together = [path] if holder in order else [one for one in uses if one in tensors and one.rpartition(".")[0] == holder]
            found[behind:behind] = together
            behind += len(together)
    return found


def queries_first(use: Use) -> list[str]:
    """The order of use, but for the projections of an attention that are given one array: queries, keys, values.

    Which of them a forward calls first says nothing, and one side may hold keys and values in one layer.
    """
    groups: dict[str, list[str]] = {}
    for path in (one for one in use.order if one in use.inputs):
        parent, _, name = path.rpartition(".")
        if words_of_name(name) & {*PROJECTIONS}:
            groups.setdefault(parent, []).append(path)
    order = list(use.order)
    for group in groups.values():
        alike = [path for path in group if np.array_equal(use.inputs[path], use.inputs[group[0]])]
        if len(alike) == len(group) > 1:
            places = sorted(order.index(path) for path in group)
            for place, path in zip(places, sorted(group, key=_role), strict=True):
                order[place] = path
    return order


def _role(path: str) -> int:
    return min(PROJECTIONS[word] for word in words_of_name(path.rpartition(".")[2]) if word in PROJECTIONS)


@dataclass(frozen=True)
class Unit:
    """A layer, or the tensors that a module with children has itself.

    Attributes:
        part: the module.
        entries: of its own tensors, without those of its children.
        leaf: whether it has no children.
        words: components of its path, to compare names.
        tensors: canonical last name -> shape.
        rows: of its matrices and kernels together.
        own: whether it is a layer of somebody's own class, whose matrices may lie transposed: of inputs and outputs.
    """

    part: Part
    entries: tuple[Entry, ...]
    leaf: bool
    words: frozenset[str]
    tensors: Mapping[str, tuple[int, ...]]
    rows: int
    own: bool

    @property
    def columns(self) -> int:
        """Of its matrices together, which are their rows if they lie transposed; 0 where they cannot: in the framework's layers."""
        return sum(entry.shape[1] for entry in self.entries if len(entry.shape) == 2) if self.own or not self.leaf else 0

    @property
    def path(self) -> str:
        return self.part.path

    def without(self, names: Collection[str]) -> Unit:
        """The same without some tensors, by canonical name."""
        kept = tuple(entry for entry in self.entries if entry.canonical not in names)
        last = [entry.canonical.rpartition(".")[2] for entry in kept]
        rows = sum(entry.shape[0] for entry in kept if len(entry.shape) > 1)
        tensors = {name: shape for name, shape in self.tensors.items() if name in last}
        return self if kept == self.entries else replace(self, entries=kept, tensors=tensors, rows=rows)


def units_of(framework: Description, model: Module, use: Use, branches: Branches = "used") -> list[Unit]:
    """What computes by itself or has tensors of its own, in the order of use.

    Args:
        framework: of the model.
        model: whose units these are.
        use: how it uses its modules.
        branches: the order of parallel branches: that of use, or one of their own (``in_branches``).
    """
    order = use.order if branches == "used" else in_branches(framework, model, use, together=branches == "together")
    rank = {path: number for number, path in enumerate(order)}
    own = by_module(framework.entries(model))
    placed: list[tuple[float, Unit]] = []
    modules = framework.modules(model)
    defined = list(modules)
    for path, module in modules.items():
        leaf = not framework.children(module)
        if not leaf and path not in own:
            continue
        part = part_of(framework, path, module)
        entries = tuple(own.get(path, ()))
        tensors = {entry.canonical.rpartition(".")[2]: entry.shape for entry in entries}
        rows = sum(entry.shape[0] for entry in entries if len(entry.shape) > 1)
        unit = Unit(part, entries, leaf, words_of_name(path), tensors, rows, leaf and not framework.knows(module))
        placed.append((_place(path, leaf, rank, defined), unit))
    return [unit for _, unit in sorted(placed, key=lambda one: one[0])]


def _place(path: str, leaf: bool, rank: Mapping[str, int], defined: Sequence[str]) -> float:
    """Where a module stands in the order of use: one with children before them.

    One that is not called, whose weights a function is given, stands before the next one that is defined behind it and is called;
    behind all of the module around it where there is none.
    """
    if leaf and path in rank:
        return float(rank[path])
    if not leaf and (inside := _used_in(path, rank)):
        return min(inside) - 0.5
    above = path
    while above:
        behind = [one for one in defined[defined.index(above) + 1 :] if one.rpartition(".")[0] == above.rpartition(".")[0]]
        if used := next(filter(None, (_used_in(one, rank) for one in behind)), None):
            return min(used) - 0.25
        above = above.rpartition(".")[0]
        if above in rank:
            break
    return rank.get(above, len(rank)) - (0.25 if leaf else 0.5)


def _used_in(path: str, rank: Mapping[str, int]) -> list[int]:
    """Where a module and all that lies in it are used."""
    return [number for other, number in rank.items() if not path or f"{other}.".startswith(f"{path}.")]


def in_branches(framework: Description, model: Module, use: Use, together: bool = False) -> list[str]:
    """The order of use, but for parallel branches: siblings that are given the same array stand by the layers in them.

    Which of them a forward calls first says nothing, as their outputs are added up or concatenated by other calls.

    Args:
        framework: of the model.
        model: whose modules these are.
        use: how it uses them.
        together: the branches stand one behind another where the first of them is called, and not in their own places in turn: a
            shortcut may be called first, or last.
    """
    modules = framework.modules(model)
    groups: dict[str, list[list[str]]] = {}
    for path in (one for one in use.order if one in use.inputs):
        siblings = groups.setdefault(path.rpartition(".")[0], [])
        same = next((group for group in siblings if np.array_equal(use.inputs[group[0]], use.inputs[path])), None)
        siblings.append([path]) if same is None else same.append(path)
    order = list(use.order)
    for group in (group for siblings in groups.values() for group in siblings if len(group) > 1):
        inside = [[path for path in order if f"{path}.".startswith(f"{branch}.")] for branch in group]
        parts = {branch: part_of(framework, branch, modules[branch]) for branch in group}
        if any(len(part.shapes) == 0 for part in parts.values()):
            continue  # an activation in front of a branch is none
        told_by = {branch: (part.forms, part.shapes if together else ()) for branch, part in parts.items()}
        ranked = sorted(zip(group, inside, strict=True), key=lambda one: told_by[one[0]])
        moved = {path for paths in inside for path in paths}
        if together:
            first = next(number for number, path in enumerate(order) if path in moved)
            behind = [path for path in order[first:] if path not in moved]
            order = [*order[:first], *(path for _, paths in ranked for path in paths), *behind]
            continue
        taken = iter([path for _, paths in ranked for path in paths])
        order = [next(taken) if path in moved else path for path in order]
    return order


def words_of_name(name: str) -> frozenset[str]:
    """The components of a path, to compare names."""
    return frozenset(re.split(r"[._]|(?<=\D)(?=\d)", name.lower()))


def words_of_tensor(name: str) -> frozenset[str]:
    """Likewise of a tensor, where the number in ``norm2`` is not that of an item of a list, ``main.2``."""
    words: set[str] = set()
    for component in name.lower().split("."):
        letters, number = re.fullmatch(r"(.*?)(\d*)", component).groups()  # type: ignore[union-attr]
        words |= {word for word in letters.split("_") if word}
        words |= {f"#{number}" if letters else number} if number else set()
    return frozenset(words)


def may_turn(mine: Unit, theirs: Unit) -> bool:
    """Whether a matrix of one of two layers may be the transpose of the other's."""
    return mine.leaf and theirs.leaf and (mine.own or theirs.own)


def lies_turned(a: Entry, b: Entry) -> bool:
    """Whether of two matrices one can only be the other's transpose."""
    return len(a.shape) == len(b.shape) == 2 and a.shape != b.shape and a.shape == b.shape[::-1]
