"""Single files of a package without the rest of it, whose imports need pinned, older versions of other packages."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import MagicMock


def make_importable(folder: Path, packages: Sequence[str]) -> None:
    """Let the files of packages be imported one by one: the packages are empty shells, whose own ``__init__`` is not run.

    Args:
        folder: that has the packages.
        packages: with dots; a package below one of them that is not named itself runs its ``__init__``.
    """
    for name in packages:
        path = [str(folder / Path(*name.split(".")))]
        if list(getattr(sys.modules.get(name), "__path__", ())) == path:
            continue  # what was imported through it stays
        shell = types.ModuleType(name)
        shell.__path__ = path
        shell.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = shell


def stand_in(name: str, **content: object) -> None:
    """Let a module with this content alone stand in for one of a package that is a shell."""
    made = types.ModuleType(name)
    vars(made).update(content)
    sys.modules[name] = made


@contextmanager
def standing_in(*names: str) -> Iterator[None]:
    """While a port is imported, empty modules stand in for packages that it imports and its networks never use.

    Afterwards they are gone: another package would take them for the real ones.

    Args:
        names: of the modules, with dots.
    """
    missing = [name for name in names if name not in sys.modules]
    sys.modules.update({name: MagicMock(name=name) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """While a port is imported, it does not find a package that it would use where it is installed."""
    before = sys.modules.pop(package, None)
    sys.modules[package] = None  # type: ignore[assignment]  # what Python takes for a package that is not there
    try:
        yield
    finally:
        del sys.modules[package]
        if before is not None:
            sys.modules[package] = before
