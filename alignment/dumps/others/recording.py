"""What another tool's dump holds: tensors by the module that was given or returned them, in the order of computation."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_stand_in

GIVEN, MADE = "input", "output"


@dataclass(frozen=True)
class Figure:
    """A number as a tool has written it.

    Attributes:
        value: the number.
        half: half a unit of the last digit that was written; 0 where it was written in full.
    """

    value: float
    half: float = 0.0


@dataclass(frozen=True)
class Dumped:
    """One tensor of a dump.

    Attributes:
        shape: of the tensor; None where the tool does not write it.
        dtype: its numpy-like name, e.g. ``"bfloat16"``; ``""`` where the tool does not write it.
        load: reads it whole; None where the dump does not hold its numbers.
        printed: what ``print`` shows of it: every number, or three at either end of each axis.
        figures: statistics by name: ``max``, ``min``, ``mean``, ``std``, ``norm``.
    """

    shape: tuple[int, ...] | None = None
    dtype: str = ""
    load: Callable[[], np.ndarray] | None = None
    printed: tuple[Figure, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing of its numbers is held."""
        return self.load is None and not self.printed and not self.figures


@dataclass(frozen=True)
class Recorded:
    """A tensor with its place.

    Attributes:
        path: of the module that was called; ``""`` for the model.
        call: how often the module had been called before.
        role: ``GIVEN`` or ``MADE``.
        name: the position, or the name of a keyword.
        value: the tensor.
    """

    path: str
    call: int
    role: str
    name: str
    value: Dumped

    @property
    def title(self) -> str:
        """In words, for a row."""
        number = f"#{self.call}" if self.call else ""
        return f"{self.path or 'model'}{number}.{self.role}" + ("" if self.name == "0" else f".{self.name}")


@dataclass
class DumpOfOthers:
    """A dump that was read.

    Attributes:
        tool: its title.
        folder: where it lies.
        framework: name of the framework; ``""`` where the dump does not say.
        values: in the order of computation: what a module was given, what its children computed, what it returned.
        weights, gradients: of parameters, by canonical name.
        ordered: whether ``values`` is the order of computation.
        lacks: what such a dump does not show, in words.
    """

    tool: str
    folder: Path
    framework: str = ""
    values: list[Recorded] = field(default_factory=list)
    weights: dict[str, Dumped] = field(default_factory=dict)
    gradients: dict[str, Dumped] = field(default_factory=dict)
    ordered: bool = True
    lacks: list[str] = field(default_factory=list)

    def add(self, path: str, call: int, role: str, values: Iterable[tuple[str, Dumped]]) -> None:
        """Append the tensors that a call was given or returned."""
        self.values += [Recorded(path, call, role, name, value) for name, value in values if not value.empty]


@dataclass(frozen=True)
class Format:
    """How one tool's dumps are read.

    Attributes:
        title: of the tool.
        found: the file to begin with, of a folder or file that was given; None where it is not this tool's.
        read: what it holds, given the flag of the command line and this file.
        last: whether every other tool's dump may look like this one's, too.
    """

    title: str
    found: Callable[[Path], Path | None]
    read: Callable[[str, Path], DumpOfOthers]
    last: bool = False


def formats() -> list[Format]:
    """Every tool that has a file here; the plain folder, which anything may be, comes last."""
    package = __name__.rpartition(".")[0]
    paths = importlib.import_module(package).__path__
    modules = [importlib.import_module(f"{package}.{one.name}") for one in pkgutil.iter_modules(paths)]
    found = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return sorted(found, key=lambda one: one.last)


def opened(flag: str, place: Path) -> DumpOfOthers | None:
    """The dump of another tool in a folder; None where it is none of those that are known.

    Raises:
        UserError: it is one, and damaged.
    """
    for one in formats():
        if (start := one.found(place)) is not None:
            recording = one.read(flag, start)
            if not recording.values:
                raise UserError(f"{flag} {place}: this dump of {one.title} holds no tensor of any module")
            return recording
    return None


def table_of(flag: str, file: Path) -> dict[str, Any]:
    """A JSON object in a file.

    Raises:
        UserError: it cannot be read, or is no object.
    """
    refuse_stand_in(file)
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{flag} {file}: cut short or damaged: {(str(error).splitlines() or ['it cannot be read'])[0]}") from error
    if not isinstance(content, dict):
        raise UserError(f"{flag} {file}: expected a JSON object, found a {type(content).__name__}")
    return content


def of_kind(flag: str, file: Path, value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    """A value of a table.

    Raises:
        UserError: it is of another kind.
    """
    if not isinstance(value, kind):
        raise UserError(f"{flag} {file}: {what} is a {type(value).__name__}: the file is damaged, or another version's")
    return value


def plain_shape(flag: str, file: Path, value: Any) -> tuple[int, ...] | None:
    """A shape in a table; None where there is none.

    Raises:
        UserError: it is no list of sizes.
    """
    if value is None:
        return None
    if not isinstance(value, list) or any(type(size) is not int or size < 0 for size in value):
        raise UserError(f"{flag} {file}: a shape is {value!s:.60}: expected a list of sizes")
    return tuple(value)


def beside(folder: Path, name: Any) -> Path:
    """A file that a table names: of its path the last part alone counts, which lies in this folder."""
    return folder / str(name).replace("\\", "/").rpartition("/")[2]
