"""What exact mode puts in the place of a framework's functions and of a project's own layers."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.frameworks._passes import Module, Tensor, leaves
from alignment.strangers import strangers

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
Replaced = tuple[Any, str, Callable[..., Tensor]]


@functools.lru_cache(4096)  # it is asked for at every pass
def exact_first(original: Callable[..., Tensor], exact: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The exact version of a function where it has one for what it is given, else the function itself."""

    @functools.wraps(original)
    def computed(*args: Any, **kwargs: Any) -> Tensor:
        result = exact(*args, **kwargs)
        return original(*args, **kwargs) if result is NotImplemented else result

    computed.exact_version_of = original  # type: ignore[attr-defined]
    return computed


def holders(functions: Iterable[Replaced], layers: Iterable[Module]) -> list[Replaced]:
    """The names by which the files of a model's own layers hold such functions themselves (``from ... import hardsigmoid``).

    Args:
        functions: (owner, name, exact version), as ``Framework.exact_functions``.
        layers: of the model.
    """
    exact = {id(_own(getattr(owner, name))): version for owner, name, version in functions}
    owners = {id(owner) for owner, _, _ in functions}
    files = [sys.modules.get(name) for name in {kind.__module__ for layer in layers for kind in type(layer).__mro__}]
    return [
        (file, name, exact[id(_own(value))])
        for file in files
        if file is not None and id(file) not in owners
        for name, value in list(vars(file).items())
        if id(_own(value)) in exact
    ]


def _own(function: Any) -> Any:
    return getattr(function, "exact_version_of", function) if isinstance(function, FUNCTIONS) else function


def hold_to_original(framework: Any, replacement: Module, original: Module) -> None:
    """From now on an exact layer computes what the replaced one does, where the two differ by more than a float32 constant.

    A replacement that is written from the right formula would otherwise take the port's own mistakes away. They are compared
    at the first call. A layer with weights, or without a float64 kernel, is not compared.

    Args:
        framework: a ``Framework``, in whose exact mode both are.
        replacement, original: layers.
    """
    if framework.entries(original):
        return
    original = framework.in_float64(original)
    agrees: list[bool] = []

    def held(module: Module, args: tuple, kwargs: dict, output: Any) -> Any:
        framework.set_training(original, framework.training(module))
        if not agrees:
            with strangers("framework", alone=True) as raised:  # the framework says in its own way that it has no such kernel
                made = original(*args, **kwargs)
            if raised.error is not None:
                agrees.append(True)
                return None
            pairs = zip(leaves(made, framework.tensor_type), leaves(output, framework.tensor_type), strict=True)
            agrees.append(all(_close(framework.array(a), framework.array(b)) for a, b in pairs))
        return None if agrees[0] else original(*args, **kwargs)

    framework.hook(replacement, after=held)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.linalg.norm((a - b).ravel()) <= tolerance.FLOAT32_CONSTANT * np.linalg.norm(b.ravel()))
