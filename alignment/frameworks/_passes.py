"""What goes into a pass through a module and what comes out of it, as arrays."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from alignment.frameworks._attention import Attended

Tensor = Any  # a framework's own tensor and module: the engine hands them on and looks into none of them
Module = Any


Stops = frozenset[int | tuple[int, int]]


@dataclass
class Call:
    """One call of a module: what it got and gave, as arrays in nested tuples, lists and dicts.

    Attributes:
        gradients: of each tensor of the output, in order; None where none reached it. Empty after a pass without gradients.
        needed: of each floating argument, whether it was computed from something trainable. All False in a pass without gradients.
        attended: the same in the form that the frameworks' attention layers have in common, for one of these.
    """

    args: tuple
    kwargs: dict[str, Any]
    output: Any = None
    gradients: list[np.ndarray | None] = field(default_factory=list)
    needed: list[bool] = field(default_factory=list)
    attended: Attended | None = None

    def changed(self, function: Callable[[np.ndarray], np.ndarray]) -> Call:
        """A call with other arrays, of which nothing is known yet."""
        args, kwargs = mapped((self.args, self.kwargs), np.ndarray, function)
        return Call(args, kwargs, attended=None if self.attended is None else self.attended.mapped(function))


@dataclass(frozen=True)
class Wanted:
    """Which gradients ``vjp`` is asked for.

    Attributes:
        inputs: those of the floating arrays among the arguments.
        stopped: numbers of calls of functions, as ``traced`` counts them, through which no gradient flows back; one that
            detaches lets it through. With a number besides: none flows back from this call to what it is given at that place.
        watched: modules inside, by path, whose calls count as one call each where some are stopped.
        constants: numbers of the floating arguments that are constants of the graph, and so have no gradient.
        parameters: the framework's own tensors by any name; gradients come back under these names, in the own layout.
        modules: modules below the one that is called, by path: every call of one is noted, with the gradients of its output.
    """

    inputs: bool = True
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    modules: Mapping[str, Module] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    stopped: Stops = frozenset()
    watched: Mapping[str, Module] = field(default_factory=dict)

    def derives(self, number: int) -> bool:
        """Whether a floating argument is a leaf of the graph: a gradient that nobody asks for may not exist, and be refused."""
        return bool(self.inputs or self.modules) and number not in self.constants


@dataclass
class Pass:
    """What one pass through a module gave.

    Attributes:
        outputs: the tensors of what it returned, in order, as arrays.
        inputs: gradients of the floating arguments, in order; None where none reached one.
        parameters: gradients of the parameters asked for; None where none reached one.
        calls: of the modules asked for, by path in the order in which the calls ended; ``path#2`` is a second call.
    """

    outputs: list[np.ndarray]
    inputs: list[np.ndarray | None] = field(default_factory=list)
    parameters: dict[str, np.ndarray | None] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)


@dataclass(frozen=True)
class Supplied:
    """What a module computes in another one's place, as functions of arrays.

    Attributes:
        forward: positional and named arguments -> the output, arrays in the structure that the module returns.
        backward: the same arguments and the gradient of each floating array of the output -> gradients of the floating arrays
            among the arguments, in order, then of ``tensors``; None where none reaches one.
        tensors: the framework's own parameters that ``backward`` gives gradients of.
    """

    forward: Callable[[tuple, dict[str, Any]], Any]
    backward: Callable[[tuple, dict[str, Any], list[np.ndarray]], list[np.ndarray | None]]
    tensors: tuple[Tensor, ...] = ()


class Keywords(dict[str, Any]):
    """Arguments by name. The last one of a model's inputs may be such a dict; it is no argument of its own then."""


def arguments_of(args: tuple, kwargs: Mapping[str, Any] | None) -> tuple[tuple, dict[str, Any]]:
    """Positional and named arguments, of which the named ones may be the last positional one (``Keywords``)."""
    if args and isinstance(args[-1], Keywords):
        return args[:-1], {**args[-1], **(kwargs or {})}
    return args, dict(kwargs or {})


def leaves(value: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """All values of a kind in nested tuples, lists, dicts, dataclasses and plain objects, in order."""
    if isinstance(value, kind):
        return [value]
    parts: Iterable[Any] = value if isinstance(value, (tuple, list)) else _parts(value, kind).values()
    return [leaf for part in parts for leaf in leaves(part, kind)]


def mapped(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """The same structure with every value of a kind replaced."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, (tuple, list)):
        made = [mapped(part, kind, function) for part in value]
        return (
            type(value)._make(made) if hasattr(value, "_make") else type(value)(made)
        )  # what a packed sequence checks is left out
    if type(value) in (dict, Keywords):
        return type(value)({key: mapped(part, kind, function) for key, part in value.items()})
    if not leaves(value, kind):
        return value
    made_of = {name: mapped(part, kind, function) for name, part in _parts(value, kind).items()}
    if isinstance(value, dict):
        other = copy.copy(value)  # of a class of its own, which may give its entries as attributes, too
        for name, part in made_of.items():
            other[name] = part
        return other
    other = copy.copy(value)
    for name, part in made_of.items():
        object.__setattr__(other, name, part)
    return other


def in_precision(value: Any, dtype: str = "float64") -> Any:
    """The same structure with every floating array in a type."""
    return mapped(value, np.ndarray, lambda array: array.astype(dtype) if array.dtype.kind == "f" else array)


def _parts(value: Any, kind: type | tuple[type, ...]) -> Mapping[str, Any]:
    """What a dict, a dataclass or a plain object (no function, class or module) holds, by name; nothing of all else.

    Of a plain object these are the values of the kind, and the lists and dicts of them: what it refers to besides is its own.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, type | ModuleType) or callable(value):
        return {}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}

    def holds(part: Any) -> bool:
        several = part.values() if isinstance(part, dict) else part if isinstance(part, (tuple, list)) else (part,)
        return any(isinstance(one, kind) for one in several)

    return {name: part for name, part in getattr(value, "__dict__", {}).items() if holds(part)}
