"""The web application: POST a picture, get its classes; tensors under /v2; health, metrics, a description, a page for people."""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import AsyncGenerator, MutableMapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware

from mobilenetv3_common import __version__
from mobilenetv3_paddle.deploy.engines import Engine
from mobilenetv3_paddle.deploy.predictor import Predictor
from mobilenetv3_paddle.deploy.serving import schemas
from mobilenetv3_paddle.deploy.serving.gate import Access, Gate, problem
from mobilenetv3_paddle.deploy.serving.infer import add_protocol
from mobilenetv3_paddle.deploy.serving.service import Limits, Service, State
from mobilenetv3_paddle.deploy.serving.workers import Place

PAGE, DOCS = (Path(__file__).with_name(name) for name in ("page.html", "docs.html"))
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": words} for status, words in schemas.REFUSALS.items() if status != 404
}
MOST_LIKELY = 5  # classes in an answer, where no number is given
TOPK = re.compile(rb"(?:topk=([1-9][0-9]{0,2}|1000))?")
DOWN: dict[int | str, dict[str, Any]] = {503: {"description": "not now"}}


def create_app(
    predictor: Predictor, identity: dict[str, str], limits: Limits | None = None, decoders: int = 2, access: Access | None = None,
    place: Place | None = None, engine_beside_decoders: Engine | None = None,
) -> tuple[Gate, State]:  # fmt: skip
    """Build the application; the arguments are those of ``Service``, who may ask, and the place of a worker among others.

    Returns:
        The ASGI application, and the state by which it is told that the service is ending.
    """
    limits = limits or Limits()
    service = Service(predictor, identity, limits, decoders, engine_beside_decoders)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        await service.start()
        if place is not None:
            place.watch(lambda: service.batcher.hung, service.metrics.registry)
        yield
        await service.stop()

    app = FastAPI(
        title="MobileNetV3", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        redirect_slashes=False,  # the address to go to would be made of the Host header, which a client writes
    )  # fmt: skip

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if request.url.path.startswith("/v2"):
            return JSONResponse(problem("/v2", str(error.detail)), error.status_code, error.headers)
        return await http_exception_handler(request, error)

    access = access or Access()
    _add_predict(app, service)
    add_protocol(app, service)
    _add_health(app, service, place)
    _add_pages(app, service, bool(access.token))
    described = app.openapi
    app.openapi = lambda: _with_components(described())  # type: ignore[method-assign]
    return Gate(ServerErrorMiddleware(Direct(app, service)), access, lambda: service.state.stopping), service.state


class Direct:
    """Answers plain requests with a picture itself, since FastAPI's layers around a route cost one picture in twenty.

    Whatever is not plain (another method, a ``topk`` that is no number from 1 to 1000) is FastAPI's, whose route for pictures
    gives the same answers and is the one that is described.

    Args:
        app: FastAPI's application.
        service: what names a picture's classes.
    """

    def __init__(self, app: FastAPI, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        picture = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == "/predict"
        asked = TOPK.fullmatch(scope["query_string"]) if picture else None
        if asked is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await _predicted(self.service, request, int(asked[1] or MOST_LIKELY))
        except HTTPException as error:
            response = await http_exception_handler(request, error)
        await response(scope, receive, send)


async def _predicted(service: Service, request: Request, topk: int) -> Response:
    async def answer() -> Response:
        return JSONResponse(await service.predictions(request, topk))

    return await service.counted(answer)


def _with_components(api: dict[str, Any]) -> dict[str, Any]:
    api["components"]["schemas"] |= schemas.components()
    return api


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post(
        "/predict",
        summary="A picture's likeliest classes",
        tags=["pictures"],
        response_model=schemas.Predictions,
        responses=REFUSED,
        openapi_extra=schemas.picture_body(),
    )
    async def predict(request: Request, topk: int = Query(MOST_LIKELY, ge=1, le=1000)) -> Response:
        return await _predicted(service, request, topk)


def _add_health(app: FastAPI, service: Service, place: Place | None) -> None:
    @app.get("/health", summary="What is served", tags=["health"], response_model=schemas.Health, responses=DOWN)
    async def health() -> JSONResponse:
        about = {"status": "ok" if service.ready else "down", **service.identity, "engine": service.predictor.engine.name}
        return JSONResponse(about | {"classes": len(service.predictor.classes)}, 200 if service.ready else 503)

    @app.get(
        "/health/ready",
        summary="503 while nothing is answered",
        tags=["health"],
        response_model=schemas.Ready,
        responses=DOWN,
    )
    async def ready() -> JSONResponse:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)

    @app.get("/health/live", summary="503 where only a restart helps", tags=["health"], response_model=schemas.Live, responses=DOWN)
    async def live() -> JSONResponse:
        return JSONResponse({"live": service.batcher.alive}, 200 if service.batcher.alive else 503)

    @app.get("/metrics", summary="Counters for Prometheus", tags=["health"], response_class=Response)
    async def prometheus() -> Response:
        registry = service.metrics.registry
        return Response(place.together(registry) if place else generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI, service: Service, locked: bool) -> None:
    def shown(file: Path) -> HTMLResponse:
        text = file.read_text(encoding="utf-8").replace("{{model}}", html.escape(service.identity["model"]))
        return HTMLResponse(text.replace("{{locked}}", "true" if locked else "false"))

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return shown(PAGE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return shown(DOCS)
