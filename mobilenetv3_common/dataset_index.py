"""Which pictures a split has, in which order, with which labels: ImageNet folders, list files, tar shards or CIFAR-10."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import unicodedata
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mobilenetv3_common.cifar import Rows, find_batches, published_test, read_batches
from mobilenetv3_common.class_folders import PassedOver, left_behind, pictures_of_classes
from mobilenetv3_common.class_list import read_class_list
from mobilenetv3_common.class_names import MAX_CLASSES, are_numbers, difference, numbered
from mobilenetv3_common.columns import Builder, Labels, Names
from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.files import regular_file, sha256_of
from mobilenetv3_common.image import IMAGE_EXTENSIONS
from mobilenetv3_common.index_cache import Listed, Stamps, cached, stamp
from mobilenetv3_common.shards import Places, PlacesBuilder, find_shards, list_shard, picture_twice

SPLITS = ("train", "val")
OTHER_NAMES = {"train": ("train", "training", "train_set"), "val": ("val", "valid", "validation", "test", "testing", "dev", "eval")}
CLASSES_FILE = "classes.txt"


class _Digest(NamedTuple):
    """The digest of these very columns, so that a million names are hashed once."""

    names: Sequence[str]
    labels: Sequence[int]
    value: str


@dataclass(frozen=True)
class DatasetIndex:
    """The samples of one split.

    Attributes:
        root: the data path.
        names: file names relative to ``root``, one a sample.
        labels: class number of each sample, 0 .. ``num_classes`` - 1.
        classes: name of each class: its folder's, its line's in classes.txt, or its number as text.
        source: the folder or list file that was read.
        named: whether ``classes`` are names; False where a list has numbers alone.
        odd: why no run should use the split, though it can be listed; empty where nothing is wrong.
        passed: what the listing of folders left out.
        places: where in its shards each sample is; None for files.
        rows: where in the batches of CIFAR-10 each sample is; None for others.
    """

    root: Path
    names: Sequence[str]
    labels: Sequence[int]
    classes: tuple[str, ...]
    source: Path = Path()
    named: bool = True
    odd: str = field(default="", compare=False)
    passed: PassedOver = field(default_factory=PassedOver, compare=False, repr=False)
    places: Places | None = field(default=None, compare=False, repr=False)
    rows: Rows | None = field(default=None, compare=False, repr=False)
    _known: _Digest | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def notes(self) -> tuple[str, ...]:
        """What a user has to know of the listing, a line each: classes without a picture, and what was left out."""
        said, empty = list(self.passed.lines()), empty_classes(self) if self.named else []
        if empty:
            said.insert(
                0,
                f"{len(empty)} of {self.num_classes} classes have no picture and keep their numbers; first: class {empty[0]}, "
                f"{shown(self.classes[empty[0]])} (--strict-classes makes this an error)",
            )
        return tuple(f"{shown(self.source)}: {line}" for line in said)

    def with_classes(self, num_classes: int) -> DatasetIndex:
        """The same pictures with names for ``num_classes`` classes; those that no picture has are named by their number."""
        return replace(self, classes=self.classes + numbered(len(self.classes), num_classes))

    def in_classes(self, classes: tuple[str, ...]) -> DatasetIndex:
        """The same pictures with labels among ``classes``, found by name; every class of this index has to be one of them."""
        if self.classes == classes:
            return self
        place = {name: label for label, name in enumerate(classes)}
        moved = np.array([place[name] for name in self.classes], dtype=np.int32)
        return replace(self, labels=Labels(moved[np.asarray(self.labels)]), classes=classes)

    def take(self, chosen: Sequence[int]) -> DatasetIndex:
        """Some of the pictures, by their numbers."""
        names, labels = tuple(self.names[i] for i in chosen), tuple(self.labels[i] for i in chosen)
        places, rows = self.places and self.places.take(chosen), self.rows and self.rows.take(chosen)
        return replace(self, names=names, labels=labels, places=places, rows=rows)

    def digest(self) -> str:
        """SHA-256 over every picture's name and label, in order: equal for equal splits, wherever the data path is."""
        known = self._known
        if known is not None and known.names is self.names and known.labels is self.labels:
            return known.value
        return _digest(self.names, self.labels)

    def path(self, index: int) -> os.PathLike:
        """What ``image.decode_image`` decodes: a file, or a member of a shard."""
        name = self.names[index]
        held = self.places or self.rows
        return self.root / name if held is None else held.member(index, name)


