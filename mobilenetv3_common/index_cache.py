"""A large split is listed once: its columns are kept in a file that every process maps, instead of a copy of its own.

The file lies in ``$MOBILENETV3_CACHE/index`` (by default ``.cache/index``), one for each split of each data path, and may be
deleted at any time. It holds as long as the list file's or the shards' contents and the state of every folder with pictures
(number and time of its last change) are what they were: a picture that is added, removed or renamed changes its folder's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.published import ROOT

AT_LEAST = 20_000  # pictures: fewer are listed in half a second
MOST_FOLDERS = 50_000  # whose states are compared
SETTLED = 2.0  # seconds: a folder that changed later than this may change again without a new time
_MAGIC = b"picture index 3\n"
_ALIGN = 64

Stamps = dict[str, list[int]]


@dataclass(frozen=True)
class Listed:
    """What a split's listing is made of.

    Attributes:
        arrays: the columns, by name.
        meta: what else there is to say, as JSON values.
        folders: (or shards) whose contents were listed, with their states from before the listing.
    """

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    folders: Stamps


def stamp(path: str | os.PathLike) -> list[int]:
    """The state of a file or folder: device, number, size and time of the last change."""
    found = os.stat(path)
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


def cached(root: Path, source: Path, content: str, make: Callable[[], Listed], kind: str = "") -> Listed:
    """The listing of ``source`` in ``root``, from its file where that holds, else made, and kept where it is large.

    Processes that ask at the same time wait for the first one to make it.

    Args:
        root: the data path.
        source: the list file or folder; a lock on it is what the others wait for.
        content: what the listing depends on besides its folders, as a digest.
        make: lists; only called where no file holds.
        kind: tells listings of one source apart.

    Raises:
        UserError: as ``make``.
    """
    place = _place(root, source, kind)
    if (found := _read(place, content)) is not None:
        return found
    with _alone(source):
        if (found := _read(place, content)) is not None:
            return found
        began = time.time()
        listed = make()
        large = len(listed.arrays["labels"]) >= AT_LEAST
        if large and _settled(listed.folders, began) and _keep(place, content, listed):
            return _read(place, content) or listed
        return listed


def _place(root: Path, source: Path, kind: str) -> Path:
    """One file for a source under its name in a data path: links may give one folder two names, and two folders one list."""
    key = "\n".join((os.path.realpath(root), os.path.realpath(source), source.name, kind))
    name = hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
    return Path(os.environ.get("MOBILENETV3_CACHE") or ROOT / ".cache") / "index" / f"{name}.index"


@contextlib.contextmanager
def _alone(source: Path) -> Iterator[None]:
    """A lock on the source itself, which writes nothing beside it; none where the file system has no locks."""
    handle = -1
    try:
        with contextlib.suppress(OSError):
            handle = os.open(source, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def _settled(folders: Stamps, began: float) -> bool:
    """Whether a later change of any folder will show."""
    latest = max((state[3] for state in folders.values()), default=0)
    earliest = min((state[3] for state in folders.values()), default=0)
    return earliest > 0 and latest < (began - SETTLED) * 1e9 and len(folders) <= MOST_FOLDERS


def _keep(place: Path, content: str, listed: Listed) -> bool:
    data_start = 0
    layout: dict[str, tuple[str, int, int]] = {}  # type, length and place of each array
    sums: dict[str, int] = {}
    for name, array in listed.arrays.items():
        layout[name] = (array.dtype.str, len(array), data_start)
        data_start += -(-array.nbytes // _ALIGN) * _ALIGN
        sums[name] = zlib.crc32(_raw(array))
    head = {"content": content, "folders": listed.folders, "meta": listed.meta, "layout": layout, "sums": sums, "bytes": data_start}
    text = json.dumps(head).encode()  # a name that is no UTF-8 stays as it is: JSON writes surrogates as \\uNNNN
    start = -(-(len(_MAGIC) + 8 + len(text)) // _ALIGN) * _ALIGN
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_open(place) as file:
            file.write(_MAGIC + len(text).to_bytes(8, "little") + text)
            for name, array in listed.arrays.items():
                file.seek(start + layout[name][2])
                file.write(_raw(array))
            file.truncate(start + data_start)
    except (UserError, OSError) as error:
        print(f"warning: the list of pictures is made anew each time: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _read(place: Path, content: str) -> Listed | None:
    """The listing of a file, mapped; None where there is none, it does not hold any more, or is damaged."""
    try:
        with open(place, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
            length = int.from_bytes(file.read(8), "little")
            if length > os.fstat(file.fileno()).st_size:
                return None
            head = json.loads(file.read(length))
            start = -(-(len(_MAGIC) + 8 + length) // _ALIGN) * _ALIGN
            if head["content"] != content or os.fstat(file.fileno()).st_size != start + head["bytes"]:
                return None
            if any(stamp(path) != state for path, state in head["folders"].items()):
                return None
            arrays = {}
            for name, (dtype, count, offset) in head["layout"].items():
                if _crc(file.fileno(), start + offset, count * np.dtype(dtype).itemsize) != head["sums"][name]:
                    return None
                arrays[name] = np.asarray(np.memmap(file, dtype, "r", start + offset, (count,)))
            return Listed(arrays, head["meta"], head["folders"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _raw(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


def _crc(handle: int, start: int, length: int) -> int:
    """The checksum of a part of a file, read past this process's own memory."""
    found = 0
    while length > 0 and (part := os.pread(handle, min(length, 1 << 20), start)):
        found, start, length = zlib.crc32(part, found), start + len(part), length - len(part)
    return found
