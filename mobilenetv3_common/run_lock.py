"""One run, one folder: a lock that the kernel lets go when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import ensure_writable_dir

LOCK = ".lock"
HOLDER = b"process "  # how the line of a lock begins
NOT_OURS = "{} is not a run's lock: move it away, or choose another --output-dir"


@contextlib.contextmanager
def run_lock(folder: str | os.PathLike, first: bool = True) -> Iterator[None]:
    """Hold a folder for one run, on rank 0 (``first``); made if need be, and removed again if nothing was written there.

    The lock is a record lock (``fcntl.lockf``) on a file of the folder. The kernel keeps it for the process: not for its
    loader workers, and not beyond a crash or a reboot. What the file says only names the holder. On a file system without
    locks there is a warning.

    Raises:
        UserError: the folder cannot be written, another run holds it, or the lock's name is another file's.
    """
    if not first:
        yield
        return
    made = not Path(folder).exists()
    path = ensure_writable_dir(folder) / LOCK
    handle = _locked(path)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)  # while it is held: whoever waits for the name locks a new file
            os.close(handle)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def at_work(folder: str | os.PathLike) -> bool:
    """Whether a run of this machine is at work in a folder; False where its lock cannot be looked at."""
    try:
        handle = os.open(Path(folder) / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    finally:
        os.close(handle)
    return False


def _locked(path: Path) -> int | None:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if path.is_symlink():
                raise UserError(NOT_OURS.format(path)) from error
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                print(f"warning: {path} cannot be locked ({error.strerror}): start no second run there", file=sys.stderr)
                return None
            raise UserError(
                f"another run is at work in {path.parent} ({holder or 'its process is not known'}): wait for its end, or choose "
                "another --output-dir"
            ) from error
        if _still_there(path, handle):
            if not _is_lock(handle):
                os.close(handle)
                raise UserError(NOT_OURS.format(path))
            os.truncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            return handle
        os.close(handle)  # its holder removed it meanwhile


def _is_lock(handle: int) -> bool:
    """Whether an open file is one that a run locks: empty, or with the line that names its holder."""
    return stat.S_ISREG(os.fstat(handle).st_mode) and os.pread(handle, len(HOLDER), 0) in (b"", HOLDER)


def _still_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
