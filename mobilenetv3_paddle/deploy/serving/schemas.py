"""The bodies of requests and answers, for the description of the service (/openapi.json)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

REFUSALS = {
    400: "the request cannot be read, or does not fit the model",
    401: "no token, or a wrong one",
    404: "no such path, model or version",
    408: "the request did not arrive in time",
    413: "too many bytes, pixels or scans",
    415: "not a picture, or a Content-Encoding that is not taken",
    422: "a damaged picture, or a wrong parameter",
    429: "too many requests of this client are under way",
    503: "too many requests, or the engine does not answer: come again after Retry-After",
    504: "not answered in time",
}


class Problem(BaseModel):
    """What is wrong, outside /v2."""

    detail: str | list[dict[str, Any]]


class ProtocolError(BaseModel):
    """What is wrong, in the protocol's form."""

    error: str


class Prediction(BaseModel):
    """One class."""

    index: int = Field(ge=0)
    name: str
    probability: float = Field(ge=0, le=1)


class Predictions(BaseModel):
    """A picture's likeliest classes, likeliest first."""

    model: str
    version: str = Field(description="of this service")
    weights_sha256: str
    predictions: list[Prediction]


class Health(BaseModel):
    """What is served, and how it is."""

    status: str = Field(description="ok or down")
    model: str
    version: str
    weights_sha256: str
    engine: str
    classes: int


class Live(BaseModel):
    """Whether the engine comes back from its runs."""

    live: bool


class Ready(BaseModel):
    """Whether requests are answered."""

    ready: bool


class ModelReady(Ready):
    """Whether a model answers."""

    name: str


class ServerMetadata(BaseModel):
    """What the server is."""

    name: str
    version: str
    extensions: list[str]


class Tensor(BaseModel):
    """Name, type and shape of a tensor; -1 is the batch."""

    name: str
    datatype: str
    shape: list[int]


class Model(BaseModel):
    """What a model takes and gives."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class RequestInput(Tensor):
    """The input: ``data``, or ``parameters.binary_data_size`` and the bytes behind the JSON."""

    parameters: dict[str, Any] | None = Field(None, description="binary_data_size: bytes of the tensor behind the JSON")
    data: list[Any] | None = Field(None, description="numbers row by row, or nested as the shape is")


class RequestOutput(BaseModel):
    """What is wanted."""

    name: str
    parameters: dict[str, Any] | None = Field(
        None, description="binary_data: as bytes behind the JSON; classification: N, the likeliest classes as logit:number:name"
    )


class InferRequest(BaseModel):
    """Tensors for the model."""

    id: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="binary_data_output: all outputs as bytes behind the JSON")
    inputs: list[RequestInput]
    outputs: list[RequestOutput] | None = None


class ResponseOutput(Tensor):
    """An output: ``data``, or ``parameters.binary_data_size`` and the bytes behind the JSON."""

    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class InferResponse(BaseModel):
    """What the model gives."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, Any] = Field(description="weights_sha256, and the service's version")
    outputs: list[ResponseOutput]


REFERENCE = "#/components/schemas/{model}"
BYTES = {"schema": {"type": "string", "format": "binary"}}


def components() -> dict[str, Any]:
    """The schemas that ``infer_body`` refers to."""
    schema = InferRequest.model_json_schema(ref_template=REFERENCE)
    return {**schema.pop("$defs"), "InferRequest": schema}


def picture_body() -> dict[str, Any]:
    """The body of /predict: a picture's bytes, or a form with a file."""
    form = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}, "required": ["file"]}
    kinds = {"application/octet-stream": BYTES, "image/*": BYTES, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": kinds}}


def infer_body() -> dict[str, Any]:
    """The body of an inference: JSON, or JSON and bytes behind it."""
    length = {
        "name": "Inference-Header-Content-Length", "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0},
        "description": "bytes of JSON before binary tensors",
    }  # fmt: skip
    kinds = {
        "application/json": {"schema": {"$ref": REFERENCE.format(model="InferRequest")}},
        "application/octet-stream": {**BYTES, "schema": {**BYTES["schema"], "description": "the same JSON, then the tensors"}},
    }
    return {"parameters": [length], "requestBody": {"required": True, "content": kinds}}
