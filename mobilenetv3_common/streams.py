"""The standard streams of a command that runs for long: they may be closed when it starts, and full or gone later."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn


def keep_open() -> None:
    """Put the null device where a standard stream is closed; a file or a socket would take its number, and what is printed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def leave() -> NoReturn:
    """End this process with status 0, whatever became of its streams, and without waiting for threads that hang."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def tell(text: str, error: bool = True) -> None:
    """Print a line on standard error, or standard output, and go on where nobody takes it: a full disk, a pipe without a reader."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr if error else sys.stdout, flush=True)
