"""The picture files in folders: regular files alone, each once, whatever links lead where; and what is passed over there.

Training, evaluation, prediction and the doctor list folders through these functions, so that all of them see the same pictures.
"""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobilenetv3_common.columns import Builder
from mobilenetv3_common.errors import UserError, shown
from mobilenetv3_common.image import OTHER_PICTURES
from mobilenetv3_common.picture_format import TRAINING, NotAPicture, format_of

# What programs leave.
LEFT_BEHIND = (".", "__MACOSX", "@eaDir", "#recycle", "#snapshot", "$RECYCLE.BIN", "System Volume Information", "lost+found")
# Of a picture that was not fetched to its end, is a copy of an editor, or got its name from an address.
RENAMED = re.compile(r"\.(jpe?g|png|webp|bmp|tiff?)(~|[_?:].*|\.(part|partial|bak|old|orig|tmp|temp|crdownload|download|\d+))$")
# What lies beside pictures on purpose, often one for each: not opened to see whether it is a picture under another name.
BESIDE = (".txt", ".json", ".jsonl", ".xml", ".csv", ".tsv", ".md", ".yaml", ".yml", ".html", ".xmp", ".cls", ".db", ".ini", ".log")
Identity = tuple[int, int]  # device and inode
KEPT = 50  # paths of each kind that are remembered; a data set may have a hidden file beside every picture


