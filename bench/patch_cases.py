"""Mistakes in the source of a pair of small models, as two files that somebody could audit."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from alignment.faults import edits_of
from alignment.project import import_file, load_project
from bench.edited import edited
from bench.functional import inputs_of
from bench.layer_faults import pairs_of
from mobilenetv3_common.errors import UserError

PORT, REFERENCE, INPUTS = "port.py", "reference.py", "inputs.npz"


@dataclass(frozen=True)
class Case:
    """One mistake.

    Attributes:
        name: unique.
        kind: what the mistake should be called.
        files: name -> text of the port's and the reference's files.
        model: the class in both.
        inputs: of both.
        training: whether the sound pair agrees in training mode, too.
    """

    name: str
    kind: str
    files: dict[str, str]
    model: str
    inputs: tuple[np.ndarray, ...]
    training: bool = True

    def write(self, folder: Path) -> None:
        """The files, and the inputs."""
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        np.savez(folder / INPUTS, *self.inputs)


def functional_cases(file: Path) -> Iterator[Case]:
    """The mistakes between the layers that a project lists as edits of its port's file."""
    project = load_project(file)
    known = edits_of(project).faults
    folder = file.resolve().parent
    for fault in known.values():
        if fault.area not in project.models:
            raise UserError(f"{file}: {fault.name} is of no model: give projects/functional/project.py")
        text = edited(folder, fault.edits)[PORT]
        reference = (folder / REFERENCE).read_text(encoding="utf-8")
        given = inputs_of(project.models[fault.area])
        yield Case(f"{fault.area}: {fault.name}", fault.hint, {PORT: text, REFERENCE: reference}, fault.area, given)


def layer_cases(file: Path) -> Iterator[Case]:
    """The wrong settings of single layers, each network written as a file."""
    module = import_file(file)
    for name, pair in pairs_of(file).items():
        given = pair.inputs(np.random.default_rng(0))
        for fault, (port, kinds) in pair.faults.items():
            files = {PORT: network_text(port, module, "P"), REFERENCE: network_text(pair.reference, module, "T")}
            yield Case(f"{name}: {fault}", str(kinds[0]), files, "Net", (given,), pair.training)


FRAME = '''"""A stem, one layer and tanh."""

from typing import Any, Callable

import {package}
import {package}.nn as {short}

{helpers}

class Net({short}.{base}):
    def __init__(self):
        super().__init__()
        self.stem = {stem}
        self.layer = {layer}
        self.head = {short}.Tanh()

    def forward(self, x):
        made = self.layer(self.stem(x))
        return self.head(made[0] if isinstance(made, tuple) else made)
'''


def network_text(make: Callable, module: ModuleType, short: str) -> str:
    """A network of ``projects.layers.pairs`` as the source of a file of its own.

    Args:
        make: a ``functools.partial`` of ``built`` with the class and the makers of stem and layer.
        module: that defines classes and functions that a layer is made of.
        short: name of the framework's package of layers there.
    """
    assert isinstance(make, functools.partial)
    _, stem, layer = make.args
    package, base = ("paddle", "Layer") if short == "P" else ("torch", "Module")
    texts = {"stem": _call(stem, module, short), "layer": _call(layer, module, short)}
    needed = _needed(texts["layer"], module)
    helpers = "\n\n".join(inspect.getsource(getattr(module, name)) for name in needed)
    return FRAME.format(package=package, short=short, base=base, helpers=helpers, **texts)


def _call(make: Callable, module: ModuleType, short: str) -> str:
    assert isinstance(make, functools.partial)
    name = make.func.__name__
    function = name if getattr(module, name, None) is make.func else f"{short}.{name}"
    given = [_value(one) for one in make.args] + [f"{key}={_value(one)}" for key, one in make.keywords.items()]
    return f"{function}({', '.join(given)})"


def _value(value: Any) -> str:
    return value.__name__ if callable(value) else repr(value)


def _needed(text: str, module: ModuleType, known: tuple[str, ...] = ()) -> list[str]:
    """Names of the module's own classes and functions that a text uses, those that they use first."""
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    found: list[str] = []
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__ and (inspect.isclass(value) or inspect.isfunction(value))
        if own and name in names and name not in (*known, *found):
            inside = _needed(inspect.getsource(value), module, (*known, *found, name))
            found += [*inside, name]
    return found
