"""How MobileNetV3 is deployed: exported by ``tools/export_model.py``'s own code, and run by every engine that is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alignment.audit.pair import digest
from alignment.frameworks.base import Module
from alignment.project import Deployed
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_paddle.deploy.engines import Engine, create_engine
from mobilenetv3_paddle.deploy.export import export, quiet_output
from mobilenetv3_paddle.deploy.predictor import Predictor
from mobilenetv3_paddle.deploy.trained import Trained

ENGINES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "onednn": "", "paddle": ""}  # and the package that each needs


def deployed(model: str, network: Module, folder: Path, size: int) -> Deployed:
    """Export a network with its weights, and load it into the engines.

    Args:
        model: name of the architecture.
        network: of Paddle, in evaluation mode.
        folder: for the files.
        size: of the pictures, in pixels.

    Raises:
        UserError: a package is missing, or an engine does not agree with the network.
    """
    classes = tuple(f"class {number}" for number in range(int(network.classifier[3].weight.shape[1])))
    preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
    formats = ("paddle", "onnx") if importlib.util.find_spec("paddle2onnx") else ("paddle",)
    held = digest({name: tensor.numpy() for name, tensor in network.state_dict().items()})
    with quiet_output():  # of Paddle's compiled code
        bundle, _ = export(Trained(network, model, preset, "pil", classes, folder / "aligned", held), folder, formats)
    found: dict[str, Engine] = {}
    for name, package in ENGINES.items():
        if (not package or importlib.util.find_spec(package)) and (not package or "onnx" in formats):
            found[name] = create_engine(bundle, name)
    predictors = {name: Predictor(engine, bundle.preset, bundle.classes, bundle.image_backend) for name, engine in found.items()}
    first = next(iter(predictors.values()))

    def preprocess(file: Path) -> np.ndarray:
        return first.preprocess(first.decode(file))

    def predict(engine: str, files: Sequence[Path]) -> list[int]:
        return [likeliest.index for likeliest, *_ in predictors[engine].predict(list(files), topk=1)]

    return Deployed(found, preprocess, predict)