@dataclass
class PassedOver:
    """What a listing left out.

    Attributes:
        hidden: files and folders that programs leave behind: names that begin with a dot, ``LEFT_BEHIND``.
        unread: files whose ending is that of a picture of a kind that is not read, and pictures whose ending is none of a picture.
        loose: pictures beside the class folders.
        counts: of all, by the name of the list; a list keeps the first ``KEPT`` paths, relative to the data path.
    """

    hidden: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, path: str) -> None:
        """One more of a kind, ``"hidden"``, ``"unread"`` or ``"loose"``."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(getattr(self, kind)) < KEPT:
            getattr(self, kind).append(path)

    def lines(self) -> tuple[str, ...]:
        """What was left out, a line for each kind, with the first of its paths and what to do."""
        told = {
            "hidden": "hidden files and folders (of macOS, a notebook or a viewer of thumbnails) are skipped",
            "unread": "files are pictures that are not read, by their ending or for want of one: save them as .jpg or .png",
            "loose": "pictures lie beside the class folders and are left out: move each into its class",
        }
        return tuple(
            f"{self.counts[k]} {text}; first: {shown(getattr(self, k)[0])}" for k, text in told.items() if self.counts.get(k)
        )

    def as_json(self) -> dict[str, Any]:
        """All fields, for a stored listing; ``PassedOver(**values)`` is the reverse."""
        return {"hidden": self.hidden, "unread": self.unread, "loose": self.loose, "counts": self.counts}


def pictures_of_classes(
    root: Path,
    folder: Path,
    extensions: tuple[str, ...],
    pictures: Builder,
    visited: Callable[[str], None],
    odd: Callable[[str], None],
    passed: PassedOver,
) -> list[str]:
    """The pictures of ``folder/CLASS/**``, classes and files in sorted order as torchvision's ``ImageFolder`` has them.

    A class folder without a picture keeps its number. Hidden files and folders are skipped.

    A link to a folder is followed once: one that leads back to where it is, or to a folder that was already seen in its
    class, adds nothing. A link to a file that stands in its class as well adds nothing.

    Args:
        root: names are relative to it.
        folder: holds a folder a class.
        extensions: of picture files, in lower case.
        pictures: gets the name and label of each.
        visited: called with each folder before it is listed.
        odd: called with what can be listed, but is no class or picture that somebody meant: what it is, and the fix.
        passed: gets what is left out.

    Returns:
        the classes' names.

    Raises:
        UserError: a class has a name that is not UTF-8; a picture is no regular file; a link leads to another class; a
            folder cannot be read.
    """
    visited(str(folder))
    try:
        classes = _class_names(root, folder, extensions, passed)
        homes = {_identity(folder / name): name for name in classes}
        above = {_identity(place) for place in (folder, *folder.resolve().parents)}
    except OSError as error:
        raise UserError(f"cannot read data folder {folder}: {error.strerror}") from error
    if len(homes) < len(classes):
        twin = next(name for name in classes if homes[_identity(folder / name)] != name)
        raise UserError(f"{folder / twin} and {folder / homes[_identity(folder / twin)]} are one folder: remove the link")
    for said in _odd_classes(folder, classes):
        odd(said)

    def within(path: str) -> str:
        return prefix + path[len(str(folder)) + 1 :].replace(os.sep, "/")

    prefix = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
    for label, name in enumerate(classes):
        if not _is_text(name):
            raise UserError(f"class folder {os.fsencode(folder / name)!r} has a name that is not UTF-8: rename it")
        walk = _ClassWalk(folder / name, homes, above, extensions, visited, lambda kind, path: passed.add(kind, within(path)))
        pictures.extend(sorted(map(within, walk.files()), key=lambda path: path.rsplit("/", 1)), label)
    return classes


def pictures_below(folder: Path, extensions: tuple[str, ...]) -> tuple[list[Path], PassedOver]:
    """Every picture in a folder and the folders below it, sorted, by the rules of ``pictures_of_classes``; and what was left out.

    Raises:
        UserError: a picture is no regular file, or a folder cannot be read.
    """
    passed, here = PassedOver(), len(str(folder)) + 1
    walk = _ClassWalk(folder, {}, set(), extensions, lambda path: None, lambda kind, path: passed.add(kind, path[here:]))
    return sorted(map(Path, walk.files())), passed


def _class_names(root: Path, folder: Path, extensions: tuple[str, ...], passed: PassedOver) -> list[str]:
    """The names of the class folders, sorted; hidden ones, and pictures beside them, go to ``passed``."""
    classes = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = os.path.relpath(entry.path, root).replace(os.sep, "/")
        if entry.is_dir():
            if left_behind(entry.name):
                passed.add("hidden", path)
            else:
                classes.append(entry.name)
        elif kind := _kind_of(entry, extensions):
            passed.add("loose" if kind == "picture" else kind, path)
    return classes


def _kind_of(entry: os.DirEntry[str], extensions: tuple[str, ...]) -> str:
    """What a file is by its name: ``"picture"``, ``"hidden"``, ``"unread"``, or empty for what is no picture.

    A name without an ending, or with an unknown one, says nothing: such a file is ``"unread"`` where it begins as pictures do.
    """
    name, ending = entry.name, entry.name.lower()
    if ending.endswith(extensions):
        return "hidden" if name.startswith(".") else "picture"
    if not ending.endswith(OTHER_PICTURES) and not RENAMED.search(ending):
        told = name.startswith(".") or ending.endswith(BESIDE)
        return "unread" if not told and _begins_as_picture(entry) else ""
    return "hidden" if name.startswith(".") else "unread"


def _begins_as_picture(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError, NotAPicture):
        if entry.is_file():
            with open(entry.path, "rb") as file:
                return format_of(file.read(16), entry.name, TRAINING) != "BMP"  # two letters, as a text may begin
    return False


def left_behind(name: str) -> bool:
    """Whether a folder's name is one that programs leave behind, and no class's."""
    return name.startswith(LEFT_BEHIND)


def _odd_classes(folder: Path, classes: list[str]) -> list[str]:
    """What is wrong with the names of class folders, each with its fix."""
    said = []
    first: dict[str, str] = {}
    for name in classes:
        if (other := first.setdefault(unicodedata.normalize("NFC", name), name)) != name:
            said.append(
                f"class folders {shown(folder / other)} and {shown(folder / name)} have one name in two Unicode forms: put the "
                "pictures into one of them"
            )
    return said


class _ClassWalk:
    """One class folder's files."""

    def __init__(
        self,
        home: Path,
        homes: dict[Identity, str],
        above: set[Identity],
        extensions: tuple[str, ...],
        visited: Callable[[str], None],
        passed: Callable[[str, str], None],
    ) -> None:
        self.home, self.homes, self.extensions, self.visited, self.passed = home, homes, extensions, visited, passed
        self.seen = set(above)

    def files(self) -> list[str]:
        plain: list[str] = []
        linked: list[str] = []
        folders: list[str] = [str(self.home)]
        links: list[str] = []
        try:
            while folders or links:  # links to folders last, so that a picture is named by its own folder where it can be
                folder = folders.pop() if folders else links.pop(0)
                if not self._is_new(folder):
                    continue
                self.visited(folder)
                for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                    if entry.is_dir():
                        if left_behind(entry.name):
                            self.passed("hidden", entry.path)
                        else:
                            (links if entry.is_symlink() else folders).append(entry.path)
                    elif kind := _kind_of(entry, self.extensions):
                        if kind != "picture":
                            self.passed(kind, entry.path)
                        elif not entry.is_file():
                            raise UserError(
                                f"{shown(entry.path)} is {_kind(entry.path)}: remove it, only regular files are pictures"
                            )
                        else:
                            (linked if entry.is_symlink() else plain).append(entry.path)
            return plain + self._once(linked, plain)
        except OSError as error:
            raise UserError(f"cannot read class folder {shown(error.filename or self.home)}: {error.strerror}") from error

    def _is_new(self, folder: str) -> bool:
        """Whether a folder, or what a link leads to, was not seen in this class yet."""
        where = _identity(folder)
        if where in self.seen:
            return False
        if self.homes.get(where, self.home.name) != self.home.name:
            raise UserError(f"{shown(folder)} leads to class {self.homes[where]!r}: remove the link, a picture has one class")
        self.seen.add(where)
        return True

    @staticmethod
    def _once(linked: list[str], plain: list[str]) -> list[str]:
        """The links to files that are not in the class otherwise, each file once."""
        if not linked:
            return []
        seen = {_identity(path) for path in plain}
        kept = []
        for path in sorted(linked):
            if (where := _identity(path)) not in seen:
                seen.add(where)
                kept.append(path)
        return kept


def _identity(path: str | Path) -> Identity:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _kind(path: str) -> str:
    if os.path.islink(path):
        return "a link to nothing" if not os.path.exists(path) else "a link to something that is no regular file"
    return "no regular file (a pipe, socket or device)"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
