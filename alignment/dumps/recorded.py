"""A side that is known from its dump: its modules, layers, names and weights. It computes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alignment.dumps.store import NotHeld, Reader, Writer
from alignment.frameworks._exact import Replaced
from alignment.frameworks.base import Framework, Handle, Layer, Layout, Module, Optimizer, Pass, Tensor, Wanted
from mobilenetv3_common.weights import State


@dataclass(eq=False)
class RecordedTensor:
    """A tensor of a dump, canonical."""

    shape: tuple[int, ...]
    values: np.ndarray
    parameter: bool
    trained: bool


@dataclass(eq=False)
class RecordedModule:
    """A module of a dump.

    Attributes:
        what: the layer that it is.
        parts: its children by name.
        tensors: its own, by canonical last name.
        order: of the whole model, the paths of its modules in the order of use.
    """

    what: Layer
    parts: list[tuple[str, RecordedModule]] = field(default_factory=list)
    tensors: dict[str, RecordedTensor] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    on: bool = False


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


def model_of(reader: Reader) -> RecordedModule:
    """The model of a dump."""
    tensors: dict[int, RecordedTensor] = {}
    modules: list[RecordedModule] = []
    listed = reader.content["structure"]["modules"]
    for one in listed:
        settings = {name: reader.value(value) for name, value in one["settings"].items()}
        modules.append(RecordedModule(Layer(one["kind"], settings, one["title"])))
    for one, module in zip(listed, modules, strict=True):
        module.parts = [(name, modules[number]) for name, number in one["children"]]
        for name, (array, parameter, trained, number) in one["tensors"].items():
            if number not in tensors:
                values = reader.value(array)
                tensors[number] = RecordedTensor(values.shape, values, parameter, trained)
            module.tensors[name] = tensors[number]
    modules[0].order = list(reader.content["order"])
    return modules[0]


class Recorded(Framework):
    """What a dump knows of a framework's model. Whatever would have to be computed raises ``NotHeld``.

    Args:
        name, title: of the framework that wrote the dump.
    """

    tensor_type = RecordedTensor
    module_type = RecordedModule
    layout = Layout()
    suffixes = ()

    def __init__(self, name: str, title: str) -> None:
        super().__init__()
        self.name, self.title = name, title  # type: ignore[misc]  # of an object here, not of the class

    def use(self, device: str) -> None:
        pass

    def seed(self, number: int) -> None:
        pass

    def threads(self, count: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def default_dtype(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def tensor(self, array: np.ndarray) -> Tensor:
        return RecordedTensor(array.shape, array, False, False)

    def array(self, tensor: Tensor) -> np.ndarray:
        return tensor.values

    def times(self, tensor: Tensor, factors: np.ndarray) -> Tensor:
        raise NotHeld("a product")

    def assign(self, tensor: Tensor, array: np.ndarray) -> None:
        pass  # statistics are put back after a call, and a dump has none that move

    def children(self, module: Module) -> list[tuple[str, Module]]:
        return list(module.parts)

    def own_tensors(self, module: Module) -> dict[str, Tensor]:
        return dict(module.tensors)

    def is_parameter(self, tensor: Tensor) -> bool:
        return tensor.parameter

    def trainable(self, tensor: Tensor) -> bool:
        return tensor.trained

    def _stock(self, module: Module) -> Layer | None:
        return module.what

    def training(self, model: Module) -> bool:
        return model.on

    def set_training(self, model: Module, on: bool) -> None:
        model.on = on

    def place(self, model: Module) -> Module:
        return model

    def hook(self, module: Module, before: Callable | None = None, after: Callable | None = None) -> Handle:
        raise NotHeld("a call of a module")

    def call(
        self, module: Module, args: tuple, kwargs: Mapping[str, Any] | None = None, watched: Mapping[str, Module] | None = None
    ) -> Pass:
        """Of the whole model, watched: the paths of its modules in the order of use, without arrays; NotHeld for all else."""
        if not module.order or watched is None:
            raise NotHeld("a call")
        return Pass([], calls=dict.fromkeys(module.order))  # type: ignore[arg-type]

    def vjp(
        self,
        module: Module,
        args: tuple,
        cotangents: Sequence[np.ndarray | None] | None,
        wanted: Wanted,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Pass:
        raise NotHeld("gradients")

    def gradients(self, model: Module) -> State:
        return {}

    def add_gradients(self, model: Module, gradients: Mapping[str, np.ndarray]) -> None:
        raise NotHeld("gradients")

    def clear_gradients(self, model: Module) -> None:
        pass

    def learning_rate(self, optimizer: Optimizer) -> float:
        raise NotHeld("an optimizer")

    def in_float64(self, model: Module) -> Module:
        return model

    def exact_functions(self) -> list[Replaced]:
        return []
