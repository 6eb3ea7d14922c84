"""Limits on connections, which uvicorn itself has none for: their number, idle ones, and request heads that never end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from mobilenetv3_common.errors import UserError

BACKLOG = 4  # connections that asyncio takes in one go: out of descriptors, it writes a message for each
SPARE_DESCRIPTORS = 3 * BACKLOG + 12  # connections that are being taken or closed, the event loop, files
DECODER_DESCRIPTORS = 4


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


def guarded(limit: int, head: float, whole: float) -> type[H11Protocol]:
    """uvicorn's HTTP protocol with limits.

    Args:
        limit: connections; one more takes the place of the one that has been idle longest, or is closed where none is idle.
        head: seconds from the connection, or from the last answer, to the end of the next request's head.
        whole: seconds from a request's head to the end of its answer, whatever the client reads.
    """

    class Guarded(H11Protocol):
        """A connection that is closed when its client keeps it waiting."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._seen: Any = None
            self._check: asyncio.TimerHandle | None = None

        @property
        def idle(self) -> bool:
            """Whether no request is under way."""
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.since = self.loop.time()
            if len(self.connections) > limit:
                waiting = [c for c in self.connections if isinstance(c, Guarded) and c.idle and c is not self]
                victim = min(waiting, key=lambda c: c.since, default=self)
                self.connections.discard(victim)
                victim.transport.abort()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._check is not None:
                self._check.cancel()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Called every second or so: has this request, or this silence, lasted too long?"""
            now, state = self.loop.time(), (self.cycle, self.idle)
            if state != self._seen:
                self._seen, self.since = state, now
            if now - self.since > (head if self.idle else whole):
                self.transport.abort()
            elif not self.transport.is_closing():
                self._check = self.loop.call_later(min(1.0, head / 4), self._watch)

    return Guarded
