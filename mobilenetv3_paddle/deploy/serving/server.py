"""What uvicorn has no limits for (connections, silent ones, heads without end, bodies in crumbs), and an end that comes in time
whatever hangs."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import resource
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.streams import leave

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # each asks for the end, however often, in whatever order
KERNEL_BACKLOG = 4096  # connections that wait to be taken
BACKLOG = 4  # connections that asyncio takes in one go: out of descriptors, it writes a message for each
SPARE_DESCRIPTORS = 3 * BACKLOG + 12  # connections that are being taken or closed, the event loop, files
DECODER_DESCRIPTORS = 5
HEAD = 16 * 1024  # bytes of a request line and headers
MOST_CHUNK = 2**31  # bytes that one chunk of a body may announce
FREE_CHUNKS, BYTES_A_CHUNK = 1000, 256  # of more chunks than that each must carry so much on average
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8  # states of a connection: linux/tcp_states.h


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
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4 * wanted if hard == resource.RLIM_INFINITY else min(hard, 4 * wanted)
    if most > soft:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    used = len(os.listdir("/dev/fd"))
    room = soft - used - SPARE_DESCRIPTORS - DECODER_DESCRIPTORS * decoders
    if room < 2:
        raise UserError(f"a limit of {soft} open files is too small for a service: raise it (ulimit -n {used + 200})")
    return min(wanted, room)


class Framing(h11.Connection):
    """h11, which refuses a chunked body that announces what no client has, or that is cut into crumbs (two million chunks of a
    byte, a body of 2 MB, held the event loop up for seven seconds), and gives the head of an answer together with what follows it:
    uvicorn sends what h11 gives, and each send costs the event loop a tenth of the time that it spends on a picture."""

    chunks = carried = 0
    head = b""  # of an answer whose body has not begun

    def send(self, event: Any) -> bytes | None:  # type: ignore[override]
        data = super().send(event)
        if isinstance(event, h11.Response):
            self.head, data = data or b"", b""
        elif self.head:
            data, self.head = self.head + (data or b""), b""
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
    It tells when the service answers, and when the end is asked for."""

    def __init__(
        self, app: Any, sock: socket.socket, connections: int, timeout: float, shutdown: float,
        on_start: Callable[[], None], on_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        protocol = guarded(connections, timeout, 3 * timeout)
        config = uvicorn.Config(
            app, http=protocol, ws="none", log_level="critical", access_log=False, timeout_graceful_shutdown=shutdown,  # type: ignore[arg-type]
            timeout_keep_alive=max(1, int(timeout)), backlog=BACKLOG, server_header=False, loop="asyncio",
            proxy_headers=False,  # uvicorn believes any local client's X-Forwarded-For; the gate believes those it was told to
        )  # fmt: skip
        super().__init__(config)
        self._null = open(os.devnull, "w")  # noqa: SIM115  at the end there may be no descriptor left
        self._sock, self._shutdown, self._on_start, self._on_stop = sock, shutdown, on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._sock.listen(KERNEL_BACKLOG)  # asyncio keeps to its own, smaller number in one go
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if counter % 5 == 0:  # of ten a second
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


def at_the_end(handle: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    """What to call when this process is told to end; a hangup that is ignored (nohup) stays ignored."""
    for number in ENDS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def serve(server: Server, sock: socket.socket) -> NoReturn:
    """Serve until a signal of ``ENDS``; then this process ends with status 0."""
    at_the_end(server.handle_exit)
    server.run(sockets=[sock])
    leave()
