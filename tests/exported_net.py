"""A small network in torch, exported, and conversion faults made in its graph."""

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn


class Gate(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pool, self.down, self.up = nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.relu, self.gate = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x):
        return x * self.gate(self.up(self.relu(self.down(self.pool(x)))))


class Net(nn.Module):
    """Convolutions with normalisations, a gate, poolings with odd sizes, upsampling, a sum and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8, eps=1e-3), nn.Hardswish())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6())
        self.gate = Gate(8)
        self.mean = nn.AvgPool2d(3, 2, 1)
        self.wide = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.last = nn.Sequential(nn.Conv2d(8, 16, 1), nn.LeakyReLU(0.1))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 12), nn.Dropout(0.3), nn.Linear(12, 5))
        self.softmax = nn.Softmax(1)

    def forward(self, x):
        x = self.pool(self.stem(x))
        x = x + self.gate(self.block(x))
        return self.softmax(self.head(self.last(self.wide(self.mean(x)))))


def net():
    """With weights that are drawn, statistics too: none is 0 or 1."""
    torch.manual_seed(0)
    model = Net().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in ((module.running_mean, -0.5, 0.5), (module.running_var, 0.2, 1.5)):
                tensor.uniform_(low, high)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model


def export(path, folded=True, model=None, shape=(2, 3, 45, 35), opset=None, given=None):
    """Write the network as an exporter does; unfolded: normalisations and dropouts are nodes of their own."""
    x = torch.randn(shape) if given is None else torch.from_numpy(given)
    kept = {"opset_version": opset} if folded else {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    torch.onnx.export(
        model or net(), (x,), str(path), dynamo=False, input_names=["x"], output_names=["y"], **kept
    )  # fmt: skip
    return onnx.load(str(path))


def node(model, op, number=0):
    return [one for one in model.graph.node if one.op_type == op][number]


def set_attribute(one, name, value):
    kept = [attribute for attribute in one.attribute if attribute.name != name]
    del one.attribute[:]
    one.attribute.extend([*kept, *([] if value is None else [helper.make_attribute(name, value)])])


def constant(model, name):
    return next(one for one in model.graph.initializer if one.name == name)


def change(model, name, function):
    """Another value of an initialiser."""
    held = constant(model, name)
    held.CopyFrom(numpy_helper.from_array(np.asarray(function(numpy_helper.to_array(held).copy()), np.float32), name))


def before(model, one, place, *made):
    """Nodes before the input of a node: the last output is what it then reads."""
    position = list(model.graph.node).index(one)
    for number, new in enumerate(made):
        model.graph.node.insert(position + number, new)
    one.input[place] = made[-1].output[0]


def without(model, one):
    """Leave a node out: what reads it reads its input."""
    for other in model.graph.node:
        for place, name in enumerate(other.input):
            if name == one.output[0]:
                other.input[place] = one.input[0]
    model.graph.node.remove(one)


def add(model, **arrays):
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))


class Tokens(nn.Module):
    """Layer normalisations, attention and a GELU, as in a transformer's block."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(16, eps=1e-3), nn.LayerNorm(16)
        self.mix, self.wide, self.back = nn.Linear(16, 48), nn.Linear(16, 32), nn.Linear(32, 16)
        self.act = nn.GELU()

    def forward(self, x):
        query, key, value = self.mix(self.first(x)).chunk(3, -1)
        x = x + torch.softmax(query @ key.transpose(1, 2) / 4, -1) @ value
        return x + self.back(self.act(self.wide(self.second(x))))


def tokens():
    """With drawn weights."""
    torch.manual_seed(1)
    model = Tokens().eval()
    for one in (model.first, model.second):
        nn.init.uniform_(one.weight, 0.5, 1.5)
        nn.init.uniform_(one.bias, -0.5, 0.5)
    return model
