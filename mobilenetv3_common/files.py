"""Files that are either whole or absent, and directories that are known to be writable before work starts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from mobilenetv3_common.errors import UserError


@contextlib.contextmanager
def atomic_open(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside ``path`` and move it into place only when the block ends without an error.

    A reader sees the old file or the new one, never a half-written one. Raises ``UserError`` where the directory
    is missing or cannot be written, or the disk is full; the old file is then untouched. So it does where ``path`` is a folder,
    a pipe or a device, which the move would replace.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise UserError(f"cannot write {path}: it is a folder, a pipe or a device; give the name of a file")
    encoding = None if "b" in mode else "utf-8"
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(handle, 0o666 & ~umask)
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def ensure_writable_dir(path: str | os.PathLike) -> Path:
    """Create ``path`` if needed and prove by writing a file that it can be written.

    Raises ``UserError`` naming the directory otherwise.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(
            f"cannot write in directory {path}: {error.strerror or error}; choose another directory or mend its permissions"
        ) from error
    return path


@contextlib.contextmanager
def gone_on_failure(path: str | os.PathLike) -> Iterator[Path]:
    """``ensure_writable_dir``, of which nothing new stays where the block fails and has left it empty."""
    path = Path(path)
    made = [one for one in (path, *path.parents) if not one.exists()]
    try:
        yield ensure_writable_dir(path)
    except BaseException:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()
        raise


def regular_file(path: str | os.PathLike) -> bool:
    """Whether there is a file; what has the name and is none is refused, since it would be passed over, or never end.

    Raises:
        UserError: it is a folder, a pipe, a device, or a link that leads nowhere.
    """
    if os.path.isfile(path):
        return True
    if os.path.lexists(path):
        raise UserError(
            f"{path} is no regular file, but a folder, a pipe, a device or a link to nothing: remove it or move it away"
        )
    return False


def refuse_special(path: str | os.PathLike) -> None:
    """Refuse a pipe or a device in the place of a file that somebody gives: opening the one waits, and the other has no end.

    Raises:
        UserError: it is one.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UserError(f"{path} is a pipe or a device: give a file")


# First bytes of what stands where somebody expects weights, a record or pictures -> what it is, and what to do.
STAND_INS = {
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself: fetch that with git lfs pull",
    b"<!doctype": "a web page, not the file itself: download it again, by the address of the file",
    b"<html": "a web page, not the file itself: download it again, by the address of the file",
    b"<?xml": "an XML page, e.g. an error of a store, not the file itself: download it again",
    b"\x1f\x8b": "compressed with gzip: unpack it first (gunzip, tar)",
    b"\x28\xb5\x2f\xfd": "compressed with zstandard: unpack it first (zstd -d)",
    b"\xfd7zXZ\x00": "compressed with xz: unpack it first (unxz)",
    b"\x89HDF\r\n": "an HDF5 file, e.g. of Keras, which is not read: save its arrays with PyTorch, Paddle or safetensors",
    b"GGUF": "a GGUF file, which is not read: give the weights from which it was made",
}


def stand_in(head: bytes) -> str:
    """What a file is that is whole, but not the one that is meant, in words; empty where it may be the right one.

    Args:
        head: its first bytes.
    """
    plain = head[:64].lstrip().lower()
    return next((words for first, words in STAND_INS.items() if plain.startswith(first.lower())), "")


def refuse_stand_in(path: str | os.PathLike) -> None:
    """Refuse a file by its first bytes.

    Raises:
        UserError: it is one of ``STAND_INS``.
    """
    refuse_special(path)
    with open(path, "rb") as file:
        if words := stand_in(file.read(64)):
            raise UserError(f"{path} is {words}")


def sha256_of(path: str | os.PathLike) -> str:
    """Hexadecimal SHA-256 of a file, read in chunks."""
    refuse_special(path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
