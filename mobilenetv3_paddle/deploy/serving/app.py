"""The web application: POST a picture, get its classes; tensors under /v2; health, metrics, a description, a page for people."""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from mobilenetv3_common import __version__
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import NotAPicture, TooLarge
from mobilenetv3_paddle.deploy.engines import Engine
from mobilenetv3_paddle.deploy.predictor import Predictor
from mobilenetv3_paddle.deploy.serving import tensors
from mobilenetv3_paddle.deploy.serving.batcher import EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.gate import BROKEN_OFF, Access, Gate, refused
from mobilenetv3_paddle.deploy.serving.service import Limits, Service
from mobilenetv3_paddle.deploy.serving.workers import Place

FOLDER = Path(__file__).parent
HEADER_LENGTH = "inference-header-content-length"
MOST_LIKELY = "5"  # classes in an answer, where no number is given
STATUS = {
    NotAPicture: 415, TooLarge: 413, tensors.Refused: 400, EngineDown: 503, TooLate: 504, ClientDisconnect: BROKEN_OFF,
}  # fmt: skip
TOPK = re.compile("0*([1-9][0-9]{0,2}|1000)")
WRONG_TOPK = {"type": "int_parsing", "loc": ["query", "topk"], "msg": "Input should be a whole number from 1 to 1000"}


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
        if place is not None:
            place.watch(lambda: service.batcher.hung, service.metrics.registry)
        yield
        await service.stop()

    async def failed(request: Request, error: Exception) -> Response:
        path = request.url.path
        if isinstance(error, HTTPException):
            return refused(path, error.status_code, error.detail, error.headers)
        status, words, headers = _told(error, service.limits.timeout)
        return refused(path, status, words, headers)

    routes = [*_predict(service), *_protocol(service), *_health(service, place), *_pages(service, bool(access.token))]
    handlers = dict.fromkeys((HTTPException, UserError, *STATUS), failed)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False  # the address to go to would be made of the Host header, which a client writes
    return Gate(app, access, service.limits.queue, service.metrics, lambda: service.stopping), service


def _told(error: Exception, timeout: float) -> tuple[int, str, dict[str, str]]:
    """Status, words and headers for what went wrong with a request."""
    line = error.line if isinstance(error, UserError) else str(error)
    damaged = 422 if line.startswith("the picture") else 500  # or an output that is not finite
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), damaged)
    words = {
        415: "this is not a picture (JPEG, PNG, WebP, BMP, GIF or TIFF)",
        504: f"not answered within {timeout:g} s: try again later",
        BROKEN_OFF: "the client has gone",
    }
    return status, words.get(status, line), {"Retry-After": "5"} if status == 503 else {}


def _predict(service: Service) -> list[Route]:
    async def predict(request: Request) -> Response:
        given = request.query_params.get("topk", MOST_LIKELY)
        if not TOPK.fullmatch(given):
            raise HTTPException(422, [{**WRONG_TOPK, "input": given[:40]}])  # type: ignore[arg-type]
        return JSONResponse(await service.predictions(request, int(given)))

    return [Route("/predict", predict, methods=["POST"])]


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
    if length is None and len(data) > tensors.MOST_HEADER:
        return await service.decoders.parse(data, deadline)
    if length is None:
        length = str(len(data))
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
    api: dict[str, Any] = yaml.safe_load((FOLDER / "openapi.yaml").read_text(encoding="utf-8"))
    api["info"]["version"] = __version__
    described = json.dumps(api)

    def page(path: str, name: str) -> Route:
        text = (FOLDER / name).read_text(encoding="utf-8").replace("{{model}}", html.escape(service.identity["model"]))
        text = text.replace("{{locked}}", "true" if locked else "false")

        async def shown(_: Request) -> Response:
            return HTMLResponse(text)

        return Route(path, shown)

    async def description(_: Request) -> Response:
        return Response(described, media_type="application/json")

    return [page("/", "page.html"), page("/docs", "docs.html"), Route("/openapi.json", description)]
