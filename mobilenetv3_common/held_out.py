"""A share of the pictures held out for validation, where a data path has no validation pictures of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from mobilenetv3_common.checkpoint import SPLIT_LISTS
from mobilenetv3_common.class_list import text_of
from mobilenetv3_common.dataset_index import (
    CLASSES_FILE,
    DatasetIndex,
    empty_classes,
    has_split,
    index_dataset,
    index_folder,
    usable,
)
from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.files import atomic_open, ensure_writable_dir


def index_held_out(
    data_path: str | os.PathLike, share: float, seed: int, num_classes: int | None = None, strict: bool = False
) -> tuple[DatasetIndex, DatasetIndex]:
    """The pictures of a data path in two parts, the second about ``share`` of each class.

    The pictures are those of ``train/``, a list or shards where the data path has them, else of its own class folders
    ``CLASS/**``. Of a class with two pictures or more at least one is held out and one is kept; a single one is trained on.

    Args:
        data_path: without validation pictures.
        share: above 0, below 1.
        seed: of the draw, which depends on it, on the class and on its number of pictures alone.
        num_classes: as of ``index_dataset``.
        strict: refuse classes without a picture.

    Returns:
        Training and validation pictures, each in the order of the whole.

    Raises:
        UserError: there are validation pictures already; the pictures cannot be listed; no class has two.
    """
    root = Path(data_path)
    if root.is_dir() and has_split(root, "val"):
        raise UserError(f"{root} has validation pictures of its own: leave --val-share out")
    whole = index_dataset(root, "train", num_classes) if has_split(root, "train") else index_folder(root, root, num_classes)
    whole = usable(whole, strict)
    labels = np.asarray(whole.labels)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels).tolist():
        places = np.flatnonzero(labels == label)
        count = min(max(round(share * len(places)), 1), len(places) - 1)
        held[np.random.default_rng((seed, label)).permutation(places)[:count]] = True
    if not held.any():
        raise UserError(f"{whole.source}: no class has two pictures, so that none can be held out: add pictures")
    train, val = whole.take(np.flatnonzero(~held).tolist()), whole.take(np.flatnonzero(held).tolist())
    return replace(train, passed=whole.passed), replace(val, passed=type(whole.passed)())


def write_lists(folder: Path, train: DatasetIndex, val: DatasetIndex) -> Path:
    """Write both parts as list files with absolute paths, and ``classes.txt``: a data path of its own for every tool.

    Returns:
        The folder of the lists, in ``folder``.

    Raises:
        UserError: a name cannot stand in a list file, the pictures lie in shards, or a file cannot be written.
    """
    target = ensure_writable_dir(folder / SPLIT_LISTS)
    for split, index in (("train", train), ("val", val)):
        if index.places is not None or index.rows is not None:
            raise UserError(
                f"--val-share: the pictures of {index.source} are no files, so that no list can name them: write them as files"
            )
        lines = []
        for name, label in zip(index.names, index.labels, strict=True):
            path = os.path.abspath(index.root / name)
            if any(sign in path for sign in "\r\n") or shown(path) != path:
                raise UserError(f"{shown(name)}: a list file cannot hold such a name; rename the picture")
            lines.append(f"{path} {label}\n")
        with atomic_open(target / f"{split}_list.txt", "w") as file:
            file.writelines(lines)
    with atomic_open(target / CLASSES_FILE, "w") as file:
        file.write(text_of(train.classes))
    return target


def single_pictures(train: DatasetIndex, val: DatasetIndex) -> str:
    """Which classes have nothing held out, in words; empty where all have."""
    lacking = [train.classes[label] for label in sorted(set(empty_classes(val)) - set(empty_classes(train)))]
    return f"classes with a single picture have none held out: {', '.join(map(shown, lacking[:5]))}" if lacking else ""
