"""Several processes behind one socket: a parent that starts them, replaces those that end, and passes on the end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import FileIO
from types import SimpleNamespace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.streams import tell
from mobilenetv3_paddle.deploy.serving.server import at_the_end

PLACE = "MOBILENETV3_WORKER"  # of a worker: its number, the descriptors of socket, of the pipe to its parent, of all metrics
HUNG = 5.0  # seconds that the engine of a worker may hang before the worker ends, and another takes its place
START = 90.0  # seconds that a worker may take until it answers
PAUSE = 1.0  # seconds before a worker that ended is replaced, and between writings of its metrics


@dataclass(frozen=True)
class Place:
    """A worker's place among the others: its number, the socket that all listen on, a descriptor on which it tells its parent that
    it answers, and descriptors of memory where each writes its metrics for the others."""

    number: int
    sock: socket.socket
    parent: int
    boards: tuple[int, ...]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def mine(cls) -> Place | None:
        """The place of this process; None where it is no worker. It ends with its parent."""
        given = os.environ.pop(PLACE, None)
        if given is None:
            return None
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        number, sock, parent, *boards = map(int, given.split(","))
        return cls(number, socket.socket(fileno=sock), parent, tuple(boards))

    def answers(self) -> None:
        """Tell the parent that this worker answers."""
        os.write(self.parent, b"1")
        os.close(self.parent)

    def watch(self, hung: Callable[[], bool], metrics: CollectorRegistry) -> None:
        """Write the metrics every second, and end this process where its engine hangs, from a thread of its own."""

        def work() -> None:
            since = time.monotonic()
            while True:
                self._write(metrics)
                time.sleep(PAUSE)
                since = since if hung() else time.monotonic()
                if time.monotonic() - since > HUNG:
                    os._exit(1)

        threading.Thread(target=work, daemon=True).start()

    def together(self, metrics: CollectorRegistry) -> bytes:
        """The metrics of all workers, this one's as of now, each with its number as ``worker``. What is shown has been written, so
        that no counter goes down in the next answer, whoever gives it."""
        self._write(metrics)
        texts = [read(board) for board in self.boards]
        return generate_latest(SimpleNamespace(collect=lambda: _numbered(texts)))  # type: ignore[arg-type]

    def _write(self, metrics: CollectorRegistry) -> None:
        with contextlib.suppress(OSError), self._lock:
            write(self.boards[self.number], generate_latest(metrics))


def write(board: int, text: bytes) -> None:
    """Put a text on a board, compressed: that ends with a checksum, which tells whether it was read whole."""
    os.pwrite(board, zlib.compress(text, 1), 0)


def read(board: int) -> bytes:
    """The text that was last put on a board; none before the first, or where it is being written again and again."""
    for _ in range(10):
        with contextlib.suppress(zlib.error):
            found = zlib.decompressobj()
            text = found.decompress(os.pread(board, 2**20, 0))
            if found.eof:
                return text
        time.sleep(0.001)
    return b""


def _numbered(texts: list[bytes]) -> Iterable[Metric]:
    """What the workers wrote, in the order of their numbers."""
    found: dict[str, Metric] = {}
    for number, text in enumerate(texts):
        for family in text_string_to_metric_families(text.decode()):
            one = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                one.add_sample(sample.name, {**sample.labels, "worker": str(number)}, sample.value)
    return found.values()


@dataclass
class _Worker:
    process: subprocess.Popen
    pipe: FileIO
    answers: bool = False
    since: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Note whether it answers; kill one that does not come to it."""
        self.answers = self.answers or self.pipe.read(1) == b"1"
        if not self.answers and time.monotonic() - self.since > START:
            self.process.kill()


def supervise(command: list[str], count: int, sock: socket.socket, shutdown: float, on_start: Callable[[], None]) -> None:
    """Run a command so many times on a bound socket until the end is asked for, which gives requests ``shutdown`` seconds, and
    replace each worker that ends; ``UserError`` where one ends before any has answered. ``on_start`` is told when all answer."""
    stop, begun, answered, boards = threading.Event(), False, False, [_board() for _ in range(count)]
    at_the_end(lambda *_: stop.set())
    workers: list[_Worker] = []
    try:
        workers += [_start(command, number, sock, boards) for number in range(count)]
        while not stop.wait(0.2 if begun else 0.05):
            ended = [number for number, worker in enumerate(workers) if worker.process.poll() is not None]
            for worker in workers:  # after that: one that answered before another ended is known to answer
                worker.look()
            answered = answered or any(worker.answers for worker in workers)
            for number in ended:
                if not answered:
                    raise UserError("a worker ended before it answered: its own message is above")
                tell(f"warning: worker {number} ended: another starts")
                if not stop.wait(PAUSE):
                    with contextlib.suppress(OSError):  # no room for a process, or its descriptors: the next look tries again
                        workers[number] = _start(command, number, sock, boards)
            if not begun and all(worker.answers for worker in workers):
                begun = True
                on_start()
    finally:
        _end([worker.process for worker in workers], shutdown)


def _board() -> int:
    """Memory for a worker's metrics, which needs no folder."""
    with contextlib.suppress(OSError, AttributeError):
        return os.memfd_create("metrics")
    with tempfile.TemporaryFile() as file:  # macOS has none
        return os.dup(file.fileno())


def _start(command: list[str], number: int, sock: socket.socket, boards: list[int]) -> _Worker:
    reading, writing = map(FileIO, os.pipe(), "rw")
    os.set_blocking(reading.fileno(), False)
    kept = (sock.fileno(), writing.fileno(), *boards)
    with writing:
        place = ",".join(map(str, (number, *kept)))
        return _Worker(subprocess.Popen(command, pass_fds=kept, env={**os.environ, PLACE: place}), reading)


def _end(processes: list[subprocess.Popen], shutdown: float) -> None:
    for process in processes:
        process.terminate()
    last = time.monotonic() + shutdown + 2  # a worker ends itself by force after a second more than it has
    for process in processes:
        try:
            process.wait(max(0.1, last - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
