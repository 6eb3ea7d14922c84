"""An attribute of a class of somebody's own that has another value than it should: a flag, a mode, a number it computes with."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.frameworks.base import Module
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis
from alignment.localize.hypotheses.passes import by_repair_of_pass
from alignment.localize.source import FileLine
from alignment.localize.syntax import assigned, class_trees, is_own

CHOICES = Family("attribute_of_own_class", by_repair_of_pass)
SIMPLE = (bool, int, float, str)
MOST = 16  # values that are tried in one module
NONE = object()
Trees = list[tuple[Path, ast.ClassDef]]


@dataclass(frozen=True)
class Choice:
    """An attribute of a module.

    Attributes:
        name: of it.
        found, expected: the value that it has, and the one that it should have.
        place: where its class sets it.
    """

    name: str
    found: Any
    expected: Any
    place: FileLine


@CHOICES
def another_value(s: Subject) -> Iterator[Hypothesis]:
    """Flags turned round, and values that the reference has, the class itself asks for, or others of the class have."""
    port, theirs = s.pair.port, s.pair.reference
    if s.phase != "forward" or s.pair.truth is not None or s.pair.stored or port.framework.knows(port.modules[s.path]):
        return
    mine, other = port.modules[s.path], theirs.modules[s.path]
    trees = list(class_trees(type(mine), port.framework.module_type))
    alike = [one for one in port.modules.values() if type(one) is type(mine) and one is not mine]
    choices = [
        Choice(name, held, value, place)
        for name, (held, place) in _read(mine, trees).items()
        for value in _instead(held, getattr(other, name, NONE), [getattr(one, name, NONE) for one in alike], trees)
    ]
    for choice in sorted(choices, key=lambda one: getattr(other, one.name, NONE) != one.expected)[:MOST]:
        words = f"{choice.name} of {type(mine).__name__} is {choice.found!r}, expected {choice.expected!r}"
        yield Hypothesis(Kind.SETTING, words, functools.partial(_with, choice), tolerance.FLOAT32_CONSTANT, about=choice)


def _read(module: Module, trees: Trees) -> dict[str, tuple[Any, FileLine]]:
    """Attributes with plain values that the methods of a class read, but for its constructor, and where it sets each."""
    methods = [one for _, tree in trees for one in tree.body if isinstance(one, ast.FunctionDef) and one.name != "__init__"]
    nodes = [node for method in methods for node in ast.walk(method)]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and is_own(node) and isinstance(node.ctx, ast.Load)}
    places: dict[str, list[FileLine]] = {}
    for file, tree in trees:
        for name, held in assigned(tree).items():
            places.setdefault(name, []).extend((file, one.lineno) for one in held)
    found = {name: (getattr(module, name, None), places[name][0]) for name in places if name in read and len(places[name]) == 1}
    return {name: (held, place) for name, (held, place) in found.items() if isinstance(held, SIMPLE)}


def _instead(held: Any, wanted: Any, beside: list[Any], trees: Trees) -> Iterator[Any]:
    """What an attribute may have instead of what it has; nothing where the reference's of the same name has that, too.

    Args:
        held: by the port's module.
        wanted: what the reference's attribute of the name has; ``NONE`` where it has none.
        beside: what the port's other modules of the class have.
        trees: the class.
    """
    if isinstance(wanted, SIMPLE) and wanted == held:
        return
    values = [wanted, *beside]
    if isinstance(held, bool):
        values.append(not held)
    elif isinstance(held, str):
        compared = [node for _, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Compare)]
        values += [part.value for node in compared for part in ast.walk(node) if isinstance(part, ast.Constant)]
    yield from dict.fromkeys(one for one in values if type(one) is type(held) and one != held)


def _with(choice: Choice, s: Subject) -> np.ndarray | None:
    """The output that differs, of the port's module with the other value, where all its outputs are the reference's then."""
    made, right = s.pair.port.answer_set(s.path, s.call, {choice.name: choice.expected}, own=True).outputs, s.blame.theirs.outputs
    fits = len(made) == len(right) and all(
        close(one, two, tolerance.FLOAT32_CONSTANT) for one, two in zip(made, right, strict=True)
    )
    return made[s.differing] if fits and s.differing < len(made) else None
