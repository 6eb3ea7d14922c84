"""Decoded pictures kept in a file, up to a number of bytes, for all workers and ranks of a machine and for later runs.

The first pictures that are asked for are kept, and none is ever replaced: an epoch asks for each picture once, in an order of
its own, so another choice would not meet more of them. What is kept are the decoder's own pixels, so a run with it is the run
without.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import zlib
from pathlib import Path

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.shards import Member

DATA, TABLE, USERS = "pictures.data", "pictures.table", "pictures.users"
_ROW = 6  # int64: offset, height, width, state of the file, checksum of the pixels, checksum of the row
_HEAD = 64  # bytes of the table before its rows: what is kept, as a digest; then how many bytes of data are taken


class PictureCache:
    """Pixels by the number of their picture.

    Args:
        folder: holds one cache; made if need be. Every process keeps a lock on it as long as it lives.
        content: says which pictures, decoded how; a folder with another content or limit is emptied.
        count: pictures of the split.
        limit: most bytes of pixels.

    Raises:
        UserError: the folder cannot be written, or a run with other content uses it.
    """

    def __init__(self, folder: str | os.PathLike, content: str, count: int, limit: int) -> None:
        self.folder, self.limit, self._full = Path(folder), limit, False
        self._users = self._data = self._table = -1
        key = hashlib.sha256(f"{content} {count} {limit}".encode()).digest()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._users = os.open(self.folder / USERS, os.O_RDWR | os.O_CREAT, 0o666)
            self._data = os.open(self.folder / DATA, os.O_RDWR | os.O_CREAT, 0o666)
            self._table = os.open(self.folder / TABLE, os.O_RDWR | os.O_CREAT, 0o666)
            self._locked(lambda: self._begin(key, _HEAD + count * _ROW * 8))
        except OSError as error:
            raise UserError(f"cannot keep pictures in {self.folder}: {error.strerror}: give another --picture-cache") from error

    def _begin(self, key: bytes, size: int) -> None:
        if os.pread(self._table, 32, 0) != key or os.fstat(self._table).st_size != size:
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                said = f"--picture-cache {self.folder} is in use by a run with other pictures, decoding or --picture-cache-gb"
                raise UserError(f"{said}: give another folder") from None
            os.ftruncate(self._table, 0)
            os.ftruncate(self._data, 0)
            os.ftruncate(self._table, size)
            os.pwrite(self._table, key, 0)
        fcntl.flock(self._users, fcntl.LOCK_SH)

    def _locked(self, work):  # type: ignore[no-untyped-def]
        """What ``work`` returns, while no other process does such work; not flock, which forked workers would share."""
        fcntl.lockf(self._table, fcntl.LOCK_EX)
        try:
            return work()
        finally:
            fcntl.lockf(self._table, fcntl.LOCK_UN)

    def __del__(self) -> None:
        for handle in (self._users, self._data, self._table):
            if handle >= 0:
                os.close(handle)

    def get(self, number: int, path: os.PathLike) -> np.ndarray | None:
        """The pixels of a picture, uint8 (H, W, 3); None where they are not kept, damaged, or of an earlier state of its file."""
        entry = os.pread(self._table, _ROW * 8, _HEAD + number * _ROW * 8)
        if len(entry) != _ROW * 8:
            return None
        row = np.frombuffer(entry, dtype=np.int64)
        if row[-1] != _sum_of(row, number):
            return None
        offset, height, width, state, checksum = (int(value) for value in row[:-1])
        try:
            if state != _state(path):
                return None
        except OSError:  # decoding says what is wrong
            return None
        data = os.pread(self._data, height * width * 3, offset)
        if zlib.crc32(data) != checksum or len(data) != height * width * 3:
            return None
        return np.frombuffer(bytearray(data), dtype=np.uint8).reshape(height, width, 3)

    def put(self, number: int, path: os.PathLike, pixels: np.ndarray) -> None:
        """Keep the pixels of a picture, uint8 (H, W, 3), if there is room; a disk that is full is a warning."""
        if self._full:
            return
        data = np.ascontiguousarray(pixels).tobytes()
        try:
            offset = self._locked(lambda: self._take(len(data)))
            if offset is None:
                return
            if os.pwrite(self._data, data, offset) != len(data):
                raise OSError(0, "the disk is full")
            row = np.array([offset, *pixels.shape[:2], _state(path), zlib.crc32(data), 0], dtype=np.int64)
            row[-1] = _sum_of(row, number)
            os.pwrite(self._table, row.tobytes(), _HEAD + number * _ROW * 8)
        except OSError as error:
            self._full = True
            print(f"warning: no more pictures are kept in {self.folder}: {error.strerror}", file=sys.stderr, flush=True)

    def _take(self, size: int) -> int | None:
        """Where so many bytes may be written; None where they would be too many."""
        used = int.from_bytes(os.pread(self._table, 8, 32), "little")
        if used + size > self.limit:
            return None
        os.pwrite(self._table, (used + size).to_bytes(8, "little"), 32)
        return used


def _state(path: os.PathLike) -> int:
    """A number for the state of a picture's file."""
    if isinstance(path, Member):
        state: tuple[int, ...] = (*path.state, path.offset)
    else:
        found = os.stat(path)
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
    return int.from_bytes(hashlib.sha256(repr(state).encode()).digest()[:7], "little")


def _sum_of(row: np.ndarray, number: int) -> int:
    """The checksum of a row that is not all zeros; a row that was written by half has another."""
    return zlib.crc32(row[:-1].tobytes() + number.to_bytes(8, "little")) + 1
