"""Pictures in tar shards, in WebDataset's form: ``KEY.jpg`` and ``KEY.cls`` (the class number as text), one after the other.

A shard is listed once; a picture is then read from its place in the file, in whatever order an epoch has. So a run on shards sees
the pictures that a run on their folder sees, in the same order, and goes on in mid-epoch in the same way.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mobilenetv3_common.columns import Builder
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_stand_in

BLOCK = 512  # bytes; of which a tar file consists
LONGEST_NAME = 1 << 16  # bytes of a name or of attributes that have a place of their own
_IN_MEMORY = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_KEY = re.compile(r"((?:.*/|)[^./]+)\.([^/]*)")  # WebDataset's: what stands before the first dot of the file's name


class Member(os.PathLike):
    """A picture in a shard. It stands where a path does, and names itself in messages as one; only ``read`` opens it.

    Args:
        shard: the tar file.
        name: of the member.
        offset, size: its bytes in the file.
        state: the file's size in bytes and time of change in nanoseconds, as they were when it was listed.
    """

    def __init__(self, shard: Path, name: str, offset: int, size: int, state: tuple[int, int]) -> None:
        self.shard, self.name, self.offset, self.size, self.state = shard, name, offset, size, state

    def __fspath__(self) -> str:
        return f"{self.shard}: {self.name}"

    __str__ = __fspath__

    def read(self) -> bytes:
        """The picture's file.

        Raises:
            OSError: the shard cannot be read.
            UserError: it is another one than was listed.
        """
        handle = os.open(self.shard, os.O_RDONLY)
        try:
            found = os.fstat(handle)
            data = os.pread(handle, self.size, self.offset)
        finally:
            os.close(handle)
        if (found.st_size, found.st_mtime_ns) != self.state or len(data) != self.size:
            raise UserError(f"{self}: the shard has changed since it was listed: start the run again")
        return data


@dataclass(frozen=True)
class Places:
    """Where in the shards each picture is.

    Attributes:
        shards: the tar files.
        states: size and time of change of each.
        shard: int32 (N,), in which one.
        offset, size: int64 (N,), which bytes of it.
    """

    shards: tuple[Path, ...]
    states: tuple[tuple[int, int], ...]
    shard: np.ndarray
    offset: np.ndarray
    size: np.ndarray

    def member(self, number: int, name: str) -> Member:
        shard = int(self.shard[number])
        return Member(self.shards[shard], name, int(self.offset[number]), int(self.size[number]), self.states[shard])

    def take(self, chosen: Sequence[int]) -> Places:
        numbers = np.array(chosen, dtype=np.int64)
        return Places(self.shards, self.states, self.shard[numbers], self.offset[numbers], self.size[numbers])


def find_shards(root: Path, split: str) -> list[Path]:
    """``SPLIT-*.tar`` of a data path, in the order of their names."""
    return sorted(path for path in root.glob(f"{split}-*.tar") if path.is_file())


def key_of(name: str) -> tuple[str, str] | None:
    """Key and extension, in lower case, of a member's name; None where it has none."""
    found = _KEY.fullmatch(name)
    return (found[1], found[2].lower()) if found else None


@dataclass
class _Sample:
    """What was found of one key so far."""

    key: str
    picture: tarfile.TarInfo | None = None
    label: int | None = None


def list_shard(path: Path, extensions: tuple[str, ...], limit: int, whose: str) -> Iterator[tuple[str, int, int, int]]:
    """Every picture of a shard: its member's name, its label, and the place and number of its bytes.

    Members that belong to a key without picture and class (other texts, folders) are left out.

    Args:
        path: of the shard.
        extensions: of pictures, with their dots, in lower case.
        limit: labels are below it.
        whose: words that begin the message about one that is not.

    Raises:
        UserError: the shard is cut short or damaged, a sample lacks its picture or class, or a key is there twice; shard and
            member are named.
    """
    sample, keys = _Sample(""), set[int]()
    for tar, member in _members(path):
        found = key_of(member.name)
        if found is None:
            continue
        key, extension = found
        if key != sample.key:
            yield from _whole(path, sample, keys)
            sample = _Sample(key)
        if f".{extension}" in extensions:
            if sample.picture is not None:
                raise UserError(f"{path}: {member.name} is a second picture of one key, after {sample.picture.name}: remove one")
            sample.picture = member
        elif extension == "cls":
            if sample.label is not None:
                raise UserError(f"{path}: {member.name} is there twice in a row: give each picture a key of its own")
            sample.label = _label(tar, member, path, limit, whose)
    yield from _whole(path, sample, keys)


def _whole(path: Path, sample: _Sample, keys: set[int]) -> Iterator[tuple[str, int, int, int]]:
    if sample.picture is None and sample.label is None:
        return
    if sample.picture is None or sample.label is None:
        lacks = f"{sample.key}.cls" if sample.picture else "picture"
        have = sample.picture.name if sample.picture else f"{sample.key}.cls"
        raise UserError(f"{path}: {have} has no {lacks} beside it: write both, one after the other")
    if (mark := hash(posixpath.normpath(sample.key))) in keys:
        raise UserError(
            f"{path}: key {sample.key} is there twice ({sample.picture.name}): a picture has one key, remove one of the two"
        )
    keys.add(mark)
    yield sample.picture.name, sample.label, sample.picture.offset_data, sample.picture.size


