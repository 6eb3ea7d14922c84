"""Ctrl-C while a command imports its frameworks: one line and status 130, without a traceback.

An exception in the middle of an import is of no use: compiled modules make another one of it (``ImportError: initialization
failed``). So the process ends at once, and there is nothing to save yet.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"stopped by Ctrl-C\n")
    os._exit(130)


def end_at_ctrl_c() -> None:
    """From now on Ctrl-C ends this process at once, unless somebody else handles it."""
    with contextlib.suppress(ValueError):  # not in the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)


def raise_at_ctrl_c() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again, as Python has it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Inside the block, where a command imports a framework, Ctrl-C ends the process at once."""
    end_at_ctrl_c()
    try:
        yield
    finally:
        raise_at_ctrl_c()
