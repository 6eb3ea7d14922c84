"""Unpickling that builds arrays and plain containers and nothing else, in memory that is bounded by the file's own size.

``.pdparams``, ``.pdopt``, CIFAR-10's batches and reprod_log's ``.npy`` records are pickles, and ``paddle.load`` and
``numpy.load(allow_pickle=True)`` run whatever code such a file carries (docs/known_differences.md). The unpickler here
resolves only the handful of names that numpy writes for an array; any other name is refused before it is imported.

Nor does it believe a number in the file: a length is compared with what is left of the file before memory is asked for, an
array's shape with the bytes that are there, and the number of operations is limited. Python's own unpickler in C asks for 8 GB
where nine bytes say "remember this under number 4,294,967,295".
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import re
from collections.abc import Callable, Iterator
from typing import IO, Any, ClassVar, NamedTuple, cast

import numpy as np

from mobilenetv3_common.errors import UserError

LAZY = 1 << 16  # raw data of so many bytes or more stays in the file until it is asked for
SMALL = 4096  # bytes for which nobody asks how many are left
MOST_OPERATIONS = 2_000_000  # at about 130 bytes each; a batch of CIFAR-10 has 40,000, weights a few thousand
MOST_AXES = 64  # numpy's own limit
_CODE = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248]|f1[26]|c8|c16|c24|c32|[SU]\d{1,9}|O[48]?)")


class Refused(pickle.UnpicklingError):
    """The file asks for something that could run code, or that weights and records do not need."""


class Raw(NamedTuple):
    """Bytes that were left in the file; of text that Python 2 wrote, with their encoding."""

    offset: int
    length: int
    encoding: str | None = None


def brief(value: Any) -> str:
    """A value of a file in a message: never more of it than is said, which a nested one would be written out for."""
    if isinstance(value, str | bytes):
        return f"{value[:60]!r}"
    if isinstance(value, tuple) and all(type(n) is int and abs(n) < 1 << 64 for n in value[:MOST_AXES]):
        return f"{value[:MOST_AXES]!r:.60}"
    return f"of type {type(value).__name__.strip('_')}"


class _Type:
    """Stands for a numpy type while its pickle is read: numpy's own believes every size and offset that it is told."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise Refused(f"the type {brief(code)}, which is none of plain numbers or text")
        self.code, self.order = code, "="

    def set(self, state: Any) -> None:
        """What numpy writes after the code; of it the order of bytes alone counts for plain types."""
        self.order = state[1] if state[1] in ("<", ">", "|", "=") else "="

    def numpy(self) -> np.dtype:
        return np.dtype(self.code).newbyteorder(cast(Any, self.order))


class PickledArray:
    """An array whose pickle was read: its shape and type, and its data, or where in the file they lie.

    Attributes:
        shape, dtype, fortran: as numpy has them; ``fortran`` where the first axis runs fastest.
        raw: bytes, ``Raw``, or a list for an array of objects; its length is that of the shape.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    raw: bytes | Raw | list | None = None

    def set(self, state: Any) -> None:
        """What numpy's ``__setstate__`` is given: version, shape, type, order and data.

        Raises:
            pickle.UnpicklingError: they do not fit together.
        """
        shape, kind, fortran, raw = state[-4:]
        self.shape, self.fortran = _shape(shape), bool(fortran)
        if not isinstance(kind, _Type):
            raise pickle.UnpicklingError("an array without a type")
        self.dtype = kind.numpy()
        if isinstance(raw, str):
            raw = raw.encode("latin1")
        length = raw.length if isinstance(raw, Raw) else len(raw)
        if isinstance(raw, list) != self.dtype.hasobject:
            raise pickle.UnpicklingError("an array whose data are of another type")
        size = 1 if self.dtype.hasobject else self.dtype.itemsize
        if math.prod(self.shape) * size != length or (size == 0 and math.prod(self.shape) > 0):
            raise pickle.UnpicklingError(f"an array of shape {self.shape} has not the data of its shape")
        self.raw = raw

    def numpy(self, file: IO[bytes]) -> np.ndarray:
        """The array in memory, in this machine's order of bytes."""
        if isinstance(self.raw, list) or self.raw is None:
            raise Refused("an array of objects")
        data = bytearray(_bytes_of(self.raw, file))
        flat = np.frombuffer(data, self.dtype) if data else np.zeros(0, self.dtype)
        return flat.astype(self.dtype.newbyteorder("="), copy=False).reshape(self.shape, order="F" if self.fortran else "C")


