"""A file of weights, and everything that prediction needs to know about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paddle

from mobilenetv3_common.architecture import Architecture, model_of
from mobilenetv3_common.checkpoint import is_checkpoint, read_checkpoint
from mobilenetv3_common.class_names import class_names
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import sha256_of
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.pretrained import read_for
from mobilenetv3_common.train_config.pictures import Channels
from mobilenetv3_common.weights import CLASSIFIER, State, as_paddle
from mobilenetv3_paddle.deploy import facts
from mobilenetv3_paddle.models import MODELS, foreign
from mobilenetv3_paddle.train.state import load_model_arrays


@dataclass
class Trained:
    """A network in evaluation mode with its weights.

    Attributes:
        layer: the network.
        model: name of its architecture.
        preset: preprocessing it was trained for.
        image_backend: decoder it was trained with.
        classes: names, in the order of its logits.
        path, sha256: the file of weights.
        differs: which of a checkpoint's settings of pictures were replaced, in words; empty where none.
    """

    layer: paddle.nn.Layer
    model: str
    preset: EvalPreset
    image_backend: str
    classes: tuple[str, ...]
    path: Path
    sha256: str
    differs: str = ""


def load_trained(
    path: str | Path,
    width_mult: float | None = None,
    classes: str | Path | None = None,
    image_backend: str | None = None,
    resize_size: int | None = None,
    crop_size: int | None = None,
    take: str = "auto",
    mean: Channels | None = None,
    std: Channels | None = None,
) -> Trained:
    """Build the network that weights belong to.

    A checkpoint of tools/train.py knows architecture, preprocessing and class names. Of other files the architecture and
    the number of classes are read off the tensors; preprocessing and names are then ImageNet's unless given.

    Args:
        path: .pdparams, .pth, .safetensors or another trainer's checkpoint, of either framework.
        width_mult: of the network; read off the tensors where None.
        classes: file with a class name a line.
        image_backend, resize_size, crop_size, mean, std: in place of the checkpoint's, or the defaults.
        take: which weights of a training checkpoint, one of ``mobilenetv3_common.weights_file.TAKE``.

    Raises:
        UserError: the file cannot be read, is no MobileNetV3's, or does not fit what was given.
    """
    config: dict[str, Any] = {}
    names: tuple[str, ...] | None = None
    if str(path).endswith(".safetensors") and is_checkpoint(path):
        config, names = _facts(read_checkpoint(path).meta, path)
    state = read_for(path, take=take)
    found = _architecture(state, config, width_mult, path)
    if classes is None and names is not None and len(names) != found.num_classes:
        raise UserError(f"{path} names {len(names)} classes, but its last layer has {found.num_classes}: give --classes")
    layer = foreign.build(found, path)
    load_model_arrays(layer, as_paddle(state), str(path))
    layer.eval()
    preset = EvalPreset(**{name: config[name] for name in ("resize_size", "crop_size", "mean", "std") if name in config})
    given: dict[str, Any] = {"resize_size": resize_size, "crop_size": crop_size, "mean": mean, "std": std}
    given = {name: value for name, value in given.items() if value}
    changed = [name for name, value in given.items() if config.get(name, value) != value]
    told = [f"{name} {given[name]} in place of training's {config[name]}" for name in changed]
    preset = replace(preset, **given)
    if classes is not None or names is None:
        names = class_names(found.num_classes, classes, names or ())
    decoder = image_backend or config.get("image_backend", "pil")
    return Trained(layer, found.model, preset, decoder, names, Path(path), sha256_of(path), "; ".join(told))


def _facts(meta: Any, path: str | Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a checkpoint says of its network and pictures, and its class names.

    Raises:
        UserError: something of it is missing or cannot be meant.
    """
    try:
        config = facts.table(facts.table(meta, "the metadata")["config"], "config")
        normalised = [None if (own := config.get(name)) is None else facts.channels(own, name) for name in ("mean", "std")]
        preset = facts.preset(config["resize_size"], config["crop_size"], *normalised)
        found = {
            "model": facts.model(config["model"]),
            "width_mult": facts.number(config["width_mult"], "width_mult", 0.01, 16),
            "resize_size": preset.resize_size,
            "crop_size": preset.crop_size,
            "mean": preset.mean,
            "std": preset.std,
            "image_backend": facts.image_backend(config["image_backend"]),
        }
        return found, facts.classes(meta["classes"])
    except KeyError as error:
        raise UserError(f"checkpoint {path} is damaged (it has no {error.args[0]}): take another one") from error
    except facts.Senseless as error:
        raise UserError(f"checkpoint {path} is damaged ({error}): take another one") from error


def _architecture(state: State, config: dict[str, Any], width_mult: float | None, path: str | Path) -> Architecture:
    """The network that the weights belong to, from their shapes; a checkpoint, and who gives a width, say it themselves.

    Raises:
        UserError: no MobileNetV3 has such tensors.
    """
    found = foreign.fitting({name: array.shape for name, array in state.items()})
    model = config.get("model") or (found.model if found else model_of(state))
    if model not in MODELS or f"{CLASSIFIER}.bias" not in state:
        raise UserError(f"{path} holds no MobileNetV3's weights: its tensors begin with {', '.join(list(state)[:3])}")
    width = width_mult or config.get("width_mult")
    if found is not None and found.model == model and width in (None, found.width_mult):
        return found
    reduced = found is not None and found.reduced_tail
    return Architecture(model, int(state[f"{CLASSIFIER}.bias"].size), width or 1.0, reduced)
