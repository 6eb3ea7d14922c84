"""Two record files from anyone, compared by the strict rules and block by block: ``python -m alignment.compare A.npy B.npy``.

Nothing that a file carries is run, and neither file is held in memory: an array is read in blocks of a few megabytes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.safe_pickle import ALLOWED

BLOCK = 1 << 22  # bytes read at a time
LAZY = 1 << 16  # raw data from this size on stays in the file
RTOL = 1e-5
LARGEST = 100.0  # times rtol and the root mean square: how far a single element may lie


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


class _LazyUnpickler(pickle._Unpickler):  # type: ignore[name-defined]  # the C one cannot leave bytes in the file
    """Builds arrays, dicts, lists and plain values and nothing else; large raw data stays where it is."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which could run code")
        return _reconstruct if name == "_reconstruct" else ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to data outside the file")

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
        except (pickle.UnpicklingError, EOFError, MemoryError) as error:
            raise UserError(f"{path} is not read: {str(error) or 'it ends too early'}") from error
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
    import io

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


@dataclass
class Row:
    """One array of the two records."""

    name: str
    shape: list[int]
    dtype: str
    mean_abs_diff: float | None = None
    max_abs_diff: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    passed: bool = True
    reason: str = ""


def compare_records(a: dict[str, OnDisk], b: dict[str, OnDisk], rtol: float = RTOL) -> list[Row]:
    """One row an array, in the second record's order and then the first's.

    Floating arrays pass with equal shape and type, every value finite, a relative L2 of at most ``rtol``, and no element
    further off than ``100 * rtol`` times the root mean square. Integers, booleans and text pass when every value is equal.
    """
    rows = []
    for name in dict.fromkeys([*b, *a]):
        ours, theirs = a.get(name), b.get(name)
        known = theirs or ours
        assert known is not None
        row = Row(name, list(known.shape), str(known.dtype))
        if ours is None or theirs is None:
            row.passed, row.reason = False, f"only in the {'second' if ours is None else 'first'} record"
        elif ours.shape != theirs.shape:
            row.passed, row.reason = False, f"shape {ours.shape} in the first, {theirs.shape} in the second"
        elif ours.dtype.newbyteorder("=") != theirs.dtype.newbyteorder("="):
            row.passed, row.reason = False, f"type {ours.dtype} in the first, {theirs.dtype} in the second"
        elif known.dtype.kind not in "fciubUS":
            row.passed, row.reason = False, f"type {known.dtype} cannot be compared"
        else:
            _compare(row, ours, theirs, rtol)
        rows.append(row)
    return rows


def _compare(row: Row, ours: OnDisk, theirs: OnDisk, rtol: float) -> None:
    if ours.fortran != theirs.fortran and len(ours.shape) > 1:
        pairs: Any = [(ours.whole().ravel(), theirs.whole().ravel())]
    else:
        pairs = zip(ours.blocks(), theirs.blocks(), strict=True)
    floating = ours.dtype.kind in "fc"
    bad = [0, 0]
    differing, first, done = 0, -1, 0
    total = largest = squares = norm_a = norm_b = product = 0.0
    for x, y in pairs:
        if ours.dtype.kind == "c":
            x, y = x.view(x.real.dtype), y.view(y.real.dtype)
        different = x != y
        if floating:
            for side, values in enumerate((x, y)):
                bad[side] += values.size - int(np.isfinite(values).sum())
        if different.any() and first < 0:
            first = done + int(np.argmax(different))
        differing += int(different.sum())
        done += x.size
        if ours.dtype.kind in "US" or any(bad):
            continue
        p, q = x.astype(np.float64), y.astype(np.float64)
        gap = p - q
        sizes = np.abs(gap)
        total, largest = total + float(sizes.sum()), max(largest, float(sizes.max(initial=0.0)))
        squares, norm_a, norm_b = squares + float(gap @ gap), norm_a + float(p @ p), norm_b + float(q @ q)
        product += float(p @ q)
    if any(bad):
        sides = " and ".join(f"{n} in the {which}" for n, which in zip(bad, ("first", "second"), strict=True) if n)
        row.passed, row.reason = False, f"NaN or infinite values: {sides}"
        return
    if ours.dtype.kind not in "US":
        row.mean_abs_diff, row.max_abs_diff = total / max(done, 1), largest
        row.relative_l2 = math.sqrt(squares / norm_b) if norm_b > 0 else (0.0 if squares == 0 else math.inf)
        row.cosine = product / math.sqrt(norm_a * norm_b) if norm_a * norm_b > 0 else float(norm_a == norm_b)
    if not floating:
        if differing:
            row.passed, row.reason = False, f"{differing} of {done} values differ, first at flat index {first}"
        return
    limit = LARGEST * rtol * math.sqrt(norm_b / max(done, 1))
    assert row.relative_l2 is not None
    if row.relative_l2 > rtol:
        row.passed, row.reason = False, f"relative L2 {row.relative_l2:.1e} above {rtol:g}; first difference at flat index {first}"
    elif largest > limit:
        row.passed, row.reason = False, f"one element differs by {largest:.1e}, more than {limit:.1e}"


def table(rows: list[Row]) -> str:
    """The rows as text."""
    show = lambda value: "-" if value is None else "0" if value == 0 else f"{value:.1e}"  # noqa: E731
    head = ("name", "shape", "type", "mean abs diff", "max abs diff", "rel. L2", "cosine", "verdict", "reason")
    lines = [head] + [
        (
            row.name,
            "x".join(map(str, row.shape)) or "()",
            row.dtype,
            show(row.mean_abs_diff),
            show(row.max_abs_diff),
            show(row.relative_l2),
            "-" if row.cosine is None else f"{row.cosine:.7f}",
            "passed" if row.passed else "FAILED",
            row.reason,
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m alignment.compare",
        description="Compare two record files (reprod_log's .npy layout, or .npz) by the strict rules. Nothing in them is run. "
        "Exit status: 0 all arrays agree, 1 some differ, 2 a file cannot be read.",
    )
    parser.add_argument("first", metavar="A.npy", help="the port's record")
    parser.add_argument("second", metavar="B.npy", help="the reference's record")
    parser.add_argument("--rtol", type=float, default=RTOL, help=f"relative L2 allowed for floating arrays (default: {RTOL:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file, too")
    args = parser.parse_args(argv)
    if not 0 <= args.rtol < 1:
        raise UserError(f"--rtol must lie between 0 and 1, found {args.rtol:g}")
    first, second = open_record(args.first), open_record(args.second)
    if not first and not second:
        raise UserError(f"{args.first} and {args.second} hold no arrays: there is nothing to compare")
    rows = compare_records(first, second, args.rtol)
    passed = all(row.passed for row in rows)
    if args.json:
        with atomic_open(args.json, "w") as file:
            json.dump({"passed": passed, "rtol": args.rtol, "arrays": [asdict(row) for row in rows]}, file, indent=1)
            file.write("\n")
    print(table(rows))
    print(f"{sum(row.passed for row in rows)} of {len(rows)} arrays agree")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
