"""Behind a mistake names tell which of two tensors of one shape is which, as they did in the layers before it."""

import numpy as np
import paddle
import pytest
import torch

from alignment.frameworks import framework_of
from alignment.models.stored import stored

DEPTH = 9
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


class Scaled(torch.nn.Module):
    """A linear layer whose rows have a magnitude of their own."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(6))
        self.weight_v = torch.nn.Parameter(torch.randn(6, 6))
        self.weight_g = torch.nn.Parameter(self.weight_v.detach().norm(dim=1, keepdim=True))

    def forward(self, x):
        return x @ (self.weight_v * self.weight_g / self.weight_v.norm(dim=1, keepdim=True)).t() + self.bias


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Scaled() for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Ours(paddle.nn.Layer):
    """The same; a power beside 1 is a mistake in all layers but two."""

    def __init__(self, power=1.0):
        super().__init__()
        self.power = power
        self.parts = paddle.nn.LayerList(Part() for _ in range(DEPTH))

    def forward(self, x):
        for number, part in enumerate(self.parts):
            x = paddle.tanh(part(x) * (self.power if number > 1 else 1.0))
        return x


class Part(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        v = paddle.randn([6, 6])
        self.v = self.create_parameter([6, 6], default_initializer=paddle.nn.initializer.Assign(v.numpy()))
        norm = paddle.nn.initializer.Assign(paddle.norm(v, axis=1).numpy())
        self.g = self.create_parameter([6], default_initializer=norm)
        self.b = self.create_parameter([6], is_bias=True)

    def forward(self, x):
        norm = paddle.sqrt(paddle.sum(self.v * self.v, axis=1))
        return x @ (self.v * (self.g / norm).unsqueeze(1)).t() + self.b


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_a_magnitude_and_a_bias_are_no_one_another_behind_a_mistake(power):
    models = Ours(power), Theirs()
    found = stored(models, tuple(map(framework_of, models)), (X,))
    pairs = {link.port: link.reference for link in found.links}
    assert (found.confirmed == DEPTH) == (power == 1.0)
    names = {"v": "weight_v", "g": "weight_g", "b": "bias"}
    for number in range(DEPTH):
        assert {own: pairs[f"parts.{number}.{own}",] for own in names} == {
            own: (f"layers.{number}.{other}",) for own, other in names.items()
        }
