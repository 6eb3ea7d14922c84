"""A small network in torch and in Paddle with the training code of each: what ``python -m bench planted`` trains by default.

Its activations are SiLU and its pooling is an average, as in ``three_small.py``: with kinks, float32 curves of a sound pair part
after a few updates, and pairs of runs would be no closer than two seeds.
"""

import paddle
import torch

import mobilenetv3_paddle.data
import mobilenetv3_paddle.loss
import mobilenetv3_paddle.metric
import mobilenetv3_paddle.train
import mobilenetv3_ref.data
import mobilenetv3_ref.loss
import mobilenetv3_ref.metric
import mobilenetv3_ref.train
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side
from mobilenetv3_paddle.models import BatchNorm2D

WIDTH = 16


class Port(paddle.nn.Layer):
    def __init__(self, num_classes=10, dropout=0.1):
        super().__init__()
        nn = paddle.nn
        self.stem = nn.Conv2D(3, WIDTH, 3, stride=2, padding=1, bias_attr=False)
        self.bn1 = BatchNorm2D(WIDTH)
        self.conv = nn.Conv2D(WIDTH, WIDTH, 3, padding=1)
        self.bn2 = BatchNorm2D(WIDTH)
        self.act, self.pool = nn.Silu(), nn.AvgPool2D(4)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(WIDTH * 16, num_classes)

    def forward(self, x):
        x = self.act(self.bn1(self.stem(x)))
        x = self.pool(self.act(self.bn2(self.conv(x))))
        return self.fc(self.drop(paddle.flatten(x, 1)))


class Reference(torch.nn.Module):
    def __init__(self, num_classes=10, dropout=0.1):
        super().__init__()
        nn = torch.nn
        self.stem = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(WIDTH)
        self.act, self.pool = nn.SiLU(), nn.AvgPool2d(4)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(WIDTH * 16, num_classes)

    def forward(self, x):
        x = self.act(self.bn1(self.stem(x)))
        x = self.pool(self.act(self.bn2(self.conv(x))))
        return self.fc(self.drop(torch.flatten(x, 1)))


ours, theirs = mobilenetv3_paddle, mobilenetv3_ref
PROJECT = Project(
    name="two_small",
    port=Side(Paddle(), data=ours.data, metric=ours.metric, loss=ours.loss, train=ours.train),
    reference=Side(Torch(), data=theirs.data, metric=theirs.metric, loss=theirs.loss, train=theirs.train),
    models={
        "small": ModelSpec(
            Port,
            Reference,
            input_shape=(3, 32, 32),
            last_layer="fc",
            initialisation=False,
            train_options=lambda recipe: {"dropout": recipe.dropout},
        )
    },
)
