"""Weights between two models of any frameworks: by module path and canonical name, strict and bijective.

What differs between the frameworks (names of statistics, transposed matrices, counters) is data of each framework
(``alignment.frameworks.base.Layout``); nothing here knows one of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from alignment.frameworks import framework_of
from alignment.frameworks.base import Framework, Module, Piece, pieces_of
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.pretrained import under_names
from mobilenetv3_common.weights import Entry, State, canonical_state, read_state
from mobilenetv3_common.weights_file import say, written_as

ANY_FRAMEWORK = ".safetensors"


def copy_weights(source: Module, target: Module, names: Mapping[str, str] | None = None) -> None:
    """Give a model the weights and statistics of another one, in place; arrays are cast to the target's types.

    Args:
        source, target: models of any of the frameworks.
        names: target path -> source path of the modules, or whole parts, that are called otherwise.

    Raises:
        UserError: a tensor is missing on either side, or has another shape; the target is then as it was.
    """
    load_renamed(framework_of(target), target, framework_of(source).state(source), names, "the source's weights")


def load_renamed(
    framework: Framework, model: Module, state: State, names: Mapping[str, str] | None = None, source: str = "the weights"
) -> None:
    """Load a canonical state that goes by another model's module paths.

    Args:
        framework: the model's.
        model: takes the weights.
        state: canonical.
        names: the model's path -> the state's path, for modules or whole parts that are called otherwise.
        source: names the weights in a message.

    Raises:
        UserError: a key is missing or too many, or a shape differs; the message has the model's own paths.
    """
    paths = dict(names or {})
    other = {renamed(entry, paths): entry.canonical for entry in framework.entries(model)} if paths else {}
    framework.load(model, {other.get(name, name): array for name, array in state.items()}, source)


def load_file(path: str | os.PathLike, sides: Sequence[tuple[Framework, Module | None]], take: str = "auto") -> State:
    """Read a weights file that is in the own form of one of two models, as a canonical state that fits the first.

    Whose form it is follows from the file's suffix, or else from its names of statistics; where neither tells, the first side
    is tried first. Names and shapes are asked of the first model: the second one may be wrong, or missing.

    Args:
        path: of any kind that ``mobilenetv3_common.weights.read_state`` reads.
        sides: framework and model of the reference, then of the port, whose model is None where it cannot be built.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Raises:
        UserError: the file cannot be read, is of a framework that neither side has, or does not fit.
    """
    state = read_state(path, take)
    for framework, model in sides:
        if model is not None:
            known = {entry.own for entry in framework.entries(model)}
            named, notes = under_names(state, known)
            if 2 * len(known & named.keys()) >= len(state):  # a port of other layers says nothing of the names
                state = named
                say(path, notes)
            state = tied(state, framework, model, known, str(path)) if known & state.keys() else state
    unknown = {name for _, model in sides if model is not None for name, parts in pieces_of(model).items() if not parts}
    state = {name: array for name, array in state.items() if name not in unknown}
    suffix = written_as(path)
    fitting = [side for side in sides if suffix in side[0].suffixes]
    if not fitting and suffix != ANY_FRAMEWORK:
        raise UserError(f"{path}: neither side's framework ({', '.join(side[0].title for side in sides)}) has files of this kind")
    last = {name.rpartition(".")[2] for name in state}
    fitting = fitting or [side for side in sides if last & side[0].statistics_names()] or list(sides)
    problem: UserError | None = None
    for framework, model in fitting:
        try:
            return canonical_state(state, entries_of(framework, model, *sides[0]), str(path), framework.layout.counters)
        except UserError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def second_names(framework: Framework, model: Module) -> dict[str, str]:
    """Own names of tensors that a model holds under another name, too -> the first name: tied weights, shared modules."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}

    def walk(prefix: str, module: Module) -> None:
        for name, tensor in framework.own_tensors(module).items():
            if first.setdefault(id(tensor), f"{prefix}{name}") != f"{prefix}{name}":
                found[f"{prefix}{name}"] = first[id(tensor)]
        for name, child in framework.children(module):
            walk(f"{prefix}{name}.", child)

    walk("", model)
    return found


def tied(state: State, framework: Framework, model: Module, known: Collection[str], source: str) -> State:
    """A state in a model's own form with what the engine knows of its tied tensors: a file may hold each name or one of them.

    Args:
        state: as the file has it.
        framework, model: whose.
        known: own names that the engine knows; of the others the second ones are left out.
        source: names the weights in a message.

    Raises:
        UserError: the two names have other values: one tensor cannot hold both.
    """
    found = dict(state)
    for second, first in second_names(framework, model).items():
        if first in found and second in found and not np.array_equal(found[first], found[second], equal_nan=True):
            raise UserError(f"{source}: {first} and {second} differ, but are one tensor in the model: were they trained apart?")
        given = found.get(first, found.get(second))
        if given is not None:
            found |= dict.fromkeys((first, second), given)
        if second not in known:
            found.pop(second, None)
    return found


def entries_of(framework: Framework, model: Module | None, other: Framework, reference: Module | None) -> list[Entry]:
    """The tensors of a model of one framework, under the canonical names of its reference in another one.

    They are the model's own where these are the reference's tensors, and else what a right model would have: the reference's,
    under the names and in the layout that the framework gives to layers of their kinds.

    Args:
        framework, model: of the port; its model may be wrong, or None.
        other, reference: of the reference.
    """
    expected = other.entries(reference) if reference is not None else []
    own = framework.entries(model) if model is not None else []
    if reference is None or {e.canonical: e.shape for e in own} == {e.canonical: e.shape for e in expected}:
        return own
    held: dict[str, set[str]] = {}
    for entry in expected:
        held.setdefault(entry.canonical.rpartition(".")[0], set()).add(entry.canonical.rpartition(".")[2])
    kinds = {path: other.layer(module).kind for path, module in other.modules(reference, every_path=True).items()}
    layout, found = framework.layout, []
    for entry in expected:
        path, _, last = entry.canonical.rpartition(".")
        kind = kinds.get(path, "")
        statistics = layout.statistics if held[path] >= set(layout.statistics.values()) else {}
        names = {new: name for name, new in {**statistics, **layout.renamed.get(kind, {})}.items()}
        name = ".".join(filter(None, (path, names.get(last, last))))
        flat = kind in layout.flat and len(entry.shape) > 1
        turned = kind in layout.transposed and last == "weight"
        found.append(Entry(entry.canonical, name, entry.shape, turned, entry.role, flat=flat))
    return found


def translated(path: str, names: Mapping[str, str]) -> str:
    """A module's path, or a tensor's name, with its longest known beginning replaced by what the other side calls that.

    Args:
        path: of one side.
        names: its module paths -> the other side's.
    """
    head, rest = path, ""
    while head not in names:
        if not head:
            return path
        head, _, last = head.rpartition(".")
        rest = f"{last}.{rest}" if rest else last
    return ".".join(filter(None, (names[head], rest)))


def renamed(entry: Entry, names: Mapping[str, str]) -> str:
    """A tensor's canonical name as the other side has it: ``translated``; a piece goes by the other side's name already."""
    return entry.canonical if isinstance(entry, Piece) else translated(entry.canonical, names)