def picture_twice(shards: Sequence[Path], names: Sequence[str], arrays: Mapping[str, np.ndarray]) -> str:
    """Where a picture is for the second time, under one name and in equal bytes, in words; empty where none is.

    Many writers count keys from 0 in each shard, so that equal names in two shards are no mistake by themselves.

    Args:
        shards: the tar files.
        names: of the pictures.
        arrays: of ``PlacesBuilder``.
    """
    marks = np.fromiter(
        map(hash, zip(names, arrays["labels"].tolist(), arrays["size"].tolist(), strict=True)), np.int64, len(names)
    )
    values, counts = np.unique(marks, return_counts=True)
    several = np.isin(marks, values[counts > 1])
    first: dict[tuple[int, bytes], int] = {}
    for place in np.flatnonzero(several).tolist():
        with open(shards[arrays["shard"][place]], "rb") as file:
            file.seek(int(arrays["offset"][place]))
            content = hashlib.sha256(file.read(int(arrays["size"][place]))).digest()
        if (before := first.setdefault((int(marks[place]), content), place)) != place:
            one, other = shards[arrays["shard"][before]], shards[arrays["shard"][place]]
            return f"{other}: {names[place]} is in {one} too, byte for byte: remove one of the two, a picture counts once"
    return ""


def _label(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, limit: int, whose: str) -> int:
    file = tar.extractfile(member)
    text = file.read(32).strip() if file else b""
    if not text.isdigit() or member.size > 32:
        raise UserError(f"{path}: {member.name} holds no class number of 0 or more: correct it")
    if len(text) > 18 or int(text) >= limit:
        raise UserError(
            f"{path}: {member.name} is label {int(text)}, but {whose} {limit} classes (0 to {limit - 1}): correct the label"
        )
    return int(text)


def _bounded(size: int) -> type[tarfile.TarInfo]:
    """Headers that say no more than a shard of ``size`` bytes can have; tarfile itself believes 2 ** 70 bytes, and -512."""

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf, encoding, errors):  # type: ignore[no-untyped-def]
            found = super().frombuf(buf, encoding, errors)
            if not 0 <= found.size <= size:
                raise tarfile.ReadError(f"a header that says {found.size:.6g} bytes")
            if found.type in _IN_MEMORY and found.size > LONGEST_NAME:
                raise tarfile.ReadError(f"a name or attributes of {found.size} bytes")
            return found

    return Header


def _members(path: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The files of a shard; tarfile alone would take a damaged header in the middle for the end."""
    last, end = "its beginning", 0
    try:
        refuse_stand_in(path)
        size = os.stat(path).st_size
        with tarfile.open(path, "r:", tarinfo=_bounded(size)) as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # a list of all of them is of no use here
                if not 0 <= member.size <= size:  # its attributes may say another size than its header
                    raise tarfile.ReadError(f"attributes that say {member.size:.6g} bytes")
                last, end = member.name, member.offset_data
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise UserError(f"{path}: {member.name} is no plain file: a shard holds files alone")
                end += -(-member.size // BLOCK) * BLOCK
                if member.offset_data + member.size > size:
                    raise UserError(f"{path}: cut short within {member.name}: write or fetch the shard again")
                yield tar, member
        with open(path, "rb") as file:
            file.seek(end)
            if file.read(BLOCK) != bytes(BLOCK):
                raise UserError(f"{path}: damaged or cut short after {last}: write or fetch the shard again")
    except tarfile.TarError as error:
        hint = "write or fetch the shard again (it has to be an uncompressed tar file)"
        raise UserError(f"{path}: damaged or cut short after {last} ({error}): {hint}") from error
    except (EOFError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged after {last} ({error}): write or fetch the shard again") from error
    except OSError as error:
        raise UserError(f"cannot read shard {path}: {error.strerror or error}") from error


class PlacesBuilder(Builder):
    """Names, labels and places of the pictures of several shards."""

    def __init__(self) -> None:
        super().__init__()
        self._shard: list[np.ndarray] = []
        self._places: list[np.ndarray] = []

    def add_shard(self, number: int, listed: Iterator[tuple[str, int, int, int]]) -> None:
        places = []
        for name, label, offset, size in listed:
            self.add(name, label)
            places.append((offset, size))
        self._shard.append(np.full(len(places), number, dtype=np.int32))
        self._places.append(np.array(places, dtype=np.int64).reshape(-1, 2))

    def arrays(self) -> dict[str, np.ndarray]:
        places = np.concatenate(self._places)
        return super().arrays() | {"shard": np.concatenate(self._shard), "offset": places[:, 0].copy(), "size": places[:, 1].copy()}
