"""A learned number has shape () on one side and (1,) on the other; a container without layers computes nothing."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as PF
from torch.nn import functional as F

from alignment import audit
from alignment.kinds import Kind

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
RNG = np.random.default_rng(0)
PICTURES, TEXTS = RNG.standard_normal((3, 4, 6)).astype("float32"), RNG.standard_normal((3, 5)).astype("float32")


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = torch.nn.Linear(6, 8), torch.nn.Linear(5, 8)
        self.temperature = torch.nn.Parameter(0.07 * torch.ones([]))

    def forward(self, pictures, texts):
        queries, texts = F.normalize(self.image(pictures), dim=-1), F.normalize(self.text(texts), dim=-1)
        found = torch.matmul(queries.unsqueeze(1), texts.unsqueeze(-1)).squeeze(-1).max(-1)[0]
        return found / self.temperature, found.t() / self.temperature


class Port(nn.Layer):
    def __init__(self, shape, scaled):
        super().__init__()
        self.image, self.text = nn.Linear(6, 8), nn.Linear(5, 8)
        self.temperature = self.create_parameter(shape, default_initializer=nn.initializer.Constant(0.07))
        self.scaled = scaled

    def forward(self, pictures, texts):
        queries, texts = PF.normalize(self.image(pictures), axis=-1), PF.normalize(self.text(texts), axis=-1)
        found = paddle.einsum("iqd,jd->ijq", queries, texts).max(-1)
        return self.scaled(found, self.temperature), self.scaled(found.t(), self.temperature)


def divided(x, by):
    return x / by


def multiplied(x, by):
    return x * by


def to_the_contrary(x, by):
    return x / paddle.exp(paddle.log(by) * -1)


def _line(found):
    return int(found.source.rpartition(":")[2])


@pytest.mark.parametrize("shape", [[], [1]])
def test_the_line_of_a_learned_factor_that_is_on_the_wrong_side_is_named(shape):
    inputs = {"pictures": PICTURES, "texts": TEXTS}
    assert audit(lambda: Port(shape, divided), Reference, inputs=inputs).passed
    assert audit(lambda: Port(shape, lambda x, by: x / paddle.exp(paddle.log(by))), Reference, inputs=inputs).passed
    found = audit(lambda: Port(shape, multiplied), Reference, inputs=inputs).mistakes
    assert [one.kind for one in found] == [Kind.SCALED]
    assert "a product, expected a quotient" in found[0].words
    assert _line(found[0]) == multiplied.__code__.co_firstlineno + 1
    found = audit(lambda: Port(shape, to_the_contrary), Reference, inputs=inputs).mistakes
    assert [_line(one) for one in found] == [to_the_contrary.__code__.co_firstlineno + 1]


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(4, 4, 3, bias=False), torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x))


class OwnNorm(nn.Layer):
    def __init__(self, momentum):
        super().__init__()
        self.weight = self.create_parameter([4], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([4], is_bias=True)
        self.register_buffer("_mean", paddle.zeros([4]))
        self.register_buffer("_variance", paddle.ones([4]))
        self.act, self.momentum = nn.Sequential(), momentum

    def forward(self, x):
        statistics = [self._mean, self._variance, self.weight, self.bias]
        return self.act(PF.batch_norm(x, *statistics, training=self.training, momentum=self.momentum))


class PaddleNet(nn.Layer):
    def __init__(self, momentum):
        super().__init__()
        self.conv, self.norm = nn.Conv2D(4, 4, 3, bias_attr=False), OwnNorm(momentum)

    def forward(self, x):
        return self.norm(self.conv(x))


@pytest.mark.parametrize(("momentum", "kind"), [(0.9, Kind.BIASED_VARIANCE), (0.1, Kind.MOMENTUM_INVERTED)])
def test_an_empty_container_explains_no_statistic(momentum, kind):
    found = audit(lambda: PaddleNet(momentum), TorchNet, inputs=RNG.standard_normal((3, 4, 9, 9)).astype("float32"), training=True)
    assert kind in [one.kind for one in [*found.mistakes, *found.differences]]
    assert Kind.LAYER_EXTRA not in [one.kind for one in [*found.mistakes, *found.differences]]