def _digest(names: Sequence[str], labels: Sequence[int]) -> str:
    digest, between = hashlib.sha256(), ""
    for name, label in zip(names, labels, strict=True):
        digest.update(f"{between}{name} {label}".encode(errors="surrogateescape"))
        between = "\n"
    return digest.hexdigest()


def index_dataset(data_path: str | os.PathLike, split: str, num_classes: int | None = None) -> DatasetIndex:
    """List one split of a data path.

    ``SPLIT_list.txt`` (lines of ``relative/path label``) is used where it exists, else the folder ``SPLIT/CLASS/*``
    with classes and files in sorted order, as torchvision's ``ImageFolder`` orders them. Beside list files, ``classes.txt``
    gives the classes' names, one a line; without it their numbers are their names. Where there is neither list nor folder,
    the tar shards ``SPLIT-*.tar`` are read, in the order of their names, with ``classes.txt`` as beside list files; or CIFAR-10's
    batches, Python or binary, in the data path or in its ``cifar-10-batches-py`` or ``cifar-10-batches-bin``. Folders of CIFAR-10
    may be called ``train`` and ``test``.

    Args:
        data_path: a folder in ImageNet layout, with list files or with shards.
        split: ``"train"`` or ``"val"``.
        num_classes: refuse labels outside 0 .. ``num_classes`` - 1, and more class folders than that.

    Raises:
        UserError: the folder is missing or empty, a list line is malformed, a listed file is missing, a label is out of
            range, or has no name in classes.txt; a shard is damaged.
    """
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}: use one of {', '.join(SPLITS)}")
    root = Path(data_path)
    if not root.is_dir():
        raise UserError(f"data path {root} is not a folder: give one with train/ and val/ or train_list.txt and val_list.txt")
    if regular_file(root / f"{split}_list.txt"):
        return _from_list(root, root / f"{split}_list.txt", num_classes)
    if not (root / split).is_dir() and (shards := find_shards(root, split)):
        return _from_shards(root, split, shards, num_classes)
    if not (root / split).is_dir() and (batches := find_batches(root)):
        return _from_cifar(root, split, batches, num_classes)
    return _from_folders(root, split, num_classes)


def index_splits(
    data_path: str | os.PathLike, num_classes: int | None = None, match: str = "name", strict: bool = False
) -> tuple[DatasetIndex, DatasetIndex]:
    """Both splits of a data path, with one list of classes: those of the training pictures.

    Args:
        data_path: as for ``index_dataset``.
        num_classes: classes of the model, by default those of the training pictures.
        match: how validation's classes are found among training's: ``"name"``, every one by its name; ``"subset"``, likewise,
            but some may lack validation pictures; ``"position"``, by their number, whatever they are called.
        strict: refuse classes without a picture.

    Returns:
        Training and validation pictures.

    Raises:
        UserError: as ``index_dataset``; or a class is missing or too many, or only one of the two has names.
    """
    train = usable(index_dataset(data_path, "train", num_classes), strict)
    if num_classes is None:
        refuse_one_class(train)
        if match == "name":
            _refuse_count_from_one(train)
    unseen = frozenset(train.classes[label] for label in empty_classes(train))
    train = train.with_classes(num_classes or 0)
    val = index_validation(data_path, train.num_classes, match, strict)
    return train, matched(val, train.classes, str(train.source), match, unseen)


def empty_classes(index: DatasetIndex) -> list[int]:
    """Numbers of the classes that no picture has."""
    return np.flatnonzero(np.bincount(np.asarray(index.labels), minlength=index.num_classes) == 0).tolist()


