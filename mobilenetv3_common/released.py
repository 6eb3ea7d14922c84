"""The best weights of a run for others: the network's tensors alone, and a card that says what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mobilenetv3_common.checkpoint import BEST, BEST_WEIGHTS, CARD, Checkpoint
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.presets import IMAGENET_MEAN, IMAGENET_STD
from mobilenetv3_common.terminal import printable
from mobilenetv3_common.train_config import MODELS
from mobilenetv3_common.weights import with_counters, write_state

NATIVE = {"paddle": ".pdparams", "ref": ".pth"}  # a framework package's name -> the kind of file that its framework loads
LOADED = {
    "paddle": 'model.set_state_dict(paddle.load("best_weights.pdparams"))',
    "ref": 'model.load_state_dict(torch.load("best_weights.pth"))',
}


def write_released(folder: Path, checkpoint: Checkpoint, top1: float | None) -> list[Path]:
    """Write the weights of a checkpoint without optimizer and state of the run, and a card beside them.

    Args:
        folder: of the run.
        checkpoint: of the run's best update; the moving average is taken where the run keeps one.
        top1: of validation, from 0 to 1; None where it was not evaluated.

    Returns:
        The files: ``best_weights.safetensors``, ``best_weights.pdparams`` or ``.pth``, ``model_card.md``.

    Raises:
        UserError: a file cannot be written.
    """
    framework = checkpoint.meta["framework"]
    state = checkpoint.weights()
    kinds = [".safetensors", *([NATIVE[framework]] if framework in NATIVE else [])]
    paths = [folder / f"{BEST_WEIGHTS}{kind}" for kind in kinds]
    for path in paths:
        write_state(path, with_counters(state) if path.suffix == ".pth" else state)
    with atomic_open(folder / CARD, "w") as file:
        file.write(card(checkpoint.meta, framework, top1))
    return [*paths, folder / CARD]


def card(meta: dict[str, Any], framework: str, top1: float | None) -> str:
    """What somebody who receives the weights has to know, as Markdown.

    Args:
        meta: of the checkpoint.
        framework: ``paddle`` or ``ref``.
        top1: as for ``write_released``.
    """
    config, classes = meta["config"], [printable(name) for name in meta["classes"]]
    data = printable(Path(config.get("data_path") or "the run's data").name)
    average = f"the moving average (decay {config['ema_decay']:g})" if config["ema_decay"] else "the weights themselves"
    right = f"the share of the pictures in the validation split of {data} whose most probable class is right, by these weights"
    rows = {
        "Model": f"{config['model']}, width {config['width_mult']:g}, {len(classes)} classes",
        "Trained with": "PaddlePaddle" if framework == "paddle" else "PyTorch",
        "Trained on": f"the training split of {data}",
        "Training began with": printable(config["pretrained"]) if config["pretrained"] else "fresh weights, drawn at random",
        "Weights in the files": f"{average}, after update {meta['update']}, the best of the run by validation top-1",
        "Validation top-1": "not evaluated" if top1 is None else f"{top1:.4f}: {right}",
        "Preprocessing, in validation and for prediction": f"shorter side to {config['resize_size']} pixels, centre crop "
        f"{config['crop_size']}, {_normalised(config)}, decoder {config['image_backend']}",
    }
    cells = ("| {} | {} |".format(name, value.replace("|", "\\|")) for name, value in rows.items())
    table = "\n".join(["| | |", "|---|---|", *cells])
    parts = [f"# {config['model']}", table, _loading(config, len(classes), framework)]
    parts += ["## A picture", _feeding(config, framework)] if framework in LOADED else []
    return "\n\n".join([*parts, "## Classes", _numbered(classes)]) + "\n"


def _numbers(config: dict[str, Any], name: str) -> str:
    """Mean or deviation of red, green and blue: ``0.485, 0.456, 0.406``."""
    usual = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}[name]
    return ", ".join(config[name].split(",")) if config.get(name) else ", ".join(map(str, usual))


def _normalised(config: dict[str, Any]) -> str:
    """By which mean and deviation."""
    return (
        f"divided by 255, less the mean {_numbers(config, 'mean')}, by the standard deviation {_numbers(config, 'std')} of red, "
        "green and blue"
    )


def _feeding(config: dict[str, Any], framework: str) -> str:
    """How a picture is prepared and its class read, as a block of Python that needs no part of this project."""
    made = {"paddle": "paddle.to_tensor(pixels)", "ref": "torch.from_numpy(pixels)"}[framework]
    size, crop = config["resize_size"], config["crop_size"]
    lines = [
        "import numpy as np",
        "from PIL import Image",
        "",
        'picture = Image.open("picture.jpg").convert("RGB")',
        f"size = [{size} * side // min(picture.size) for side in picture.size]  # the shorter side to {size} pixels",
        "picture = picture.resize(size, Image.Resampling.BILINEAR)",
        f"left, top = (round((side - {crop}) / 2) for side in picture.size)",
        f"picture = picture.crop((left, top, left + {crop}, top + {crop}))",
        f"mean, std = np.float32([{_numbers(config, 'mean')}]), np.float32([{_numbers(config, 'std')}])",
        "pixels = (np.asarray(picture, np.float32) / 255 - mean) / std",
        "pixels = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])  # 1 picture, 3 channels, height, width",
        f"logits = model({made})",
        "print(int(logits.argmax()))  # number of the class in the list below",
    ]
    return "\n".join(["```python", *lines, "```"])


def _loading(config: dict[str, Any], classes: int, framework: str) -> str:
    """How the weights are loaded, as a block of Python."""
    lines, model = [], config["model"]
    if model in MODELS:
        made = f'model = create_model("{model}", pretrained="{BEST}")'
        lines += [f"from mobilenetv3_{framework} import create_model", "", made]
    if framework in LOADED:
        lines += [f"# or with the framework alone, into a network of {classes} classes that is there:"]
        if model in MODELS:
            width = "" if config["width_mult"] == 1 else f", width_mult={config['width_mult']:g}"
            lines += [f'model = create_model("{model}", num_classes={classes}{width})']
        lines += [LOADED[framework]]
        lines.insert(0, f"import {'paddle' if framework == 'paddle' else 'torch'}")
    if lines:
        lines += ["model.eval()  # it is made in training mode, in which predictions are wrong"]
    return "\n".join(["```python", *lines, "```"])


def _numbered(classes: list[str]) -> str:
    return "\n".join(f"{number}. {name}" for number, name in enumerate(classes))
