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
from mobilenetv3_paddle.deploy.serving.batcher import EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.gate import BROKEN_OFF, Access, Gate, refused
from mobilenetv3_paddle.deploy.serving.infer import protocol
from mobilenetv3_paddle.deploy.serving.service import Limits, Service
from mobilenetv3_paddle.deploy.serving.tensors import Refused
from mobilenetv3_paddle.deploy.serving.workers import Place

FOLDER = Path(__file__).parent
MOST_LIKELY = "5"  # classes in an answer, where no number is given
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
        status, words, headers = _told(error)
        return refused(path, status, words or f"not answered within {service.limits.timeout:g} s: try again later", headers)

    routes = [*_predict(service), *protocol(service), *_health(service, place), *_pages(service, bool(access.token))]
    handlers = dict.fromkeys((HTTPException, UserError, TooLate, EngineDown, ClientDisconnect), failed)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    app.router.redirect_slashes = False  # the address to go to would be made of the Host header, which a client writes
    return Gate(app, access, service.limits.queue, service.metrics, lambda: service.stopping), service


def _told(error: Exception) -> tuple[int, str, dict[str, str]]:
    """Status, words and headers for what went wrong with a request."""
    if isinstance(error, EngineDown):
        return 503, str(error), {"Retry-After": "5"}
    if isinstance(error, NotAPicture):
        return 415, "this is not a picture (JPEG, PNG, WebP, BMP, GIF or TIFF)", {}
    if isinstance(error, UserError):
        damaged = 422 if error.line.startswith("the picture") else 500  # or an output that is not finite
        return 413 if isinstance(error, TooLarge) else 400 if isinstance(error, Refused) else damaged, error.line, {}
    return (504, "", {}) if isinstance(error, TooLate) else (BROKEN_OFF, "the client has gone", {})


def _predict(service: Service) -> list[Route]:
    async def predict(request: Request) -> Response:
        given = request.query_params.get("topk", MOST_LIKELY)
        if not TOPK.fullmatch(given):
            raise HTTPException(422, [{**WRONG_TOPK, "input": given[:40]}])  # type: ignore[arg-type]
        return JSONResponse(await service.predictions(request, int(given)))

    return [Route("/predict", predict, methods=["POST"])]


def _health(service: Service, place: Place | None) -> list[Route]:
    async def health(_: Request) -> Response:
        about = {"status": "ok" if service.ready else "down", **service.identity, "engine": service.predictor.engine.name}
        return JSONResponse(about | {"classes": len(service.predictor.classes)}, 200 if service.ready else 503)

    async def ready(_: Request) -> Response:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)

    async def live(_: Request) -> Response:
        return JSONResponse({"live": service.batcher.alive}, 200 if service.batcher.alive else 503)

    async def prometheus(_: Request) -> Response:
        registry = service.metrics.registry
        return Response(place.together(registry) if place else generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    probes = [
        Route(base + path, answer) for base in ("", "/v2") for path, answer in (("/health/ready", ready), ("/health/live", live))
    ]
    return [Route("/health", health), *probes, Route("/metrics", prometheus)]


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
