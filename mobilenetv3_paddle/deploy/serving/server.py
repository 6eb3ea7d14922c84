"""What uvicorn has no limits for (connections, silent ones, heads without end, bodies in crumbs), an end that comes in time
whatever hangs, and several processes behind one socket: a parent that starts them, replaces those that end, and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FrameType, SimpleNamespace
from typing import Any, NoReturn

import h11
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from uvicorn.protocols.http.h11_impl import H11Protocol

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run_control import at_stop, end_with_parent, keep_memory, raise_file_limit
from mobilenetv3_common.streams import leave, tell

KERNEL_BACKLOG = 4096  # connections that wait to be taken
BACKLOG = 4  # connections that asyncio takes in one go: out of descriptors, it writes a message for each
SPARE_DESCRIPTORS = 3 * BACKLOG + 12  # connections that are being taken or closed, the event loop, files
DECODER_DESCRIPTORS = 5
HEAD = 16 * 1024  # bytes of a request line and headers
MOST_CHUNK = 2**31  # bytes that one chunk of a body may announce
FREE_CHUNKS, BYTES_A_CHUNK = 1000, 256  # of more chunks than that each must carry so much on average
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8  # states of a connection: linux/tcp_states.h
PLACE = "MOBILENETV3_WORKER"  # of a worker: its parent, its number, and the descriptors of the socket and of all boards
HUNG = 5  # seconds that the engine of a worker may hang before the worker ends, and another takes its place
START = 90.0  # seconds that a worker may take until it first writes its metrics
SILENT = 30.0  # seconds that may pass until it writes them again, beside those that it has to end
PAUSE = 1.0  # seconds before a worker that ended is replaced
TICK = 0.1  # seconds between two looks at the workers


def listening(host: str, port: int) -> socket.socket:
    """The socket to listen on; ``UserError`` where the address is taken, or is not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sets TCP_NODELAY on sockets that say that they are TCP. Without it, the second piece of an answer waited
        # for the client to acknowledge the first, which clients delay by 40 ms.
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        return sock
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host} port {port}: {reason}") from error


def connection_limit(wanted: int, decoders: int) -> int:
    """How many connections this process can hold, at most ``wanted``, beside its decoders; the limit of descriptors is raised
    as far as it goes. ``UserError`` where there are hardly any."""
    limit, used = raise_file_limit(4 * wanted, enough=0), len(os.listdir("/dev/fd"))
    room = limit - used - SPARE_DESCRIPTORS - DECODER_DESCRIPTORS * decoders
    if room < 2:
        raise UserError(f"a limit of {limit} open files is too small for a service: raise it (ulimit -n {used + 200})")
    return min(wanted, room)


class Framing(h11.Connection):
    """h11, which refuses a chunked body that announces what no client has, or that is cut into crumbs (two million chunks of a
    byte, a body of 2 MB, held the event loop up for seven seconds), and gives the head of an answer together with what follows it:
    uvicorn sends what h11 gives, and each send costs the event loop a tenth of the time that it spends on a picture."""

    chunks = carried = 0
    head = b""  # of an answer whose body has not begun

    def send(self, event: Any) -> bytes | None:  # type: ignore[override]
        data, self.head = self.head + (super().send(event) or b""), b""
        if isinstance(event, h11.Response):
            data, self.head = b"", data
        return data

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = self.carried = 0
        elif isinstance(event, h11.Data):
            self.chunks += event.chunk_start
            self.carried += len(event.data)
        if self.chunks > FREE_CHUNKS and self.carried < BYTES_A_CHUNK * self.chunks:
            raise h11.RemoteProtocolError("the body comes in too many small chunks")
        if getattr(self._reader, "_bytes_in_chunk", 0) > MOST_CHUNK:  # which h11 tells nobody
            raise h11.RemoteProtocolError("a chunk announces too many bytes")
        return event


def _ended(transport: asyncio.Transport) -> bool:
    """Whether the client has closed its side, although nothing is read from it now; Linux alone tells."""
    with contextlib.suppress(OSError, AttributeError):
        connection = transport.get_extra_info("socket")
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)
    return False


