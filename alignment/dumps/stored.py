"""A model as a dump holds it: its modules, layers, names and weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alignment.dumps.store import NotHeld, Reader, Writer
from alignment.frameworks.base import Call, Description, Framework, Layer, Module, Tensor


@dataclass(eq=False)
class StoredTensor:
    """A tensor of a dump, canonical."""

    shape: tuple[int, ...]
    values: np.ndarray
    parameter: bool
    trained: bool


@dataclass(eq=False)
class StoredModule:
    """A module of a dump.

    Attributes:
        what: the layer that it is.
        parts: its children by name.
        tensors: its own, by canonical last name.
        order: of the whole model, the paths of its modules in the order of use.
    """

    what: Layer
    parts: list[tuple[str, StoredModule]] = field(default_factory=list)
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)


def structure(framework: Framework, model: Module, writer: Writer) -> dict[str, Any]:
    """A model's modules and tensors as JSON; each once, whatever number of names it has.

    Args:
        framework, model: with its own names (not those of a reference).
        writer: takes the arrays.
    """
    own: dict[str, dict[str, Any]] = {}
    for entry, tensor in framework.described(model):
        path, _, last = entry.canonical.rpartition(".")
        about = (
            writer.array(entry.to_canonical(framework.array(tensor))),
            entry.role == "parameter",
            framework.trainable(tensor),
            id(tensor),
        )
        own.setdefault(path, {})[last] = about
    numbers: dict[int, int] = {}
    modules: list[dict[str, Any]] = []

    def walk(path: str, module: Module) -> int:
        if id(module) in numbers:
            return numbers[id(module)]
        number = numbers[id(module)] = len(modules)
        layer = framework.layer(module)
        made: dict[str, Any] = {"kind": layer.kind, "title": layer.title, "settings": _plain(layer.settings, writer)}
        modules.append(made)
        made["tensors"] = own.get(path, {})
        made["children"] = [[name, walk(f"{path}.{name}" if path else name, child)] for name, child in framework.children(module)]
        return number

    walk("", model)
    return {"modules": modules}


def _plain(settings: Mapping[str, Any], writer: Writer) -> Any:
    found = {}
    for name, value in settings.items():
        with contextlib.suppress(NotHeld):
            found[name] = writer.value(value)
    return found


def model_of(reader: Reader) -> StoredModule:
    """The model of a dump."""
    tensors: dict[int, StoredTensor] = {}
    modules: list[StoredModule] = []
    listed = reader.content["structure"]["modules"]
    for one in listed:
        settings = {name: reader.value(value) for name, value in one["settings"].items()}
        modules.append(StoredModule(Layer(one["kind"], settings, one["title"])))
    for one, module in zip(listed, modules, strict=True):
        module.parts = [(name, modules[number]) for name, number in one["children"]]
        for name, (array, parameter, trained, number) in one["tensors"].items():
            if number not in tensors:
                values = reader.value(array)
                tensors[number] = StoredTensor(values.shape, values, parameter, trained)
            module.tensors[name] = tensors[number]
    modules[0].order = list(reader.content["order"])
    return modules[0]


class StoredSide(Description):
    """What a dump tells of the model that it holds.

    Args:
        reader: of the dump.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.name, self.title = reader.content["framework"], reader.content["title"]

    def array(self, tensor: Tensor) -> np.ndarray:
        return tensor.values

    def children(self, module: Module) -> list[tuple[str, Module]]:
        return list(module.parts)

    def own_tensors(self, module: Module) -> dict[str, Tensor]:
        return dict(module.tensors)

    def is_parameter(self, tensor: Tensor) -> bool:
        return tensor.parameter

    def trainable(self, tensor: Tensor) -> bool:
        return tensor.trained

    def calls_of(self, model: Module, inputs: tuple) -> Mapping[str, Call | None]:
        return dict.fromkeys(model.order)

    def _stock(self, module: Module) -> Layer | None:
        return module.what