def _shape(shape: Any) -> tuple[int, ...]:
    sound = isinstance(shape, tuple) and len(shape) <= MOST_AXES and all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    if not sound:
        raise pickle.UnpicklingError(f"an array of shape {brief(shape)}")
    return shape


def _bytes_of(raw: bytes | bytearray | Raw, file: IO[bytes]) -> bytes | bytearray:
    if not isinstance(raw, Raw):
        return raw
    file.seek(raw.offset)
    data = file.read(raw.length)
    if len(data) < raw.length:
        raise EOFError
    return data


class _Dict(dict):
    """An OrderedDict of the file; it has no attributes that a file could set."""

    __slots__ = ()


def _ordered(items: Any = ()) -> _Dict:
    found = _Dict()
    for key, value in items:
        found[_key(key)] = value
    return found


def _key(key: Any) -> Any:
    """A key of a dictionary: text, or a number that nobody can choose so that all keys collide."""
    if isinstance(key, str | bytes) or (isinstance(key, int) and abs(key) < 1 << 32):
        return key
    raise Refused(f"a dictionary with a key of type {type(key).__name__.strip('_')}")


def _ndarray(*_: Any) -> None:
    """Stands for numpy.ndarray, which could make an array of any size, and is only ever handed on."""
    raise Refused("an array that is built in an unusual way")


def _reconstruct(subtype: Any, shape: Any, code: Any) -> PickledArray:
    if subtype is not _ndarray:
        raise Refused("an array that is built in an unusual way")
    return PickledArray()


def _frombuffer(raw: Any, kind: Any, shape: Any, order: Any) -> PickledArray:
    found = PickledArray()
    found.set((shape, kind, order == "F", raw))
    return found


