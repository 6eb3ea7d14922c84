"""``torch_reference.py`` and two ports of it, in MindSpore and in Paddle, with the training code of each: 100 updates in step 6."""

from dataclasses import replace

from tests.pairs import mindspore_project  # isort: skip  (before anything of Paddle)

import paddle
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
        self.act = nn.Hardswish()
        self.conv2 = nn.Conv2D(channels, channels, 1)
        self.bn2 = BatchNorm2D(channels)

    def forward(self, x):
        return x + self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))


class Port(nn.Layer):
    def __init__(self, num_classes=32):
        super().__init__()
        stem = nn.Conv2D(3, 8, 3, stride=2, padding=1, bias_attr=False)
        self.stem = nn.Sequential(stem, BatchNorm2D(8, eps=1e-3), nn.ReLU(), nn.MaxPool2D(3, 2, 1))
        self.block = Block(8)
        self.relu = nn.LeakyReLU(0.1)
        self.drop = nn.Dropout(0.2)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.relu(self.block(self.stem(x)))
        return self.fc(self.norm(self.drop(paddle.mean(x, [2, 3]))))


ours = mobilenetv3_paddle
IN_MINDSPORE = mindspore_project.PROJECT
PLAN = {"iterations": 100, "draws": 5, "seeds": 3, "epochs": 2, "train_per_class": 40, "val_per_class": 8}
SIDE = Side(Paddle(), data=ours.data, metric=ours.metric, loss=ours.loss, train=ours.train)
SPEC = ModelSpec(Port, mindspore_project.reference, input_shape=(3, 32, 32), last_layer="fc", updates=3, initialisation=False)
PROJECTS = {
    "mindspore": replace(IN_MINDSPORE, train_plan=PLAN),
    "paddle": replace(IN_MINDSPORE, name="small_paddle", port=SIDE, models={"small": SPEC}, train_plan=PLAN),
}
