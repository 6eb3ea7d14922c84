"""Connections of the service, without a network where that is possible."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

import pytest
import uvicorn
from uvicorn.server import ServerState

from mobilenetv3_paddle.deploy.serving.server import guarded, listening


class Recorded:
    """A transport that remembers what it is told."""

    def __init__(self):
        self.told, self.closing = [], False

    def write(self, data):
        self.told.append(data)

    def close(self):
        self.closing = True
        self.told.append("close")

    def abort(self):
        self.closing = True

    def is_closing(self):
        return self.closing

    def pause_reading(self):
        self.told.append("pause")

    def resume_reading(self):
        self.told.append("resume")

    def get_extra_info(self, name):
        return None


@pytest.mark.parametrize("ends", ["answered", "broken off"])
def test_a_connection_that_has_ended_is_not_kept_until_the_garbage_collector_finds_it(ends):
    """With it goes what it has received, which no limit of uploads counts."""

    async def well(scope, receive, send):
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run():
        protocol = guarded(10, 5.0, 15.0)(uvicorn.Config(well), ServerState(), {})
        protocol.connection_made(Recorded())
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.05 if ends == "answered" else 0)
        protocol.connection_lost(None)
        kept = weakref.ref(protocol)
        del protocol
        await asyncio.sleep(0.05)
        return kept()

    gc.disable()
    try:
        assert asyncio.run(run()) is None
    finally:
        gc.enable()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("pieces", [[b"all"], [b"al", b"l"], [b""]])
def test_the_head_of_an_answer_is_sent_with_what_follows_it(method, pieces):
    """Two sends for each picture cost the event loop more than the second of them needs."""

    async def well(scope, receive, send):
        length = str(sum(map(len, pieces))).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for place, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": place < len(pieces)})

    async def run():
        transport, protocol = Recorded(), guarded(10, 5.0, 15.0)(uvicorn.Config(well), ServerState(), {})
        protocol.connection_made(transport)
        for _ in range(2):  # the second answer of a connection has a head of its own
            protocol.data_received(method.encode() + b" / HTTP/1.1\r\nHost: h\r\n\r\n")
            await asyncio.sleep(0.01)
        protocol.connection_lost(None)
        return [piece for piece in transport.told if piece and isinstance(piece, bytes)]

    first, *rest = asyncio.run(run())
    bodies = [piece for piece in pieces if piece] if method == "GET" else []
    assert first.startswith(b"HTTP/1.1 200") and first.endswith(b"\r\n\r\n" + b"".join(bodies[:1]))
    assert rest == [*bodies[1:], first, *bodies[1:]]


def test_an_answer_is_not_held_back():
    """Without TCP_NODELAY the second piece of an answer waited 40 ms for the client's acknowledgement of the first."""

    async def run():
        made = asyncio.get_running_loop().create_future()

        class Taken(asyncio.Protocol):
            def connection_made(self, transport):
                sock = transport.get_extra_info("socket")
                made.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        sock = listening("127.0.0.1", 0)
        listener = await asyncio.get_running_loop().create_server(Taken, sock=sock)
        _, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
        try:
            return await asyncio.wait_for(made, 10)
        finally:
            writer.close()
            listener.close()

    assert asyncio.run(run())
