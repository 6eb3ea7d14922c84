"""The web application: POST a picture, get its classes; health, metrics, and a page with drag and drop."""

from __future__ import annotations

import asyncio
import contextlib
import html
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import ClientDisconnect

from mobilenetv3_common import __version__
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.picture_format import NotAPicture, TooLarge
from mobilenetv3_common.preprocess import normalize
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax, top_k
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, EngineDown, TooLate
from mobilenetv3_paddle.deploy.serving.decoders import Decoders
from mobilenetv3_paddle.deploy.serving.gate import Access, Gate, gone
from mobilenetv3_paddle.deploy.serving.metrics import Metrics
from mobilenetv3_paddle.deploy.serving.upload import Uploads

PAGE = Path(__file__).with_name("page.html")
BROKEN_OFF = 499  # nginx's status of a client that went away: nobody sees it but the log


@dataclass(frozen=True)
class Limits:
    """What one request, and all together, may take.

    Attributes:
        upload: bytes of a picture's file.
        uploads: bytes of all pictures under way.
        pixels: width times height of a picture.
        queue: requests under way, from their first byte to their answer; one more is refused.
        timeout: seconds from a request's head to its answer; upload, waiting, decoding and engine are all within it.
        batch: pictures in a run of the engine.
    """

    upload: int = 10 * 2**20
    uploads: int = 200 * 2**20
    pixels: int = 50_000_000
    queue: int = 256
    timeout: float = 10.0
    batch: int = 32


@dataclass
class State:
    """Whether the service is ending: then it is unready, and connections are closed after their answer."""

    stopping: bool = field(default=False)


class Service:
    """The parts that answer a picture.

    Args:
        predictor: an engine with its preprocessing and class names.
        identity: what every answer says of the model: ``model`` and ``weights_sha256``.
        limits: see ``Limits``.
        decoders: processes that decode pictures.
    """

    def __init__(self, predictor: Predictor, identity: dict[str, str], limits: Limits, decoders: int) -> None:
        self.predictor, self.limits, self.state = predictor, limits, State()
        self.identity = {**identity, "version": __version__}
        self.metrics = metrics = Metrics()
        rules = replace(predictor.rules, pixels=limits.pixels)
        self.decoders = Decoders(decoders, predictor.preset, predictor.image_backend, rules, metrics.killed.inc)
        self.batcher = Batcher(self.run, limits.batch, limits.timeout, metrics.on_batch)
        self.uploads = Uploads(limits.upload, max(limits.upload, limits.uploads))
        self.under_way = 0
        metrics.waiting.set_function(lambda: len(self.batcher))
        metrics.decoding.set_function(lambda: len(self.decoders))
        metrics.active.set_function(lambda: self.under_way)

    def run(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 (N, crop, crop, 3) to logits (N, classes); in the engine's thread."""
        return self.predictor.engine(np.stack([normalize(picture, self.predictor.preset) for picture in pixels]))

    @property
    def ready(self) -> bool:
        """Whether a picture would be answered now."""
        return self.batcher.ready and self.decoders.alive and not self.state.stopping

    async def start(self) -> None:
        """Start the decoders, and run the engine for the first time, which is slow."""
        await self.decoders.start()
        size = self.predictor.preset.crop_size
        for count in (1, self.limits.batch):
            self.run(np.zeros((count, size, size, 3), np.uint8))
        self.batcher.start()

    async def stop(self) -> None:
        """Answer what was accepted, and end the decoders."""
        await self.batcher.stop()
        await self.decoders.stop()

    async def answer(self, request: Request, topk: int) -> dict[str, Any]:
        """Receive a picture, decode it, and name its classes, all before the deadline.

        Raises:
            HTTPException: with the status for what went wrong.
            ClientDisconnect: the client broke off; what was not begun is not computed.
        """
        if self.batcher.hung:
            raise HTTPException(503, "the engine does not answer: try again later", {"Retry-After": "5"})
        deadline = time.monotonic() + self.limits.timeout
        async with self.uploads.receive(request, self.limits.timeout) as data:
            work = asyncio.ensure_future(self._classes(data, topk, deadline))
            away = asyncio.ensure_future(gone(request.receive))
            try:
                await asyncio.wait({work, away}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise ClientDisconnect()
                return {**self.identity, "predictions": work.result()}
            finally:
                work.cancel()
                away.cancel()

    async def _classes(self, data: bytes, topk: int, deadline: float) -> list[dict[str, Any]]:
        late = f"the picture was not answered within {self.limits.timeout:g} s: try again later"
        try:
            pixels = await self.decoders(data, deadline)
            logits = await self.batcher(pixels, deadline)
            found = top_k(softmax(logits[None]), self.predictor.classes, topk)[0]
            return [vars(p) for p in found]
        except TooLate as error:
            raise HTTPException(504, late) from error
        except NotAPicture as error:
            raise HTTPException(415, "this is not a picture (JPEG, PNG, WebP, BMP, GIF or TIFF)") from error
        except TooLarge as error:
            raise HTTPException(413, error.line) from error
        except EngineDown as error:
            raise HTTPException(503, str(error), {"Retry-After": "5"}) from error


def create_app(
    predictor: Predictor, identity: dict[str, str], limits: Limits | None = None, decoders: int = 2, access: Access | None = None
) -> tuple[Gate, State]:
    """Build the application; the arguments are those of ``Service``, and who may ask.

    Returns:
        The ASGI application, and the state by which it is told that the service is ending.
    """
    limits = limits or Limits()
    service = Service(predictor, identity, limits, decoders)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(title="MobileNetV3", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    _add_predict(app, service)
    _add_pages(app, service)
    return Gate(app, access or Access(), lambda: service.state.stopping), service.state


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post("/predict")
    async def predict(request: Request, topk: int = Query(5, ge=1, le=1000)) -> Response:
        start, status = time.perf_counter(), 500
        service.under_way += 1
        try:
            if service.under_way > service.limits.queue:
                raise HTTPException(503, "too many pictures are waiting: try again later", {"Retry-After": "1"})
            answer = await service.answer(request, topk)
            status = 200
            return JSONResponse(answer)
        except HTTPException as error:
            status = error.status_code
            raise
        except ClientDisconnect:
            status = BROKEN_OFF
            return Response(status_code=BROKEN_OFF)
        except UserError as error:  # a damaged picture, or an output that is not finite
            status = 422 if error.line.startswith("the picture") else 500
            raise HTTPException(status, error.line) from error
        finally:
            service.under_way -= 1
            service.metrics.requests.labels(str(status)).inc()
            service.metrics.seconds.observe(time.perf_counter() - start)


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> JSONResponse:
        about = {"status": "ok" if service.ready else "down", **service.identity, "engine": service.predictor.engine.name}
        return JSONResponse(about | {"classes": len(service.predictor.classes)}, 200 if service.ready else 503)

    @app.get("/health/ready")
    async def ready() -> JSONResponse:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)

    @app.get("/health/live")
    async def live() -> JSONResponse:
        return JSONResponse({"live": service.batcher.alive}, 200 if service.batcher.alive else 503)

    @app.get("/metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(encoding="utf-8").replace("{{model}}", html.escape(service.identity["model"])))
