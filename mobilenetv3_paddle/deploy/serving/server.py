"""Listening, and ending in time whatever hangs."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import uvicorn

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.streams import leave
from mobilenetv3_paddle.deploy.serving.connections import BACKLOG, HEAD, guarded

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # each asks for the end, however often, in whatever order
KERNEL_BACKLOG = 4096  # connections that wait to be taken


def listening(host: str, port: int) -> socket.socket:
    """The socket to listen on.

    Raises:
        UserError: the address is taken, or is not this machine's.
    """
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


class Server(uvicorn.Server):
    """uvicorn with limits on connections, and an end that comes in time.

    Args:
        app: the ASGI application.
        sock: bound, not yet listening.
        connections: most connections at a time; ``connection_limit`` says how many there is room for.
        timeout: seconds of a request, and of a silent connection.
        shutdown: seconds given to requests under way once the end is asked for; a second later the process ends by force.
        on_start: called when the service answers.
        on_stop: called when the end is asked for.
    """

    def __init__(
        self, app: Any, sock: socket.socket, connections: int, timeout: float, shutdown: float,
        on_start: Callable[[], None], on_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        protocol = guarded(connections, timeout, 3 * timeout)
        config = uvicorn.Config(
            app, http=protocol, ws="none", log_level="critical", access_log=False, timeout_graceful_shutdown=shutdown,  # type: ignore[arg-type]
            timeout_keep_alive=max(1, int(timeout)), backlog=BACKLOG, h11_max_incomplete_event_size=HEAD,
            server_header=False, loop="asyncio",
            proxy_headers=False,  # uvicorn believes any local client's X-Forwarded-For; the gate believes those it was told to
        )  # fmt: skip
        super().__init__(config)
        self._null = open(os.devnull, "w")  # noqa: SIM115  at the end there may be no descriptor left
        self._sock, self._shutdown, self._on_start, self._on_stop = sock, shutdown, on_start, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._sock.listen(KERNEL_BACKLOG)  # asyncio keeps to its own, smaller number in one go
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; a further signal changes nothing, though uvicorn itself would drop the requests under way."""
        if not self.should_exit:
            # A thread of C that needs no lock of Python's: it ends the process even while something hangs.
            faulthandler.dump_traceback_later(self._shutdown + 1, exit=True, file=self._null)
            self._on_stop()
            self.should_exit = True


def at_the_end(handle: Callable[[int, FrameType | None], Any]) -> None:
    """What to call when this process is told to end; a hangup that is ignored (nohup) stays ignored."""
    for number in ENDS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handle)


def serve(server: Server, sock: socket.socket) -> NoReturn:
    """Serve until a signal of ``ENDS``; then this process ends with status 0."""
    at_the_end(server.handle_exit)
    server.run(sockets=[sock])
    leave()
