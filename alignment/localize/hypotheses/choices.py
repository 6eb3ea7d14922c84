"""An attribute of a class of somebody's own that has another value than it should: a flag, a mode, a number it computes with.

Likewise a flag that the class gives to a method of its own.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
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
    """An attribute of a module, or an argument that it gives to a method of its own.

    Attributes:
        name: of it.
        found, expected: the value that it has, and the one that it should have.
        place: where its class sets it, or calls the method.
        method: which is given the argument; ``""`` for an attribute.
    """

    name: str
    found: Any
    expected: Any
    place: FileLine
    method: str = ""


@CHOICES
def as_the_reference_has_it(s: Subject) -> Iterator[Hypothesis]:
    """What the reference's attribute of the same name has: without one, the lines that ask for the value may as well be wrong."""
    port, theirs = s.pair.port, s.pair.reference
    if s.phase != "forward" or s.pair.truth is not None or s.pair.stored or port.framework.knows(port.modules[s.path]):
        return
    mine, other = port.modules[s.path], theirs.modules[s.path]
    for name, (held, place) in _read(mine, list(class_trees(type(mine), port.framework.module_type))).items():
        wanted = getattr(other, name, None)
        if type(wanted) is type(held) and not _same(held, wanted):
            choice = Attribute(name, held, wanted, place)
            words = f"{name} of {type(mine).__name__} is {_shown(held)}, expected {_shown(wanted)}"
            predict = functools.partial(_with, {name: wanted})
            yield Hypothesis(Kind.SETTING, words, predict, tolerance.FLOAT32_CONSTANT, about=choice)


def _same(held: Any, wanted: Any) -> bool:
    """Whether two values are equal, of numbers in float32: a rate of ``linspace`` is 0.05 there."""
    return bool(np.float32(held) == np.float32(wanted)) if isinstance(held, float) else held == wanted


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


@CHOICES
def given_to_a_method(s: Subject) -> Iterator[Hypothesis]:
    """A flag that stands in the call of a method, which the reference's class has, too, with an argument of the same name."""
    port, theirs = s.pair.port, s.pair.reference
    if s.phase != "forward" or s.pair.truth is not None or s.pair.stored or port.framework.knows(port.modules[s.path]):
        return
    mine, other = port.modules[s.path], theirs.modules[s.path]
    for file, tree in class_trees(type(mine), port.framework.module_type):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_own(node.func)):
            method = getattr(call.func, "attr", "")
            for flag in (one for one in call.keywords if isinstance(getattr(one.value, "value", None), bool)):
                held = getattr(flag.value, "value", None)
                if flag.arg and flag.arg in _parameters(mine, method) and flag.arg in _parameters(other, method):
                    choice = Attribute(flag.arg, held, not held, (file, flag.value.lineno), method)
                    words = f"{method} is given {flag.arg}={held}, expected {not held}"
                    predict = functools.partial(_with, {method: _turned(getattr(mine, method), flag.arg, held)})
                    yield Hypothesis(Kind.SETTING, words, predict, tolerance.FLOAT32_CONSTANT, about=choice)


def _parameters(module: Module, method: str) -> list[str]:
    """The names of a method's arguments; none where the module has no such method."""
    with contextlib.suppress(TypeError, ValueError):
        return list(inspect.signature(getattr(module, method, None)).parameters)  # type: ignore[arg-type]
    return []


def _turned(method: Callable[..., Any], flag: str, held: Any) -> Callable[..., Any]:
    """The method, which takes a flag that has this value for the contrary."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **{**kwargs, flag: not held} if kwargs.get(flag) is held else kwargs)

    return called


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


def _with(changes: Mapping[str, Any], s: Subject) -> np.ndarray | None:
    """The output that differs, of the port's module with other attributes, where all its outputs are the reference's then."""
    made, right = s.pair.port.answer_set(s.path, s.call, changes, own=True).outputs, s.blame.theirs.outputs
    fits = len(made) == len(right) and all(
        close(one, two, tolerance.FLOAT32_CONSTANT) for one, two in zip(made, right, strict=True)
    )
    return made[s.differing] if fits and s.differing < len(made) else None
