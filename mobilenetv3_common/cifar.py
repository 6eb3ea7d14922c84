"""CIFAR-10 (Krizhevsky 2009) as it is published: Python or binary batches, or folders ``train`` and ``test``. Nothing is fetched.

A Python batch (``data_batch_1`` to ``data_batch_5``, ``test_batch``) is a pickle of Python 2 with ``data``, uint8 (N, 3072), a row
a picture of 32 x 32 pixels, channel by channel, ``labels`` and ``filenames``; ``batches.meta`` has ``label_names``. A binary batch
has the same name and ``.bin``: for each picture a byte, its label, and the same 3072 bytes; ``batches.meta.txt`` has the names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.safe_pickle import load_arrays
from mobilenetv3_common.shards import Member

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")  # that the published archives unpack to
VERIFY = "cifar-10-verify-bin"  # where MindSpore's guides put the binary test batch, beside the folder of the others
BINARY = ".bin"
FILES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "val": ("test_batch",)}
SIDE = 32  # pixels


class Row(Member):
    """A picture in a batch. It stands where a path does, as a member of a tar shard; ``read`` gives it as a PPM file."""

    def __init__(self, batch: Path, name: str, pixels: np.ndarray, state: tuple[int, int]) -> None:
        super().__init__(batch, name, 0, pixels.size, state)
        self.pixels = pixels

    def read(self) -> bytes:
        """The picture as a PPM file of 32 x 32 pixels."""
        return b"P6\n%d %d\n255\n" % (SIDE, SIDE) + self.pixels.reshape(3, SIDE, SIDE).transpose(1, 2, 0).tobytes()


@dataclass(frozen=True)
class Rows:
    """Where in the batches each picture is; what ``mobilenetv3_common.shards.Places`` is for tar shards.

    Attributes:
        batches: the files.
        states: size in bytes and time of change in nanoseconds of each.
        batch: int32 (N,), in which one.
        pixels: uint8 (N, 3072).
    """

    batches: tuple[Path, ...]
    states: tuple[tuple[int, int], ...]
    batch: np.ndarray
    pixels: np.ndarray

    def member(self, number: int, name: str) -> Row:
        batch = int(self.batch[number])
        return Row(self.batches[batch], name, self.pixels[number], self.states[batch])

    def take(self, chosen: Sequence[int]) -> Rows:
        numbers = np.array(chosen, dtype=np.int64)
        return Rows(self.batches, self.states, self.batch[numbers], self.pixels[numbers])


def find_batches(root: Path) -> Path | None:
    """The folder of the batches: a data path itself, or an archive's folder in it; None where there is none."""
    names = [name + suffix for files in FILES.values() for name in files for suffix in ("", BINARY)]
    return next(
        (folder for folder in (root, *(root / f for f in FOLDERS)) if any((folder / name).is_file() for name in names)), None
    )


def read_batches(folder: Path, split: str) -> tuple[list[str], list[int], tuple[str, ...], Rows]:
    """The pictures of a split.

    Args:
        folder: from ``find_batches``.
        split: ``"train"`` or ``"val"``, which is the published test batch.

    Returns:
        A name for each picture (``data_batch_1/FILENAME``), its label, the classes' names, and the pixels.

    Raises:
        UserError: a batch is missing, damaged, holds anything but arrays and plain values, or has a label without a class.
    """
    binary = not any((folder / name).is_file() for files in FILES.values() for name in files)
    paths = tuple(_binary_path(folder, name) if binary else folder / name for name in FILES[split])
    classes = _binary_classes(folder / "batches.meta.txt") if binary else _classes(folder / "batches.meta")
    names: list[str] = []
    labels: list[int] = []
    pixels, of, states = [], [], []
    for number, path in enumerate(paths):
        content = _binary_content(path) if binary else _content(path)
        rows, given, called = (content.get(name) for name in ("data", "labels", "filenames"))
        if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3 * SIDE * SIDE:
            raise UserError(f"{path} is no batch of CIFAR-10: it has no data of 3072 bytes a picture")
        if not isinstance(given, list) or len(given) != len(rows) or not all(isinstance(label, int) for label in given):
            raise UserError(f"{path} is no batch of CIFAR-10: it has no label for each of its {len(rows)} pictures")
        if beyond := [label for label in given if not 0 <= label < len(classes)]:
            raise UserError(f"{path} has label {beyond[0]}, but there are {len(classes)} classes (0 to {len(classes) - 1})")
        called = called if isinstance(called, list) and len(called) == len(rows) else range(len(rows))
        names += [f"{path.name}/{name}" for name in called]
        labels += given
        pixels.append(rows)
        of.append(np.full(len(rows), number, dtype=np.int32))
        found = os.stat(path)
        states.append((found.st_size, found.st_mtime_ns))
    return names, labels, classes, Rows(paths, tuple(states), np.concatenate(of), np.concatenate(pixels))


def published_test(root: Path) -> Path | None:
    """The validation pictures of CIFAR-10 as folders, which are published as ``test/``; None where it is another data path."""
    folders = [_folders(root / name) for name in ("train", "test")]
    return root / "test" if folders[0] == folders[1] == set(CLASSES) and not (root / "val").exists() else None


def _folders(parent: Path) -> set[str]:
    return {entry.name for entry in os.scandir(parent) if entry.is_dir()} if parent.is_dir() else set()


def _content(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"no such file {path}: the Python version of CIFAR-10 has data_batch_1 to data_batch_5 and test_batch")
    with open(path, "rb") as file:
        content = load_arrays(file, str(path), encoding="latin1")
    if not isinstance(content, dict):
        raise UserError(f"{path} is no batch of CIFAR-10: it holds a {type(content).__name__}")
    return content


def _binary_path(folder: Path, name: str) -> Path:
    """Where a binary batch is: in the folder, or, the test batch, in the guides' folder beside it."""
    path, verify = folder / f"{name}{BINARY}", folder.parent / VERIFY / f"{name}{BINARY}"
    return verify if not path.is_file() and verify.is_file() else path


def _binary_content(path: Path) -> dict[str, Any]:
    """A binary batch as a Python batch has it, without names of files."""
    if not path.is_file():
        raise UserError(
            f"no such file {path}: the binary version of CIFAR-10 has data_batch_1.bin to data_batch_5.bin and test_batch.bin"
        )
    content, row = np.fromfile(path, dtype=np.uint8), 1 + 3 * SIDE * SIDE
    if not content.size or content.size % row:
        raise UserError(f"{path} is no batch of CIFAR-10: its {content.size} bytes are no whole number of pictures of {row} bytes")
    rows = content.reshape(-1, row)
    return {"data": np.ascontiguousarray(rows[:, 1:]), "labels": rows[:, 0].tolist()}


def _binary_classes(meta: Path) -> tuple[str, ...]:
    if not meta.is_file():
        return CLASSES
    try:
        names = tuple(name for line in meta.read_text("utf-8").splitlines() if (name := line.strip()))
    except UnicodeDecodeError as error:
        raise UserError(f"{meta} is no list of class names: take the file of the published archive") from error
    if not names:
        raise UserError(f"{meta} has no class names: take the file of the published archive")
    return names


def _classes(meta: Path) -> tuple[str, ...]:
    names: Any = _content(meta).get("label_names") if meta.is_file() else list(CLASSES)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{meta} has no label_names: take the file of the published archive")
    return tuple(names)
