"""Each recipe against its source: the figures of the source stand here, and a recipe's header names what differs."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.train_config import TrainConfig
from projects.resnet50.config import ResNetConfig
from tests.conftest import ROOT


@dataclasses.dataclass(frozen=True)
class Source:
    """What a source says.

    Attributes:
        where: the page or file.
        figures: setting -> its value there.
        differing: setting -> (value here, words of the header that say so).
        kind: class of the recipe.
    """

    where: str
    figures: dict[str, Any]
    differing: dict[str, tuple[Any, str]] = dataclasses.field(default_factory=dict)
    kind: type = TrainConfig


# PaddlePaddle/models, tutorials/mobilenetv3_prod/Step6: README.md, section 1 (epochs, batch of all, rate, decay of the rate, sizes,
# crop and flip), and the defaults of train.py (the rest).
PADDLES_TUTORIAL = {
    "model": "mobilenet_v3_small", "epochs": 120, "batch_size": 256, "lr": 0.8, "scale_lr_from": 256 * 8, "optimizer": "sgd",
    "momentum": 0.9, "nesterov": False, "weight_decay": 1e-4, "norm_weight_decay": None, "lr_schedule": "step", "lr_unit": "epoch",
    "lr_step_epochs": 30, "lr_gamma": 0.1, "warmup_epochs": 0, "workers": 8, "crop_size": 224, "resize_size": 256,
    "hflip_prob": 0.5, "min_crop_scale": 0.08, "auto_augment": None, "random_erase": 0.0, "drop_last": False,
    "label_smoothing": 0.0, "ema_decay": 0.0, "accumulate": 1,
}  # fmt: skip
# pytorch/vision, references/classification/README.md, "MobileNetV3 Large & Small", and the defaults of its train.py.
TORCHVISIONS = {
    "epochs": 600, "batch_size": 128, "optimizer": "rmsprop", "lr": 0.064, "alpha": 0.9, "eps": 0.0316, "momentum": 0.9,
    "weight_decay": 1e-5, "lr_schedule": "step", "lr_unit": "epoch", "lr_step_epochs": 2, "lr_gamma": 0.973,
    "auto_augment": "imagenet", "random_erase": 0.2, "crop_size": 224, "resize_size": 256,
}  # fmt: skip
# MindSpore's migration guide of ResNet-50: the checklist of tricks (all but the pictures), and its two training pipelines.
MINDSPORES_GUIDE = {
    "optimizer": "adam", "lr": 0.001, "weight_decay": 1e-5, "lr_schedule": "constant", "batch_size": 32, "epochs": 90,
    "hflip_prob": 0.5, "auto_augment": None, "random_erase": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
    "drop_last": True, "model": "resnet50", "crop_size": 224, "resize_size": 224, "train_preset.crop_padding": 4,
    "train_preset.mean": (0.4914, 0.4822, 0.4465), "train_preset.std": (0.2023, 0.1994, 0.2010), "eval_preset.tta": "none",
    "eval_preset.mean": (0.4914, 0.4822, 0.4465), "eval_preset.std": (0.2023, 0.1994, 0.2010),
}  # fmt: skip
SOURCES = {
    "configs/mobilenet_v3_small_sgd120.yaml": Source("Paddle's tutorial", PADDLES_TUTORIAL),
    "configs/mobilenet_v3_small_rmsprop.yaml": Source("torchvision's recipe", {"model": "mobilenet_v3_small", **TORCHVISIONS}),
    "configs/mobilenet_v3_large_rmsprop.yaml": Source("torchvision's recipe", {"model": "mobilenet_v3_large", **TORCHVISIONS}),
    "projects/resnet50/cifar10.yaml": Source(
        "MindSpore's migration guide",
        MINDSPORES_GUIDE,
        {
            "model": ("resnet50_cifar", "the network: its first layers are those for 32 pixels"),
            "crop_size": (32, "crop_size: 32 pixels; the guide enlarges to 224"),
            "resize_size": (32, "crop_size: 32 pixels; the guide enlarges to 224"),
        },
        ResNetConfig,
    ),
    "projects/resnet50/cifar10_224.yaml": Source("MindSpore's migration guide", MINDSPORES_GUIDE, kind=ResNetConfig),
    "configs/cifar10_mobilenetv3.yaml": Source(
        "MindSpore's migration guide",
        MINDSPORES_GUIDE,
        {"model": ("mobilenet_v3_small", "the model: the guide's is ResNet-50")},
    ),
}
OWN = {"configs/lite.yaml", "configs/digits.yaml", "configs/finetune.yaml"}  # of nobody else
CLAIM = re.compile(r"tutorial|torchvision's recipe|guide|as in|the recipe of", re.I)


def value_of(config, name):
    for part in name.split("."):
        config = getattr(config, part)
    return config


def header_of(text):
    return " ".join(line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#"))


def disagreements(path, source, text):
    """What a recipe has otherwise than its source without saying so."""
    file = path / "recipe.yaml"
    file.write_text(text)
    config, header = make_config(source.kind, file, {}), header_of(text)
    found = [] if source.where in header or source.where == "torchvision's recipe" else [f"does not name {source.where}"]
    for name, theirs in source.figures.items():
        ours, words = source.differing.get(name, (theirs, ""))
        if value_of(config, name) != ours:
            found.append(f"{name} is {value_of(config, name)}, there {theirs}")
        if words not in header:
            found.append(f"{name} differs and the header does not say: {words}")
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_a_recipe_is_its_sources_but_for_what_its_header_says(name, tmp_path):
    source, text = SOURCES[name], (ROOT / name).read_text()
    assert disagreements(tmp_path, source, text) == []
    assert all(theirs != source.differing[key][0] for key, theirs in source.figures.items() if key in source.differing)


@pytest.mark.parametrize("name", SOURCES)
def test_another_figure_and_a_difference_that_is_not_said_are_found(name, tmp_path):
    source, text = SOURCES[name], (ROOT / name).read_text()
    for key in ("lr", "weight_decay", "epochs", "batch_size"):
        other = re.sub(rf"^{key}: .*$", f"{key}: {7 if key in ('epochs', 'batch_size') else 0.007}", text, flags=re.M)
        assert other != text and [one.split()[0] for one in disagreements(tmp_path, source, other)] == [key]
    for key, (_, words) in source.differing.items():
        silent = "".join(line for line in text.splitlines(True) if words.split()[-1] not in line or not line.startswith("#"))
        assert any(one.startswith(f"{key} differs") for one in disagreements(tmp_path, source, silent)), key


def test_every_recipe_has_a_source_or_claims_none():
    recipes = {
        str(path.relative_to(ROOT)) for folder in ("configs", "projects/resnet50") for path in (ROOT / folder).glob("*.yaml")
    }
    assert recipes == {*SOURCES} | OWN
    assert all(not CLAIM.search(header_of((ROOT / name).read_text())) for name in OWN)
