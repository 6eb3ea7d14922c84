"""Several processes behind one socket: a parent that starts them, replaces those that end, and passes on the end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from mobilenetv3_common.errors import UserError

PLACE = "MOBILENETV3_WORKER"  # of a worker: its number, the descriptors of socket and of the pipe to its parent, a folder
HUNG = 5.0  # seconds that the engine of a worker may hang before the worker ends, and another takes its place
START = 90.0  # seconds that a worker may take until it answers
PAUSE = 1.0  # seconds before a worker that ended is replaced
WRITTEN = 1.0  # seconds between writings of a worker's metrics


@dataclass(frozen=True)
class Place:
    """A worker's place among the others.

    Attributes:
        number: from 0.
        sock: the socket that all listen on.
        parent: descriptor on which it says that it answers.
        folder: where each writes its metrics for the others.
    """

    number: int
    sock: socket.socket
    parent: int
    folder: Path

    @classmethod
    def mine(cls) -> Place | None:
        """The place of this process; None where it is no worker. It ends with its parent."""
        given = os.environ.pop(PLACE, None)
        if given is None:
            return None
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        number, sock, parent, folder = given.split(",", 3)
        return cls(int(number), socket.socket(fileno=int(sock)), int(parent), Path(folder))

    def answers(self) -> None:
        """Tell the parent that this worker answers."""
        os.write(self.parent, b"1")
        os.close(self.parent)

    def watch(self, hung: Callable[[], bool], metrics: CollectorRegistry) -> None:
        """Write the metrics every second, and end this process where its engine hangs, from a thread of its own."""

        def work() -> None:
            since = time.monotonic()
            while True:
                with contextlib.suppress(OSError):
                    self.write(metrics)
                time.sleep(WRITTEN)
                if not hung():
                    since = time.monotonic()
                elif time.monotonic() - since > HUNG:
                    os._exit(1)

        threading.Thread(target=work, daemon=True).start()

    def write(self, metrics: CollectorRegistry) -> None:
        """Write the metrics, whole or not at all."""
        part = self.folder / f"{self.number}.part"
        part.write_bytes(generate_latest(metrics))
        part.replace(self.folder / f"{self.number}.prom")

    def together(self, metrics: CollectorRegistry) -> bytes:
        """The metrics of all workers, this one's as of now, each with its number as ``worker``."""
        self.write(metrics)
        registry = CollectorRegistry()
        registry.register(_Numbered(self.folder))  # type: ignore[arg-type]
        return generate_latest(registry)


class _Numbered:
    """A collector of what the workers wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for file in sorted(self.folder.glob("*.prom")):
            for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
                one = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    one.add_sample(sample.name, {**sample.labels, "worker": file.stem}, sample.value)
        yield from found.values()


@dataclass
class _Worker:
    process: subprocess.Popen
    pipe: int
    answers: bool = field(default=False)
    since: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Note whether it answers; kill one that does not come to it."""
        if not self.answers:
            with contextlib.suppress(BlockingIOError):
                self.answers = os.read(self.pipe, 1) == b"1"
            if not self.answers and time.monotonic() - self.since > START:
                self.process.kill()


def supervise(command: list[str], count: int, sock: socket.socket, shutdown: float, on_start: Callable[[], None]) -> int:
    """Run workers until SIGTERM or Ctrl-C, and replace each that ends.

    Args:
        command: what a worker runs.
        count: of them.
        sock: bound, what they listen on.
        shutdown: seconds that they give their requests at the end.
        on_start: called when all answer.

    Returns:
        The exit status.

    Raises:
        UserError: one ends before all have answered.
    """
    stop = threading.Event()
    for sent in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sent, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix="mobilenetv3-workers-") as folder:
        workers = [_start(command, number, sock, folder) for number in range(count)]
        try:
            begun = False
            while not stop.wait(0.05 if not begun else 0.2):
                for number, worker in enumerate(workers):
                    worker.look()
                    if worker.process.poll() is None:
                        continue
                    if not begun:
                        raise UserError("a worker ended before it answered: its own message is above")
                    print(f"warning: worker {number} ended: another starts", file=sys.stderr, flush=True)
                    os.close(worker.pipe)
                    if not stop.wait(PAUSE):
                        workers[number] = _start(command, number, sock, folder)
                if not begun and all(worker.answers for worker in workers):
                    begun = True
                    on_start()
        finally:
            _end([worker.process for worker in workers], shutdown)
    return 0


def _start(command: list[str], number: int, sock: socket.socket, folder: str) -> _Worker:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    place = f"{number},{sock.fileno()},{writing},{folder}"
    process = subprocess.Popen(command, pass_fds=(sock.fileno(), writing), env={**os.environ, PLACE: place})
    os.close(writing)
    return _Worker(process, reading)


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
