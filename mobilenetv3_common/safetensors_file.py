"""Files of safetensors, and the types of numbers that numpy has not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.errors import UserError

SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, read one after the other; bfloat16 and float8 as float32.

    Raises:
        UserError: it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy"), open(path, "rb") as file:  # which holds what the head says to the file's size
            length = int.from_bytes(file.read(8), "little")
            tensors = {name: tensor for name, tensor in json.loads(file.read(length)).items() if name != "__metadata__"}
            state = {}
            for name, tensor in tensors.items():
                begin, end = tensor["data_offsets"]
                file.seek(8 + length + begin)
                state[name] = _array(name, {**tensor, "data": file.read(end - begin)}, path)
            return state
    except (SafetensorError, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error


def _array(name: str, tensor: Mapping[str, Any], path: Path) -> np.ndarray:
    if tensor["dtype"] not in SAFETENSORS:
        raise UserError(f"{path}: {name} is of type {tensor['dtype']}, which is not read: save it as float32")
    return as_known(tensor["data"], SAFETENSORS[tensor["dtype"]]).reshape(tensor["shape"])


def as_known(data: Any, kind: str) -> np.ndarray:
    """The numbers in a buffer, in one of numpy's own types: bfloat16 and float8 as float32, which holds them exactly."""
    if kind.startswith(("bfloat", "float8")):
        import ml_dtypes

        return np.frombuffer(data, getattr(ml_dtypes, kind)).astype(np.float32)
    return np.frombuffer(data, kind).copy()
