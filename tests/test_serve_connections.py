"""Connections of the service, without a network where that is possible: answers as one piece, clients that break off, limits."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref

import pytest
import uvicorn
from uvicorn.server import ServerState

from mobilenetv3_paddle.deploy.serving.connections import Together, broken_off, guarded
from mobilenetv3_paddle.deploy.serving.server import listening


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


def test_what_is_written_in_one_step_is_sent_as_one_piece():
    async def run():
        plain = Recorded()
        transport = Together(plain, asyncio.get_running_loop())
        transport.write(b"head")
        transport.write(b"body")
        before = list(plain.told)
        await asyncio.sleep(0)
        transport.write(b"next")
        transport.write(b"")
        transport.close()
        transport.write(b"too late")
        await asyncio.sleep(0)
        much = Recorded()
        transport = Together(much, asyncio.get_running_loop())
        for _ in range(5):
            transport.write(bytes(2**14))
        at_once = [len(piece) for piece in much.told]
        transport.write(b"rest")
        await asyncio.sleep(0)
        return before, plain.told, at_once, much.told[1:]

    assert asyncio.run(run()) == ([], [b"headbody", b"next", "close"], [5 * 2**14], [b"rest"])


@pytest.mark.parametrize("ends", ["in the same step", "later"])
def test_an_answer_is_one_piece_and_sent_before_its_connection_counts_as_idle(ends):
    """An idle connection may be closed in the same step of the event loop, to make room for another."""

    async def well(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        if ends == "later":
            await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b"well"})
        sent.append((protocol.idle, list(transport.told)))

    async def run():
        nonlocal protocol
        protocol = guarded(10, 5.0, 15.0)(uvicorn.Config(well), ServerState(), {})
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.1)
        protocol.connection_lost(None)

    sent, transport, protocol = [], Recorded(), None
    asyncio.run(run())
    ((idle, pieces),) = sent
    assert idle and len(pieces) == (1 if ends == "in the same step" else 2)
    assert pieces[0].startswith(b"HTTP/1.1 200") and b"".join(pieces).endswith(b"\r\n\r\nwell")


@pytest.mark.parametrize("lost", ["before", "within", "after", "never", "behind a request"])
def test_a_client_that_breaks_off_is_told_of_within_the_block_alone(lost):
    async def held(scope, receive, send):
        scopes.append(scope)
        await leave.wait()

    async def run():
        nonlocal leave
        leave, transport = asyncio.Event(), Recorded()
        protocol = guarded(10, 5.0, 15.0)(uvicorn.Config(held), ServerState(), {})
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.sleep(0.01)
        if lost == "before":
            protocol.connection_lost(None)
        if lost == "behind a request":  # the client sends a second one before the first is answered
            protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        with broken_off(scopes[0], lambda: told.append("within")):
            assert told == (["within"] if lost == "before" else [])
            if lost in ("within", "behind a request"):
                protocol.connection_lost(None)
                assert told == ["within"]
        if lost == "after":
            protocol.connection_lost(None)
        leave.set()
        return transport.told

    leave, scopes, told = None, [], []
    asked = asyncio.run(run())
    assert told == (["within"] if lost in ("before", "within", "behind a request") else [])
    assert asked == (["pause", "resume", "close"] if lost == "behind a request" else asked)


@pytest.mark.parametrize("ends", ["answered", "broken off"])
def test_a_connection_that_has_ended_is_not_kept_until_the_garbage_collector_finds_it(ends):
    """With it goes what it has received, which no limit of uploads counts."""

    async def well(scope, receive, send):
        with broken_off(scope, lambda: None):
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


def test_under_another_server_nothing_is_told_of_a_client_that_breaks_off():
    for scope in ({}, {"state": {}}):
        with broken_off(scope, lambda: pytest.fail("told")):
            pass


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
