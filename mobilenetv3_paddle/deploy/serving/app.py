"""The web application: what every request passes (hosts, token, codings, how many are under way, its number, the access log), and
what answers it: POST a picture, get its classes; tensors under /v2; health, metrics, a description, a page for people."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mobilenetv3_common import __version__
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import NotAPicture, TooLarge
from mobilenetv3_paddle.deploy.engines import Engine
from mobilenetv3_paddle.deploy.predictor import Predictor
from mobilenetv3_paddle.deploy.serving import tensors
from mobilenetv3_paddle.deploy.serving.batcher import EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.decoder import JSON
from mobilenetv3_paddle.deploy.serving.server import Place
from mobilenetv3_paddle.deploy.serving.service import Limits, Metrics, Service

FOLDER = Path(__file__).parent
# Without a token: pages that hold no data of anybody, and what tells whether the service is well.
OPEN = re.compile(r"/|/docs|/openapi\.json|/health|(/v2)?/health/(live|ready)|/v2/models/[^/]+(/versions/[^/]+)?/ready")
COUNTED = re.compile(r"/predict|/v2/models/.*/infer")  # requests that take work
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
BROKEN_OFF = 499  # nginx's status of a client that went away: nobody sees it but the log
HEADER_LENGTH = "inference-header-content-length"
MOST_LIKELY = "5"  # classes in an answer, where no number is given
STATUS = {
    NotAPicture: 415, TooLarge: 413, tensors.Refused: 400, EngineDown: 503, TooLate: 504, ClientDisconnect: BROKEN_OFF,
    UserError: 422,
}  # fmt: skip
TOPK = re.compile("0*([1-9][0-9]{0,2}|1000)")
WRONG_TOPK = {"type": "int_parsing", "loc": ["query", "topk"], "msg": "Input should be a whole number from 1 to 1000"}


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    token: str = ""  # that requests must carry, Authorization: Bearer TOKEN; empty for none. Pages and health need none
    hosts: Sequence[str] = ()  # names by which the service may be called, without ports; empty for any
    per_client: int = 64  # requests with pictures or tensors that one address may have under way
    log: Callable[[str], None] | None = None  # told one line of JSON for each answer


class Gate:
    """An ASGI application behind its checks: what answers, who may ask, how many requests that take work may be under way, where
    they are counted, and whether connections are to be closed."""

    def __init__(self, app: Any, access: Access, most: int, metrics: Metrics, stopping: Callable[[], bool]) -> None:
        self.app, self.access, self.most, self.metrics, self.stopping = app, access, most, metrics, stopping
        self._clients: Counter[str] = Counter()
        metrics.active.set_function(self._clients.total)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, start, seen = Headers(scope=scope), time.perf_counter(), {"status": 0, "bytes": 0}
        given, client = headers.get("x-request-id", ""), (scope.get("client") or ("",))[0][:64]
        number = given if REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"

        async def sending(message: MutableMapping[str, Any]) -> None:
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


def create_app(
    predictor: Predictor, identity: dict[str, str], limits: Limits | None = None, decoders: int = 2, access: Access | None = None,
    place: Place | None = None, engine_beside_decoders: Engine | None = None,
) -> tuple[Gate, Service]:  # fmt: skip
    """Build the application; the arguments are those of ``Service``, who may ask, and the place of a worker among others.

    Returns:
        The ASGI application, and its service, whose ``stopping`` is set when it is to end.
    """
    service, access = Service(predictor, identity, limits or Limits(), decoders, engine_beside_decoders), access or Access()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        await service.start()
        yield
        await service.stop()

    async def predict(request: Request) -> Response:
        given = request.query_params.get("topk", MOST_LIKELY)
        if not TOPK.fullmatch(given):
            raise HTTPException(422, [{**WRONG_TOPK, "input": given[:40]}])  # type: ignore[arg-type]
        return JSONResponse(await service.predictions(request, int(given)))

    async def failed(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
            words = {
                415: "this is not a picture (JPEG, PNG, WebP, BMP, GIF or TIFF)",
                504: f"not answered within {service.limits.timeout:g} s: try again later",
            }.get(status, error.line if isinstance(error, UserError) else "")
            error = HTTPException(status, words, {"Retry-After": "5"} if status == 503 else None)
        return refused(request.url.path, error.status_code, error.detail, error.headers)

    routes = [Route("/predict", predict, methods=["POST"])]
    routes += [*_protocol(service), *_health(service, place), *_pages(service, bool(access.token))]
    handlers = dict.fromkeys((HTTPException, *STATUS), failed)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False  # the address to go to would be made of the Host header, which a client writes
    return Gate(app, access, service.limits.queue, service.metrics, lambda: service.stopping), service


def _protocol(service: Service) -> list[Route]:
    """The open inference protocol (KServe's version 2) for one model, whose only version is 1."""
    name = service.identity["model"]

    async def server(_: Request) -> Response:
        return JSONResponse({"name": "mobilenetv3", "version": __version__, "extensions": list(tensors.EXTENSIONS)})

    async def metadata(request: Request) -> Response:
        _known(request, name)
        platform = "onnxruntime_onnx" if service.predictor.engine.name.startswith("onnxruntime") else "paddle_inference"
        about = {"name": name, "versions": [tensors.VERSION], "platform": platform}
        return JSONResponse(about | service.signature.metadata())

    async def ready(request: Request) -> Response:
        _known(request, name)
        return _state(service.ready, {"name": name, "ready": service.ready})

    async def infer(request: Request) -> Response:
        _known(request, name)
        length = request.headers.get(HEADER_LENGTH)
        most = service.limits.upload if length is None else service.signature.most_bytes

        async def compute(data: bytes, deadline: float) -> tuple[bytes, bytes]:
            asked = await _asked(service, length, data, deadline)
            logits = await service.logits(asked.images, deadline)
            about: dict[str, Any] = {"model_name": name, "model_version": tensors.VERSION}
            about |= {"parameters": {key: service.identity[key] for key in ("weights_sha256", "version")}}
            return tensors.answer(asked, logits, service.predictor.classes, about)

        text, raw = await service.received(request, most, "request", compute)
        if not raw:
            return Response(text, media_type="application/json")
        return Response(text + raw, media_type="application/octet-stream", headers={HEADER_LENGTH: str(len(text))})

    routes = [Route("/v2", server), Route("/v2/", server)]
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(base, metadata), Route(base + "/ready", ready), Route(base + "/infer", infer, methods=["POST"])]
    return routes