def _scalar(kind: Any, data: Any = b"") -> np.generic:
    dtype = kind.numpy() if isinstance(kind, _Type) else np.dtype(object)
    if isinstance(data, str):
        data = data.encode("latin1")
    if dtype.hasobject or not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise Refused("a scalar of objects, or without the data of its type")
    return np.frombuffer(data, dtype)[0]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    # Pickle protocol 2 spells bytes as _codecs.encode(text, "latin1").
    if encoding not in ("latin1", "latin-1"):
        raise Refused(f"the text encoding {brief(encoding)}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""  # spelt bytes() in old protocols


ALLOWED: dict[tuple[str, str], Any] = {
    ("__builtin__", "bytes"): _no_bytes,
    ("collections", "OrderedDict"): _ordered,
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Type,
}
for _package in ("numpy.core", "numpy._core"):
    ALLOWED[f"{_package}.multiarray", "_reconstruct"] = _reconstruct
    ALLOWED[f"{_package}.multiarray", "scalar"] = _scalar
    ALLOWED[f"{_package}.numeric", "_frombuffer"] = _frombuffer


class _Bounded:
    """A file of which nobody reads more than it has: the buffer for a number of bytes is made before the first of them is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        here = file.tell()
        self.end = file.seek(0, os.SEEK_END)
        file.seek(here)

    def read(self, count: int) -> bytes:
        if count > SMALL and count > self.end - self.file.tell():
            raise EOFError
        return self.file.read(count)

    def readline(self) -> bytes:
        return self.file.readline()


# Everything that pickle writes for the values above; sets, instances, references outside the file and the like are not among it.
_OPERATIONS = [
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "INT", "LONG", "BININT", "BININT1",
    "BININT2", "LONG1", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "EMPTY_DICT", "DICT", "SETITEM",
    "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "GLOBAL",
    "STACK_GLOBAL", "REDUCE", "BUILD", "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE",
]  # fmt: skip


class _Operations(dict):
    """Operations by their code, counted as they are looked up; the others are refused."""

    left = MOST_OPERATIONS

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self.left -= 1
        if self.left < 0:
            raise Refused(f"it has more than {MOST_OPERATIONS} operations, which is no file of arrays")
        return super().__getitem__(code)

    def __missing__(self, code: int) -> Callable[[Any], None]:
        name = next((name for name in vars(pickle) if name.isupper() and getattr(pickle, name) == bytes([code])), f"0x{code:02x}")
        raise Refused(f"it has the operation {name}, which a file of arrays does not need")


_PURE: Any = pickle._Unpickler  # type: ignore[attr-defined]  # the one in C believes every number in the file


class BoundedUnpickler(_PURE):
    """Python's unpickler, in memory that the file's own size bounds; a subclass says which operations there are.

    Attributes:
        dispatch: code -> what is done.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_PURE.dispatch)

    def __init__(self, file: IO[bytes], **given: Any) -> None:
        self.bounded = _Bounded(file)
        super().__init__(self.bounded, **given)
        self.__dict__["dispatch"] = _Operations(self.dispatch)  # which counts for this file alone

    def items(self, values: list) -> None:
        """Set keys of the dictionary on top of the stack."""
        target = self.stack[-1]
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[self.key(key)] = value

    def key(self, key: Any) -> Any:
        """A key as it is; numbers that all have one hash would make a dictionary as slow as a list.

        Raises:
            Refused: it is too large a number.
        """
        if isinstance(key, int) and abs(key) >= 1 << 60:
            raise Refused("a dictionary with a key of more than 60 bits")
        if isinstance(key, tuple | frozenset):
            if len(key) > MOST_AXES or any(isinstance(part, tuple | frozenset) for part in key):
                raise Refused("a dictionary or a set with a key that is nested")
            for part in key:
                BoundedUnpickler.key(self, part)
        return key

    def load_additems(self) -> None:
        items = [self.key(item) for item in self.pop_mark()]
        target = self.stack[-1]
        target.update(items) if isinstance(target, set) else target.extend(items)

    def load_frozenset(self) -> None:
        self.append(frozenset(self.key(item) for item in self.pop_mark()))

    def load_bytearray8(self) -> None:
        self.append(bytearray(self.read(int.from_bytes(self.read(8), "little"))))

    def load_dict(self) -> None:
        values = self.pop_mark()
        self.append({})
        self.items(values)

    def load_put(self) -> None:
        number = int(self.readline()[:-1])
        if not 0 <= number < 1 << 32:
            raise pickle.UnpicklingError("a place of the memo that is none")
        self.memo[number] = self.stack[-1]

    dispatch |= {
        pickle.SETITEM[0]: lambda self: self.items([self.stack.pop(-2), self.stack.pop()]),
        pickle.SETITEMS[0]: lambda self: self.items(self.pop_mark()),
        pickle.DICT[0]: load_dict,
        pickle.PUT[0]: load_put,
        pickle.ADDITEMS[0]: load_additems,
        pickle.FROZENSET[0]: load_frozenset,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }


class Unpickler(BoundedUnpickler):
    """Builds ``PickledArray``, dicts, lists and plain values and nothing else; large raw data stays where it is."""

    dispatch: ClassVar[dict[int, Any]] = {
        getattr(pickle, name)[0]: BoundedUnpickler.dispatch[getattr(pickle, name)[0]] for name in _OPERATIONS
    }

    def __init__(self, file: IO[bytes], encoding: str = "ASCII") -> None:
        super().__init__(file, encoding=encoding)
        self.file, self.python2 = file, encoding

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise Refused(f"it asks for {module}.{name}, which could run code")
        return ALLOWED[module, name]

    def leave(self, width: int, encoding: str | None = None) -> None:
        """Push bytes, or where they are."""
        length = int.from_bytes(self.read(width), "little")
        frame = self._unframer.current_frame
        within = frame is not None and frame.tell() < len(frame.getbuffer())
        if length < LAZY or within:
            data = self.read(length)
            self.append(data if encoding is None else self._decode_string(data))
            return
        offset = self.file.tell()
        if length > self.bounded.end - offset:
            raise EOFError
        self.file.seek(length, os.SEEK_CUR)
        self.append(Raw(offset, length, encoding))

    def items(self, values: list) -> None:
        """Set keys of the dictionary on top of the stack."""
        if not isinstance(self.stack[-1], dict):
            raise pickle.UnpicklingError("keys of what is no dictionary")
        super().items(values)

    def key(self, key: Any) -> Any:
        """Text, or a small number."""
        return _key(key)

    def build(self) -> None:
        """Give the value below the top of the stack its state."""
        state, made = self.stack.pop(), self.stack[-1]
        if isinstance(made, _Type | PickledArray):
            made.set(state)
        elif not isinstance(made, _Dict):  # of which torch keeps versions of modules beside the keys
            raise Refused(f"a {type(made).__name__.strip('_')} with attributes")

    dispatch |= {
        pickle.BINBYTES[0]: lambda self: self.leave(4),
        pickle.BINBYTES8[0]: lambda self: self.leave(8),
        pickle.BYTEARRAY8[0]: lambda self: self.leave(8),
        pickle.BINSTRING[0]: lambda self: self.leave(4, self.python2),
        pickle.BUILD[0]: build,
    }


