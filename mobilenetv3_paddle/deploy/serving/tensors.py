"""The open inference protocol (KServe's version 2) without its transport: requests that hold tensors, and their answers.

A request is a JSON object. Its tensor stands in it as numbers, or behind it as bytes (the extension for binary data), and the
answer likewise. Written after the specification of the protocol and of its extensions "binary_tensor_data" and "classification".
msgspec holds the JSON to the types below, which say what the protocol allows; what depends on the model is checked after that.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from mobilenetv3_common.errors import UserError

INPUT, OUTPUT = "images", "logits"
VERSION = "1"
EXTENSIONS = ("binary_tensor_data", "classification")
MOST_HEADER = 2**16  # bytes of JSON before binary tensors
MOST_ID = 1000  # characters


class Refused(UserError):
    """A request that is not the protocol's, or not this model's; the message names what is wrong and what is right."""


@dataclass(frozen=True)
class Signature:
    """What a model takes: height and width of its input in pixels, pictures in one request at most, classes of its output."""

    crop: int
    batch: int
    classes: int

    @property
    def picture(self) -> tuple[int, int, int]:
        """Shape of one picture."""
        return 3, self.crop, self.crop

    @property
    def words(self) -> str:
        """What a request must hold."""
        return f"{INPUT}, FP32, shape [N, 3, {self.crop}, {self.crop}]"

    @property
    def most_bytes(self) -> int:
        """Of a request with binary tensors."""
        return MOST_HEADER + self.batch * math.prod(self.picture) * 4

    def metadata(self) -> dict[str, Any]:
        """Inputs and outputs for the model's metadata; -1 is the batch."""
        given = {"name": INPUT, "datatype": "FP32", "shape": [-1, *self.picture]}
        return {"inputs": [given], "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, self.classes]}]}


@dataclass(frozen=True)
class Asked:
    """A request that can be answered: the client's name for it, whether the output is wanted as bytes, how many of the likeliest
    classes are wanted (0 for all logits), and the images, float32 (N, 3, crop, crop), finite."""

    id: str | None
    binary: bool
    best: int
    images: np.ndarray

    def packed(self) -> bytes:
        """As bytes, for another process."""
        return msgspec.msgpack.encode(self, enc_hook=lambda images: (images.shape, images.tobytes()))

    @classmethod
    def unpacked(cls, data: bytes) -> Asked:
        """What ``packed`` made bytes of."""
        return msgspec.msgpack.decode(
            data, type=cls, dec_hook=lambda _, packed: np.frombuffer(packed[1], np.float32).reshape(packed[0])
        )


class _Parameters(Struct, frozen=True):
    """Of a request, its input or its output; each has some of them."""

    binary_data_output: bool = False
    binary_data_size: int | UnsetType = UNSET
    binary_data: bool | UnsetType = UNSET
    classification: int | UnsetType = UNSET
    shared_memory_region: Any = UNSET

    def __post_init__(self) -> None:
        if self.shared_memory_region is not UNSET:
            raise ValueError("shared memory is not offered here: send and receive tensors in the requests")


class _Input(Struct):
    name: Literal["images"]
    datatype: Literal["FP32"]
    shape: list[int]
    parameters: _Parameters = _Parameters()
    data: list[float | list[list[list[float]]]] = []  # row by row in one list, or in lists of lists


class _Output(Struct):
    name: Literal["logits"]
    parameters: _Parameters = _Parameters()


class _Request(Struct):
    inputs: Annotated[list[_Input], Meta(min_length=1, max_length=1)]
    outputs: Annotated[list[_Output], Meta(max_length=1)] = []
    id: Annotated[str, Meta(max_length=MOST_ID)] | None = None
    parameters: _Parameters = _Parameters()


_REQUEST = msgspec.json.Decoder(_Request)


def parse(header: bytes, raw: bytes | memoryview, signature: Signature) -> Asked:
    """Read a request: its JSON, and the bytes behind it; ``Refused`` where it cannot be answered."""
    try:
        request = _REQUEST.decode(header.decode())  # as bytes it might be UTF-16, which JSON here is not
    except RecursionError as error:
        raise Refused("the request is nested too deeply") from error
    except msgspec.ValidationError as error:
        raise Refused(f"{_line(error)}; the model takes one input ({signature.words}) and gives {OUTPUT}") from error
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else _line(error)
        raise Refused(f"the request is no JSON: {why}") from error
    wanted = request.outputs[0].parameters if request.outputs else _Parameters()
    binary = request.parameters.binary_data_output if wanted.binary_data is UNSET else wanted.binary_data
    best, classes = wanted.classification, signature.classes
    known = best is UNSET or 1 <= best <= classes
    _need(known, f"classification must be a whole number from 1 to {classes}, found {best}")
    return Asked(request.id, binary, 0 if best is UNSET else best, _images(request.inputs[0], raw, signature))


def _need(holds: bool, right: str) -> None:
    if not holds:
        raise Refused(right)


def _images(given: _Input, raw: bytes | memoryview, signature: Signature) -> np.ndarray:
    """float32 (N, 3, crop, crop), finite."""
    shape, size = tuple(given.shape), given.parameters.binary_data_size
    fits = len(shape) == 4 and shape[1:] == signature.picture and shape[0] >= 1
    _need(fits, f"shape of {INPUT} is {_line(given.shape)}: the model takes {signature.words}, N at least 1")
    _need(shape[0] <= signature.batch, f"{shape[0]} pictures in one request: at most {signature.batch} (--max-batch)")
    total = math.prod(shape)
    if size is UNSET:
        _need(not len(raw), f"{len(raw):,} bytes follow the JSON, and no input has binary_data_size")
        images = _rows(given.data, shape)
        _need(images.size == total, f"data of {INPUT} has {images.size:,} numbers: shape {given.shape} is {total:,}")
    else:
        _need(not given.data, f"{INPUT} has data and binary_data_size: give one of them")
        _need(size == 4 * total, f"binary_data_size of {INPUT} is {size}: {given.shape} in FP32 is {4 * total:,} bytes")
        _need(len(raw) == size, f"{len(raw):,} bytes follow the JSON (Inference-Header-Content-Length), announced are {size:,}")
        images = np.frombuffer(raw, "<f4").astype(np.float32, copy=False)
    _need(bool(np.isfinite(images).all()), f"{INPUT} holds NaN or infinity (as float32)")
    return images.reshape(shape)


def _rows(data: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in one list, or nested as the shape is."""
    with np.errstate(over="ignore"), contextlib.suppress(ValueError):  # of rows of several lengths
        rows = np.array(data, np.float32)
        if rows.ndim == 1 or rows.shape == shape:
            return rows
    raise Refused(f"data of {INPUT} is not nested as its shape {list(shape)} is")


def answer(asked: Asked, logits: np.ndarray, classes: Sequence[str], about: dict[str, Any]) -> tuple[bytes, bytes]:
    """The answer's JSON, and the bytes behind it: of logits, float32 (N, classes), classes' names, and what is said of the model;
    ``Refused`` where the logits are not finite."""
    whole = bool(np.isfinite(logits).all())
    _need(whole, "the output is not finite: the numbers of the input are too large, or the weights are damaged")
    kind, values, raw = "FP32", logits, logits.astype("<f4").tobytes()
    if asked.best:
        order = np.argsort(-logits, axis=1, kind="stable")[:, : asked.best]
        rows = [[f"{row[i]:f}:{i}:{classes[i]}" for i in best] for row, best in zip(logits, order, strict=True)]
        kind, values = "BYTES", np.array(rows, object)
        raw = b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for row in rows for text in row)
    output: dict[str, Any] = {"name": OUTPUT, "datatype": kind, "shape": list(values.shape)}
    output |= {"parameters": {"binary_data_size": len(raw)}} if asked.binary else {"data": values.ravel().tolist()}
    content = about | ({} if asked.id is None else {"id": asked.id}) | {"outputs": [output]}
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace"), raw if asked.binary else b""


def _line(found: Any) -> str:
    """What was found, for a message: one line, not long."""
    text = " ".join(str(found).split())
    return text if len(text) <= 160 else f"{text[:77]}...{text[-80:]}"