def usable(index: DatasetIndex, strict: bool = False) -> DatasetIndex:
    """The same pictures.

    Raises:
        UserError: no run should use them: ``index.odd`` says why; or, with ``strict``, a class has no picture.
    """
    if index.odd:
        raise UserError(index.odd)
    if strict and index.named and (empty := empty_classes(index)):
        more = f", nor do {len(empty) - 1} more" if len(empty) > 1 else ""
        raise UserError(
            f"{index.source}: class {shown(index.classes[empty[0]])} holds no picture{more}: fill or remove it, or leave "
            "--strict-classes out"
        )
    return index


def refuse_one_class(train: DatasetIndex) -> None:
    """Raise ``UserError`` where there is one class alone."""
    if train.num_classes == 1:
        raise UserError(
            f"{train.source} has one class, {train.classes[0]!r}, from which nothing can be learnt: give each class a folder or a "
            "label of its own there, or say --num-classes N for a network of more classes"
        )


def _refuse_count_from_one(train: DatasetIndex) -> None:
    """Refuse a list or shards of numbered classes of which the first has no training picture."""
    if train.named or 0 not in empty_classes(train):
        return
    last = int(np.max(np.asarray(train.labels)))
    raise UserError(
        f"{train.source} has no picture with label 0, and its last label is {last}: count labels from 0, or give --num-classes "
        f"{train.num_classes} to train classes without pictures"
    )


def index_validation(data_path: str | os.PathLike, num_classes: int, match: str = "name", strict: bool = False) -> DatasetIndex:
    """The validation pictures under their own classes, which ``matched`` then finds among those of a model.

    Raises:
        UserError: as ``index_dataset``; class folders that are too many are ``matched``'s matter, which names them.
    """
    limited = match == "position" or _numbered(Path(data_path), "val")
    return usable(index_dataset(data_path, "val", num_classes if limited else None), strict)


def _numbered(root: Path, split: str) -> bool:
    """Whether a split's labels are numbers that somebody wrote: in a list file or in shards."""
    return regular_file(root / f"{split}_list.txt") or (not (root / split).is_dir() and bool(find_shards(root, split)))


def matched(
    val: DatasetIndex, classes: tuple[str, ...], owner: str, match: str = "name", unseen: Collection[str] = ()
) -> DatasetIndex:
    """Validation pictures with labels among a model's classes.

    Args:
        val: the pictures.
        classes: what the labels of the model mean.
        owner: whose classes those are, for the message.
        match: as for ``index_splits``.
        unseen: classes without a training picture, which validation may lack.

    Raises:
        UserError: as ``index_splits``.
    """
    if match == "position" or (not val.named and are_numbers(classes[: val.num_classes])):
        return val.with_classes(len(classes))
    if not val.named:
        raise UserError(
            f"{val.source} numbers its classes, {owner} names them: write the names in {val.root / CLASSES_FILE}, one a line, "
            "or give --match-classes position to compare numbers"
        )
    end, numbers = len(classes), are_numbers(classes)
    while not numbers and classes[end - 1] == str(end - 1) and classes[end - 1] not in val.classes:
        end -= 1  # outputs beyond the data's classes, which --num-classes asked for
    wanted = [name for name in classes[:end] if name not in unseen or name in val.classes]
    if said := difference(val.classes, wanted, str(val.source), owner, match == "subset", ordered=False):
        raise UserError(f"{said}: rename or fill the class, or see --match-classes in --help")
    return val.in_classes(classes)


def training_classes(data_path: str | os.PathLike) -> tuple[str, ...] | None:
    """Names of the training classes, without a look at the pictures; None where there is no training split, or no names."""
    root = Path(data_path)
    if _numbered(root, "train"):
        return _listed_classes(root, 1) if regular_file(root / CLASSES_FILE) else None
    if not (root / "train").is_dir():
        return index_dataset(root, "train").classes if find_batches(root) else None
    return tuple(sorted(entry.name for entry in os.scandir(root / "train") if entry.is_dir() and not left_behind(entry.name)))


