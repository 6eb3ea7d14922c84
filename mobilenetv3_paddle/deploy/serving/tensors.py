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
    """What a model takes.

    Attributes:
        crop: height and width of its input in pixels.
        batch: most pictures in one request.
        classes: of its output.
    """

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

    def inputs(self) -> list[dict[str, Any]]:
        """The input for the model's metadata; -1 is the batch."""
        return [{"name": INPUT, "datatype": "FP32", "shape": [-1, *self.picture]}]

    def outputs(self) -> list[dict[str, Any]]:
        """The output for the model's metadata."""
        return [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, self.classes]}]


@dataclass(frozen=True)
class Asked:
    """A request that can be answered.

    Attributes:
        id: the client's name for it; None without one.
        binary: whether the output is wanted as bytes.
        best: how many of the likeliest classes are wanted instead of all logits; 0 for the logits.
        images: float32 (N, 3, crop, crop), finite.
    """

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
    """Read a request.

    Args:
        header: its JSON.
        raw: the bytes behind it.
        signature: of the model.

    Raises:
        Refused: it cannot be answered.
    """
    content = _object(_json(header), "the request")
    number = content.get("id")
    if number is not None and not (isinstance(number, str) and len(number) <= MOST_ID):
        raise Refused(f"id must be a string of at most {MOST_ID} characters")
    binary = _flag(_object(content.get("parameters", {}), "parameters"), "binary_data_output", False)
    images = _images(content, raw, signature)
    binary, best = _wanted(content.get("outputs", []), binary, signature)
    return Asked(number, binary, best, images)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_constant)
    except Refused:
        raise
    except RecursionError as error:
        raise Refused("the request is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Refused("the request is no JSON: it is not UTF-8") from error
    except ValueError as error:
        raise Refused(f"the request is no JSON: {_line(str(error))}") from error


def _no_constant(text: str) -> NoReturn:
    raise Refused(f"the request is no JSON: {text} is no number of JSON's")


def _images(content: dict[str, Any], raw: bytes | memoryview, signature: Signature) -> np.ndarray:
    right = f"{INPUT}, FP32, shape [N, 3, {signature.crop}, {signature.crop}]"
    inputs = content.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        found = f"{len(inputs)} are given" if isinstance(inputs, list) else "inputs must be a list of one"
        raise Refused(f"the model takes one input ({right}): {found}")
    given = _object(inputs[0], "inputs[0]")
    if given.get("name") != INPUT:
        raise Refused(f"the model has no input {_shown(given.get('name'))}: it takes {right}")
    if given.get("datatype") != "FP32":
        raise Refused(f"datatype of {INPUT} is {_shown(given.get('datatype'))}: the model takes {right}")
    shape = _shape(given.get("shape"), signature, right)
    parameters = _object(given.get("parameters", {}), f"parameters of {INPUT}")
    if "shared_memory_region" in parameters:
        raise Refused("shared memory is not offered here: send the tensor in the request")
    if "binary_data_size" in parameters:
        if "data" in given:
            raise Refused(f"{INPUT} has data and binary_data_size: give one of them")
        images = _from_bytes(parameters["binary_data_size"], raw, shape)
    else:
        if len(raw):
            raise Refused(f"{len(raw):,} bytes follow the JSON, and no input has binary_data_size")
        images = _from_numbers(given.get("data"), shape)
    if not np.isfinite(images).all():
        raise Refused(f"{INPUT} holds NaN or infinity (as float32)")
    return images


def _shape(given: Any, signature: Signature, right: str) -> tuple[int, ...]:
    whole = isinstance(given, list) and all(type(size) is int for size in given)
    if not whole or len(given) != 4 or tuple(given[1:]) != signature.picture or given[0] < 1:
        raise Refused(f"shape of {INPUT} is {_shown(given)}: the model takes {right}, N at least 1")
    if given[0] > signature.batch:
        raise Refused(f"{given[0]} pictures in one request: at most {signature.batch} (--max-batch)")
    return tuple(given)


def _from_bytes(size: Any, raw: bytes | memoryview, shape: tuple[int, ...]) -> np.ndarray:
    right = 4 * math.prod(shape)
    if type(size) is not int or size != right:
        raise Refused(f"binary_data_size of {INPUT} is {_shown(size)}: {list(shape)} in FP32 is {right:,} bytes")
    if len(raw) != right:
        raise Refused(f"{len(raw):,} bytes follow the JSON (Inference-Header-Content-Length), announced are {right:,}")
    return np.frombuffer(raw, "<f4").reshape(shape).astype(np.float32, copy=False)


def _from_numbers(data: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of JSON, row by row in one list or in lists of lists."""
    if not isinstance(data, list):
        raise Refused(f"{INPUT} has no data: give a list of numbers, or binary_data_size with the bytes behind the JSON")
    total = math.prod(shape)
    if data and isinstance(data[0], list):
        level: list[Any] = [data]  # all that stands at one depth
        for size in shape:
            if not all(isinstance(row, list) and len(row) == size for row in level):
                raise Refused(f"data of {INPUT} is not nested as its shape {list(shape)} is")
            level = [item for row in level for item in row]
        data = level
    if len(data) != total:
        raise Refused(f"data of {INPUT} has {len(data):,} numbers: shape {list(shape)} is {total:,}")
    if not set(map(type, data)) <= {int, float}:
        raise Refused(f"data of {INPUT} must be numbers")
    try:
        with np.errstate(over="ignore"):
            return np.array(array("d", data)).astype(np.float32).reshape(shape)
    except OverflowError as error:
        raise Refused(f"data of {INPUT} has a number that is too large") from error


def _wanted(outputs: Any, binary: bool, signature: Signature) -> tuple[bool, int]:
    """Whether the output is wanted as bytes, and how many classes of it."""
    if not isinstance(outputs, list):
        raise Refused("outputs must be a list")
    if not outputs:
        return binary, 0
    names = [_object(output, "an output").get("name") for output in outputs]
    if names != [OUTPUT]:
        wrong = next((name for name in names if name != OUTPUT), None)
        if wrong is None and len(names) > 1:
            raise Refused(f"the output {OUTPUT} is asked for {len(names)} times")
        raise Refused(f"the model has no output {_shown(wrong)}: it gives {OUTPUT}")
    parameters = _object(outputs[0].get("parameters", {}), f"parameters of {OUTPUT}")
    if "shared_memory_region" in parameters:
        raise Refused("shared memory is not offered here: leave shared_memory_region out")
    best = parameters.get("classification", 0)
    if "classification" in parameters and (type(best) is not int or not 1 <= best <= signature.classes):
        raise Refused(f"classification must be a whole number from 1 to {signature.classes}, found {_shown(best)}")
    return _flag(parameters, "binary_data", binary), best


def answer(asked: Asked, logits: np.ndarray, classes: Sequence[str], about: dict[str, Any]) -> tuple[bytes, bytes]:
    """The answer's JSON, and the bytes behind it.

    Args:
        asked: the request.
        logits: float32 (N, classes).
        classes: their names.
        about: ``model_name``, ``model_version`` and ``parameters``.

    Raises:
        Refused: the output is not finite, which the inputs' size or damaged weights bring about.
    """
    if not np.isfinite(logits).all():
        raise Refused("the output is not finite: the numbers of the input are too large, or the weights are damaged")
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
    if not isinstance(value, bool):
        raise Refused(f"{name} must be true or false, found {_shown(value)}")
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
