"""A project of one file: a port in Paddle of a network in torch. python -m alignment run docs/examples/own_project.py"""

import paddle
import torch

from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side


class Port(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 8, 3, padding=1)
        self.act = paddle.nn.ReLU()
        self.pool = paddle.nn.MaxPool2D(2)
        self.head = paddle.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.pool(self.act(self.conv(x))).mean([2, 3]))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.act = torch.nn.ReLU()
        self.pool = torch.nn.MaxPool2d(2)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.pool(self.act(self.conv(x))).mean((2, 3)))


spec = ModelSpec(Port, Reference, input_shape=(3, 16, 16))
PROJECT = Project("own", port=Side(Paddle()), reference=Side(Torch()), models={"net": spec})
