"""What every request passes: hosts, token, codings, how many are under way, its number, metrics, and the access log."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from mobilenetv3_paddle.deploy.serving.metrics import Metrics

# Without a token: pages that hold no data of anybody, and what tells whether the service is well.
OPEN = re.compile(r"/|/docs|/openapi\.json|/health|(/v2)?/health/(live|ready)|/v2/models/[^/]+(/versions/[^/]+)?/ready")
COUNTED = re.compile(r"/predict|/v2/models/.*/infer")  # requests that take work
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
BROKEN_OFF = 499  # nginx's status of a client that went away: nobody sees it but the log
Message = MutableMapping[str, Any]


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    token: str = ""  # that requests must carry, Authorization: Bearer TOKEN; empty for none. Pages and health need none
    hosts: Sequence[str] = ()  # names by which the service may be called, without ports; empty for any
    per_client: int = 64  # requests with pictures or tensors that one address may have under way
    proxies: Sequence[str] = ()  # addresses of fronts, whose X-Forwarded-For names the client
    log: Callable[[str], None] | None = None  # told one line of JSON for each answer


class Gate:
    """An ASGI application behind its checks: what answers, who may ask, how many requests that take work may be under way, where
    they are counted, and whether connections are to be closed."""

    def __init__(self, app: Any, access: Access, most: int, metrics: Metrics, stopping: Callable[[], bool]) -> None:
        self.app, self.access, self.most, self.metrics, self.stopping = app, access, most, metrics, stopping
        self._clients: Counter[str] = Counter()
        self._proxied = ProxyHeadersMiddleware(self._answer, list(access.proxies))  # type: ignore[arg-type]
        metrics.active.set_function(self._clients.total)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await self._proxied(scope, receive, send)  # type: ignore[arg-type]

    async def _answer(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, start, seen = Headers(scope=scope), time.perf_counter(), {"status": 0, "bytes": 0}
        given, client = headers.get("x-request-id", ""), (scope.get("client") or ("",))[0][:64]
        number = given if REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"], told = message["status"], MutableHeaders(scope=message)
                told["X-Request-Id"] = number
                if self.stopping():
                    told.setdefault("Connection", "close")
            seen["bytes"] += len(message.get("body", b""))
            await send(message)

        counted = bool(COUNTED.fullmatch(scope["path"])) and scope["method"] == "POST"
        refusal = self._refusal(scope["path"], headers, client, counted)
        working = counted and refusal is None
        self._clients[client] += working
        try:
            await (refusal or self.app)(scope, receive, sending)
        except asyncio.CancelledError:  # the end has come, and this request did not
            if seen["status"]:
                raise
            await refused(scope["path"], 503, "the service is ending: try again", {"Retry-After": "1"})(scope, receive, sending)
        finally:
            self._clients[client] -= working
            if not self._clients[client]:
                del self._clients[client]
            status, seconds = seen["status"] or BROKEN_OFF, time.perf_counter() - start
            if counted:
                self.metrics.on_answer(status, seconds)
            if self.access.log is not None:
                row = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "id": number, "client": client}
                row |= {"method": scope["method"], "path": scope["path"][:200], "status": status, "ms": round(1e3 * seconds, 1)}
                self.access.log(json.dumps(row | {"bytes": seen["bytes"]}))

    def _refusal(self, path: str, headers: Headers, client: str, counted: bool) -> Response | None:
        access, host, coding = self.access, headers.get("host", ""), ", ".join(headers.getlist("content-encoding"))
        name = (host[: host.find("]") + 1] if host.startswith("[") else host.split(":")[0]).lower()
        if access.hosts and name not in access.hosts:
            return refused(path, 400, "this service is not called by that name (Host)")
        right = f"Bearer {access.token}".encode()
        if access.token and not OPEN.fullmatch(path) and not hmac.compare_digest(headers.get("authorization", "").encode(), right):
            return refused(path, 401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        if any(one.strip() not in ("", "identity") for one in coding.lower().split(",")):
            return refused(path, 415, f"Content-Encoding {coding[:40]!r} is not taken: send the request as it is")
        if counted and self._clients[client] >= access.per_client:
            return refused(path, 429, "too many of your requests are under way: wait for their answers", {"Retry-After": "1"})
        if counted and self._clients.total() >= self.most:
            return refused(path, 503, "too many pictures are waiting: try again later", {"Retry-After": "1"})
        return None


def refused(path: str, status: int, detail: Any, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says what is wrong, in the form of the protocol that a path belongs to."""
    return JSONResponse({"error" if path.startswith("/v2") else "detail": detail}, status, headers)
