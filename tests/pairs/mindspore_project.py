"""``mindspore_port.py`` and ``torch_reference.py`` with the metric, loss and training code of ``projects/resnet50``."""

from pathlib import Path

from alignment.frameworks.mindspore import MindSpore  # isort: skip  (before anything of Paddle)

import mindspore.nn
import torch.nn

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
from tests.pairs.mindspore_port import Port
from tests.pairs.torch_reference import Reference


def port(num_classes=32):
    model = Port()
    model.fc = mindspore.nn.Dense(8, num_classes)
    return model


def reference(num_classes=32):
    model = Reference()
    model.fc = torch.nn.Linear(8, num_classes)
    return model


ours, theirs = projects.resnet50.in_mindspore, mobilenetv3_ref
PROJECT = Project(
    name="small_mindspore",
    port=Side(MindSpore(), data=ours.data, metric=ours.metric, loss=ours.loss, train=ours.train),
    reference=Side(Torch(), data=theirs.data, metric=theirs.metric, loss=theirs.loss, train=theirs.train),
    sample_data=Path(__file__).resolve().parents[2] / "lite_data",
    train_plan={"iterations": 8, "draws": 3, "seeds": 3, "epochs": 6, "train_per_class": 40, "val_per_class": 8},
    recipe={"lr": 2.0**-5, "random_erase": 0.0, "label_smoothing": 0.0},
    models={"small": ModelSpec(port, reference, input_shape=(3, 32, 32), last_layer="fc", updates=3)},
)
