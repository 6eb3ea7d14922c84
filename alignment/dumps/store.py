"""A dump on disk: ``dump.json``, which says what there is, and ``arrays.safetensors``. Reading runs no code.

Equal arrays are kept once. Values in nested tuples, lists and dictionaries are written as JSON in which an array is
``{"array": NUMBER}``; what JSON cannot hold and is no array (a function, an object) makes ``NotHeld``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.frameworks.base import Keywords
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, sha256_of

FORMAT, VERSION = "alignment dump", 1
TABLE, ARRAYS = "dump.json", "arrays.safetensors"


class NotHeld(Exception):
    """A dump does not hold the answer to a question that can be asked of a model."""


class Writer:
    """Collects arrays, each once, and encodes structures of them."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self._numbers: dict[bytes, str] = {}

    def array(self, array: np.ndarray) -> dict[str, str]:
        """An array's reference, for JSON."""
        array = np.asarray(array, order="C")  # a number keeps its shape
        key = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode() + array.tobytes()).digest()
        if key not in self._numbers:
            self._numbers[key] = number = str(len(self._arrays))
            self._arrays[number] = array.copy()
        return {"array": self._numbers[key]}

    def value(self, value: Any) -> Any:
        """Nested tuples, lists, dictionaries, arrays and plain values as JSON.

        Raises:
            NotHeld: something in it is of another kind.
        """
        if isinstance(value, np.ndarray):
            return self.array(value)
        if isinstance(value, np.generic):
            return self.value(value.item())
        if isinstance(value, dict):
            return {
                "keywords" if isinstance(value, Keywords) else "dict": [
                    [self.value(key), self.value(one)] for key, one in value.items()
                ]
            }
        if isinstance(value, tuple | list):
            return {"tuple" if isinstance(value, tuple) else "list": [self.value(one) for one in value]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise NotHeld(f"a value of type {type(value).__name__}")

    def save(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Write both files, the table last: a folder without it is no dump.

        Raises:
            UserError: the folder cannot be written.
        """
        from safetensors.numpy import save

        ensure_writable_dir(folder)
        (folder / TABLE).unlink(missing_ok=True)
        data = save(self._arrays)
        with atomic_open(folder / ARRAYS) as file:
            file.write(data)
        about = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        with atomic_open(folder / TABLE, "w") as file:
            json.dump({"format": FORMAT, "version": VERSION, "arrays": about, **content}, file)
            file.write("\n")


@dataclass
class Reader:
    """A dump that was read.

    Attributes:
        folder: where it lies.
        content: of its table.
        digest: SHA-256 of the table, which holds that of the arrays.
    """

    folder: Path
    content: dict[str, Any]
    digest: str
    _arrays: Any

    def value(self, value: Any) -> Any:
        """What ``Writer.value`` encoded."""
        if isinstance(value, dict):
            if "array" in value:
                return self._arrays.get_tensor(value["array"])
            for name, kind in (("dict", dict), ("keywords", Keywords)):
                if name in value:
                    return kind({self.value(key): self.value(one) for key, one in value[name]})
            made = [self.value(one) for one in value["tuple" if "tuple" in value else "list"]]
            return tuple(made) if "tuple" in value else made
        return value


def is_own(folder: Path) -> bool:
    """Whether a folder is a dump of this engine, damaged or not, rather than of another tool."""
    return (folder / ARRAYS).is_file()


def read(flag: str, folder: Path, role: str) -> Reader:
    """Open a dump.

    Args:
        flag: of the command line, for the message.
        folder: of the dump.
        role: ``"port"`` or ``"reference"``.

    Raises:
        UserError: there is none, it is damaged or cut short, was made by another version, or for the other role.
    """
    from safetensors import SafetensorError, safe_open

    table, arrays = folder / TABLE, folder / ARRAYS
    if not table.is_file():
        raise UserError(f"{flag} {folder}: no dump here ({TABLE} is missing); python -m alignment dump writes one")
    try:
        text = table.read_bytes()
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(f"{flag} {folder}: {TABLE} is cut short or damaged: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{flag} {folder}: {TABLE} is not the table of a dump")
    if content.get("version") != VERSION:
        found = content.get("version")
        raise UserError(f"{flag} {folder}: a dump of version {found}, this engine reads version {VERSION}: make it again")
    if content.get("role") != role:
        raise UserError(f"{flag} {folder}: the dump of a {content.get('role')}, expected one of a {role}")
    try:
        found = {"bytes": arrays.stat().st_size, "sha256": sha256_of(arrays)}
        if found != content.get("arrays"):
            raise UserError(f"{flag} {folder}: {ARRAYS} is cut short or damaged: copy the folder again")
        opened = safe_open(arrays, framework="numpy")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{flag} {folder}: {ARRAYS} cannot be read: {error}") from error
    return Reader(folder, content, hashlib.sha256(text).hexdigest(), opened)
