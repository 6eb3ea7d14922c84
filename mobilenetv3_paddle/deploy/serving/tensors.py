"""The open inference protocol (KServe's version 2) without its transport: requests that hold tensors, and their answers.

A request is a JSON object. Its tensor stands in it as numbers, or behind it as bytes (the extension for binary data), and the
answer likewise. Written after the specification of the protocol and of its extensions "binary_tensor_data" and "classification".
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np

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
        head = asdict(self) | {"images": self.images.shape}
        text = json.dumps(head).encode()
        return len(text).to_bytes(4, "big") + text + self.images.tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> Asked:
        """What ``packed`` made bytes of."""
        end = 4 + int.from_bytes(data[:4], "big")
        head = json.loads(data[4:end])
        return cls(**head | {"images": np.frombuffer(data, np.float32, offset=end).reshape(head["images"])})


def parse(header: bytes, raw: bytes | memoryview, signature: Signature) -> Asked:
    """Read a request: its JSON, and the bytes behind it; ``Refused`` where it cannot be answered."""
    content = _object(_json(header), "the request")
    number = content.get("id")
    known = number is None or (isinstance(number, str) and len(number) <= MOST_ID)
    _need(known, f"id must be a string of at most {MOST_ID} characters")
    binary = _flag(_object(content.get("parameters", {}), "parameters"), "binary_data_output", False)
    images = _images(content, raw, signature)
    return Asked(number, *_wanted(content.get("outputs", []), binary, signature), images)


def _need(holds: bool, right: str) -> None:
    if not holds:
        raise Refused(right)


def _json(data: bytes) -> Any:
    def no_constant(text: str) -> NoReturn:
        raise Refused(f"the request is no JSON: {text} is no number of JSON's")

    try:
        return json.loads(data.decode(), parse_constant=no_constant)  # as bytes it might be UTF-16, which JSON here is not
    except RecursionError as error:
        raise Refused("the request is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Refused("the request is no JSON: it is not UTF-8") from error
    except ValueError as error:
        raise Refused(f"the request is no JSON: {_line(str(error))}") from error


def _images(content: dict[str, Any], raw: bytes | memoryview, signature: Signature) -> np.ndarray:
    right = f"{INPUT}, FP32, shape [N, 3, {signature.crop}, {signature.crop}]"
    inputs = content.get("inputs")
    found = f"{len(inputs)} are given" if isinstance(inputs, list) else "inputs must be a list of one"
    _need(isinstance(inputs, list) and len(inputs) == 1, f"the model takes one input ({right}): {found}")
    given = _object(inputs[0], "inputs[0]")  # type: ignore[index]
    _need(given.get("name") == INPUT, f"the model has no input {_shown(given.get('name'))}: it takes {right}")
    kind = given.get("datatype")
    _need(kind == "FP32", f"datatype of {INPUT} is {_shown(kind)}: the model takes {right}")
    shape = _shape(given.get("shape"), signature, right)
    parameters = _object(given.get("parameters", {}), f"parameters of {INPUT}")
    _need("shared_memory_region" not in parameters, "shared memory is not offered here: send the tensor in the request")
    if "binary_data_size" in parameters:
        _need("data" not in given, f"{INPUT} has data and binary_data_size: give one of them")
        images = _from_bytes(parameters["binary_data_size"], raw, shape)
    else:
        _need(not len(raw), f"{len(raw):,} bytes follow the JSON, and no input has binary_data_size")
        images = _from_numbers(given.get("data"), shape)
    _need(bool(np.isfinite(images).all()), f"{INPUT} holds NaN or infinity (as float32)")
    return images


def _shape(given: Any, signature: Signature, right: str) -> tuple[int, ...]:
    whole = isinstance(given, list) and all(type(size) is int for size in given)
    fits = whole and len(given) == 4 and tuple(given[1:]) == signature.picture and given[0] >= 1
    _need(fits, f"shape of {INPUT} is {_shown(given)}: the model takes {right}, N at least 1")
    _need(given[0] <= signature.batch, f"{_shown(given[0])} pictures in one request: at most {signature.batch} (--max-batch)")
    return tuple(given)


def _from_bytes(size: Any, raw: bytes | memoryview, shape: tuple[int, ...]) -> np.ndarray:
    right = 4 * math.prod(shape)
    known = type(size) is int and size == right
    _need(known, f"binary_data_size of {INPUT} is {_shown(size)}: {list(shape)} in FP32 is {right:,} bytes")
    _need(len(raw) == right, f"{len(raw):,} bytes follow the JSON (Inference-Header-Content-Length), announced are {right:,}")
    return np.frombuffer(raw, "<f4").reshape(shape).astype(np.float32, copy=False)


def _from_numbers(data: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of JSON, row by row in one list or in lists of lists."""
    if not isinstance(data, list):
        raise Refused(f"{INPUT} has no data: give a list of numbers, or binary_data_size with the bytes behind the JSON")
    total = math.prod(shape)
    if data and isinstance(data[0], list):
        level: list[Any] = [data]  # all that stands at one depth
        for size in shape:
            nested = all(isinstance(row, list) and len(row) == size for row in level)
            _need(nested, f"data of {INPUT} is not nested as its shape {list(shape)} is")
            level = [item for row in level for item in row]
        data = level
    _need(len(data) == total, f"data of {INPUT} has {len(data):,} numbers: shape {list(shape)} is {total:,}")
    _need(set(map(type, data)) <= {int, float}, f"data of {INPUT} must be numbers")
    try:
        with np.errstate(over="ignore"):
            return np.array(array("d", data)).astype(np.float32).reshape(shape)
    except OverflowError as error:
        raise Refused(f"data of {INPUT} has a number that is too large") from error


