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
from mobilenetv3_paddle.deploy import facts

DEPLOY_JSON = "deploy.json"
FORMAT = "mobilenetv3-deploy-1"
PADDLE_PROGRAM, PADDLE_WEIGHTS = "inference.json", "inference.pdiparams"
OLD_PROGRAM = "inference.pdmodel"  # of Paddle 2, which Paddle 3 still writes and runs
ONNX, ONNX_INT8 = "model.onnx", "model_int8.onnx"
FILES = (PADDLE_PROGRAM, PADDLE_WEIGHTS, OLD_PROGRAM, ONNX, ONNX_INT8)


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
        fastest: engine and precision that ``--engine auto`` measured to be the fastest, and on what; empty where it did not.
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
    fastest: dict[str, Any] = field(default_factory=dict)
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
        del content["folder"], content["preset"]["tta"]  # several views are evaluation's alone
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
        bundle = _bundle(json.loads(path.read_text(encoding="utf-8")), folder)
    except KeyError as error:
        raise UserError(f"{path} is damaged (it has no {error.args[0]}): export the model again") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): export the model again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    for name, expected in bundle.files.items():
        if sha256_of(bundle.path(name)) != expected:
            raise UserError(f"{folder / name} is damaged or from another export (its SHA-256 is not the one in {DEPLOY_JSON})")
    return bundle


def _bundle(content: Any, folder: Path) -> Bundle:
    """deploy.json's content, each value looked at."""
    content = facts.table(content, "the whole")
    if content["format"] != FORMAT:
        raise facts.Senseless(f"its format is not {FORMAT}")
    known = {"format", *(entry.name for entry in dataclasses.fields(Bundle))} - {"folder"}
    if unknown := set(content) - known:
        raise facts.Senseless(f"{', '.join(sorted(unknown))[:60]} is unknown")
    preset = facts.table(content["preset"], "preset")
    files = {name: facts.digest(value, f"files: {name}") for name, value in facts.table(content["files"], "files").items()}
    if not files or set(files) - set(FILES):
        raise facts.Senseless(f"files must be some of {', '.join(FILES)}")
    return Bundle(
        facts.model(content["model"]),
        facts.preset(preset["resize_size"], preset["crop_size"], preset["mean"], preset["std"]),
        facts.image_backend(content["image_backend"]),
        facts.classes(content["classes"]),
        facts.text(content["weights"], "weights"),
        facts.digest(content["weights_sha256"], "weights_sha256"),
        files,
        {name: facts.text(value, f"versions: {name}") for name, value in facts.table(content["versions"], "versions").items()},
        facts.table(content["int8"], "int8"),
        facts.table(content.get("fastest", {}), "fastest"),
        folder,
    )
