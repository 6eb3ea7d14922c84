"""The open inference protocol (KServe's version 2) over HTTP, under /v2."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response

from mobilenetv3_common import __version__
from mobilenetv3_paddle.deploy.serving import schemas, tensors
from mobilenetv3_paddle.deploy.serving.service import Service

HEADER_LENGTH = "inference-header-content-length"
UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ProtocolError, "description": "no such model or version"}}
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ProtocolError, "description": words}
    for status, words in schemas.REFUSALS.items()
    if status not in (404, 422)
}


def add_protocol(app: FastAPI, service: Service) -> None:
    """Add the protocol's paths for one model, whose only version is 1."""
    router = APIRouter(prefix="/v2", tags=["open inference protocol"])
    _add_health(router, service)
    _add_models(router, service)
    _add_infer(router, service)
    app.include_router(router)


def _add_health(router: APIRouter, service: Service) -> None:
    @router.get("", summary="The server's name, version and extensions", response_model=schemas.ServerMetadata)
    @router.get("/", include_in_schema=False)
    async def server() -> JSONResponse:
        return JSONResponse({"name": "mobilenetv3", "version": __version__, "extensions": list(tensors.EXTENSIONS)})

    @router.get("/health/live", summary="503 where only a restart helps", response_model=schemas.Live)
    async def live() -> JSONResponse:
        return JSONResponse({"live": service.batcher.alive}, 200 if service.batcher.alive else 503)

    @router.get("/health/ready", summary="503 while requests would not be answered", response_model=schemas.Ready)
    async def ready() -> JSONResponse:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)


def _add_models(router: APIRouter, service: Service) -> None:
    name = service.identity["model"]

    @router.get("/models/{model}", summary="The model's inputs and outputs", response_model=schemas.Model, responses=UNKNOWN)
    @router.get("/models/{model}/versions/{version}", response_model=schemas.Model, responses=UNKNOWN)
    async def metadata(model: str, version: str = tensors.VERSION) -> JSONResponse:
        known(service, model, version)
        platform = "onnxruntime_onnx" if service.predictor.engine.name.startswith("onnxruntime") else "paddle_inference"
        about = {"name": name, "versions": [tensors.VERSION], "platform": platform}
        return JSONResponse({**about, "inputs": service.signature.inputs(), "outputs": service.signature.outputs()})

    @router.get("/models/{model}/ready", summary="Whether the model answers", response_model=schemas.ModelReady, responses=UNKNOWN)
    @router.get("/models/{model}/versions/{version}/ready", response_model=schemas.ModelReady, responses=UNKNOWN)
    async def ready(model: str, version: str = tensors.VERSION) -> JSONResponse:
        known(service, model, version)
        return JSONResponse({"name": name, "ready": service.ready}, 200 if service.ready else 503)


def _add_infer(router: APIRouter, service: Service) -> None:
    options: dict[str, Any] = {"response_model": schemas.InferResponse, "responses": {**UNKNOWN, **REFUSED}}
    options["openapi_extra"] = schemas.infer_body()

    @router.post("/models/{model}/infer", summary="Tensors in, logits out", **options)
    @router.post("/models/{model}/versions/{version}/infer", summary="Tensors in, logits out", **options)
    async def infer(request: Request, model: str, version: str = tensors.VERSION) -> Response:
        known(service, model, version)
        return await service.counted(lambda: _answer(service, request))


def known(service: Service, model: str, version: str) -> None:
    """Refuse another model's name, or another version.

    Raises:
        HTTPException: 404.
    """
    name = service.identity["model"]
    if model != name:
        raise HTTPException(404, f"there is no model {model[:80]!r} here: this is {name}")
    if version != tensors.VERSION:
        raise HTTPException(404, f"{name} has no version {version[:20]!r}: its only one is {tensors.VERSION}")


async def _answer(service: Service, request: Request) -> Response:
    binary = HEADER_LENGTH in request.headers
    most = service.signature.most_bytes if binary else service.limits.upload

    async def compute(data: bytes, deadline: float) -> tuple[bytes, bytes]:
        asked = await _asked(service, request.headers[HEADER_LENGTH] if binary else None, data, deadline)
        logits = await service.logits(asked.images, deadline)
        names, identity = service.predictor.classes, service.identity
        about: dict[str, Any] = {"model_name": identity["model"], "model_version": tensors.VERSION}
        about |= {"parameters": {key: identity[key] for key in ("weights_sha256", "version")}}
        return tensors.answer(asked, logits, names, about)

    text, raw = await service.received(request, most, "request", compute)
    if not raw:
        return Response(text, media_type="application/json")
    return Response(text + raw, media_type="application/octet-stream", headers={HEADER_LENGTH: str(len(text))})


async def _asked(service: Service, length: str | None, data: bytes, deadline: float) -> tensors.Asked:
    """Read a request: what is short here, JSON that may be long in a decoder."""
    if length is None and len(data) > tensors.MOST_HEADER:
        return await service.decoders.parse(data, deadline)
    end = len(data)
    if length is not None:
        if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= len(data)):
            raise tensors.Refused(f"Inference-Header-Content-Length is {length[:40]!r}: the request has {len(data):,} bytes")
        end = int(length)
    if end > tensors.MOST_HEADER:
        raise tensors.Refused(f"the JSON before binary tensors is longer than {tensors.MOST_HEADER:,} bytes")
    return tensors.parse(data[:end], memoryview(data)[end:], service.signature)
