"""Records: named arrays in reprod_log's file layout or .npz, written whole, and read lazily without running code.

``numpy.load(allow_pickle=True)``, which reprod_log uses, runs code that a crafted file carries; nothing here does. Large arrays
stay in their file until they are asked for, and then come in blocks of a few megabytes.
"""

from __future__ import annotations

import functools
import io
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, refuse_stand_in
from mobilenetv3_common.growth import refuse_growth, refuse_long_table
from mobilenetv3_common.safe_pickle import MOST_AXES, PickledArray, Raw, load_lazily

BLOCK = 1 << 22  # bytes read at a time


def save_record(path: str | os.PathLike, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as reprod_log does: a pickled dict inside an object array of shape ().

    Each side has its own record, so a stale value of one can never stand in for a missing value of the other.
    """
    with atomic_open(path) as file:
        np.save(file, np.array(arrays, dtype=object), allow_pickle=True)


def load_record(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """All arrays of a record, in memory.

    Raises:
        UserError: as ``open_record``.
    """
    return {name: array.whole() for name, array in open_record(path).items()}


def load_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """All arrays of a record, or the one array of an ``.npy`` file, such as ``fake_data.npy``, under the file's name.

    Raises:
        UserError: as ``open_record``.
    """
    return {name: array.whole() for name, array in open_record(path, plain=True).items()}


@dataclass
class OnDisk:
    """An array in a file: its shape, its type, how to read its elements in order, and what it is called in an error."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    open: Callable[[], BinaryIO]
    what: str = "the array"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def blocks(self) -> Iterator[np.ndarray]:
        """Flat pieces of the array, in its file's order.

        Raises:
            UserError: the data are damaged, or end too early.
        """
        left = self.size
        try:
            with self.open() as file:
                while left > 0:
                    count = min(left, max(1, BLOCK // self.dtype.itemsize))
                    data = file.read(count * self.dtype.itemsize)
                    if len(data) < count * self.dtype.itemsize:
                        raise EOFError("the file ends too early")
                    yield np.frombuffer(data, self.dtype, count)
                    left -= count
        except (*_BROKEN, OSError) as error:
            raise UserError(f"{self.what} is damaged: {_first_line(error)}") from error

    def whole(self) -> np.ndarray:
        """All of it in memory."""
        flat, done = np.empty(self.size, self.dtype), 0
        for block in self.blocks():
            flat[done : done + block.size] = block
            done += block.size
        return flat.reshape(self.shape, order="F" if self.fortran else "C")


# What reading a member of an archive may raise, beside OSError, where it is damaged.
_BROKEN = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, MemoryError)
_KINDS = "fciubUS"  # of types that can be compared
_MOST_HEADER = 10_000  # bytes of an array's header, as numpy has it


def open_record(path: str | os.PathLike, plain: bool = False) -> dict[str, OnDisk]:
    """The arrays of a record, by name, still in the file.

    Args:
        path: reprod_log's ``.npy`` layout, or ``.npz``.
        plain: whether it may also be an ``.npy`` file of one array, which then has the file's name.

    Raises:
        UserError: the file is missing, empty, damaged, of another kind, holds what is no array of numbers or text, asks for code to
            be run, or grows out of all proportion. Arrays that are damaged within an archive are found when they are read.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} is a folder, not a record" if path.is_dir() else f"no such record: {path}")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    refuse_stand_in(path)
    with open(path, "rb") as file:
        found = _open_npz(path, file) if file.read(4) == b"PK\x03\x04" else _open_npy(path, file, plain)
    for name, array in found.items():
        if array.dtype.kind not in _KINDS:
            raise UserError(f"{path}: {name!r} is an array of type {array.dtype}: a record holds numbers and text alone")
    refuse_growth(path, sum(array.size * array.dtype.itemsize for array in found.values()))
    return found


def _open_npy(path: Path, file: BinaryIO, plain: bool) -> dict[str, OnDisk]:
    file.seek(0)
    try:
        shape, fortran, dtype = _header(file)
    except _BROKEN as error:
        raise UserError(f"{path} is not a record: {_first_line(error)}") from error
    if not dtype.hasobject and plain:
        return {path.stem: OnDisk(shape, dtype, fortran, functools.partial(_at, path, file.tell()), str(path))}
    if not dtype.hasobject:
        raise UserError(f"{path} holds one array of type {dtype}, not a dictionary of named arrays")
    if shape not in ((), (1,)):
        raise UserError(f"{path} holds an object array of shape {shape}, not a dictionary of named arrays")
    content = load_lazily(file, str(path))
    if isinstance(content, PickledArray) and isinstance(content.raw, list) and len(content.raw) == 1:
        content = content.raw[0]
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__.strip('_')}, not a dictionary of named arrays")
    return {name: _array(path, name, value) for name, value in content.items()}


def _array(path: Path, name: Any, value: Any) -> OnDisk:
    what = f"{path}: {name!r}"
    if not isinstance(name, str):
        raise UserError(f"{what} is a key of type {type(name).__name__}, not a name: save the arrays by their names")
    if isinstance(value, np.generic):
        return OnDisk((), value.dtype, False, functools.partial(io.BytesIO, value.tobytes()), what)
    if not isinstance(value, PickledArray) or value.raw is None:
        raise UserError(f"{what} is a {type(value).__name__.strip('_')}, not an array of numbers")
    if isinstance(value.raw, list):
        raise UserError(f"{what} is an array of objects, not of numbers")
    raw = value.raw
    opened = functools.partial(_at, path, raw.offset) if isinstance(raw, Raw) else functools.partial(io.BytesIO, raw)
    return OnDisk(value.shape, value.dtype, value.fortran, opened, what)


def _at(path: Path, offset: int) -> BinaryIO:
    file = open(path, "rb")  # noqa: SIM115  (blocks() closes it)
    file.seek(offset)
    return file


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array, as numpy writes them before its data.

    Raises:
        ValueError: it is no such header, or says what no array can be.
    """
    version = np.lib.format.read_magic(file)
    width = 2 if version == (1, 0) else 4
    length = file.read(width)
    if int.from_bytes(length, "little") > _MOST_HEADER:
        raise ValueError(f"a header of more than {_MOST_HEADER} bytes")
    whole = io.BytesIO(length + file.read(int.from_bytes(length, "little")))
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape: tuple[int, ...]
    with strangers("file", alone=True) as raised:  # a Python literal of a stranger's, and a type made of it
        shape, fortran, dtype = read(whole)
    if isinstance(raised.error, ValueError):
        raise raised.error
    if raised.error is not None:
        raise ValueError(f"a damaged header ({type(raised.error).__name__})") from raised.error
    if len(shape) > MOST_AXES or any(isinstance(n, bool) or not 0 <= n < 1 << 62 for n in shape):
        raise ValueError(f"an array of shape {shape!s:.60}")
    if dtype.itemsize == 0 and math.prod(shape) > 0:
        raise ValueError(f"an array of type {dtype}, which has no bytes")
    return shape, fortran, dtype


def _open_npz(path: Path, file: BinaryIO) -> dict[str, OnDisk]:
    arrays: dict[str, OnDisk] = {}
    try:
        refuse_long_table(file)
        archive = zipfile.ZipFile(path)  # open as long as an array refers to it: its table is read once, however many there are
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise UserError(f"{path} holds {name!r} twice: write it again")
            arrays[name] = _of_member(path, name, archive, member)
    except (*_BROKEN, OSError) as error:
        raise UserError(f"{path} is damaged or not an .npz of arrays: {_first_line(error)}") from error
    return arrays


def _of_member(path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> OnDisk:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is compressed in a way that numpy does not use")
    with archive.open(member) as file:
        shape, fortran, dtype = _header(file)  # type: ignore[arg-type]
        start = file.tell()
    if dtype.hasobject:
        raise UserError(f"{path}: {name!r} is an array of objects, not of numbers")
    if start + math.prod(shape) * dtype.itemsize != member.file_size:
        raise ValueError(f"{name!r} of shape {shape} has not the data of its shape")
    return OnDisk(shape, dtype, fortran, functools.partial(_member, archive, member, start), f"{path}: {name!r}")


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, start: int) -> BinaryIO:
    file = archive.open(member)
    file.read(start)
    return file  # type: ignore[return-value]
