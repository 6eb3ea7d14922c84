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
Trees = list[tuple[Path, ast.ClassDef]]


@dataclass(frozen=True)
class Attribute:
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
def as_the_reference_has_it(s: Subject) -> Iterator[Hypothesis]:
    """What the reference's attribute of the same name has: without one, the lines that ask for the value may as well be wrong."""
    port, theirs = s.pair.port, s.pair.reference
    if s.phase != "forward" or s.pair.truth is not None or s.pair.stored or port.framework.knows(port.modules[s.path]):
        return
    mine, other = port.modules[s.path], theirs.modules[s.path]
    for name, (held, place) in _read(mine, list(class_trees(type(mine), port.framework.module_type))).items():
        wanted = getattr(other, name, None)
        if type(wanted) is type(held) and wanted != held:
            choice = Attribute(name, held, wanted, place)
            words = f"{name} of {type(mine).__name__} is {held!r}, expected {wanted!r}"
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


def _with(choice: Attribute, s: Subject) -> np.ndarray | None:
    """The output that differs, of the port's module with the other value, where all its outputs are the reference's then."""
    made, right = s.pair.port.answer_set(s.path, s.call, {choice.name: choice.expected}, own=True).outputs, s.blame.theirs.outputs
    fits = len(made) == len(right) and all(
        close(one, two, tolerance.FLOAT32_CONSTANT) for one, two in zip(made, right, strict=True)
    )
    return made[s.differing] if fits and s.differing < len(made) else None
