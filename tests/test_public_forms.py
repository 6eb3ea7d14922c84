"""Forms of public ports: heads that are tied on one side alone, constants of another formula, classes that answer every name."""

import json

import numpy as np
import pytest

from alignment.cli import main

LANGUAGE_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.fc = nn.Embedding(30, 16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        return self.head(self.norm(torch.relu(self.fc(self.emb(ids)))))
"""
LANGUAGE = """
import paddle
from paddle import nn


class Head(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([30, 16], default_initializer=nn.initializer.Normal(0., 1.))

    def forward(self, x):
        return paddle.matmul(x, self.weight, transpose_y=True)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        u, normal = nn.initializer.Uniform(-.25, .25), nn.initializer.Normal(0., 1.)
        self.emb = nn.Embedding(30, 16, weight_attr=normal)
        self.norm = nn.LayerNorm(16)
        self.fc = nn.Linear(16, 16, u, u)
        self.head = HEAD

    def forward(self, ids):
        x = self.norm(nn.functional.relu(self.fc(self.emb(ids))))
        return self.head(x)
"""
OF_ITS_OWN = LANGUAGE.replace("HEAD", "nn.Linear(16, 30, normal, bias_attr=False)")
TIED = LANGUAGE.replace("self.head = HEAD", "self.head = None").replace(
    "self.head(x)", "paddle.matmul(x, self.emb.weight, transpose_y=True)"
)
SCALED_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body((x - self.mean) / self.std).mean((2, 3)))
"""
SCALED = """
import paddle
from paddle import nn


def conv(i, o):
    u = nn.initializer.Uniform(-(9 * i) ** -.5, (9 * i) ** -.5)
    return nn.Conv2D(i, o, 3, weight_attr=u, bias_attr=u)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mul", paddle.to_tensor([1 / .229, 1 / .224, 1 / .225]))
        self.register_buffer("add", paddle.to_tensor([-.485 / .229, -.456 / .224, -.406 / .225]))
        self.c1, self.bn, self.c2 = conv(3, 8), nn.BatchNorm2D(8), conv(8, 8)
        u = nn.initializer.Uniform(-8 ** -.5, 8 ** -.5)
        self.fc = nn.Linear(8, 4, u, u)

    def forward(self, x):
        x = x * self.mul[None, :, None, None] + self.add[None, :, None, None]
        return self.fc(self.c2(nn.functional.relu(self.bn(self.c1(x)))).mean([2, 3]))
"""
GELU_REF = """
import math
import torch
from torch import nn


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Linear(6, 16), NewGELU(), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(self.act(self.a(x)))
"""
GELU = """
from paddle import nn


class GELU(nn.Layer):
    def __init__(self):
        super().__init__()
        self.act = nn.functional.gelu

    def forward(self, x):
        return self.act(x)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        u, v = nn.initializer.Uniform(-6 ** -.5, 6 ** -.5), nn.initializer.Uniform(-.25, .25)
        self.a, self.act, self.b = nn.Linear(6, 16, u, u), GELU(), nn.Linear(16, 4, v, v)

    def forward(self, x):
        return self.b(self.act(self.a(x)))
"""
# A base class as of model hubs: it answers every name from a configuration, and wraps a ``forward`` that is set.
HUB = """
from paddle import nn


class Base(nn.Layer):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return None

    def __setattr__(self, name, value):
        if name == "forward":
            given, value = value, lambda *args, **kwargs: given(self, *args, **kwargs)
        super().__setattr__(name, value)


class Net(Base):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x):
        return self.body(x)


class Body(Base):
    def __init__(self):
        super().__init__()
        u, v = nn.initializer.Uniform(-6 ** -.5, 6 ** -.5), nn.initializer.Uniform(-.25, .25)
        self.a, self.b = nn.Linear(6, 16, u, u), nn.Linear(16, 4, v, v)

    def forward(self, x):
        return self.b(nn.functional.gelu(self.a(x), approximate=True) * 1.0)
"""
HUB_REF = GELU_REF.replace("class Net", "class Body") + (
    "\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.body = Body()\n\n"
    "    def forward(self, x):\n        return self.body(x)\n"
)
PADDED_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.fc = nn.Embedding(30, 16, padding_idx=2), nn.Linear(16, 4)
        nn.init.normal_(self.emb.weight, 0, 0.1)

    def forward(self, ids):
        return self.fc(self.emb(ids))
"""
PADDED = """
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        u = nn.initializer.Uniform(-.25, .25)
        self.emb = nn.Embedding(30, 16, padding_idx=2, weight_attr=nn.initializer.Normal(0., .1))
        self.fc = nn.Linear(16, 4, u, u)

    def forward(self, ids):
        return self.fc(self.emb(ids))
"""
DROPPED_REF = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.fc = nn.Dropout2d(0.3), nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(self.drop(x).mean((2, 3)))
"""
DROPPED = """
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        u = nn.initializer.Uniform(-.25, .25)
        self.drop, self.fc = nn.Dropout2D(0.3), nn.Linear(16, 4, u, u)

    def forward(self, x):
        return self.fc(self.drop(x).mean((2, 3)))
"""
DRAWN_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(40, 64) * 0.1)
        self.fc = nn.Linear(64, 40)

    def forward(self, x):
        return self.fc(x @ self.scale)
"""
DRAWN = """
import paddle
from paddle import nn

BOUND = 64 ** -.5


def uniform(bound):
    return paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))