def load_lazily(file: IO[bytes], name: str, encoding: str = "ASCII", unpickler: type[Unpickler] = Unpickler) -> Any:
    """Unpickle one object made of dicts, lists, tuples, strings, numbers and ``PickledArray``.

    Args:
        file: an open binary file that can seek, positioned at the pickle.
        name: what to call the file in an error.
        encoding: of strings that Python 2 wrote.
        unpickler: resolves the names.

    Raises:
        UserError: the pickle is damaged, or holds anything that could run code. Nothing in it has been run.
    """
    with naming_damage(name):
        return unpickler(file, encoding).load()


def load_arrays(file: IO[bytes], name: str, encoding: str = "ASCII", unpickler: type[Unpickler] = Unpickler) -> Any:
    """Unpickle one object made of dicts, lists, tuples, strings, numbers and numpy arrays.

    Args:
        file: an open binary file that can seek, positioned at the pickle.
        name: what to call the file in an error.
        encoding: of strings that Python 2 wrote.
        unpickler: resolves the names.

    Raises:
        UserError: as ``load_lazily``; or there is an array of objects.
    """
    content = load_lazily(file, name, encoding, unpickler)
    with naming_damage(name):
        return _Arrays(file).of(content)


class _Arrays:
    """Puts numpy's arrays into the place of ``PickledArray``, each once, wherever the file refers to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.made = file, dict[int, Any]()
        self.left = file.seek(0, os.SEEK_END)  # bytes: no pickle holds more in its arrays than it is long

    def of(self, value: Any) -> Any:
        if not isinstance(value, PickledArray | Raw | dict | list | tuple):
            return value
        if id(value) not in self.made:
            self.made[id(value)] = None if isinstance(value, tuple) else type(value)()
            self.made[id(value)] = self._made(value, self.made[id(value)])
        return self.made[id(value)]

    def _made(self, value: Any, empty: Any) -> Any:
        if isinstance(value, PickledArray):
            self._spend(math.prod(value.shape) * value.dtype.itemsize)
            return value.numpy(self.file)
        if isinstance(value, Raw):
            self._spend(value.length)
            data = bytes(_bytes_of(value, self.file))
            return data if value.encoding is None else data.decode(value.encoding)
        if isinstance(value, dict):
            empty.update((key, self.of(one)) for key, one in value.items())
        elif isinstance(value, list):
            empty.extend(self.of(one) for one in value)
        else:
            return tuple(self.of(one) for one in value)
        return empty

    def _spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise Refused("its arrays use the same bytes several times")


@contextlib.contextmanager
def naming_damage(name: str) -> Iterator[None]:
    """What goes wrong inside the block while a stranger's pickle is read is one line."""
    try:
        yield
    except Refused as error:
        raise UserError(f"{name} is not read: {error}") from error
    except (pickle.UnpicklingError, EOFError, MemoryError) as error:
        raise UserError(f"{name} is damaged or ends too early: {str(error) or 'its end is missing'}") from error
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise almost anything while objects are being rebuilt
        raise UserError(f"{name} is damaged: {type(error).__name__}: {error}") from error
