"""What surrounds a long run: signals that ask it to stop, the end of its parent, and the limit on open files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from mobilenetv3_common.streams import put

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # SIGHUP: the terminal was closed


def at_stop(handle: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    """What to call when this process is asked to stop; a hangup that is ignored (``nohup``) stays ignored."""
    for number in STOPS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def end_with_parent(number: int) -> None:
    """Let the system send this process the signal ``number`` when its parent ends, however that ends; Linux alone does."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def keep_memory(most: int = 2**25) -> None:
    """Let the C library keep so many bytes that are free (at most 32 MiB), and take pieces of up to that size from them.

    Glibc alone does. Otherwise it gives them back, and the system fills each page with zeros when it is taken again: for a picture
    of 500 x 375 pixels that takes a third of the time of decoding.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(-1, 2 * most)  # M_TRIM_THRESHOLD
        library.mallopt(-3, most)  # M_MMAP_THRESHOLD


class StopRequest:
    """Notes SIGTERM, SIGINT and SIGHUP, so that the loop can end between two updates; a second SIGINT ends at once.

    A SIGHUP that was ignored when the process began (``nohup``) stays ignored.

    A thread sees to it that the request is heeded within ``within`` seconds, wherever the run is: in a picture's file that
    does not answer, a long update, or a collective operation whose other ranks have gone. It then ends the process, with
    what was done since the last checkpoint lost. The thread also takes the end of the launcher (torchrun,
    paddle.distributed.launch) for SIGTERM: nobody would stop this process otherwise.

    Attributes:
        signal: the number; 0 as long as nobody asked.
        within: seconds.
    """

    within = 8.0

    def __init__(self) -> None:
        self.signal = 0
        self._noted = False  # by the handler: the thread may have set ``signal`` before the handler of the same signal runs
        self._heeded = threading.Event()
        self._looping = False

    def listen(self) -> StopRequest:
        """Begin to note; until ``begin_loop`` there is nothing to save, and a signal ends the process at once."""
        at_stop(self._note)
        # Python runs handlers in the main thread, which may wait in C++; the number comes through the socket even then.
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader, writer), daemon=True).start()
        return self

    def begin_loop(self) -> None:
        """From now on the loop asks for ``signal``, saves and ends."""
        self._looping = True

    def heed(self) -> None:
        """The loop saves and ends: it gets the time that this takes. To be called in the main thread."""
        if not self._heeded.is_set():
            signal.set_wakeup_fd(-1)  # before the thread ends, and closes what every later signal would be written to
        self._heeded.set()

    def _note(self, number: int, frame: object) -> None:
        if self._noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._noted, self.signal = True, self.signal or number

    def _watch(self, reader: socket.socket, writer: socket.socket) -> None:
        launcher = os.getppid() if launched() else None
        asked = 0.0
        while not self._heeded.is_set():
            ready, _, _ = select.select([reader], [], [], 0.5)
            numbers = [number for number in reader.recv(64) if number in STOPS] if ready else []
            if launcher is not None and os.getppid() != launcher and not self.signal:
                put(2, f"the launcher (process {launcher}) has ended: this process stops too")
                numbers.append(int(signal.SIGTERM))
            if numbers:
                self.signal, asked = self.signal or numbers[0], asked or time.monotonic()
            if self.signal and not self._looping:
                put(2, f"stopped by signal {int(self.signal)} before the first update")
                os._exit(128 + self.signal)
            if asked and time.monotonic() - asked > self.within and not self._heeded.is_set():
                put(2, f"stopped by signal {int(self.signal)} in mid-update: --resume auto goes on from the last checkpoint")
                os._exit(128 + self.signal)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Inside the block no signal interrupts this thread's system calls; another thread, or the thread afterwards, takes it.

    For libraries that take an interrupted call (EINTR) for a failure: Paddle's store does while a rank waits for the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, signal.SIGCHLD))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def launched() -> bool:
    """Whether a launcher (torchrun, paddle.distributed.launch) started this process."""
    return any(name in os.environ for name in ("PADDLE_TRAINER_ID", "TORCHELASTIC_RUN_ID"))


def raise_file_limit(wanted: int = 65536, enough: int = 1024) -> int:
    """Raise the soft limit on open files towards ``wanted``; loader workers use several a batch. A warning says that it stays
    below ``enough``.

    A limit of 1024 ends a run with an unclear error far into training (seed guide 001, item 6).

    Returns:
        The limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < goal:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            soft = goal
    if soft < enough:
        print(f"warning: only {soft} files may be open (ulimit -n): many loader workers may fail", file=sys.stderr)
    return soft
