"""A model repository that NVIDIA's Triton Inference Server reads, from an export: a folder with configuration, labels and ONNX."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir
from mobilenetv3_paddle.deploy.bundle import ONNX, Bundle

VERSION = "1"
CONFIG, LABELS = "config.pbtxt", "labels.txt"


def write_repository(bundle: Bundle, folder: str | os.PathLike, batch: int = 32) -> Path:
    """Write a model into a repository; another version of it, or other models beside it, stay.

    Args:
        bundle: an export with ONNX.
        folder: the repository, made if need be; Triton is started with ``--model-repository`` and its path.
        batch: most pictures in a run of the engine.

    Returns:
        The model's folder, which has the name of its architecture.

    Raises:
        UserError: the export has no ONNX, or the folder cannot be written.
    """
    model = Path(folder) / bundle.model
    target = ensure_writable_dir(model / VERSION) / "model.onnx"
    inputs, outputs = _tensors(bundle.path(ONNX))
    part = target.with_suffix(".part")
    try:
        shutil.copyfile(bundle.path(ONNX), part)
        part.replace(target)
        with atomic_open(model / LABELS, "w") as file:
            file.writelines(f"{name}\n" for name in bundle.classes)
        with atomic_open(model / CONFIG, "w") as file:
            file.write(_config(bundle.model, inputs, outputs, batch))
    except OSError as error:
        raise UserError(f"cannot write {model}: {error.strerror}") from error
    return model


def _tensors(path: Path) -> tuple[tuple[str, list[int]], tuple[str, list[int]]]:
    """Name and shape, without the batch, of an ONNX model's input and output."""
    import onnx

    graph = onnx.load(str(path)).graph
    found = []
    for value in (graph.input[0], graph.output[0]):
        batch, *sizes = value.type.tensor_type.shape.dim
        if batch.dim_value or not all(size.dim_value for size in sizes):
            raise UserError(f"{path}: {value.name} has no dynamic batch, or other dynamic sizes: export the model again")
        found.append((value.name, [size.dim_value for size in sizes]))
    return found[0], found[1]


def _config(name: str, given: tuple[str, list[int]], got: tuple[str, list[int]], batch: int) -> str:
    """config.pbtxt: Triton's ``ModelConfig`` as text. Names and numbers are quoted as JSON quotes them, which it reads."""
    return f"""# Written by tools/export_model.py. Pictures are prepared by the client: docs/examples/client.py.
name: {json.dumps(name)}
platform: "onnxruntime_onnx"
max_batch_size: {batch}
input [
  {{ name: {json.dumps(given[0])} data_type: TYPE_FP32 dims: {json.dumps(given[1])} }}
]
output [
  {{ name: {json.dumps(got[0])} data_type: TYPE_FP32 dims: {json.dumps(got[1])} label_filename: {json.dumps(LABELS)} }}
]
instance_group [ {{ kind: KIND_AUTO count: 1 }} ]
dynamic_batching {{ }}
"""
