"""The paths by which the engine knows a model's modules, where these are not the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alignment.frameworks._passes import Module


def noted(module: Module, name: str, default: Any) -> Any:
    """What the engine has noted at a module, read without the module's own ``__getattr__``, which may answer any name."""
    return getattr(module, "__dict__", {}).get(name, default)


def paths_of(model: Module) -> Mapping[str, str]:
    """A model's own paths -> the paths by which the engine knows its modules, where ``call_modules`` has given it other ones."""
    return noted(model, "paths_in_reference", {})


def call_modules(model: Module, paths: Mapping[str, str]) -> None:
    """From now on the engine knows a model's modules, and tensors, by other paths: own path -> path, for every module."""
    model.paths_in_reference = dict(paths)
