"""What every request passes: hosts, token, requests of one client, its number, and the access log."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

OPEN = ("/", "/health", "/health/live", "/health/ready")  # without a token
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
Message = MutableMapping[str, Any]


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: that requests must carry, ``Authorization: Bearer TOKEN``; empty for none. Page and health need none.
        hosts: names by which the service may be called, without ports; empty for any.
        per_client: requests to /predict that one address may have under way.
        log: told one line of JSON for each answer.
    """

    token: str = ""
    hosts: Sequence[str] = ()
    per_client: int = 64
    log: Callable[[str], None] | None = None


class Gate:
    """The application behind its checks; an ASGI application itself.

    Args:
        app: what answers.
        access: who may ask.
        stopping: whether the service is ending, so that connections are to be closed.
    """

    def __init__(self, app: Any, access: Access, stopping: Callable[[], bool]) -> None:
        self.app, self.access, self.stopping = app, access, stopping
        self._clients: Counter[str] = Counter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, seen = time.perf_counter(), {"status": 0, "bytes": 0}
        given = _header(scope, b"x-request-id")
        number = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                headers = [(name, value) for name, value in message.get("headers", []) if name != b"x-request-id"]
                headers.append((b"x-request-id", number.encode()))
                if self.stopping() and not any(name.lower() == b"connection" for name, _ in headers):
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            seen["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        finally:
            if self.access.log is not None:
                self.access.log(_line(scope, number, seen, time.perf_counter() - start))

    async def _answer(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if self.access.hosts and _host(_header(scope, b"host")) not in self.access.hosts:
            await _refuse(send, 400, "this service is not called by that name (Host)")
            return
        if self.access.token and scope["path"] not in OPEN:
            sent = _header(scope, b"authorization")
            if not hmac.compare_digest(sent.encode(), f"Bearer {self.access.token}".encode()):
                await _refuse(send, 401, "a token is needed: Authorization: Bearer TOKEN", (b"www-authenticate", b"Bearer"))
                return
        if scope["path"] != "/predict":
            await self.app(scope, receive, send)
            return
        client = (scope.get("client") or ("",))[0]
        if self._clients[client] >= self.access.per_client:
            await _refuse(send, 429, "too many of your requests are under way: wait for their answers", (b"retry-after", b"1"))
            return
        self._clients[client] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]


async def gone(receive: Any) -> None:
    """Return when the client has broken off; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)


def _header(scope: MutableMapping[str, Any], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _host(value: str) -> str:
    """A Host header without its port."""
    return (value[: value.find("]") + 1] if value.startswith("[") else value.split(":")[0]).lower()


def _line(scope: MutableMapping[str, Any], number: str, seen: dict[str, int], seconds: float) -> str:
    row = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "id": number,
        "client": (scope.get("client") or ("",))[0],
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": seen["status"] or 499,  # no answer: the client broke off
        "ms": round(1e3 * seconds, 1),
        "bytes": seen["bytes"],
    }
    return json.dumps(row)


async def _refuse(send: Any, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"detail": detail}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
