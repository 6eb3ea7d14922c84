"""What the engine asks of one side's models without computing anything: modules, layers, names and tensors.

A framework tells it of its own models (``base.py``), and a dump of the model whose side it holds.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from alignment.frameworks._attention import Attention
from alignment.frameworks._passes import Call, Module, Tensor
from alignment.frameworks._paths import noted, paths_of
from alignment.frameworks._pieces import left_out, pieces_of
from mobilenetv3_common.weights import Entry, State, in_canonical

# Where the derivative of a layer jumps, by kind. An input on the other side of one gives another gradient.
LISTS = ("ModuleList", "LayerList", "CellList", "ModuleDict", "LayerDict")  # nothing calls them
STATISTICS = ("running_mean", "running_var")  # canonical last names of what a normalisation keeps from batch to batch
KINKS: dict[str, tuple[float, ...]] = {"relu": (0.0,), "relu6": (0.0, 6.0), "hardswish": (-3.0, 3.0), "hardsigmoid": (-3.0, 3.0)}


@dataclass(frozen=True)
class Layout:
    """How a framework's own form differs from the canonical one.

    Attributes:
        statistics: a normalisation layer's own names of its running statistics -> canonical names. A layer has them where it
            has all of them.
        renamed: kinds of layers (``Layer.kind``) -> their own names of parameters -> canonical names.
        transposed: kinds of layers (``Layer.kind``) whose ``weight`` lies transposed.
        flat: kinds of layers (``Layer.kind``) whose parameters over several axes lie in one dimension.
        counters: last names of tensors that the canonical form leaves out.
    """

    statistics: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    transposed: frozenset[str] = frozenset()
    flat: frozenset[str] = frozenset()
    counters: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Layer:
    """What a module computes, in words that belong to no framework.

    Attributes:
        kind: ``"conv"``, ``"linear"``, ``"batch_norm"``, ``"dropout"``, ``"relu"``, ``"max_pool"``, ...; the class's name in
            lower case where the framework's file does not know the class.
        settings: its hyperparameters under torch's names, ``momentum`` as the share of the new batch; sizes as tuples.
        title: the class's own name, for people.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


