"""The standard streams of a command that runs for long: they may be closed when it starts, and full, gone or unread later."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import NoReturn


def keep_open() -> None:
    """Put the null device where a standard stream is closed; a file or a socket would take its number, and what is printed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def leave() -> NoReturn:
    """End this process with status 0, whatever became of its streams, and without waiting for threads that hang."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def tell(text: str, error: bool = True) -> None:
    """Print a line on standard error, or standard output, and go on where nobody takes it: a full disk, a pipe without a reader, or
    with one that stands still."""
    stream = sys.stderr if error else sys.stdout
    with contextlib.suppress(OSError, ValueError):
        try:
            taken = takes(stream.fileno())
        except (AttributeError, OSError, ValueError):  # no file of the system
            taken = True
        if taken:
            print(text, file=stream, flush=True)


def put(descriptor: int, text: str) -> None:
    """Write a line to a file that is open, as ``tell`` does, whichever thread has the lock of Python's own streams."""
    with contextlib.suppress(OSError):
        if takes(descriptor):
            os.write(descriptor, f"{text}\n".encode())


def takes(descriptor: int) -> bool:
    """Whether a file takes a line (of 4096 bytes at most, if it is a pipe) without waiting for anybody."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
