"""The frameworks that the engine knows: a file each, found by name. Importing this package imports none of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType
from typing import Any

from alignment.frameworks.base import Framework
from mobilenetv3_common.errors import UserError


def names() -> list[str]:
    """Every framework that has a file here, installed or not."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base" and not m.name.startswith("_"))


def framework(name: str) -> Framework:
    """A framework on its default device, without a project's own layers.

    Raises:
        UserError: there is no such framework, or it is not installed.
    """
    if name not in names():
        raise UserError(f"unknown framework {name!r}: use one of {', '.join(names())}")
    try:
        return importlib.import_module(f"{__name__}.{name}").FRAMEWORK()
    except ModuleNotFoundError as error:
        raise UserError(f"the framework {name} is not installed: {error}") from error


def framework_of(model: Any) -> Framework:
    """The framework whose module a model is, on the device where it lies.

    Raises:
        UserError: it is no module of any of them.
    """
    roots = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    for name in names():
        if name in roots and isinstance(model, (found := framework(name)).module_type):
            found.follow(model)
            return found
    raise UserError(f"{type(model).__name__} is not a module of {', '.join(names())}: give a model, not its output or its class")


def import_module(name: str) -> ModuleType:
    """Import somebody's module; where that raises for what a framework knows to mend, mend it and try again.

    Raises:
        Exception: whatever the module raises.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:
        known = [framework(name) for name in names() if name in sys.modules]
        if not any(one.repaired(error) for one in known):
            raise
    return importlib.import_module(name)
