"""``torch_reference.py`` and two ports of it, in MindSpore and in Paddle, with the training code of each: 100 updates in step 6.

All activations are SiLU here, and the pooling is an average. With ReLU and max pooling the reference's own curves jump by 1e-3
to 1e-1 where a rounding moves an activation over zero, at updates 6 to 67 in eight draws of one ulp: whether a sound port's curve
leaves such an envelope is chance. The ResNets keep their ReLU.
"""

from dataclasses import replace

from tests.pairs import mindspore_project  # isort: skip  (before anything of Paddle)

import mindspore
import paddle
import torch
from paddle import nn

import mobilenetv3_paddle.data
import mobilenetv3_paddle.loss
import mobilenetv3_paddle.metric
import mobilenetv3_paddle.train
from alignment.frameworks.paddle import Paddle
from alignment.project import ModelSpec, Side
from mobilenetv3_paddle.models import BatchNorm2D


class Block(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2D(channels, channels, 3, padding=1, groups=2, bias_attr=False)
        self.bn1 = BatchNorm2D(channels)
        self.act = nn.Silu()
        self.conv2 = nn.Conv2D(channels, channels, 1)
        self.bn2 = BatchNorm2D(channels)

    def forward(self, x):
        return x + self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))


class Port(nn.Layer):
    def __init__(self, num_classes=32):
        super().__init__()
        stem = nn.Conv2D(3, 8, 3, stride=2, padding=1, bias_attr=False)
        self.stem = nn.Sequential(stem, BatchNorm2D(8, eps=1e-3), nn.Silu(), nn.AvgPool2D(3, 2, 1, exclusive=False))
        self.block = Block(8)
        self.relu = nn.Silu()
        self.drop = nn.Dropout(0.2)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.relu(self.block(self.stem(x)))
        return self.fc(self.norm(self.drop(paddle.mean(x, [2, 3]))))


def smooth(model, silu, pool):
    """A model of ``mindspore_project.py`` with this file's activations and pooling."""
    model.stem[2], model.stem[3], model.block.act, model.relu = silu(), pool, silu(), silu()
    return model


def in_mindspore(num_classes=32):
    pool = mindspore.nn.AvgPool2d(3, 2, "pad", 1)
    return smooth(mindspore_project.port(num_classes), mindspore.nn.SiLU, pool)


def in_torch(num_classes=32):
    return smooth(mindspore_project.reference(num_classes), torch.nn.SiLU, torch.nn.AvgPool2d(3, 2, 1))


ours = mobilenetv3_paddle
IN_MINDSPORE = mindspore_project.PROJECT
PLAN = {"iterations": 100, "draws": 5, "seeds": 3, "epochs": 4, "train_per_class": 40, "val_per_class": 8}
SIDE = Side(Paddle(), data=ours.data, metric=ours.metric, loss=ours.loss, train=ours.train)
SPEC = ModelSpec(in_mindspore, in_torch, input_shape=(3, 32, 32), last_layer="fc", updates=3)
IN_PADDLE = {"small": replace(SPEC, port=Port, initialisation=False)}
PROJECTS = {
    "mindspore": replace(IN_MINDSPORE, models={"small": SPEC}, train_plan=PLAN),
    "paddle": replace(IN_MINDSPORE, name="small_paddle", port=SIDE, models=IN_PADDLE, train_plan=PLAN),
}
