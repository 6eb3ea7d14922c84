"""Which pictures a split has, in which order, with which labels: ImageNet folders or list files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import IMAGE_EXTENSIONS

SPLITS = ("train", "val")


@dataclass(frozen=True)
class DatasetIndex:
    """The samples of one split.

    Attributes:
        root: the data path.
        names: file names relative to ``root``, one a sample.
        labels: class number of each sample, 0 .. ``num_classes`` - 1.
        classes: name of each class: its folder's, its line's in classes.txt, or its number as text.
    """

    root: Path
    names: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def with_classes(self, num_classes: int) -> DatasetIndex:
        """The same pictures with names for ``num_classes`` classes; those that no picture has are named by their number."""
        return replace(self, classes=self.classes + tuple(str(c) for c in range(len(self.classes), num_classes)))

    def path(self, index: int) -> Path:
        return self.root / self.names[index]


def index_dataset(data_path: str | os.PathLike, split: str, num_classes: int | None = None) -> DatasetIndex:
    """List one split of a data path.

    ``SPLIT_list.txt`` (lines of ``relative/path label``) is used where it exists, else the folder ``SPLIT/CLASS/*``
    with classes and files in sorted order, as torchvision's ``ImageFolder`` orders them. Beside list files, ``classes.txt``
    gives the classes' names, one a line; without it their numbers are their names.

    Args:
        data_path: a folder in ImageNet layout or with list files.
        split: ``"train"`` or ``"val"``.
        num_classes: refuse labels outside 0 .. ``num_classes`` - 1, and more class folders than that.

    Raises:
        UserError: the folder is missing or empty, a list line is malformed, a listed file is missing, a label is out of
            range, or has no name in classes.txt.
    """
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    root = Path(data_path)
    if not root.is_dir():
        raise UserError(f"data path {root} is not a folder: give one with train/ and val/ or train_list.txt and val_list.txt")
    list_file = root / f"{split}_list.txt"
    index = _from_list(root, list_file) if list_file.is_file() else _from_folders(root, split)
    if num_classes is not None:
        for name, label in zip(index.names, index.labels, strict=True):
            if label >= num_classes:
                raise UserError(
                    f"{root}: {name} has label {label}, but the model has {num_classes} classes (0 to {num_classes - 1})"
                )
    return index


def _from_folders(root: Path, split: str) -> DatasetIndex:
    folder = root / split
    if not folder.is_dir():
        raise UserError(f"data path {root} has neither a folder {split}/ nor a file {split}_list.txt")
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    names: list[str] = []
    labels: list[int] = []
    for label, class_name in enumerate(classes):
        found = []
        for directory, _, files in os.walk(folder / class_name, followlinks=True):
            found += [Path(directory, f).relative_to(root).as_posix() for f in files if f.lower().endswith(IMAGE_EXTENSIONS)]
        if not found:
            raise UserError(f"class folder {folder / class_name} holds no picture: remove the folder or fill it")
        found.sort(key=lambda name: name.rsplit("/", 1))
        names += found
        labels += [label] * len(found)
    if not names:
        raise UserError(f"data folder {folder} holds no class folder with pictures")
    return DatasetIndex(root, tuple(names), tuple(labels), tuple(classes))


def _from_list(root: Path, list_file: Path) -> DatasetIndex:
    names: list[str] = []
    labels: list[int] = []
    try:
        lines = list_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {list_file}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        name = name.strip()
        if not name or not label.isascii() or not label.isdigit():
            raise UserError(
                f"{list_file}:{number}: expected 'relative/path label' with a whole label of 0 or more, found {line.strip()!r}"
            )
        if not (root / name).is_file():
            raise UserError(f"{list_file}:{number}: no such file {root / name}")
        names.append(name)
        labels.append(int(label))
    if not names:
        raise UserError(f"{list_file} lists no picture")
    return DatasetIndex(root, tuple(names), tuple(labels), _listed_classes(root / "classes.txt", max(labels) + 1))


def _listed_classes(path: Path, needed: int) -> tuple[str, ...]:
    if not path.is_file():
        return tuple(str(number) for number in range(needed))
    try:
        classes = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if len(classes) < needed:
        raise UserError(f"{path} names {len(classes)} classes, but a list has label {needed - 1}: name all, or remove the file")
    return classes
