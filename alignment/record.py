"""Records: named arrays in reprod_log's file layout or .npz, written whole, and read lazily without running code.

``numpy.load(allow_pickle=True)``, which reprod_log uses, runs code that a crafted file carries; nothing here does. Large arrays
stay in their file until they are asked for, and then come in blocks of a few megabytes.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.safe_pickle import ALLOWED

BLOCK = 1 << 22  # bytes read at a time
LAZY = 1 << 16  # raw data from this size on stays in the file


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


@dataclass
class OnDisk:
    """An array in a file: its shape, its type, and how to read its elements in order."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    open: Callable[[], BinaryIO]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def blocks(self) -> Iterator[np.ndarray]:
        """Flat pieces of the array, in its file's order."""
        left = self.size
        with self.open() as file:
            while left > 0:
                count = min(left, max(1, BLOCK // self.dtype.itemsize))
                data = file.read(count * self.dtype.itemsize)
                if len(data) < count * self.dtype.itemsize:
                    raise UserError("the file ends too early")
                yield np.frombuffer(data, self.dtype, count)
                left -= count

    def whole(self) -> np.ndarray:
        """All of it; only where two arrays lie in different orders."""
        flat = np.concatenate(list(self.blocks())) if self.size else np.zeros(0, self.dtype)
        return flat.reshape(self.shape, order="F" if self.fortran else "C")


@dataclass(frozen=True)
class _Raw:
    """Bytes that were left in the file."""

    offset: int
    length: int


class _LazyArray:
    """Stands for an array while its pickle is read; numpy's own would copy the data."""

    def __setstate__(self, state: tuple) -> None:
        _, self.shape, self.dtype, self.fortran, self.raw = state


def _reconstruct(subtype: Any, shape: tuple, dtype: Any) -> _LazyArray:
    return _LazyArray()


class _Refused(pickle.UnpicklingError):
    """The file asks for something that could run code."""


class _LazyUnpickler(pickle._Unpickler):  # type: ignore[name-defined]  # the C one cannot leave bytes in the file
    """Builds arrays, dicts, lists and plain values and nothing else; large raw data stays where it is."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise _Refused(f"it asks for {module}.{name}, which could run code")
        return _reconstruct if name == "_reconstruct" else ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused("it refers to data outside the file")

    def _bytes(self, width: int) -> None:
        length = int.from_bytes(self.read(width), "little")  # type: ignore[attr-defined]
        frame = self._unframer.current_frame  # type: ignore[attr-defined]
        if length < LAZY or (frame is not None and frame.tell() < len(frame.getbuffer())):
            self.append(self.read(length))  # type: ignore[attr-defined]
            return
        offset = self.file.tell()
        self.file.seek(length, os.SEEK_CUR)
        self.append(_Raw(offset, length))  # type: ignore[attr-defined]

    def load_binbytes(self) -> None:
        self._bytes(4)

    def load_binbytes8(self) -> None:
        self._bytes(8)

    dispatch[pickle.BINBYTES[0]] = load_binbytes
    dispatch[pickle.BINBYTES8[0]] = load_binbytes8


def open_record(path: str | os.PathLike) -> dict[str, OnDisk]:
    """The arrays of a record, by name, still in the file.

    Args:
        path: reprod_log's ``.npy`` layout, or ``.npz``.

    Raises:
        UserError: the file is missing, empty, damaged, of another kind, holds objects, or asks for code to be run.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no such record: {path}")
    size = path.stat().st_size
    if size == 0:
        raise UserError(f"{path} is empty")
    with open(path, "rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return _open_npz(path)
        file.seek(0)
        try:
            shape, _, dtype = _header(file)
        except ValueError as error:
            raise UserError(f"{path} is not a record: {str(error).splitlines()[0]}") from error
        if not dtype.hasobject:
            raise UserError(f"{path} holds one array of type {dtype}, not a dictionary of named arrays")
        if shape not in ((), (1,)):
            raise UserError(f"{path} holds an object array of shape {shape}, not a dictionary of named arrays")
        try:
            content = _LazyUnpickler(file).load()
        except _Refused as error:
            raise UserError(f"{path} is not read: {error}") from error
        except (pickle.UnpicklingError, EOFError, MemoryError) as error:
            raise UserError(f"{path} is damaged or ends too early: {error}") from error
        except Exception as error:  # a damaged pickle can raise almost anything
            raise UserError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    if isinstance(content, _LazyArray) and hasattr(content, "raw"):
        content = content.raw[0] if isinstance(content.raw, list) and len(content.raw) == 1 else content
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__.strip('_')}, not a dictionary of named arrays")
    return {str(name): _array(path, size, name, value) for name, value in content.items()}


def _array(path: Path, size: int, name: Any, value: Any) -> OnDisk:
    if isinstance(value, np.generic):
        raw = value.tobytes()
        return OnDisk((), value.dtype, False, lambda: _in_memory(raw))
    if not isinstance(name, str) or not isinstance(value, _LazyArray) or not hasattr(value, "raw"):
        raise UserError(f"{path}: {name!r} is a {type(value).__name__.strip('_')}, not an array of numbers")
    if value.dtype.hasobject:
        raise UserError(f"{path}: {name!r} is an array of objects, not of numbers")
    expected = math.prod(value.shape) * value.dtype.itemsize
    raw = value.raw.encode("latin1") if isinstance(value.raw, str) else value.raw
    if isinstance(raw, _Raw):
        if raw.length != expected or raw.offset + raw.length > size:
            raise UserError(f"{path} is damaged: {name!r} has not the data of its shape, or the file ends too early")
        offset = raw.offset

        def opened() -> BinaryIO:
            file = open(path, "rb")  # noqa: SIM115  (blocks() closes it)
            file.seek(offset)
            return file

        return OnDisk(tuple(value.shape), value.dtype, bool(value.fortran), opened)
    if len(raw) != expected:
        raise UserError(f"{path} is damaged: {name!r} has not the data of its shape")
    return OnDisk(tuple(value.shape), value.dtype, bool(value.fortran), lambda: _in_memory(raw))


def _in_memory(raw: bytes) -> BinaryIO:
    return io.BytesIO(raw)


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


def _open_npz(path: Path) -> dict[str, OnDisk]:
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    shape, fortran, dtype = _header(file)  # type: ignore[arg-type]
                name = member.removesuffix(".npy")
                if dtype.hasobject:
                    raise UserError(f"{path}: {name!r} is an array of objects, not of numbers")
                arrays[name] = OnDisk(shape, dtype, fortran, _member(path, member))
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"{path} is damaged or not an .npz of arrays: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error
    return arrays


def _member(path: Path, member: str) -> Callable[[], BinaryIO]:
    def opened() -> BinaryIO:
        file = zipfile.ZipFile(path).open(member)  # noqa: SIM115  # the member keeps its archive open
        _header(file)  # type: ignore[arg-type]
        return file  # type: ignore[return-value]

    return opened
