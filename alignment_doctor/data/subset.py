"""A small copy of a data set: a few pictures of every class, as folders and list files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from alignment_doctor.data.subject import DataSubject
from mobilenetv3_common.class_list import text_of
from mobilenetv3_common.dataset_index import DatasetIndex
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from mobilenetv3_common.terminal import printable


def stratified(index: DatasetIndex, usable: np.ndarray, count: int, classes: list[int], seed: int = 0) -> list[int]:
    """Numbers of about equally many pictures of each class, ``count`` in all where there are so many.

    Args:
        index: of the split.
        usable: bool (N,), which pictures may be taken.
        count: pictures.
        classes: class numbers to take from.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    labels = np.array(index.labels)
    left = {c: rng.permutation(np.flatnonzero(usable & (labels == c))).tolist() for c in classes}
    chosen: list[int] = []
    while len(chosen) < count and any(left.values()):
        for c in classes:
            if left[c] and len(chosen) < count:
                chosen.append(left[c].pop())
    return sorted(chosen)


def write_subset(subject: DataSubject, count: int, folder: str | Path) -> str:
    """Copy ``count`` pictures of each split, with list files and ``classes.txt``.

    Where there are fewer pictures than classes, the first classes are taken, the same in each split.

    Returns:
        What was written, in one line.

    Raises:
        UserError: the folder holds something already or cannot be written, or ``count`` is below 1.
    """
    if count < 1:
        raise UserError(f"--subset must be at least 1, found {count}")
    target = Path(folder)
    if target.exists() and any(target.iterdir()):
        raise UserError(f"--subset-dir {target} is not empty: give a new folder")
    ensure_writable_dir(target)
    first = next(iter(subject.indices.values()))
    names = first.classes[:count]
    start, said = 0, []
    for split, index in subject.indices.items():
        usable = subject.good[start : start + len(index)]
        start += len(index)
        classes = [index.classes.index(name) for name in names if name in index.classes]
        chosen = stratified(index, usable, count, classes)
        lines = []
        for number in chosen:
            class_name = index.classes[index.labels[number]]
            copy = Path(split) / class_name / Path(index.names[number]).name
            if (target / copy).exists():
                copy = copy.with_name(f"{number}_{copy.name}")
            _copy(index.path(number), target / copy)
            if copy.as_posix() != printable(copy.as_posix()):
                raise UserError(f"{printable(index.names[number])}: a list file cannot hold such a name; rename the picture")
            lines.append(f"{copy.as_posix()} {names.index(class_name)}\n")
        with atomic_open(target / f"{split}_list.txt", "w") as file:
            file.writelines(lines)
        said.append(f"{len(chosen)} {split}")
    with atomic_open(target / "classes.txt", "w") as file:
        file.write(text_of(names))
    return f"{' and '.join(said)} pictures of {len(names)} classes in {target}"


def _copy(source: os.PathLike, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}") from error