def _from_cifar(root: Path, split: str, folder: Path, num_classes: int | None) -> DatasetIndex:
    names, labels, classes, rows = read_batches(folder, split)
    if num_classes is not None and len(classes) > num_classes:
        raise UserError(f"{folder} has {len(classes)} classes, but the model has {num_classes}: give --num-classes {len(classes)}")
    return DatasetIndex(root, tuple(names), tuple(labels), classes, folder, rows=rows)


def has_split(root: Path, split: str) -> bool:
    """Whether a data path has pictures of a split, in any of the forms that ``index_dataset`` reads."""
    batches = (root / f"{split}_list.txt").is_file() or (root / split).is_dir() or find_shards(root, split) or find_batches(root)
    return bool(batches or (split == "val" and published_test(root)))


def _from_folders(root: Path, split: str, num_classes: int | None) -> DatasetIndex:
    folder = (published_test(root) if split == "val" else None) or root / split
    if not folder.is_dir():
        hint = elsewhere(root, split)
        if not hint and not has_split(root, "val") and any(e.is_dir() and not left_behind(e.name) for e in os.scandir(root)):
            hint = "; with --val-share 0.2 a fifth of the pictures of each class is held out for validation"
        raise UserError(
            f"data path {root} has neither a folder {split}/ nor a file {split}_list.txt, nor shards {split}-*.tar{hint}"
        )
    return index_folder(root, folder, num_classes)


def elsewhere(root: Path, split: str = "train") -> str:
    """Where the class folders of a split are, if they are in a folder of another name or one folder further in; else empty."""
    found = [entry.name for entry in sorted(os.scandir(root), key=lambda entry: entry.name) if _holds_folders(entry)]
    if name := next((name for name in found if name.lower() in OTHER_NAMES[split] and name != split), ""):
        return f"; it has {shown(name)}/: call that folder {split}/"
    further = [root / name for name in found if any((root / name / one).is_dir() for one in SPLITS)]
    return f"; {shown(further[0])} has: give that as the data path" if len(further) == 1 else ""


