"""ResNet in MindSpore against torchvision's, for pictures of 32 pixels or of ImageNet: all six steps.

``projects/resnet50/project.py`` holds Paddle's port against the same reference. The extra is needed:
``pip install -c constraints.txt -e '.[mindspore]'``.
"""

from __future__ import annotations

from pathlib import Path

from alignment.frameworks.mindspore import MindSpore  # isort: skip  (before anything of Paddle)

import mobilenetv3_ref.data
import mobilenetv3_ref.loss
import mobilenetv3_ref.metric
import mobilenetv3_ref.train
import projects.resnet50.in_mindspore.data
import projects.resnet50.in_mindspore.loss
import projects.resnet50.in_mindspore.metric
import projects.resnet50.in_mindspore.train
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side
from projects.resnet50.models import in_mindspore, in_torch
from projects.witnesses import WITNESSES


def spec(depth: int, stem: str) -> ModelSpec:
    """ResNet of a depth (18 or 50) with the stem of ``"imagenet"`` or ``"cifar"``."""
    return ModelSpec(
        port=getattr(in_mindspore, f"resnet{depth}"),
        reference=getattr(in_torch, f"resnet{depth}"),
        options={"stem": stem},
        input_shape=(3, 32, 32) if stem == "cifar" else (3, 224, 224),
        small_shape=(3, 16, 16) if stem == "cifar" else (3, 48, 48),
        last_layer="fc",
        options_of=lambda state: {"num_classes": state["fc.bias"].shape[0], "stem": stem},
        updates=3,
    )


PROJECT = Project(
    name="resnet50_mindspore",
    port=Side(
        MindSpore(),
        data=projects.resnet50.in_mindspore.data,
        metric=projects.resnet50.in_mindspore.metric,
        loss=projects.resnet50.in_mindspore.loss,
        train=projects.resnet50.in_mindspore.train,
    ),
    reference=Side(
        Torch(),
        data=mobilenetv3_ref.data,
        metric=mobilenetv3_ref.metric,
        loss=mobilenetv3_ref.loss,
        train=mobilenetv3_ref.train,
    ),
    models={
        "resnet18_cifar": spec(18, "cifar"),
        "resnet50_cifar": spec(50, "cifar"),
        "resnet18": spec(18, "imagenet"),
        "resnet50": spec(50, "imagenet"),
    },
    sample_data=Path(__file__).resolve().parents[2] / "lite_data",
    without=("gradient checkpointing", "distillation"),
    witnesses=WITNESSES,
    # The digits are 8 x 8 pixels, drawn as 32 x 32: at 16 nothing is lost, and a step takes a quarter of the time.
    train_plan={"iterations": 12, "draws": 3, "lag": 2, "seeds": 3, "epochs": 3, "train_per_class": 16, "val_per_class": 8},
    recipe={"resize_size": 16, "crop_size": 16, "batch_size": 8, "lr": 2.0**-10},
)
