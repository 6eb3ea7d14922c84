"""The web application: POST a picture, get its classes; health, metrics, and a page with drag and drop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
import warnings
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from PIL import Image
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector
from starlette.formparsers import MultiPartException, MultiPartParser

from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax, top_k
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, TooLate

PAGE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Limits:
    """What one request, and all together, may take.

    Attributes:
        upload: bytes of a picture's file.
        pixels: width times height of a picture.
        queue: requests under way, from their first byte to their answer; one more is refused.
        timeout: seconds a picture may wait for the engine.
        receive: seconds a client may take to send its picture.
        batch: pictures in a run of the engine.
    """

    upload: int = 10 * 2**20
    pixels: int = 50_000_000
    queue: int = 256
    timeout: float = 10.0
    receive: float = 10.0
    batch: int = 32


class Metrics:
    """What /metrics shows, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("mobilenetv3_requests", "Answers to /predict by status code", ["status"], registry=registry)
        self.seconds = Histogram(
            "mobilenetv3_request_seconds",
            "Time from the request's head to its answer",
            buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
            registry=registry,
        )
        self.batch = Histogram(
            "mobilenetv3_batch_size", "Pictures in a run of the engine", buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry
        )
        self.engine = Counter("mobilenetv3_engine_seconds", "Time in the engine", registry=registry)
        self.waiting = Gauge("mobilenetv3_waiting", "Pictures that wait for the engine", registry=registry)
        self.active = Gauge("mobilenetv3_active_requests", "Requests to /predict under way", registry=registry)

    def on_batch(self, size: int, seconds: float) -> None:
        self.batch.observe(size)
        self.engine.inc(seconds)


def create_app(predictor: Predictor, model: str, limits: Limits | None = None, decoders: int = 2) -> FastAPI:
    """Build the application.

    Args:
        predictor: an engine with its preprocessing and class names.
        model: name shown by /health and on the page.
        limits: see ``Limits``.
        decoders: threads that decode pictures.
    """
    limits = limits or Limits()
    metrics = Metrics()
    batcher = Batcher(predictor.engine, limits.batch, limits.timeout, metrics.on_batch)
    threads = ThreadPoolExecutor(decoders, "decoder")
    under_way = 0
    metrics.waiting.set_function(lambda: len(batcher))
    metrics.active.set_function(lambda: under_way)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        size = predictor.preset.crop_size
        for n in (1, limits.batch):  # the first runs of an engine are slow
            predictor.engine(np.zeros((n, 3, size, size), np.float32))
        batcher.start()
        yield
        await batcher.stop()
        threads.shutdown()

    app = FastAPI(title="MobileNetV3", version=model, lifespan=lifespan, docs_url=None, redoc_url=None)

    async def answer(request: Request, topk: int) -> JSONResponse:
        data = await _receive(request, limits)
        image = await asyncio.get_running_loop().run_in_executor(threads, _prepare, predictor, data, limits.pixels)
        try:
            logits = await batcher(image)
        except TooLate as error:
            raise HTTPException(504, f"the picture waited more than {limits.timeout:g} s for its turn: try again later") from error
        found = top_k(softmax(logits[None]), predictor.classes, topk)[0]
        return JSONResponse({"model": model, "predictions": [vars(p) for p in found]})

    @app.post("/predict")
    async def predict(request: Request, topk: int = Query(5, ge=1, le=1000)) -> JSONResponse:
        nonlocal under_way
        start, status = time.perf_counter(), 500
        under_way += 1
        try:
            if under_way > limits.queue:
                raise HTTPException(503, "too many pictures are waiting: try again later", {"Retry-After": "1"})
            response = await answer(request, topk)
            status = response.status_code
            return response
        except HTTPException as error:
            status = error.status_code
            raise
        except (UserError, RuntimeError) as error:  # an output that is not finite, or the engine itself
            raise HTTPException(500, str(error)) from error
        finally:
            under_way -= 1
            metrics.requests.labels(str(status)).inc()
            metrics.seconds.observe(time.perf_counter() - start)

    @app.get("/health")
    async def health() -> JSONResponse:
        about = {"status": "ok" if batcher.alive else "down", "model": model, "engine": predictor.engine.name}
        return JSONResponse(about | {"classes": len(predictor.classes)}, 200 if batcher.alive else 503)

    @app.get("/metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(encoding="utf-8").replace("{{model}}", model))

    return app


async def _receive(request: Request, limits: Limits) -> bytes:
    """The picture's bytes: the whole body, or the first file of a form."""
    try:
        declared = int(request.headers.get("content-length", 0))
    except ValueError as error:
        raise HTTPException(400, "Content-Length is no number") from error
    too_large = HTTPException(413, f"the picture is larger than {limits.upload:,} bytes", {"Connection": "close"})
    form = request.headers.get("content-type", "").startswith("multipart/form-data")
    most = limits.upload + (10_000 if form else 0)  # a form's own lines
    if declared > most:
        await _thrown_away(request, limits.receive)
        raise too_large

    async def body() -> AsyncGenerator[bytes, None]:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                await _thrown_away(request, limits.receive)
                raise too_large
            yield chunk

    try:
        data = await asyncio.wait_for(_form_file(request, body(), most) if form else _joined(body()), limits.receive)
    except (TimeoutError, asyncio.TimeoutError) as error:  # two classes in Python 3.10
        raise HTTPException(408, f"the picture did not arrive within {limits.receive:g} s", {"Connection": "close"}) from error
    except MultiPartException as error:
        raise HTTPException(400, f"the form cannot be read: {error.message}") from error
    if not data:
        raise HTTPException(400, "the request holds no picture: POST its bytes, or a form with a file")
    return data


async def _thrown_away(request: Request, seconds: float) -> None:
    """Read on without keeping anything: a connection that is closed while its client still sends is reset, answer and all."""

    async def rest() -> None:
        while (await request.receive()).get("more_body"):
            pass

    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(rest(), seconds)


async def _joined(body: AsyncGenerator[bytes, None]) -> bytes:
    return b"".join([chunk async for chunk in body])


async def _form_file(request: Request, body: AsyncGenerator[bytes, None], most: int) -> bytes:
    parser = MultiPartParser(request.headers, body, max_files=1, max_fields=10)
    parser.spool_max_size = most  # in memory: its size is bounded
    form = await parser.parse()
    try:
        for value in form.values():
            if not isinstance(value, str):
                return await value.read()
        return b""
    finally:
        await form.close()


def _prepare(predictor: Predictor, data: bytes, most_pixels: int) -> np.ndarray:
    """Bytes to the network's input; the size is looked at before anything is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as header:
                width, height = header.size
    except Image.DecompressionBombError as error:
        raise HTTPException(413, f"the picture has more than {most_pixels:,} pixels") from error
    except Exception as error:  # Pillow raises many kinds on files that are none
        raise HTTPException(415, "this is not a picture") from error
    if width * height > most_pixels:
        raise HTTPException(413, f"the picture has {width} x {height} pixels, more than {most_pixels:,}")
    try:
        return predictor.preprocess(predictor.decode(data))
    except UserError as error:
        raise HTTPException(422, error.line) from error
