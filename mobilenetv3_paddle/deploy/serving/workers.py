"""Several processes behind one socket: a parent that forks them, replaces those that end, and passes on the end."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.streams import tell
from mobilenetv3_paddle.deploy.serving.server import at_the_end

BOARD = 2**20  # bytes that the metrics of a worker may have
HUNG = 5.0  # seconds that the engine of a worker may hang before the worker ends, and another takes its place
START = 90.0  # seconds that a worker may take until it answers
PAUSE = 1.0  # seconds before a worker that ended is replaced, and between writings of its metrics
_FORK = multiprocessing.get_context("fork")  # the parent has one thread, and has not loaded an engine


@dataclass(frozen=True)
class Place:
    """A worker's place among the others: its number, what tells its parent that it answers, and the memory where each writes its
    metrics for the others."""

    number: int
    parent: Connection
    boards: list[mmap.mmap]

    def watch(self, hung: Callable[[], bool], metrics: CollectorRegistry) -> None:
        """Write the metrics every second, and end this process where its engine hangs, from a thread of its own."""

        def work() -> None:
            since = time.monotonic()
            while True:
                write(self.boards[self.number], generate_latest(metrics))
                time.sleep(PAUSE)
                since = since if hung() else time.monotonic()
                if time.monotonic() - since > HUNG:
                    os._exit(1)

        threading.Thread(target=work, daemon=True).start()

    def together(self, metrics: CollectorRegistry) -> bytes:
        """The metrics of all workers, this one's as of now, each with its number as ``worker``."""
        texts = [generate_latest(metrics) if n == self.number else read(board) for n, board in enumerate(self.boards)]
        registry = CollectorRegistry()
        registry.register(_Numbered(texts))  # type: ignore[arg-type]
        return generate_latest(registry)


def write(board: mmap.mmap, text: bytes) -> None:
    """Put a text on a board, with what tells whether it was read whole."""
    head = len(text).to_bytes(4, "big") + zlib.crc32(text).to_bytes(4, "big")
    board[: 8 + len(text)] = head + text


def read(board: mmap.mmap) -> bytes:
    """The text that was last put on a board; none before the first, or where it is being written again and again."""
    for _ in range(10):
        text = board[8 : 8 + int.from_bytes(board[:4], "big")]
        if int.from_bytes(board[4:8], "big") == zlib.crc32(text):
            return text
        time.sleep(0.001)
    return b""


@dataclass(eq=False)  # a registry keeps collectors by their hash
class _Numbered:
    """A collector of what the workers wrote, in the order of their numbers."""

    texts: list[bytes]

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for number, text in enumerate(self.texts):
            for family in text_string_to_metric_families(text.decode()):
                one = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    one.add_sample(sample.name, {**sample.labels, "worker": str(number)}, sample.value)
        yield from found.values()


@dataclass
class _Worker:
    process: ForkProcess
    pipe: Connection
    told: str | None = None
    since: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Note what it told when it answered; kill one that does not come to it."""
        with contextlib.suppress(EOFError, OSError):
            if self.told is None and self.pipe.poll():
                self.told = self.pipe.recv()
        if self.told is None and time.monotonic() - self.since > START:
            self.process.kill()


def supervise(serve: Callable[[Place], object], count: int, shutdown: float, on_start: Callable[[str], None]) -> None:
    """Run ``serve`` in so many processes until the end is asked for, which gives requests ``shutdown`` seconds, and replace each
    that ends; ``UserError`` where one ends before any has answered. ``on_start`` is given what one told when all answer."""
    stop, begun, answered, boards = threading.Event(), False, False, [mmap.mmap(-1, BOARD) for _ in range(count)]
    at_the_end(lambda *_: stop.set())
    workers: list[_Worker] = []
    try:
        workers += [_start(serve, number, boards) for number in range(count)]
        while not stop.wait(0.2 if begun else 0.05):
            ended = [number for number, worker in enumerate(workers) if worker.process.exitcode is not None]
            for worker in workers:  # after that: one that answered before another ended is known to answer
                worker.look()
            answered = answered or any(worker.told is not None for worker in workers)
            for number in ended:
                if not answered:
                    raise UserError("a worker ended before it answered: its own message is above")
                tell(f"warning: worker {number} ended: another starts")
                if not stop.wait(PAUSE):
                    with contextlib.suppress(OSError):  # no room for a process, or its descriptors: the next look tries again
                        workers[number] = _start(serve, number, boards)
            if not begun and None not in (told := [worker.told for worker in workers]):
                begun = True
                on_start(str(told[0]))
    finally:
        _end([worker.process for worker in workers], shutdown)


def _start(serve: Callable[[Place], object], number: int, boards: list[mmap.mmap]) -> _Worker:
    reading, writing = _FORK.Pipe(duplex=False)
    with writing:
        process = _FORK.Process(target=_work, args=(serve, Place(number, writing, boards)))
        process.start()
        return _Worker(process, reading)


def _work(serve: Callable[[Place], object], place: Place) -> None:
    at_the_end(signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    serve(place)


def _end(processes: list[ForkProcess], shutdown: float) -> None:
    for process in processes:
        process.terminate()
    last = time.monotonic() + shutdown + 2  # a worker ends itself by force after a second more than it has
    for process in processes:
        process.join(max(0.1, last - time.monotonic()))
        process.kill()
        process.join()
