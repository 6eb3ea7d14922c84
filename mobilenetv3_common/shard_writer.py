"""Class folders or list files to tar shards, byte for byte and in their order."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from mobilenetv3_common.class_list import text_of
from mobilenetv3_common.class_names import are_numbers
from mobilenetv3_common.dataset_index import CLASSES_FILE, SPLITS, DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from mobilenetv3_common.image import read_picture
from mobilenetv3_common.shards import BLOCK, find_shards, key_of

PARTIAL = ".partial"  # the folder in which shards are written before all of them are there
_ENDING = tarfile.RECORDSIZE  # bytes at most that end a tar file


def write_shards(
    indices: dict[str, DatasetIndex], target: Path, shard_bytes: int, told: Callable[[str], None] = lambda line: None
) -> dict[str, int]:
    """Write the shards of some splits, and ``classes.txt`` where the classes have names.

    A picture's key is its name without extension. Where that cannot be a key (further dots, absolute, a way upwards, twice in
    a row) it is ``SPLIT/NUMBER``. Equal pictures give equal shards, byte for byte. Nothing is there before all is.

    Args:
        indices: by split, with the same classes.
        target: a folder, made here; it must not hold shards of these splits.
        shard_bytes: a shard ends before it would be larger; one picture is written in any case.
        told: called with a line about each shard.

    Returns:
        How many shards each split has.

    Raises:
        UserError: a picture cannot be read, or the folder not be written, or holds shards or other classes.
    """
    for split in indices:
        if there := find_shards(target, split) if target.is_dir() else []:
            raise UserError(f"{there[0]} is there already: give a new --output-dir, or remove it")
    first = next(iter(indices.values()))
    classes = "" if are_numbers(first.classes) else text_of(first.classes)
    class_file = target / CLASSES_FILE
    if class_file.is_file() and class_file.read_text(encoding="utf-8") != classes:
        raise UserError(f"{class_file} names other classes: give a new --output-dir")
    ensure_writable_dir(target)
    partial = target / PARTIAL
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a killed run
        partial.mkdir()
        counts = {split: _write_split(index, split, partial, shard_bytes, told) for split, index in indices.items()}
        if classes:
            with atomic_open(class_file, "w") as file:
                file.write(classes)
        for path in sorted(partial.iterdir()):
            path.rename(target / path.name)
    except OSError as error:
        raise UserError(f"cannot write shards in {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return counts


def _write_split(index: DatasetIndex, split: str, folder: Path, shard_bytes: int, told: Callable[[str], None]) -> int:
    number, size, before = 0, 0, ""
    with contextlib.ExitStack() as stack:
        tar: tarfile.TarFile | None = None
        for place, name in enumerate(index.names):
            data = read_picture(index.path(place))
            needed = len(data) + 6 * BLOCK  # headers, rounding, the class
            if tar is None or size + needed + _ENDING > shard_bytes:
                if tar is not None:
                    stack.close()
                    told(f"{split}: {place} of {len(index)} pictures in {number} shards")
                tar = stack.enter_context(_tar(folder / f"{split}-{number:06d}.tar"))
                number, size = number + 1, 0
            key, extension = _key(name, before, split, place)
            _add(tar, f"{key}{extension}", data)
            _add(tar, f"{key}.cls", str(index.labels[place]).encode())
            size, before = size + needed, key
    return number


@contextlib.contextmanager
def _tar(path: Path) -> Iterator[tarfile.TarFile]:
    with open(path, "wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        yield tar
        tar.close()
        file.flush()
        os.fsync(file.fileno())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _key(name: str, before: str, split: str, place: int) -> tuple[str, str]:
    stem, extension = os.path.splitext(name)
    parts = name.split("/")
    usable = key_of(name) == (stem, extension[1:].lower()) and ".." not in parts and "." not in parts and "" not in parts
    return (stem if usable and stem != before else f"{split}/{place:09d}"), extension


def present_splits(root: Path) -> list[str]:
    """Which splits a data path has as folders or list files."""
    return [split for split in SPLITS if (root / split).is_dir() or (root / f"{split}_list.txt").is_file()]