def linear(i, o):
    return nn.Linear(i, o, weight_attr=uniform(2 * BOUND), bias_attr=uniform(BOUND))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.scale = self.create_parameter([40, 64], default_initializer=nn.initializer.Normal(0., .4))
        self.fc = linear(64, 40)

    def forward(self, x):
        return self.fc(paddle.matmul(x, self.scale))
"""
FOURIER_REF = """
import torch
from torch import nn


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(.3, 3., 8), requires_grad=False)

    def forward(self, x):
        angles = x[..., None] * self.weight
        return torch.cat([torch.sin(angles), torch.cos(angles)], -1).flatten(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = Fourier(), nn.Linear(96, 8)

    def forward(self, x):
        return self.fc(self.body(x))
"""
FOURIER = """
import paddle
from paddle import nn


class Fourier(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", paddle.linspace(.3, 3., 8))

    def forward(self, x):
        angles = x[..., None] * self.weight
        return paddle.concat([paddle.sin(angles), paddle.cos(angles)], -1).flatten(1)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        u = nn.initializer.Uniform(-96 ** -.5, 96 ** -.5)
        self.body, self.fc = Fourier(), nn.Linear(96, 8, u, u)

    def forward(self, x):
        return self.fc(self.body(x))
"""
# The embedding goes by two names before the head, and the row of padding stays zero.
SHARED_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.emb = nn.Embedding(30, 8, padding_idx=0), nn.Embedding(30, 8, padding_idx=0)
        self.emb.weight = self.shared.weight
        self.fc, self.head = nn.Linear(8, 8), nn.Linear(8, 30, bias=False)
        self.head.weight = self.shared.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.fc(self.emb(ids).mean(1))))
"""
SHARED = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.emb, self.fc = nn.Embedding(30, 8, padding_idx=0), nn.Linear(8, 8)

    def forward(self, ids):
        return paddle.tanh(self.fc(self.emb(ids).mean(1))) @ self.emb.weight.T
"""
UNTIED = ("parameters_untied", "head.weight", "a tensor of its own, expected the same tensor as emb.weight")
PLACES_REF = """
import torch
from torch import nn


class Half(nn.Module):
    def __init__(self, emb):
        super().__init__()
        self.emb, self.fc, self.norm = emb, nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, ids):
        return self.norm(torch.relu(self.fc(self.emb(ids))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(30, 16)
        self.encoder, self.decoder = Half(self.shared), Half(self.shared)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.shared.weight

    def forward(self, ids):
        return self.head(self.encoder(ids).mean(1, keepdim=True) + self.decoder(ids.flip(1)))
"""
PLACES = """
import paddle
from paddle import nn


def u():
    return nn.initializer.Uniform(-.25, .25)


class Half(nn.Layer):
    def __init__(self, emb):
        super().__init__()
        self.emb = emb
        self.block = nn.Sequential(nn.Linear(16, 16, u(), u()), nn.ReLU(), nn.LayerNorm(16))

    def forward(self, ids):
        return self.block(self.emb(ids))


class Body(nn.Layer):
    def __init__(self):
        super().__init__()
        self.shared = self.table()
        self.encoder, self.decoder = Half(self.shared), Half(self.shared)

    def table(self):
        return nn.Embedding(30, 16, weight_attr=nn.initializer.Normal(0., 1.))

    def forward(self, ids):
        return self.encoder(ids).mean(1, keepdim=True) + self.decoder(ids.flip(1))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, ids):
        return self.body(ids) @ self.body.shared.weight.T
"""
TWICE = "Half(self.shared), Half(self.shared)"
HEAD = "self.body, self.head = Body(), nn.Linear(16, 30, nn.initializer.Normal(0., 1.), bias_attr=False)"
OWN_TENSOR = "a tensor of its own, expected the same tensor as shared.weight"
CACHING_REF = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def split(self, x):
        return x.reshape(*x.shape[:2], 4, 4).transpose(1, 2)

    def forward(self, hidden, mask=None):
        q, k, v = self.split(self.q(hidden)), self.split(self.k(hidden)), self.split(self.v(hidden))
        weights = (q @ k.transpose(2, 3) / 2).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(hidden.shape)), None, (k, v)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.norm, self.norm2 = Attention(), nn.LayerNorm(16), nn.LayerNorm(16)
        self.fc = nn.Linear(16, 16)

    def forward(self, hidden, cache=None):
        out, _, cache = self.attn(hidden=self.norm(hidden))
        x = hidden + nn.functional.dropout(out, 0.1, training=self.training)
        flat = x.reshape(-1, 16)
        flat = flat + nn.functional.dropout(self.fc(self.norm2(flat)).relu(), 0.1, training=self.training)
        return (flat.view(x.shape),)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.blocks, self.head = nn.Embedding(30, 16), nn.ModuleList([Block(), Block()]), nn.Linear(16, 5)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x, cache=None)[0]
        return self.head(x)
"""
CACHING = """
import paddle
from paddle import nn


def linear(outputs=16):
    u = nn.initializer.Uniform(-.25, .25)
    return nn.Linear(16, outputs, u, u)


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (linear() for _ in range(4))

    def split(self, x):
        return x.reshape([*x.shape[:2], 4, 4]).transpose([0, 2, 1, 3])

    def forward(self, query, key, value):
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
        weights = nn.functional.softmax(q @ k.transpose([0, 1, 3, 2]) / 2)
        return self.o((weights @ v).transpose([0, 2, 1, 3]).reshape(query.shape)), weights


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attn, self.norm, self.norm2 = Attention(), nn.LayerNorm(16), nn.LayerNorm(16)
        self.fc = linear()
        self.drop, self.drop2 = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x, memory):
        y = self.norm(x)
        out, weights = self.attn(y, y, y)
        x = x + self.drop(out)
        return x + self.drop2(nn.functional.relu(self.fc(self.norm2(x))))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16, weight_attr=nn.initializer.Normal(0., 1.))
        self.blocks, self.head, self.drop3 = nn.LayerList([Block(), Block()]), linear(5), DROP

    def forward(self, ids):
        x = self.drop3(self.emb(ids))
        for block in self.blocks:
            x = block(x, None)
        return self.head(x)
"""
OUTER_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = Body()

    def forward(self, ids):
        return self.m(ids)
"""
ONCE_MORE = ("layer_extra", "drop3", "Dropout: the reference has no such layer")
EPS = ("norm_eps", "norm", "wrong eps 0.001, expected 1e-05")

# Reference, port, and kind, place and words of its mistakes.
SINES_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        angles = torch.arange(24.0)[:, None] / 10 ** torch.arange(0, 1, 1 / 8)
        self.table = torch.cat([angles.sin(), angles.cos()], -1)
        self.emb, self.fc, self.norm = nn.Embedding(30, 16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, ids):
        return self.norm(self.fc(self.emb(ids) + self.table.to(self.fc.weight)[: ids.shape[1]]))
"""
SINES = """
import paddle
from paddle import nn


class Sines(nn.Embedding):
    def __init__(self, count, width):
        super().__init__(count, width)
        angles = paddle.arange(count).astype("float32")[:, None] / 10 ** paddle.arange(0, 1, 2 / width, dtype="float32")
        self.weight.stop_gradient = True
        self.weight.set_value(paddle.concat([angles.sin(), angles.cos()], -1))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        u, normal = nn.initializer.Uniform(-.25, .25), nn.initializer.Normal(0., 1.)
        self.positions = Sines(24, 16)
        self.emb, self.fc, self.norm = nn.Embedding(30, 16, weight_attr=normal), nn.Linear(16, 16, u, u), nn.LayerNorm(16)

    def forward(self, ids):
        return self.norm(self.fc(self.emb(ids) + self.positions(paddle.arange(ids.shape[1]))))
"""
POOLER_REF = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first, self.second, self.ln = nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, ids):
        return self.ln(self.second(torch.relu(self.first(self.embed(ids)))))
"""
POOLER = """
import paddle
from paddle import nn


class Body(nn.Layer):
    def __init__(self):
        super().__init__()
        u, normal = nn.initializer.Uniform(-.25, .25), nn.initializer.Normal(0., 1.)
        self.emb, self.fc1, self.fc2 = nn.Embedding(30, 16, weight_attr=normal), nn.Linear(16, 16, u, u), nn.Linear(16, 16, u, u)
        self.norm, self.pooler = nn.LayerNorm(16), nn.Linear(16, 16, u, u)

    def forward(self, ids):
        x = self.norm(self.fc2(nn.functional.relu(self.fc1(self.emb(ids)))))
        return x, self.pooler(x[:, 0])


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, ids):
        return self.body(ids)[0]
