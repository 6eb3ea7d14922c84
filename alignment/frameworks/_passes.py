"""What goes into a pass through a module and what comes out of it, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Tensor = Any  # a framework's own tensor and module: the engine hands them on and looks into none of them
Module = Any


@dataclass
class Call:
    """One call of a module: what it got and gave, as arrays in nested tuples, lists and dicts.

    Attributes:
        gradients: of each tensor of the output, in order; None where none reached it. Empty after a pass without gradients.
    """

    args: tuple
    kwargs: dict[str, Any]
    output: Any = None
    gradients: list[np.ndarray | None] = field(default_factory=list)


@dataclass(frozen=True)
class Wanted:
    """Which gradients ``vjp`` is asked for.

    Attributes:
        inputs: those of the floating arrays among the arguments.
        parameters: the framework's own tensors by any name; gradients come back under these names, in the own layout.
        modules: modules below the one that is called, by path: every call of one is noted, with the gradients of its output.
    """

    inputs: bool = True
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    modules: Mapping[str, Module] = field(default_factory=dict)


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


def leaves(value: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """All values of a kind in nested tuples, lists and dicts, in order."""
    if isinstance(value, kind):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [leaf for part in parts for leaf in leaves(part, kind)]


def mapped(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """The same structure with every value of a kind replaced."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(part, kind, function) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [mapped(part, kind, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