def _known(request: Request, name: str) -> None:
    """Refuse another model's name, or another version, with 404."""
    model, version = request.path_params["model"], request.path_params.get("version", tensors.VERSION)
    if model != name:
        raise HTTPException(404, f"there is no model {model[:80]!r} here: this is {name}")
    if version != tensors.VERSION:
        raise HTTPException(404, f"{name} has no version {version[:20]!r}: its only one is {tensors.VERSION}")


async def _asked(service: Service, length: str | None, data: bytes, deadline: float) -> tensors.Asked:
    """Read a request: what is short here, JSON that may be long in a decoder."""
    if length is None:
        long = len(data) > tensors.MOST_HEADER
        return await service.decoders(data, deadline, JSON) if long else tensors.parse(data, b"", service.signature)
    if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= len(data)):
        raise tensors.Refused(f"Inference-Header-Content-Length is {length[:40]!r}: the request has {len(data):,} bytes")
    if int(length) > tensors.MOST_HEADER:
        raise tensors.Refused(f"the JSON before binary tensors is longer than {tensors.MOST_HEADER:,} bytes")
    return tensors.parse(data[: int(length)], memoryview(data)[int(length) :], service.signature)


def _health(service: Service, place: Place | None) -> list[Route]:
    async def health(_: Request) -> Response:
        about = {"status": "ok" if service.ready else "down", **service.identity, "engine": service.predictor.engine.name}
        return _state(service.ready, about | {"classes": len(service.predictor.classes)})

    async def ready(_: Request) -> Response:
        return _state(service.ready, {"ready": service.ready})

    async def live(_: Request) -> Response:
        return _state(service.batcher.alive, {"live": service.batcher.alive})

    async def prometheus(_: Request) -> Response:
        registry = service.metrics.registry
        return Response(place.together(registry) if place else generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    paths = {"/health": health, "/health/ready": ready, "/health/live": live, "/v2/health/ready": ready, "/v2/health/live": live}
    return [Route(path, answer) for path, answer in (paths | {"/metrics": prometheus}).items()]


def _state(well: bool, about: dict[str, Any]) -> Response:
    return JSONResponse(about, 200 if well else 503)


def _pages(service: Service, locked: bool) -> list[Route]:
    def page(path: str, text: str, kind: str = "text/html") -> Route:
        async def shown(_: Request) -> Response:
            return Response(text, media_type=kind)

        return Route(path, shown)

    def read(name: str) -> str:
        text = (FOLDER / name).read_text(encoding="utf-8").replace("{{model}}", html.escape(service.identity["model"]))
        return text.replace("{{locked}}", "true" if locked else "false")

    api = yaml.safe_load(read("openapi.yaml"))
    api["info"]["version"] = __version__
    description = page("/openapi.json", json.dumps(api), "application/json")
    return [page("/", read("page.html")), page("/docs", read("docs.html")), description]