"""
ATTENDING_REF = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(16, 16) for _ in range(4))
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        return self.norm(x + self.dense((q @ k.transpose(1, 2) / 4.0).softmax(-1) @ v))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places, self.blocks = nn.Embedding(30, 16), nn.Embedding(24, 16), nn.Sequential(Block(), Block(), Block())

    def forward(self, ids):
        return self.blocks(self.embed(ids) + self.places(torch.arange(ids.shape[1])[None]))
"""
ATTENDING = """
import paddle
from paddle import nn


class Layer(nn.Layer):
    def __init__(self):
        super().__init__()
        u = nn.initializer.Uniform(-.25, .25)
        self.first, self.second, self.third, self.out = (nn.Linear(16, 16, u, u) for _ in range(4))
        self.ln = nn.LayerNorm(16)

    def forward(self, x):
        v, q, k = self.first(x), self.second(x), self.third(x)
        return self.ln(x + self.out(nn.functional.softmax(q @ k.transpose([0, 2, 1]) / 4.0) @ v))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        normal = nn.initializer.Normal(0., 1.)
        self.words, self.positions = nn.Embedding(30, 16, weight_attr=normal), nn.Embedding(24, 16, weight_attr=normal)
        self.layers = nn.LayerList([Layer() for _ in range(3)])

    def forward(self, ids):
        x = self.words(ids) + self.positions(paddle.arange(ids.shape[1]).expand(ids.shape))
        for layer in self.layers:
            x = layer(x)
        return x
"""
CASES = {
    "tied on both sides": (LANGUAGE_REF, TIED, []),
    "an embedding with padding that goes by two names": (SHARED_REF, SHARED, []),
    "another function behind it": (SHARED_REF, SHARED.replace("paddle.tanh", "paddle.nn.functional.sigmoid"), [
        ("other_function", "Net.forward", "sigmoid, expected tanh")]),
    "a head that is untied from it": (
        SHARED_REF,
        SHARED.replace("nn.Linear(8, 8)\n", "nn.Linear(8, 8)\n        self.head = nn.Linear(8, 30, bias_attr=False)\n").replace(
            "return paddle.tanh(", "return self.head(paddle.tanh(").replace(" @ self.emb.weight.T", ")"),
        [UNTIED]),
    "an untied layer": (LANGUAGE_REF, OF_ITS_OWN, [UNTIED]),
    "an untied tensor of a module's own": (LANGUAGE_REF, LANGUAGE.replace("HEAD", "Head()"), [UNTIED]),
    "untied, and a setting": (LANGUAGE_REF, OF_ITS_OWN.replace("LayerNorm(16)", "LayerNorm(16, epsilon=1e-3)"), [UNTIED, EPS]),
    "untied where nothing is trained": (
        LANGUAGE_REF.replace("self.emb.weight\n", "self.emb.weight.requires_grad_(False)\n"),
        OF_ITS_OWN.replace("        self.head =", "        self.emb.weight.stop_gradient = True\n        self.head =").replace(
            "    def forward(self, ids):", "        self.head.weight.stop_gradient = True\n\n    def forward(self, ids):"), []),
    "dropout of channels": (DROPPED_REF, DROPPED, []),
    "dropout of single values for channels": (DROPPED_REF, DROPPED.replace("Dropout2D", "Dropout"), [
        ("dropout_shape", "drop", "dropout drops single values, expected whole channels")]),
    "dropout of channels for single values": (DROPPED_REF.replace("Dropout2d", "Dropout"), DROPPED, [
        ("dropout_shape", "drop", "dropout drops whole channels, expected single values")]),
    "dropout of channels for single values behind a ReLU": (
        DROPPED_REF.replace("self.drop(x)", "self.drop(x.relu())").replace("Dropout2d", "Dropout"),
        DROPPED.replace("self.drop(x)", "self.drop(nn.functional.relu(x))"),
        [("dropout_shape", "drop", "dropout drops whole channels, expected single values")]),
    "dropout of channels behind a ReLU": (
        DROPPED_REF.replace("self.drop(x)", "self.drop(x.relu())"),
        DROPPED.replace("self.drop(x)", "self.drop(nn.functional.relu(x))"), []),
    "dropout of channels of another rate": (DROPPED_REF, DROPPED.replace("0.3", "0.4"), [
        ("dropout_rate", "drop", "p = 0.4, expected 0.3")]),
    "an initialiser that a helper chooses": (DRAWN_REF, DRAWN.replace("Normal(0., .4)", "Normal(0., .1)"), [
        ("initialisation", "fc.weight", "the port's source sets this initialiser")]),
    "an initialiser of an own tensor": (DRAWN_REF, DRAWN.replace("2 * BOUND", "BOUND"), [
        ("initialisation", "scale", "the port's source sets this initialiser")]),
    "initialisers of the reference": (
        DRAWN_REF, DRAWN.replace("Normal(0., .4)", "Normal(0., .1)").replace("2 * BOUND", "BOUND"), []),
    "the framework's own initialiser": (DRAWN_REF, DRAWN.replace("Normal(0., .4)", "Normal(0., .1)").replace(
        "weight_attr=uniform(2 * BOUND), ", ""), []),
    "rounding beside a mistake": (SCALED_REF, SCALED.replace("BatchNorm2D(8)", "BatchNorm2D(8, epsilon=1e-3)"), [
        ("batch_norm_eps", "body.1", "wrong eps: 0.001")]),
    "a row of padding that is not zero": (PADDED_REF, PADDED, [
        ("padding_index", "emb", "padding_idx 2 gives zeros for this number, expected the row of the weight"),
        ("initialisation", "emb.weight", "all values 0")]),
    "a row of padding that is zero": (PADDED_REF.replace("0, 0.1)", "0, 0.1)\n        self.emb.weight.data[2] = 0"), PADDED, []),
    "constants of another formula": (SCALED_REF, SCALED, []),
    "constants of another formula, and a layer for two places": (
        SCALED_REF.replace("        self.head =", "        self.pool = nn.MaxPool2d(2, 1)\n        self.head =").replace(
            "(x - self.mean) / self.std", "self.pool(self.pool((x - self.mean) / self.std))"),
        SCALED.replace("self.c1(x)", "self.c1(nn.functional.max_pool2d(nn.functional.max_pool2d(x, 2, 1), 2, 1))"), []),
    "a wrong one of them": (SCALED_REF, SCALED.replace(".406 / .225", ".46 / .225"), [("", "", "")]),
    "GELU written out": (GELU_REF, GELU, [("activation", "act", "it computes GELU, expected GELU (tanh)")]),
    "GELU in two forms": (GELU_REF, GELU.replace("self.act(x)\n\n\n", "self.act(x, approximate=True)\n\n\n"), []),
    "a buffer for a frozen parameter": (FOURIER_REF, FOURIER, []),
    "a buffer for a frozen parameter, and a mistake": (FOURIER_REF, FOURIER.replace("self.weight\n", "self.weight * 2\n"), [
        ("", "body", "")]),
    "a buffer for a parameter that is trained": (FOURIER_REF.replace(", requires_grad=False", ""), FOURIER, [
        ("", "", "")]),
    "an embedding at three places": (PLACES_REF, PLACES, []),
    "an embedding of its own at one of them": (
        PLACES_REF, PLACES.replace(TWICE, "Half(self.shared), Half(self.table())"), [
            ("parameters_untied", "head.weight", OWN_TENSOR)]),
    "an embedding at three places, for a head of its own, too": (
        PLACES_REF.replace("self.head.weight = self.shared.weight", "nn.init.normal_(self.head.weight)"), PLACES, [
            ("layer_missing", "head", "the layer Linear is missing in the port")]),
    "an embedding of its own at each of them": (
        PLACES_REF.replace("self.head.weight = self.shared.weight", "nn.init.normal_(self.head.weight)"),
        PLACES.replace(TWICE, "Half(self.table()), Half(self.table())").replace("self.body = Body()", HEAD).replace(
            "self.body(ids) @ self.body.shared.weight.T", "self.head(self.body(ids))"), [
            ("parameters_untied", "decoder.emb.weight", OWN_TENSOR)]),
    "weights of an attention for its cache, and a dropout of rows for one of sequences": (
        CACHING_REF, CACHING.replace("DROP", "nn.Identity()"), []),
    "the same, and a dropout that is too much": (CACHING_REF, CACHING.replace("DROP", "nn.Dropout(0.1)"), [ONCE_MORE]),
    "the same, and a number of padding in a module that is mended": (
        CACHING_REF.replace("nn.Embedding(30, 16)", "nn.Embedding(31, 16, padding_idx=30)").replace("Net(", "Body(") + OUTER_REF,
        CACHING.replace("DROP", "nn.Dropout(0.1)").replace("nn.Embedding(30, 16", "nn.Embedding(31, 16").replace("Net(", "Body(")
        + OUTER_REF.replace("Module", "Layer"), [
            ("layer_extra", "m.drop3", ""), ("padding_index", "m.emb", "padding_idx None, expected 30"),
            ("initialisation", "m.emb.weight", "all values 0")]),
    "the same, and another scale of its products": (
        CACHING_REF, CACHING.replace("DROP", "nn.Identity()").replace(") / 2)", ") / 3)"), [
            ("", "blocks.0.attn", "/ 3, expected 2")]),
    "sines in a frozen embedding and in an attribute": (SINES_REF, SINES, []),
    "such sines in another order": (SINES_REF, SINES.replace("angles.sin(), angles.cos()", "angles.cos(), angles.sin()"), [
        ("", "", "")]),
    "a pooler that the output leaves out": (POOLER_REF, POOLER, []),
    "a pooler that the output depends on": (
        POOLER_REF, POOLER.replace("return self.body(ids)[0]", "return self.body(ids)[0] + self.body(ids)[1].unsqueeze(1)"), [
            ("layer_extra", "", "a layer Linear that the reference does not have")]),
    "a pooler beside a mistake": (POOLER_REF, POOLER.replace("nn.LayerNorm(16)", "nn.LayerNorm(16, 1e-3)"), [
        ("norm_eps", "ln", "expected 1e-05")]),
    "positions once for each sample, projections in another order": (ATTENDING_REF, ATTENDING, []),
    "the same, and a mistake": (ATTENDING_REF, ATTENDING.replace("return x\n", "return 1.25 * x\n"), [("", "", "1.25")]),
    "classes that answer every name": (HUB_REF, HUB, []),
    "a mistake in such classes": (HUB_REF, HUB.replace("* 1.0", "* 1.1"), [("", "body", "")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_a_form(case, tmp_path, capsys):
    reference, port, wanted = CASES[case]
    (tmp_path / "theirs.py").write_text(reference)
    (tmp_path / "ours.py").write_text(port)
    given = (
        "4x3x17x21"
        if "Conv2d" in reference
        else "4x16x5x7"
        if "Dropout" in reference
        else "4x40"
        if "randn" in reference
        else "4x6"
    )
    if "Embedding" in reference:
        np.savez(tmp_path / "ids.npz", ids=np.random.default_rng(0).integers(0, 30, (2, 12)))
        given = str(tmp_path / "ids.npz")
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", given)
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert (status, len(mistakes)) == (int(bool(wanted)), len(wanted)), capsys.readouterr().out
    for one, (kind, place, words) in zip(mistakes, wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and one["location"].startswith(place) and words in one["hint"], one


FRAMES_REF = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, frames):
        return self.fc(frames.reshape(len(frames) // 2, 2, 6)).flatten(0, 1)
"""
FRAMES = FRAMES_REF.replace("from torch import nn", "from paddle import nn").replace("Module", "Layer")


def test_a_reference_that_takes_no_single_sample_is_no_mistake_of_the_port(tmp_path, capsys):
    (tmp_path / "theirs.py").write_text(FRAMES_REF)
    (tmp_path / "ours.py").write_text(FRAMES)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x6")
    assert main(["audit", *sides, "--report", str(tmp_path / "report")]) == 2
    assert "cannot run on inputs of shape (1, 6)" in capsys.readouterr().err
