"""A copy of the port's source with other texts in some files, as a process of its own can import it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


def copied(port: str, changed: Mapping[Path, bytes], folder: Path) -> tuple[str, tuple[str, ...]]:
    """Copy what is needed of a port, and change it.

    Args:
        port: ``MODULE:CALLABLE`` or ``FILE.py:CALLABLE``.
        changed: files and what they hold in the copy.
        folder: for the copy.

    Returns:
        The copy as ``port`` names it, and the folder for the front of the path.
    """
    name, _, maker = port.rpartition(":")
    own = Path(name).resolve() if name.endswith(".py") else None
    moved = {
        file: _copy(file, folder) for file in [*([own] if own else []), *changed]
    }  # a namesake elsewhere takes no place of the port's
    for file, content in changed.items():
        moved[file].write_bytes(content)
    name = str(moved[own]) if own else name
    return f"{name}:{maker}", (str(folder), str(Path.cwd()))


def _root(file: Path) -> Path:
    """The folder of a file's outermost package, or of the file by itself."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _copy(file: Path, target: Path) -> Path:
    """The copy of a file, with the package in which it lies, or with the Python files beside it."""
    root = _root(file)
    inside = file.relative_to(root)
    if len(inside.parts) > 1:
        package = inside.parts[0]
        if not (target / package).exists():
            shutil.copytree(root / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        for other in root.glob("*.py"):
            if not (target / other.name).exists():
                shutil.copy2(other, target / other.name)
    return target / inside