def _holds_folders(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir() and not left_behind(entry.name) and any(inner.is_dir() for inner in os.scandir(entry))
    return False


def index_folder(root: Path, folder: Path, num_classes: int | None = None) -> DatasetIndex:
    """List the class folders of ``folder``, which is ``root`` or lies in it; as ``index_dataset`` does those of a split.

    Raises:
        UserError: as there; or the folders in ``root`` are splits under other names, and no classes.
    """
    if folder == root and root.is_dir() and (hint := elsewhere(root)):
        raise UserError(f"data path {root} has no class folders, and no folder train/{hint}")
    listed = cached(root, folder, "folders", functools.partial(_list_folders, root, folder))
    classes = tuple(listed.meta["classes"])
    if num_classes is not None and len(classes) > num_classes:
        beyond = classes[num_classes]
        raise UserError(
            f"{folder / beyond} is class {num_classes}, but the model has {num_classes} classes (0 to {num_classes - 1}): "
            f"give --num-classes {len(classes)}, or remove the folders that are too many"
        )
    return _of_listed(root, listed, classes, folder, True)


def _list_folders(root: Path, folder: Path) -> Listed:
    pictures, folders, here, odd, passed = Builder(), dict[str, list[int]](), os.getcwd(), list[str](), PassedOver()

    def visited(path: str) -> None:
        folders[os.path.join(here, path)] = stamp(path)

    classes = pictures_of_classes(root, folder, IMAGE_EXTENSIONS, pictures, visited, odd.append, passed)
    if not pictures:
        if passed.loose:
            raise UserError(
                f"data folder {folder} holds pictures, but no class folder: move each into {folder.name}/CLASS/, or list them with "
                f"their labels in {folder.name}_list.txt"
            )
        left_out = f" ({'; '.join(passed.lines())})" if passed.counts else ""
        raise UserError(f"data folder {folder} holds no class folder with pictures{left_out}: put pictures into {folder}/CLASS/")
    return _listed(pictures, folders, {"classes": classes, "odd": odd[0] if odd else "", "passed": passed.as_json()})


def _listed(pictures: Builder, folders: Stamps, meta: dict) -> Listed:
    arrays = pictures.arrays()
    digest = _digest(Names(arrays["text"], arrays["ends"]), Labels(arrays["labels"]))
    return Listed(arrays, {**meta, "digest": digest}, folders)


def _of_listed(root: Path, listed: Listed, classes: tuple[str, ...], source: Path, named: bool) -> DatasetIndex:
    names, labels = Names(listed.arrays["text"], listed.arrays["ends"]), Labels(listed.arrays["labels"])
    known = _Digest(names, labels, listed.meta["digest"])
    passed = PassedOver(**listed.meta.get("passed", {}))
    return DatasetIndex(root, names, labels, classes, source, named, listed.meta.get("odd", ""), passed, _known=known)


def _from_list(root: Path, list_file: Path, num_classes: int | None) -> DatasetIndex:
    limit = MAX_CLASSES if num_classes is None else num_classes
    whose = "there may be" if num_classes is None else "the model has"
    try:
        content = sha256_of(list_file)
    except OSError as error:
        raise UserError(f"cannot read {list_file}: {error}") from error
    read = functools.partial(_read_list, root, list_file, limit, whose)
    listed = cached(root, list_file, content, read)
    if listed.meta["labels"] > limit:
        listed = read()  # says which line has a label beyond them
    classes = _listed_classes(root, listed.meta["labels"])
    return _of_listed(root, listed, classes, list_file, regular_file(root / CLASSES_FILE))


def _read_list(root: Path, list_file: Path, limit: int, whose: str) -> Listed:
    """The pictures of a list file; ``whose`` words begin the message about a label of ``limit`` or more."""
    pictures, folders, labels, seen = Builder(), dict[str, list[int]](), 0, array("q")
    base = os.path.join(os.getcwd(), root)
    try:
        with open(list_file, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not (line := line.strip()):
                    continue
                name, label = _name_and_label(line, f"{list_file}:{number}", limit, whose)
                path = os.path.join(base, name)
                folder = os.path.dirname(path)
                if folder not in folders and os.path.isdir(folder):
                    folders[folder] = stamp(folder)
                if "\0" in name or not os.path.isfile(path):
                    raise UserError(f"{list_file}:{number}: {_lacking(path)} {root / name}: correct or remove the line")
                pictures.add(name, label)
                seen.append(hash(_plain(name)))
                labels = max(labels, label + 1)
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {list_file}: {error}: save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {list_file}: {error}") from error
    if not pictures:
        raise UserError(f"{list_file} lists no picture")
    return _listed(pictures, folders, {"labels": labels, "odd": _listed_again(list_file, np.frombuffer(seen, dtype=np.int64))})


def _plain(name: str) -> str:
    return os.path.normpath(name) if "./" in name or "//" in name else name


def _listed_again(list_file: Path, hashes: np.ndarray) -> str:
    """Where a list has a picture for the second time, in words.

    Args:
        list_file: which was read.
        hashes: int64 (N,), of its names in order; ten million bytes where the names would take two hundred.
    """
    values, counts = np.unique(hashes, return_counts=True)
    if len(values) == len(hashes):
        return ""
    several, first = set(values[counts > 1].tolist()), dict[str, int]()
    with open(list_file, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            parts = line.strip().rsplit(None, 1)
            if not parts or hash(plain := _plain(parts[0])) not in several:
                continue
            if (before := first.setdefault(plain, number)) != number:
                return f"{list_file}:{number}: {parts[0]} is in line {before} already: remove one of the two lines"
    return ""


def _lacking(path: str) -> str:
    """What is wrong with a name that is no file's."""
    if "\0" in path:
        return "no such file"
    if os.path.lexists(path):
        return "no regular file, but a folder, a pipe, a device or a link to nothing:"
    if any(os.path.isfile(unicodedata.normalize(form, path)) for form in ("NFC", "NFD")):
        return "no such file, but one whose name is the same in another Unicode form:"
    if os.path.isfile(path.replace("\\", "/")):
        return "no such file, but one with / in place of each \\:"
    return "no such file"


def _from_shards(root: Path, split: str, shards: list[Path], num_classes: int | None) -> DatasetIndex:
    limit = MAX_CLASSES if num_classes is None else num_classes
    whose = "there may be" if num_classes is None else "the model has"
    read = functools.partial(_read_shards, root, split, shards, limit, whose)
    listed = cached(root, root, "\n".join(path.name for path in shards), read, f"{split} shards")
    if listed.meta["labels"] > limit:
        listed = read()  # says which member has a label beyond them
    classes = _listed_classes(root, listed.meta["labels"])
    index = _of_listed(root, listed, classes, root / f"{split}-*.tar", regular_file(root / CLASSES_FILE))
    states = tuple((size, changed) for _, _, size, changed in listed.folders.values())
    arrays = listed.arrays
    return replace(index, places=Places(tuple(shards), states, arrays["shard"], arrays["offset"], arrays["size"]))


def _read_shards(root: Path, split: str, shards: list[Path], limit: int, whose: str) -> Listed:
    pictures = PlacesBuilder()
    states = {os.path.join(os.getcwd(), path): stamp(path) for path in shards}
    for number, path in enumerate(shards):
        pictures.add_shard(number, list_shard(path, IMAGE_EXTENSIONS, limit, whose))
    if not pictures:
        raise UserError(f"{root / split}-*.tar hold no picture")
    arrays = pictures.arrays()
    twice = picture_twice(shards, Names(arrays["text"], arrays["ends"]), arrays)
    return _listed(pictures, states, {"labels": max(pictures.labels) + 1, "odd": twice})


def _name_and_label(line: str, where: str, limit: int, whose: str) -> tuple[str, int]:
    *names, label = line.rsplit(None, 1)  # a blank or a tab
    name = names[0].strip() if names else ""
    if not name or not label.isascii() or not label.isdigit():
        raise UserError(f"{where}: expected 'relative/path label' with a whole label of 0 or more, found {line!r}")
    if len(label) > 18 or int(label) >= limit:
        raise UserError(f"{where}: {name} has label {label}, but {whose} {limit} classes (0 to {limit - 1}): correct the label")
    return name, int(label)


def _listed_classes(root: Path, needed: int) -> tuple[str, ...]:
    path = root / CLASSES_FILE
    if not regular_file(path):
        return tuple(str(number) for number in range(needed))
    classes = read_class_list(path, _folders_of_labels(root))
    if len(classes) < needed:
        raise UserError(f"{path} names {len(classes)} classes, but a list has label {needed - 1}: name all, or remove the file")
    twice = sorted({name for name in classes if classes.count(name) > 1}) if len(set(classes)) < len(classes) else []
    if twice:
        raise UserError(f"{path} names {twice[0]!r} twice: give each class a name of its own")
    return classes


def _folders_of_labels(root: Path) -> tuple[str, ...]:
    """The folder of each label's first picture in a list, where every label has one of its own and both lists agree; else empty."""
    folders: dict[str, str] = {}
    for split in SPLITS:
        here: dict[str, str] = {}
        listed = root / f"{split}_list.txt"
        if not listed.is_file():  # a pipe would wait for whoever writes into it
            continue
        with contextlib.suppress(OSError, UnicodeDecodeError), open(listed, encoding="utf-8-sig") as file:
            for line in file:
                *name, label = line.rsplit(None, 1) or [""]
                if name and label not in here:
                    here[label] = os.path.basename(os.path.dirname(name[0].strip()))
        if any(folders.setdefault(label, folder) != folder for label, folder in here.items()):
            return ()  # labels mean one thing in the one list and another in the other: names do not mend that
    found = tuple(folders.get(str(label), "") for label in range(len(folders)))
    return found if all(found) and len(set(found)) == len(found) else ()