class Description(abc.ABC):
    """What is told of one side's models.

    Args:
        layers: classes of a project's own -> the kind of stock layer that each computes; their kinks are then counted.

    Attributes:
        name: of the framework, as in ``alignment/frameworks/NAME.py``, file names and JSON.
        title: for people.
        layout: what separates the framework's own form from the canonical one.
    """

    name: str
    title: str
    layout: ClassVar[Layout] = Layout()

    def __init__(self, layers: Mapping[type, str] | None = None) -> None:
        self.own_layers = dict(layers or {})

    @abc.abstractmethod
    def array(self, tensor: Tensor) -> np.ndarray:
        """A tensor as an array of its own memory, same shape and type."""

    @abc.abstractmethod
    def children(self, module: Module) -> list[tuple[str, Module]]:
        """The direct children by name, in order of definition; one that has two names is named twice."""

    @abc.abstractmethod
    def own_tensors(self, module: Module) -> dict[str, Tensor]:
        """A module's parameters, then its persistent buffers, those of its children left out, by the framework's own names."""

    def has_forward(self, module: Module) -> bool:
        """Whether a module can be called; a list of modules cannot."""
        return self.layer(module).title not in LISTS

    def unsaved(self, module: Module) -> dict[str, Tensor]:
        """A module's own buffers that its state does not hold, those of its children left out, by the framework's own names."""
        return {}

    def canonical_shape(self, module: Module, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a tensor of ``own_tensors`` in the canonical form, a matrix not yet turned round.

        Args:
            module, name: whose tensor.
            shape: as it lies.
        """
        return shape

    @abc.abstractmethod
    def is_parameter(self, tensor: Tensor) -> bool:
        """Whether a tensor of ``own_tensors`` is a parameter in torch's sense: statistics are none."""

    @abc.abstractmethod
    def trainable(self, tensor: Tensor) -> bool:
        """Whether gradients reach a tensor and optimizers move it."""

    @abc.abstractmethod
    def calls_of(self, model: Module, inputs: tuple) -> Mapping[str, Call | None]:
        """The calls of a model's modules in one pass in evaluation mode, in the order in which they end, by path.

        None stands for a call of which the place in the order alone is known. Nothing where the model raises.
        """

    def first_uses(self, model: Module, inputs: tuple, called: Mapping[str, Module], tensors: Mapping[int, str]) -> list[str]:
        """In the order of a pass in evaluation mode: modules as they are called, and owners of tensors that a function is given.

        Args:
            model, inputs: as for ``calls_of``.
            called: modules by path, in which nothing is looked at.
            tensors: ``id`` of a tensor -> its owner.

        Returns:
            Each once; nothing where the engine cannot see which functions a model calls.
        """
        return []

    @abc.abstractmethod
    def _stock(self, module: Module) -> Layer | None:
        """What a module of a class of the framework computes, or of a class derived from one; None where unknown."""

    def attention(self, module: Module) -> Attention | None:
        """What the framework's own attention or transformer layer is that a module is; None where it is none."""
        return None

    def layer(self, module: Module) -> Layer:
        """What a module computes; of an exact replacement, what the replaced layer computed."""
        replaced = noted(module, "replaced_layer", None)
        if isinstance(replaced, Layer):
            return replaced
        title = type(module).__name__
        if type(module) in self.own_layers:
            return Layer(self.own_layers[type(module)], title=title)
        return self._stock(module) or Layer(title.lower(), title=title)

    def knows(self, module: Module) -> bool:
        """Whether a module is a layer of the framework or of the project, and no module of a user's own."""
        return (
            isinstance(noted(module, "replaced_layer", None), Layer) or type(module) in self.own_layers or bool(self._stock(module))
        )

    def modules(self, model: Module, every_path: bool = False) -> dict[str, Module]:
        """The model (path ``""``) and every module below it by path, parents first.

        Args:
            model: any module.
            every_path: a module that has several paths is there under each, not under the first alone.
        """
        found: dict[str, Module] = {}
        seen: set[int] = set()
        shown = paths_of(model)

        def walk(path: str, module: Module) -> None:
            if id(module) in seen and not every_path:
                return
            seen.add(id(module))
            found[shown.get(path, path)] = module
            for name, child in self.children(module):
                walk(f"{path}.{name}" if path else name, child)

        walk("", model)
        return found

    def kinks(self, module: Module) -> tuple[float, ...]:
        """Where the module's derivative jumps, as values of its first input, ascending; empty where it does not."""
        return KINKS.get(self.layer(module).kind, ())

    def statistics_names(self) -> set[str]:
        """Last names of running statistics in the own form."""
        return set(self.layout.statistics) or set(STATISTICS)

    def described(self, model: Module) -> list[tuple[Entry, Tensor]]:
        """Every tensor of the model's state with its name in both forms, in the order of the framework's own state.

        A module that has two paths has its tensors under both, as in the framework's state.
        """
        found: list[tuple[Entry, Tensor]] = []
        layout, shown, pieces = self.layout, paths_of(model), pieces_of(model)

        def walk(prefix: str, module: Module) -> None:
            own = self.own_tensors(module)
            path = shown.get(prefix[:-1], prefix[:-1])
            above = f"{path}." if path else ""
            kind = self.layer(module).kind if own else ""
            normalises = bool(layout.statistics) and all(name in own for name in layout.statistics)
            names = {**(layout.statistics if normalises else {}), **layout.renamed.get(kind, {})}
            for name, tensor in own.items():
                if name in layout.counters or name in left_out(module):
                    continue
                if (parts := pieces.get(prefix + name)) is not None:
                    found.extend((part, tensor) for part in parts)
                    continue
                new = names.get(name, name)
                transposed = kind in layout.transposed and new in ("weight", "weight_v")  # the latter of weight_norm
                shape = self.canonical_shape(module, name, tuple(int(n) for n in tensor.shape))
                flat = len(shape) > len(tensor.shape)
                parameter = self.is_parameter(tensor) and not (normalises and name in layout.statistics)
                role = "parameter" if parameter else "buffer"
                shape = shape[::-1] if transposed else shape
                found.append((Entry(above + new, prefix + name, shape, transposed, role, flat=flat), tensor))
            for name, child in self.children(module):
                walk(f"{prefix}{name}.", child)

        walk("", model)
        return found

    def entries(self, model: Module) -> list[Entry]:
        """The names and shapes of the model's state in both forms, in the order of the framework's own state."""
        return [entry for entry, _ in self.described(model)]

    def tensors(self, model: Module) -> dict[str, Tensor]:
        """The tensors of the model's state by canonical name, in the framework's own layout."""
        return {entry.canonical: tensor for entry, tensor in self.described(model)}

    def parameters(self, model: Module) -> dict[str, Tensor]:
        """The parameters (statistics are none) by canonical name; one that has two names is there under both."""
        return {entry.canonical: tensor for entry, tensor in self.described(model) if entry.role == "parameter"}

    def state(self, model: Module) -> State:
        """Parameters, statistics and other buffers in canonical form."""
        return in_canonical((entry, self.array(tensor)) for entry, tensor in self.described(model))
