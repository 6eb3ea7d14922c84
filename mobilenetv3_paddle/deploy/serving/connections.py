"""Limits on connections, which uvicorn itself has none for: their number, idle ones, request heads that never end, and bodies
whose framing costs more than their content. And answers that are sent as one piece, and clients that break off."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mobilenetv3_common.errors import UserError

BACKLOG = 4  # connections that asyncio takes in one go: out of descriptors, it writes a message for each
SPARE_DESCRIPTORS = 3 * BACKLOG + 12  # connections that are being taken or closed, the event loop, files
DECODER_DESCRIPTORS = 5
HEAD = 16 * 1024  # bytes of a request line and headers
MOST_CHUNK = 2**31  # bytes that one chunk of a body may announce
MOST_HELD_BACK = 64 * 1024  # bytes of an answer that wait for the end of a step of the event loop
CONNECTION = "connection"  # under this name, a request's state has a weak reference to its connection
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8  # states of a connection: linux/tcp_states.h
FREE_CHUNKS, BYTES_A_CHUNK = 1000, 256  # of more chunks than that each must carry so much on average


def connection_limit(wanted: int, decoders: int) -> int:
    """How many connections this process can hold, at most ``wanted``, beside its decoders; the limit of descriptors is raised
    as far as it goes.

    Raises:
        UserError: there are hardly any descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        most = max(soft, 4 * wanted if hard == resource.RLIM_INFINITY else min(hard, 4 * wanted))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 32
    room = soft - used - SPARE_DESCRIPTORS - DECODER_DESCRIPTORS * decoders
    if room < 2:
        raise UserError(f"a limit of {soft} open files is too small for a service: raise it (ulimit -n {used + 200})")
    return min(wanted, room)


class Framing(h11.Connection):
    """h11's parser, which refuses a chunked body that announces what no client has, or that is cut into crumbs.

    A chunk of one byte takes six on the wire and as much work as one of 64 KiB: two million of them, a body of 2 MB, held the
    event loop up for seven seconds.
    """

    chunks = carried = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = self.carried = 0
        elif isinstance(event, h11.Data):
            self.chunks += event.chunk_start
            self.carried += len(event.data)
        if self.chunks > FREE_CHUNKS and self.carried < BYTES_A_CHUNK * self.chunks:
            raise h11.RemoteProtocolError("the body comes in too many small chunks")
        if getattr(self._reader, "_bytes_in_chunk", 0) > MOST_CHUNK:
            raise h11.RemoteProtocolError("a chunk announces too many bytes")
        return event


class Together:
    """A transport that sends what is written in one step of the event loop as one piece, at the latest at the end of the step.

    uvicorn writes the head and the body of an answer one after the other. Each send costs the event loop about a tenth of the
    time that it spends on a picture.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._pieces: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send the data at the end of this step, or at once where it has become much."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MOST_HELD_BACK:
            self.flush()

    def close(self) -> None:
        """Close the connection when all of the data is sent."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send now what has been written."""
        data, self._size = b"".join(self._pieces), 0
        self._pieces.clear()
        if data and not self._transport.is_closing():
            self._transport.write(data)


@contextlib.contextmanager
def broken_off(scope: MutableMapping[str, Any], tell: Callable[[], None]) -> Iterator[None]:
    """Within the block, call back when the client of a request breaks off; its body must have been received.

    The connection tells by itself, because a task that waits for this in each request would cost one per cent of the throughput.
    Of a client that has sent a further request meanwhile it tells within a second. Under another server than ``guarded``'s nothing
    is told.

    Args:
        scope: the request's.
        tell: called at most once; at the beginning of the block, where the client has gone already.
    """
    connection = scope.get("state", {}).get(CONNECTION, lambda: None)()
    if connection is not None:
        connection.when_lost(tell)
    try:
        yield
    finally:
        if connection is not None:
            connection.when_lost(None)


def ended(transport: asyncio.Transport) -> bool:
    """Whether the client has closed its side, although nothing is read from it now; Linux alone tells."""
    connection = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)
    except OSError:
        return False


def guarded(limit: int, head: float, whole: float) -> type[H11Protocol]:
    """uvicorn's HTTP protocol with limits.

    Args:
        limit: connections; one more takes the place of the one that has been idle longest, or is closed where none is idle.
        head: seconds from the connection, or from the last answer, to the end of the next request's head.
        whole: seconds from a request's head to the end of its answer, whatever the client reads.
    """

    class Guarded(H11Protocol):
        """A connection that is closed when its client keeps it waiting, and that tells when its client breaks off."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            # Each request's scope["state"]; a strong reference would keep what a connection has received until the garbage
            # collector finds the circle.
            self.app_state = {**self.app_state, CONNECTION: weakref.ref(self)}
            self._tell: Callable[[], None] | None = None
            self.conn = Framing(h11.SERVER, self.config.h11_max_incomplete_event_size or HEAD)
            self._seen: Any = None
            self._check: asyncio.TimerHandle | None = None

        @property
        def idle(self) -> bool:
            """Whether no request is under way."""
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self._together = Together(transport, self.loop)
            super().connection_made(cast(asyncio.Transport, self._together))
            self.since = self.loop.time()
            if len(self.connections) > limit:
                waiting = [c for c in self.connections if isinstance(c, Guarded) and c.idle and c is not self]
                victim = min(waiting, key=lambda c: c.since, default=self)
                self.connections.discard(victim)
                victim.transport.abort()
            self._watch()

        def on_response_complete(self) -> None:
            self._together.flush()  # from now on this connection is idle, and may be closed to make room for another
            super().on_response_complete()

        def eof_received(self) -> None:
            self._together.flush()  # the transport is closed when this returns
            super().eof_received()

        def send_400_response(self, msg: str) -> None:
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:  # an answer is on its way already
                self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._check is not None:
                self._check.cancel()
            super().connection_lost(exc)
            if self._tell is not None:
                self._tell()

        def when_lost(self, tell: Callable[[], None] | None) -> None:
            """What to call when the client breaks off, at once if it has; None for nothing."""
            self._tell = tell
            if tell is not None:
                self.flow.resume_reading()  # or its end would not be seen
                if self.cycle.disconnected:
                    tell()

        def _watch(self) -> None:
            """Called every second or so: has this request, or this silence, lasted too long?"""
            now, state = self.loop.time(), (self.cycle, self.idle)
            if state != self._seen:
                self._seen, self.since = state, now
            late = now - self.since > (head if self.idle else whole)
            if late or (self.flow.read_paused and ended(self.transport)):
                self.transport.abort()
            elif not self.transport.is_closing():
                self._check = self.loop.call_later(min(1.0, head / 4), self._watch)

    return Guarded
