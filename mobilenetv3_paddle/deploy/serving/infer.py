"""The open inference protocol (KServe's version 2) over HTTP, under /v2."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mobilenetv3_common import __version__
from mobilenetv3_paddle.deploy.serving import tensors
from mobilenetv3_paddle.deploy.serving.service import Service

HEADER_LENGTH = "inference-header-content-length"


def protocol(service: Service) -> list[Route]:
    """The protocol's paths for one model, whose only version is 1."""
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
        return JSONResponse({"name": name, "ready": service.ready}, 200 if service.ready else 503)

    async def infer(request: Request) -> Response:
        _known(request, name)
        return await _answer(service, request)

    routes = [Route("/v2", server), Route("/v2/", server)]
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [Route(base, metadata), Route(base + "/ready", ready)]
        routes += [Route(base + "/infer", infer, methods=["POST"])]
    return routes


def _known(request: Request, name: str) -> None:
    """Refuse another model's name, or another version, with 404."""
    model, version = request.path_params["model"], request.path_params.get("version", tensors.VERSION)
    if model != name:
        raise HTTPException(404, f"there is no model {model[:80]!r} here: this is {name}")
    if version != tensors.VERSION:
        raise HTTPException(404, f"{name} has no version {version[:20]!r}: its only one is {tensors.VERSION}")


async def _answer(service: Service, request: Request) -> Response:
    length = request.headers.get(HEADER_LENGTH)
    most = service.limits.upload if length is None else service.signature.most_bytes

    async def compute(data: bytes, deadline: float) -> tuple[bytes, bytes]:
        asked = await _asked(service, length, data, deadline)
        logits = await service.logits(asked.images, deadline)
        about: dict[str, Any] = {"model_name": service.identity["model"], "model_version": tensors.VERSION}
        about |= {"parameters": {key: service.identity[key] for key in ("weights_sha256", "version")}}
        return tensors.answer(asked, logits, service.predictor.classes, about)

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
