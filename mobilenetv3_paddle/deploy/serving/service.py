"""What answers: a request's body, decoders and the engine, within limits of size and before a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio
import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from mobilenetv3_common import __version__
from mobilenetv3_common.preprocess import normalize_planes
from mobilenetv3_paddle.deploy.engines import Engine
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax, top_k
from mobilenetv3_paddle.deploy.serving import tensors
from mobilenetv3_paddle.deploy.serving.batcher import Batcher, EngineDown
from mobilenetv3_paddle.deploy.serving.decoders import Decoders

FORM_LINES = 10_000  # bytes of a form beside its file
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}")  # RFC 2046, 5.1.1
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)  # of a request, in /metrics
NOT_FINITE = "the model's output is not finite: its weights are damaged or its training diverged"
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it would write a line for each form that cannot be read


@dataclass(frozen=True)
class Limits:
    """What one request, and all together, may take."""

    upload: int = 10 * 2**20  # bytes of a picture's file, and of a request with tensors as JSON
    uploads: int = 200 * 2**20  # bytes of all requests under way
    pixels: int = 50_000_000  # width times height of a picture
    queue: int = 256  # requests under way, from their first byte to their answer; one more is refused
    timeout: float = 10.0  # seconds from a request's head to its answer; upload, waiting, decoding and engine are all within it
    batch: int = 32  # pictures in a run of the engine, and in a request with tensors


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        self.requests = Counter("mobilenetv3_requests", "Answers by status code", ["status"], registry=r)
        self.seconds = Histogram("mobilenetv3_request_seconds", "From a request's head to its answer", buckets=SECONDS, registry=r)
        self.batch = Histogram("mobilenetv3_batch_size", "Pictures in a run", buckets=(1, 2, 4, 8, 16, 32, 64), registry=r)
        self.engine = Counter("mobilenetv3_engine_seconds", "Time in the engine", registry=r)
        self.killed = Counter("mobilenetv3_decoders_killed", "Decoders that died or took too long", registry=r)
        self.decoding = Gauge("mobilenetv3_waiting_to_decode", "Pictures that wait for a decoder", registry=r)
        self.waiting = Gauge("mobilenetv3_waiting", "Pictures that wait for the engine", registry=r)
        self.active = Gauge("mobilenetv3_active_requests", "Requests with pictures or tensors under way", registry=r)

    def on_batch(self, size: int, seconds: float) -> None:
        """Note a run of the engine."""
        self.batch.observe(size)
        self.engine.inc(seconds)

    def on_answer(self, status: int, seconds: float) -> None:
        """Note an answer to a request with a picture or tensors."""
        self.requests.labels(str(status)).inc()
        self.seconds.observe(seconds)


@dataclass(frozen=True, eq=False)
class Wanted:
    """What the engine is to answer to a picture, uint8 (3, crop, crop) or ready for the network: so many of its likeliest classes,
    or for 0 its logits."""

    picture: np.ndarray
    topk: int = 0


class Service:
    """The parts that answer a picture, or tensors: an engine with its preprocessing and class names, what every answer says of the
    model (``model`` and ``weights_sha256``), limits, how many processes decode, and the engine that runs while they do, with
    fewer threads (by default the predictor's)."""

    def __init__(
        self, predictor: Predictor, identity: dict[str, str], limits: Limits, decoders: int,
        engine_beside_decoders: Engine | None = None,
    ) -> None:  # fmt: skip
        self.engine_beside_decoders = engine_beside_decoders or predictor.engine
        self.predictor, self.limits, self.stopping = predictor, limits, False
        self.identity = {**identity, "version": __version__}
        self.signature = tensors.Signature(predictor.preset.crop_size, limits.batch, len(predictor.classes))
        self.metrics = metrics = Metrics()
        rules = replace(predictor.rules, pixels=limits.pixels)
        made = predictor.preset, predictor.image_backend, rules, self.signature
        self.decoders = Decoders(decoders, *made, metrics.killed.inc)
        self.batcher = Batcher(self.answers, limits.batch, limits.timeout, metrics.on_batch)
        self.held, self.most_held = 0, max(limits.upload, limits.uploads, self.signature.most_bytes)
        metrics.waiting.set_function(lambda: len(self.batcher))
        metrics.decoding.set_function(lambda: len(self.decoders))

    def run(self, pictures: list[np.ndarray]) -> np.ndarray:
        """Pictures, each uint8 (3, crop, crop) or ready for the network, to logits (N, classes); in the engine's thread."""
        raw = [picture for picture in pictures if picture.dtype == np.uint8]
        # Engine threads that wait for a core which a decoder has only waste the others. Where several pictures come from
        # decoders at a time, there is more to decode, though for a moment they may have nothing in hand.
        decoding = self.decoders.at_work or len(raw) > 1
        engine = self.engine_beside_decoders if decoding else self.predictor.engine
        if len(raw) == len(pictures):
            return engine(normalize_planes(np.stack(raw), self.predictor.preset))
        ready = iter(normalize_planes(np.stack(raw), self.predictor.preset) if raw else ())
        return engine(np.stack([next(ready) if picture.dtype == np.uint8 else picture for picture in pictures]))

    def answers(self, batch: list[Wanted]) -> list[Any]:
        """What is wanted of each picture, or why it cannot be told; in the engine's thread."""
        logits = self.run([wanted.picture for wanted in batch])
        finite = np.isfinite(logits).all(axis=1).tolist()
        answers: list[Any] = [EngineDown(NOT_FINITE) if one.topk else row for one, row in zip(batch, logits, strict=True)]
        for topk in {one.topk for one in batch} - {0}:
            places = [place for place, one in enumerate(batch) if one.topk == topk and finite[place]]
            found = top_k(softmax(logits[places]), self.predictor.classes, topk) if places else []
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    @property
    def ready(self) -> bool:
        """Whether a picture would be answered now."""
        return self.batcher.ready and self.decoders.alive and not self.stopping

    async def start(self) -> None:
        """Start the decoders, and run the engine for the first time, which is slow."""
        await self.decoders.start()
        size = self.predictor.preset.crop_size
        for engine in {self.predictor.engine, self.engine_beside_decoders}:
            for count in (1, self.limits.batch):
                engine(np.zeros((count, 3, size, size), np.float32))
        gc.collect()
        gc.freeze()  # what there is now stays until the end: the garbage collector need not look through it again
        self.batcher.start()

    async def stop(self) -> None:
        """Answer what was accepted, and end the decoders."""
        await self.batcher.stop()
        await self.decoders.stop()

    async def predictions(self, request: Request, topk: int) -> dict[str, Any]:
        """Receive a picture, decode it, and name its classes; as ``received``."""

        async def classes(data: bytes, deadline: float) -> list[dict[str, Any]]:
            return [vars(p) for p in await self.batcher(Wanted(await self.decoders(data, deadline), topk), deadline)]

        return {**self.identity, "predictions": await self.received(request, self.limits.upload, "picture", classes)}

    async def received(
        self, request: Request, most: int, what: str, compute: Callable[[bytes, float], Awaitable[Any]]
    ) -> Any:  # fmt: skip
        """Receive a body of at most ``most`` bytes and compute on it, all before the deadline.

        Raises:
            HTTPException: with the status for what went wrong.
            TooLate, EngineDown, UserError: as of the decoders and the engine; or the output is not finite.
            ClientDisconnect: the client broke off; what was not begun is not computed.
        """
        if self.batcher.hung:
            raise EngineDown("the engine does not answer: try again later")
        deadline = time.monotonic() + self.limits.timeout
        async with self.body(request, most, what) as data:
            with anyio.CancelScope() as scope:
                leaving = asyncio.ensure_future(request.receive())  # it comes back where the client goes
                leaving.add_done_callback(lambda _: scope.cancel())
                try:
                    return await compute(data, deadline)
                finally:
                    leaving.cancel()
        raise ClientDisconnect()

    @contextlib.asynccontextmanager
    async def body(self, request: Request, most: int, what: str) -> AsyncGenerator[bytes, None]:
        """The whole body, or the first file of a form, of at most ``most`` bytes, which count as held until the block ends;
        ``what`` is "picture" or "request". It may be empty (400), slow (408), too large (413), or too much may be held (503)."""
        taken, seconds = 0, self.limits.timeout

        async def chunks() -> AsyncGenerator[bytes, None]:
            nonlocal taken
            async for chunk in request.stream():
                taken += len(chunk)
                self.held += len(chunk)
                if taken > most:
                    raise too_large
                if self.held > self.most_held:
                    raise HTTPException(503, "too many uploads: try again later", {"Retry-After": "1", "Connection": "close"})
                yield chunk

        declared = request.headers.get("content-length", "0")
        too_large = HTTPException(413, f"the {what} is larger than {most:,} bytes", {"Connection": "close"})
        form = what == "picture" and request.headers.get("content-type", "").lower().startswith("multipart/form-data")
        most += FORM_LINES if form else 0
        try:
            if int(declared) > most:
                raise too_large
            with anyio.fail_after(seconds):
                data = await _form_file(request, chunks(), most) if form else b"".join([chunk async for chunk in chunks()])
            if not data:
                bytes_or_form = "the request holds no picture: POST its bytes, or a form with a file"
                raise HTTPException(400, bytes_or_form if what == "picture" else "the request is empty")
            yield data
        except TimeoutError as error:
            raise HTTPException(408, f"the {what} did not arrive within {seconds:.3g} s", {"Connection": "close"}) from error
        except MultiPartException as error:
            raise HTTPException(400, f"the form cannot be read: {error.message}") from error
        except HTTPException as error:
            if error is too_large:
                # Read on and keep nothing: a connection that is closed while its client still sends is reset, answer and all.
                with anyio.move_on_after(seconds):
                    while (await request.receive()).get("more_body"):
                        pass
            raise
        finally:
            self.held -= taken

    async def logits(self, images: np.ndarray, deadline: float) -> np.ndarray:
        """float32 (N, 3, crop, crop) to logits (N, classes); the pictures share runs of the engine with those of others."""
        waiting = [asyncio.ensure_future(self.batcher(Wanted(image), deadline)) for image in images]
        try:
            return np.stack(await asyncio.gather(*waiting))
        finally:
            for one in waiting:
                one.cancel()


async def _form_file(request: Request, body: AsyncGenerator[bytes, None], most: int) -> bytes:
    _, options = parse_options_header(request.headers["content-type"])
    boundary = options.get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        raise MultiPartException("it needs a boundary of at most 70 letters and digits")
    # The parser takes a charset from its headers; some charsets take quadratic time, so the client's is not passed on.
    plain = Headers(raw=[(b"content-type", b'multipart/form-data; boundary="%s"' % boundary)])
    parser = MultiPartParser(plain, body, max_files=1, max_fields=10, max_part_size=FORM_LINES)
    parser.spool_max_size = most  # in memory: its size is bounded
    files = [value for value in (await parser.parse()).values() if isinstance(value, UploadFile)]
    return await files[0].read() if files else b""
