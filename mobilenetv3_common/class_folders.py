"""The picture files in class folders: regular files alone, each once, whatever links lead where."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

from mobilenetv3_common.columns import Builder
from mobilenetv3_common.errors import UserError, shown

LEFT_BEHIND = (".", "__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found")  # what programs leave
Identity = tuple[int, int]  # device and inode


def pictures_of_classes(
    root: Path,
    folder: Path,
    extensions: tuple[str, ...],
    pictures: Builder,
    visited: Callable[[str], None],
    odd: Callable[[str], None],
) -> list[str]:
    """The pictures of ``folder/CLASS/**``, classes and files in sorted order as torchvision's ``ImageFolder`` has them.

    A link to a folder is followed once: one that leads back to where it is, or to a folder that was already seen in its
    class, adds nothing. A link to a file that stands in its class as well adds nothing.

    Args:
        root: names are relative to it.
        folder: holds a folder a class.
        extensions: of picture files, in lower case.
        pictures: gets the name and label of each.
        visited: called with each folder before it is listed.
        odd: called with what can be listed, but is no class or picture that somebody meant: what it is, and the fix.

    Returns:
        the classes' names.

    Raises:
        UserError: a class has no picture, or a name that is not UTF-8; a picture is no regular file; a link leads to
            another class; a folder cannot be read.
    """
    visited(str(folder))
    try:
        classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        homes = {_identity(folder / name): name for name in classes}
        above = {_identity(place) for place in (folder, *folder.resolve().parents)}
    except OSError as error:
        raise UserError(f"cannot read data folder {folder}: {error.strerror}") from error
    if len(homes) < len(classes):
        twin = next(name for name in classes if homes[_identity(folder / name)] != name)
        raise UserError(f"{folder / twin} and {folder / homes[_identity(folder / twin)]} are one folder: remove the link")
    for said in _odd_classes(folder, classes):
        odd(said)
    prefix = folder.relative_to(root).as_posix()
    for label, name in enumerate(classes):
        if not _is_text(name):
            raise UserError(f"class folder {os.fsencode(folder / name)!r} has a name that is not UTF-8: rename it")
        walk = _ClassWalk(folder / name, homes, above, extensions, visited)
        found = [prefix + path[len(str(folder)) :].replace(os.sep, "/") for path in walk.files()]
        if not found:
            raise UserError(f"class folder {folder / name} holds no picture: remove the folder or fill it")
        found.sort(key=lambda path: path.rsplit("/", 1))
        hidden = [path for path in found if "/." in path[len(prefix) + len(name) + 1 :]]
        if hidden:
            more = f", and {len(hidden) - 1} more of this class," if len(hidden) > 1 else ""
            odd(
                f"{shown(root / hidden[0])} is hidden, as are the files that macOS writes beside pictures ('._*') and a notebook's "
                f"copies: remove it{more} or rename it"
            )
        pictures.extend(found, label)
    return classes


def left_behind(name: str) -> bool:
    """Whether a folder's name is one that programs leave behind, and no class's."""
    return name.startswith(LEFT_BEHIND)


def _odd_classes(folder: Path, classes: list[str]) -> list[str]:
    """What is wrong with the names of class folders, each with its fix."""
    said = [
        f"class folder {shown(folder / name)} was left behind by a program, and would be a class of its own: remove it"
        for name in classes
        if left_behind(name)
    ]
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
    ) -> None:
        self.home, self.homes, self.extensions, self.visited = home, homes, extensions, visited
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
                        (links if entry.is_symlink() else folders).append(entry.path)
                    elif entry.name.lower().endswith(self.extensions):
                        if not entry.is_file():
                            raise UserError(
                                f"{shown(entry.path)} is {_kind(entry.path)}: remove it, only regular files are pictures"
                            )
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