def guarded(limit: int, head: float, whole: float) -> type[H11Protocol]:
    """uvicorn's HTTP protocol, for so many connections (one more takes the place of the one that has been idle longest, or is
    closed where none is idle), with seconds to the end of the next request's head, and to the end of its answer, whatever its
    client reads."""

    class Guarded(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.conn = Framing(h11.SERVER, HEAD)
            self.since, self._seen = self.loop.time(), (self.cycle, True)

        @property
        def idle(self) -> bool:
            """Whether no request is under way."""
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limit:
                waiting = [c for c in self.connections if isinstance(c, Guarded) and c.idle and c is not self]
                victim = min(waiting, key=lambda c: c.since, default=self)
                self.connections.discard(victim)
                victim.transport.abort()

        def send_400_response(self, msg: str) -> None:
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:  # an answer is on its way already
                self.transport.abort()

        def look(self) -> None:
            """Called twice a second: has this request, or this silence, lasted too long?"""
            now, state = self.loop.time(), (self.cycle, self.idle)
            if state != self._seen:
                self._seen, self.since = state, now
            late = now - self.since > (head if self.idle else whole)
            if late or (self.flow.read_paused and _ended(self.transport)):
                self.transport.abort()

    return Guarded


class Server(uvicorn.Server):
    """uvicorn on a bound socket, with limits on connections (``connection_limit`` says how many have room) and on seconds of a
    request, of a silent connection, and of requests under way once the end is asked for; a second later the process ends by force.
    It tells when the service answers, twice a second from then on, and when the end is asked for. ``proxies`` name the client."""

    def __init__(
        self, app: Any, sock: socket.socket, connections: int, timeout: float, shutdown: float,
        on_start: Callable[[], None], on_look: Callable[[], None], on_stop: Callable[[], None], proxies: Sequence[str] = (),
    ) -> None:  # fmt: skip
        protocol = guarded(connections, timeout, 3 * timeout)
        config = uvicorn.Config(
            app, http=protocol, ws="none", log_level="critical", access_log=False, timeout_graceful_shutdown=shutdown,  # type: ignore[arg-type]
            timeout_keep_alive=max(1, int(timeout)), backlog=BACKLOG, server_header=False, loop="asyncio",
            forwarded_allow_ips=list(proxies),  # of itself uvicorn believes any local client, and whom the environment names
        )  # fmt: skip
        super().__init__(config)
        self._null = open(os.devnull, "w")  # noqa: SIM115  at the end there may be no descriptor left
        self._sock, self._shutdown = sock, shutdown
        self._on_start, self._on_look, self._on_stop = on_start, on_look, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:  # two sockets that do not listen yet may be bound to one port
            raise UserError(f"cannot listen on port {self._sock.getsockname()[1]}: {error.strerror}") from error
        self._sock.listen(KERNEL_BACKLOG)  # asyncio keeps to its own, smaller number in one go
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if counter % 5 == 0:  # of ten a second
            self._on_look()
            for connection in list(self.server_state.connections):
                connection.look()  # type: ignore[union-attr]
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; a further signal changes nothing, though uvicorn itself would drop the requests under way."""
        if not self.should_exit:
            # A thread of C that needs no lock of Python's: it ends the process even while something hangs.
            faulthandler.dump_traceback_later(self._shutdown + 1, exit=True, file=self._null)
            self._on_stop()
            self.should_exit = True


def serve(server: Server, sock: socket.socket) -> NoReturn:
    """Serve until a signal of ``STOPS``, each of which asks for the end; then this process ends with status 0."""
    at_stop(server.handle_exit)
    keep_memory()
    server.run(sockets=[sock])
    leave()


@dataclass
class Place:
    """A worker's place among the others: its number, the socket that all listen on, and their boards: descriptors of memory where
    each writes its metrics for the others, and so tells its parent that it answers."""

    number: int
    sock: socket.socket
    boards: tuple[int, ...]
    hung: int = 0  # looks at an engine that hangs

    @classmethod
    def mine(cls) -> Place | None:
        """The place of this process; None where it is no worker. It ends with its parent."""
        if (given := os.environ.pop(PLACE, None)) is None:
            return None
        parent, number, sock, *boards = map(int, given.split(","))
        end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # it has ended already
            leave()
        return cls(number, socket.socket(fileno=sock), tuple(boards))

    def look(self, hung: bool, metrics: CollectorRegistry) -> None:
        """Called twice a second, once this worker answers: write the metrics, and end this process where its engine hangs."""
        self._write(metrics)
        self.hung = self.hung + 1 if hung else 0
        if self.hung > 2 * HUNG:
            os._exit(1)

    def together(self, metrics: CollectorRegistry) -> bytes:
        """The metrics of all workers, this one's as of now, each with its number as ``worker``. What is shown has been written, so
        that no counter goes down in the next answer, whoever gives it."""
        self._write(metrics)
        texts = [read(board) for board in self.boards]
        return generate_latest(SimpleNamespace(collect=lambda: _numbered(texts)))  # type: ignore[arg-type]

    def _write(self, metrics: CollectorRegistry) -> None:
        with contextlib.suppress(OSError):
            write(self.boards[self.number], generate_latest(metrics))


def write(board: int, text: bytes) -> None:
    """Put a text on a board, compressed: that ends with a checksum, which tells whether it was read whole."""
    os.pwrite(board, zlib.compress(text, 1), 0)


def read(board: int) -> bytes:
    """The text that was last put on a board; none before the first, or where it is being written again and again."""
    for _ in range(10):
        with contextlib.suppress(zlib.error):
            return zlib.decompress(os.pread(board, 2**20, 0))  # what a longer text has left behind it does not count
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
    board: int
    answers: bool = False
    written: int = 0  # when its metrics were last seen to be written, and for how many looks they have not been since
    silent: int = 0

    def look(self, silent: float) -> None:
        """Note whether it answers; kill one that does not come to it, or is silent for so many seconds. What is counted are looks:
        where all processes were stopped for an hour, no worker has been silent."""
        found = os.fstat(self.board)
        self.answers, self.silent = bool(found.st_size), 0 if found.st_mtime_ns != self.written else self.silent + 1
        self.written = found.st_mtime_ns
        if self.silent * TICK > (silent if self.answers else START):
            self.process.kill()


def supervise(command: list[str], count: int, sock: socket.socket, shutdown: float, on_start: Callable[[], None]) -> None:
    """Run a command so many times on a bound socket until the end is asked for, which gives requests ``shutdown`` seconds, and
    replace each worker that ends; ``UserError`` where one ends before any has answered. ``on_start`` is told when all answer."""
    stop, begun, answered, boards = threading.Event(), False, False, [_board() for _ in range(count)]
    at_stop(lambda *_: stop.set())
    workers: list[_Worker] = []
    try:
        workers += [_start(command, number, sock, boards) for number in range(count)]
        while not stop.wait(TICK):
            ended = [number for number, worker in enumerate(workers) if worker.process.poll() is not None]
            for worker in workers:  # after that: one that answered before another ended is known to answer
                worker.look(SILENT + shutdown)
            answered = answered or any(worker.answers for worker in workers)
            for number in ended:
                if not answered:
                    code = workers[number].process.returncode
                    raise UserError(f"a worker ended before it answered, with status {code}; its message, if any, is above")
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
    """Memory for a worker's metrics, which needs no folder; ``UserError`` where it may not grow: nobody would know who answers."""
    try:
        board = os.memfd_create("metrics") if hasattr(os, "memfd_create") else os.dup(tempfile.TemporaryFile().fileno())  # noqa: SIM115
        os.pwrite(board, b"\0", 2**20 - 1)
        return board
    except OSError as error:
        raise UserError(f"no room for metrics: {error.strerror}; raise the limit (ulimit -f), or leave --workers out") from error


def _start(command: list[str], number: int, sock: socket.socket, boards: list[int]) -> _Worker:
    os.ftruncate(boards[number], 0)
    kept = (sock.fileno(), *boards)
    place = {PLACE: ",".join(map(str, (os.getpid(), number, *kept)))}
    return _Worker(subprocess.Popen(command, pass_fds=kept, env=os.environ | place), boards[number])


def _end(processes: list[subprocess.Popen], shutdown: float) -> None:
    for process in processes:
        process.terminate()
    last = time.monotonic() + shutdown + 2  # a worker ends itself by force after a second more than it has
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, last - time.monotonic()))
        process.kill()
        process.wait()
