"""The folder that an export leaves: a model for each engine, and deploy.json with all that they need besides.

``deploy.json`` holds the architecture's name, the preprocessing, the class names, the SHA-256 of the weights that were
exported and of every file beside it, so that an engine needs nothing else and notices a damaged or mixed-up folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, sha256_of
from mobilenetv3_common.presets import EvalPreset

DEPLOY_JSON = "deploy.json"
FORMAT = "mobilenetv3-deploy-1"
PADDLE_PROGRAM, PADDLE_WEIGHTS = "inference.json", "inference.pdiparams"
ONNX, ONNX_INT8 = "model.onnx", "model_int8.onnx"


@dataclass
class Bundle:
    """An exported model.

    Attributes:
        model: architecture, e.g. ``mobilenet_v3_small``.
        preset: preprocessing of a picture.
        image_backend: decoder of pictures, ``pil`` or ``cv2``.
        classes: name of each class, in the order of the logits.
        weights, weights_sha256: file that was exported.
        files: name -> SHA-256 of each file beside deploy.json.
        versions: of the packages that made them.
        int8: what was tried and kept in quantisation; empty without int8.
        folder: where it lies.
    """

    model: str
    preset: EvalPreset
    image_backend: str
    classes: tuple[str, ...]
    weights: str
    weights_sha256: str
    files: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    int8: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    def path(self, name: str) -> Path:
        """A file of the folder.

        Raises:
            UserError: the export did not make it, or it has gone.
        """
        if name not in self.files or not (self.folder / name).is_file():
            raise UserError(f"{self.folder} has no {name}: export the model again (tools/export_model.py --help says with what)")
        return self.folder / name

    def add(self, name: str) -> None:
        """Take a file that was just written into the list."""
        self.files[name] = sha256_of(self.folder / name)

    def write(self) -> None:
        """Write deploy.json, whole or not at all."""
        content: dict[str, Any] = {"format": FORMAT, **dataclasses.asdict(self)}
        del content["folder"]
        with atomic_open(self.folder / DEPLOY_JSON, "w") as file:
            json.dump(content, file, indent=1)
            file.write("\n")


def read_bundle(folder: str | os.PathLike) -> Bundle:
    """Read an exported folder, and hold every file against its SHA-256.

    Raises:
        UserError: it is none, or a file is missing, damaged or from another export.
    """
    folder = Path(folder)
    path = folder / DEPLOY_JSON
    if not path.is_file():
        raise UserError(f"{folder} is no exported model (it has no {DEPLOY_JSON}): make one with tools/export_model.py")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        preset = content.pop("preset")
        preset = EvalPreset(preset["resize_size"], preset["crop_size"], tuple(preset["mean"]), tuple(preset["std"]))
        bundle = Bundle(preset=preset, classes=tuple(content.pop("classes")), folder=folder, **content)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}): export the model again") from error
    for name, digest in bundle.files.items():
        if sha256_of(bundle.path(name)) != digest:
            raise UserError(f"{folder / name} is damaged or from another export (its SHA-256 is not the one in {DEPLOY_JSON})")
    return bundle