def _wanted(outputs: Any, binary: bool, signature: Signature) -> tuple[bool, int]:
    """Whether the output is wanted as bytes, and how many classes of it."""
    _need(isinstance(outputs, list), "outputs must be a list")
    if not outputs:
        return binary, 0
    for output in outputs:
        name = _object(output, "an output").get("name")
        _need(name == OUTPUT, f"the model has no output {_shown(name)}: it gives {OUTPUT}")
    _need(len(outputs) == 1, f"the output {OUTPUT} is asked for {len(outputs)} times")
    parameters = _object(outputs[0].get("parameters", {}), f"parameters of {OUTPUT}")
    _need("shared_memory_region" not in parameters, "shared memory is not offered here: leave shared_memory_region out")
    best = parameters.get("classification", 0)
    whole = "classification" not in parameters or (type(best) is int and 1 <= best <= signature.classes)
    _need(whole, f"classification must be a whole number from 1 to {signature.classes}, found {_shown(best)}")
    return _flag(parameters, "binary_data", binary), best


def answer(asked: Asked, logits: np.ndarray, classes: Sequence[str], about: dict[str, Any]) -> tuple[bytes, bytes]:
    """The answer's JSON, and the bytes behind it: of logits, float32 (N, classes), classes' names, and what is said of the model;
    ``Refused`` where the logits are not finite."""
    whole = bool(np.isfinite(logits).all())
    _need(whole, "the output is not finite: the numbers of the input are too large, or the weights are damaged")
    output: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": list(logits.shape)}
    raw = b""
    if asked.best:
        order = np.argsort(-logits, axis=1, kind="stable")[:, : asked.best]
        rows = [[f"{row[i]:f}:{i}:{classes[i]}" for i in best] for row, best in zip(logits, order, strict=True)]
        texts = [text for row in rows for text in row]
        output |= {"datatype": "BYTES", "shape": list(order.shape)}
        data: Any = texts
        if asked.binary:
            raw = b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for text in texts)
    else:
        data = None if asked.binary else logits.ravel().tolist()
        raw = logits.astype("<f4").tobytes() if asked.binary else b""
    output |= {"parameters": {"binary_data_size": len(raw)}} if asked.binary else {"data": data}
    content = about | ({} if asked.id is None else {"id": asked.id}) | {"outputs": [output]}
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace"), raw


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{name} must be a JSON object, found {_shown(value)}")
    return value


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    _need(isinstance(value, bool), f"{name} must be true or false, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """A value for a message: one line, not long."""
    try:
        return _line(json.dumps(value))
    except (ValueError, RecursionError):  # an integer of thousands of digits
        return "what cannot be shown"


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."
