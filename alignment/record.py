"""Records: named arrays of one side in reprod_log's file layout, written whole and read without running code."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.safe_pickle import load_arrays


def save_record(path: str | os.PathLike, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as reprod_log does: a pickled dict inside an object array of shape ().

    Each side has its own record, so a stale value of one can never stand in for a missing value of the other.
    """
    with atomic_open(path) as file:
        np.save(file, np.array(arrays, dtype=object), allow_pickle=True)


def load_record(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Read a record of anyone's: reprod_log's ``.npy`` layout, or ``.npz``.

    ``numpy.load(allow_pickle=True)``, which reprod_log uses, runs code that a crafted file carries; this does not.

    Raises:
        UserError: the file is missing, damaged, of another kind, or asks for code to be run.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no such record: {path}")
    with open(path, "rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return _load_npz(path)
        file.seek(0)
        try:
            version = np.lib.format.read_magic(file)
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = reader(file)
        except ValueError as error:
            raise UserError(f"{path} is not a record: {str(error).splitlines()[0]}") from error
        if not dtype.hasobject or shape != ():
            raise UserError(f"{path} holds one array of type {dtype}, not a dictionary of named arrays")
        content = load_arrays(file, str(path))
    if isinstance(content, np.ndarray) and content.dtype == object and content.shape == ():
        content = content.item()
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, not a dictionary of named arrays")
    for name, array in content.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray) or array.dtype == object:
            raise UserError(f"{path}: {name!r} is not an array of numbers")
    return content


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # numpy raises ValueError, BadZipFile, EOFError, zlib.error ... for damaged archives
        raise UserError(f"{path} is damaged or holds objects: {error}") from error
