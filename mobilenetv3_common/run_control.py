"""What surrounds a long run: signals that ask it to stop, and the limit on open files."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

from mobilenetv3_common.image import quiet_opencv


class StopRequest:
    """Notes SIGTERM and SIGINT, so that the loop can end between two updates; a second SIGINT ends at once."""

    def __init__(self) -> None:
        self.signal = 0

    def listen(self) -> StopRequest:
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: object) -> None:
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


def shield_worker() -> None:
    """In a loader worker: leave stopping to the training process.

    Ctrl-C, and a job's end, reach every process of a group; a worker in a group of its own ends when its parent ends it,
    or (on Linux, by ``PR_SET_PDEATHSIG``) when its parent is killed: Paddle's would go on waiting for it for ever.
    """
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def start_worker(worker_id: int) -> None:
    """What every loader worker does first; ``worker_id`` is the loader's own count."""
    shield_worker()
    quiet_opencv()


def raise_file_limit(wanted: int = 65536) -> int:
    """Raise the soft limit on open files towards ``wanted``; loader workers use several a batch.

    A limit of 1024 ends a run with an unclear error far into training (seed guide 001, item 6).

    Returns:
        The limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < goal:
        resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
        soft = goal
    if soft < 1024:
        print(f"warning: only {soft} files may be open (ulimit -n): many loader workers may fail", file=sys.stderr)
    return soft
