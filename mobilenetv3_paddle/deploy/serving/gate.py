"""What every request passes: hosts, token, requests of one client, its number, and the access log."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

# Without a token: pages that hold no data of anybody, and what tells whether the service is well.
OPEN = ("/", "/docs", "/openapi.json", "/health", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready")
_MODEL_READY = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/ready")
_COUNTED = re.compile(r"/predict|/v2/models/.*/infer")  # requests that take work
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
Message = MutableMapping[str, Any]


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: that requests must carry, ``Authorization: Bearer TOKEN``; empty for none. Pages and health need none.
        hosts: names by which the service may be called, without ports; empty for any.
        per_client: requests with pictures or tensors that one address may have under way.
        proxies: addresses of fronts, whose ``X-Forwarded-For`` names the client.
        log: told one line of JSON for each answer.
    """

    token: str = ""
    hosts: Sequence[str] = ()
    per_client: int = 64
    proxies: Sequence[str] = ()
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
        number = given if _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"

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
        except asyncio.CancelledError:  # the end has come, and this request did not
            if seen["status"]:
                raise
            await _refuse(scope["path"], sending, 503, "the service is ending: try again", (b"retry-after", b"1"))
        finally:
            if self.access.log is not None:
                self.access.log(_line(scope, self._client(scope), number, seen, time.perf_counter() - start))

    async def _answer(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        access, path = self.access, scope["path"]
        if access.hosts and _host(_header(scope, b"host")) not in access.hosts:
            await _refuse(path, send, 400, "this service is not called by that name (Host)")
            return
        if access.token and path not in OPEN and not _MODEL_READY.fullmatch(path):
            sent = _header(scope, b"authorization")
            if not hmac.compare_digest(sent.encode(), f"Bearer {access.token}".encode()):
                needed = "a token is needed: Authorization: Bearer TOKEN"
                await _refuse(path, send, 401, needed, (b"www-authenticate", b"Bearer"))
                return
        coding = ", ".join(value.decode("latin-1") for key, value in scope["headers"] if key == b"content-encoding")
        if any(name.strip() not in ("", "identity") for name in coding.lower().split(",")):
            await _refuse(path, send, 415, f"Content-Encoding {coding[:40]!r} is not taken: send the request as it is")
            return
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        if not _COUNTED.fullmatch(path):
            await self.app(scope, receive, send)
            return
        client = self._client(scope)
        if self._clients[client] >= access.per_client:
            wait = "too many of your requests are under way: wait for their answers"
            await _refuse(path, send, 429, wait, (b"retry-after", b"1"))
            return
        self._clients[client] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _client(self, scope: MutableMapping[str, Any]) -> str:
        """Address of who asks: the last that a front added to ``X-Forwarded-For``, since a client writes there what it likes.

        A front may add to the client's line or write a line of its own below it: both are one list (RFC 9110, 5.3).
        """
        address = (scope.get("client") or ("",))[0]
        lines = [value.decode("latin-1") for key, value in scope["headers"] if key == b"x-forwarded-for"]
        for name in reversed(",".join(lines).split(",")):
            if address not in self.access.proxies or not name.strip():
                break
            address = name.strip()[:64]
        return address


def problem(path: str, detail: str) -> dict[str, str]:
    """What is wrong, in the form of the protocol that a path belongs to."""
    return {"error" if path.startswith("/v2") else "detail": detail}


def _header(scope: MutableMapping[str, Any], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _host(value: str) -> str:
    """A Host header without its port."""
    return (value[: value.find("]") + 1] if value.startswith("[") else value.split(":")[0]).lower()


def _line(scope: MutableMapping[str, Any], client: str, number: str, seen: dict[str, int], seconds: float) -> str:
    row = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "id": number,
        "client": client,
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": seen["status"] or 499,  # no answer: the client broke off
        "ms": round(1e3 * seconds, 1),
        "bytes": seen["bytes"],
    }
    return json.dumps(row)


async def _refuse(path: str, send: Any, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(problem(path, detail)).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
