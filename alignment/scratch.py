"""Temporary folders of this process, which are gone at its end, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

PREFIX = "alignment_patch_"
_HELD = ".held"  # a file that is locked while its folder is in use; the kernel lets the lock go with the process


class AskedToStop(SystemExit, KeyboardInterrupt):
    """A signal asks this process to stop. As after Ctrl-C, a runner of tests ends, too, and no test counts as failed."""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, removed on the way out, also where SIGTERM or SIGHUP asks the process to stop.

    What a process has left that was killed is removed when the next one makes such a folder.
    """
    _sweep()
    with _leaving_at_stop(), tempfile.TemporaryDirectory(prefix=PREFIX) as made:
        with (Path(made) / f"{_HELD}.new").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            os.rename(held.name, Path(made) / _HELD)  # under this name it is never seen without its lock
            yield Path(made)


@contextlib.contextmanager
def report_folder(report: str | os.PathLike | None) -> Iterator[Path]:
    """The folder of a report; where None is given, a temporary one, which nothing is left of where no report was made."""
    if report is not None:
        yield Path(report)
        return
    with contextlib.ExitStack() as removed, _leaving_at_stop():
        folder = Path(tempfile.mkdtemp(prefix="alignment_"))
        removed.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder
        removed.pop_all()


def _sweep() -> None:
    """Remove the folders whose process has ended."""
    for file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_HELD}"):
        with contextlib.suppress(OSError), file.open("r+") as held:  # another user's, in use, or gone meanwhile
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)


@contextlib.contextmanager
def _leaving_at_stop() -> Iterator[None]:
    """Let a signal that would end the process at once raise SystemExit in it; handlers of somebody else stay."""

    def leave(number: int, frame: object) -> None:
        raise AskedToStop(128 + number)

    main = threading.current_thread() is threading.main_thread()
    taken = [one for one in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(one) == signal.SIG_DFL]
    for one in taken:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)
