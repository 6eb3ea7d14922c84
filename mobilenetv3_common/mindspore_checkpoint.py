"""MindSpore's checkpoint files (.ckpt), read and written without MindSpore: protocol buffers of named tensors, no code.

The messages are ``Checkpoint {repeated Value value = 1}``, ``Value {string tag = 1; TensorProto tensor = 2}`` and
``TensorProto {repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3}``
(mindspore/ccsrc/utils/checkpoint.proto). A large tensor lies in several values of one tag, one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open

TYPES = {
    "Float64": np.float64, "Float32": np.float32, "Float16": np.float16, "Int64": np.int64, "Int32": np.int32, "Int16": np.int16,
    "Int8": np.int8, "UInt64": np.uint64, "UInt32": np.uint32, "UInt16": np.uint16, "UInt8": np.uint8, "Bool": np.bool_,
    "BFloat16": ml_dtypes.bfloat16,
}  # fmt: skip
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
MOST_AXES = 64  # of an array of numpy's
BYTES = 2  # protocol buffers' wire type of strings, bytes, messages and packed numbers


def read_ckpt(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint by name.

    Raises:
        UserError: it is damaged, encrypted, or holds something other than tensors.
    """
    try:
        return _tensors(path.read_bytes())
    except UserError as error:
        raise UserError(f"{path}: {error.line}") from error
    except (ValueError, IndexError, OverflowError, OSError) as error:
        raise UserError(f"{path} is damaged or not a checkpoint of MindSpore: {error}") from error


def write_ckpt(path: Path, state: dict[str, np.ndarray]) -> None:
    """Write tensors as MindSpore reads them with ``load_checkpoint``, whole or not at all.

    Raises:
        UserError: a tensor is of a type that such files do not have, or the file cannot be written.
    """
    values = []
    for name, array in state.items():
        if array.dtype not in NAMES:
            raise UserError(f"{path}: {name} is of type {array.dtype}, which a checkpoint of MindSpore cannot hold")
        dims = b"".join(b"\x08" + _varint(size) for size in array.shape or (0,))
        tensor = dims + _field(2, NAMES[array.dtype].encode()) + _field(3, np.ascontiguousarray(array).tobytes())
        values.append(_field(1, _field(1, name.encode()) + _field(2, tensor)))
    with atomic_open(path) as file:
        file.write(b"".join(values))


def _tensors(data: bytes) -> dict[str, np.ndarray]:
    parts: dict[str, list[bytes]] = {}
    forms: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
    for number, value in _fields(data):
        if number != 1 or not isinstance(value, bytes):
            raise ValueError(f"a field {number} that checkpoints do not have")
        fields = dict(_fields(value))
        tag, tensor = fields.get(1), fields.get(2)
        if not isinstance(tag, bytes) or not isinstance(tensor, bytes):
            raise ValueError("a value without a name or a tensor")
        name, form, content = tag.decode(), *_tensor(tensor)
        if forms.setdefault(name, form) != form:
            raise ValueError(f"{name} has two shapes")
        parts.setdefault(name, []).append(content)
    if not parts:
        raise ValueError("it holds no tensor")
    return {name: _array(name, b"".join(parts[name]), *forms[name]) for name in parts}


def _tensor(data: bytes) -> tuple[tuple[tuple[int, ...], np.dtype], bytes]:
    dims: list[int] = []
    kind, content = "", b""
    for number, value in _fields(data):
        if number == 1:
            dims += [value] if isinstance(value, int) else itertools.islice(_varints(value), MOST_AXES + 1)
        elif number == 2 and isinstance(value, bytes):
            kind = value.decode()
        elif number == 3 and isinstance(value, bytes):
            content = value
    if len(dims) > MOST_AXES:
        raise ValueError(f"a tensor of {len(dims)} axes")
    if kind not in TYPES and kind.isidentifier():
        raise UserError(f"it holds a tensor of type {kind}, which is not read: save it as float32")
    if kind not in TYPES:
        raise ValueError(f"a tensor of type {kind!r}")
    return (tuple(dims), np.dtype(TYPES[kind])), content


def _array(name: str, content: bytes, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if shape == (0,) and len(content) == dtype.itemsize:
        shape = ()  # so a number is written
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"{name} of shape {shape} has {len(content)} bytes")
    array = np.frombuffer(content, dtype).reshape(shape)
    return array.astype(np.float32) if dtype == ml_dtypes.bfloat16 else array.copy()  # which holds it exactly


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value, an integer or bytes."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        if key & 7 == 0:
            value, place = _number(data, place)
            yield key >> 3, value
            continue
        if key & 7 != BYTES:
            raise ValueError(f"wire type {key & 7}")
        size, place = _number(data, place)
        if place + size > len(data):
            raise ValueError("it ends too early")
        yield key >> 3, data[place : place + size]
        place += size


def _number(data: bytes, place: int) -> tuple[int, int]:
    found, shift = 0, 0
    while shift < 64:
        if place >= len(data):
            raise ValueError("it ends too early")
        byte = data[place]
        found, place, shift = found | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128:
            return found, place
    raise ValueError("a number that is too long")


def _varints(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _number(data, place)
        yield value


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | BYTES]) + _varint(len(content)) + content
