"""What a forward makes or casts by itself, layers over several axes, and widths: never blamed for their form."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn

from alignment.frameworks.base import Wanted
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.localize import Kind, localize
from alignment.models.weights import copy_weights, entries_of
from tests.conftest import relative_l2

TOKENS = np.random.default_rng(0).standard_normal((3, 7, 6)).astype(np.float32)


class Port(nn.Layer):
    """Tensors made and cast in its forward, with a type and without one."""

    def __init__(self, rate=0.1):
        super().__init__()
        self.a, self.b, self.rate = nn.Linear(6, 8), nn.Linear(8, 3), rate

    def forward(self, x):
        y = self.a(x)
        mask = (y > 0).astype("float32")
        made = paddle.zeros([y.shape[0], 1, 8]) + self.rate * paddle.ones([8], dtype="float32")
        y = F.softmax(y.astype(paddle.float32), -1) @ paddle.full([8, 8], 0.3) + y
        return self.b(paddle.concat([y, mask, made, paddle.to_tensor(np.eye(8), "float32").expand([3, 8, 8])], 1))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        y = self.a(x)
        made = torch.zeros(y.shape[0], 1, 8) + 0.1
        y = torch.softmax(y, -1, dtype=torch.float32) @ torch.full((8, 8), 0.3) + y
        return self.b(torch.cat([y, (y > 0).float() * 0 + (self.a(x) > 0).float(), made, torch.eye(8).expand(3, 8, 8)], 1))


def test_tensors_that_a_forward_makes_are_float64_in_exact_mode():
    assert localize(Port(), Reference(), TOKENS, weights=False).first is None
    first = localize(Port(0.11), Reference(), TOKENS, weights=False).first
    assert first is not None and first.location == "Port.forward", "a wrong number in it is still found"


def test_outside_exact_mode_they_keep_their_type():
    seen = []
    Paddle().call(lambda x: seen.append(paddle.zeros([2]) + x.astype("float32")), (np.ones(2, np.float32),))
    Paddle().call(lambda x: seen.append(paddle.zeros([2], "float32") + x.astype("float32")), (np.ones(2),))
    assert [tensor.dtype for tensor in seen] == [paddle.float32, paddle.float64]
    assert paddle.zeros([2]).dtype == paddle.float32 and torch.zeros(2).dtype == torch.float32


def test_a_layer_norm_over_two_axes_has_the_references_shape():
    norm = torch.nn.LayerNorm([7, 6])
    torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
    model, port = torch.nn.Sequential(norm), nn.Sequential(nn.LayerNorm([7, 6]))
    assert [entry.shape for entry in Paddle().entries(port)] == [(7, 6)] * 2
    copy_weights(model, port)
    assert np.array_equal(port[0].weight.numpy(), norm.weight.detach().numpy().ravel())
    known = entries_of(Paddle(), None, Torch(), model)
    assert [entry.own_shape for entry in known] == [(42,)] * 2
    for training in (False, True):
        assert localize(port, model, TOKENS, training=training).first is None
    wrong = localize(nn.Sequential(nn.LayerNorm([7, 6], 1e-3)), model, TOKENS, weights=False).first
    assert wrong is not None and (wrong.location, wrong.kind) == ("0", Kind.NORM_EPS)


@pytest.mark.parametrize(("port", "words"), [(nn.ELU(1.0), "ELU with alpha 1, expected 0.5"), (nn.ReLU(), "it computes ReLU")])
def test_the_alpha_of_an_elu_is_named(port, words):
    first = localize(nn.Sequential(port), torch.nn.Sequential(torch.nn.ELU(0.5)), TOKENS).first
    assert first is not None and first.kind is Kind.ACTIVATION and words in first.hint, first


def test_a_recurrent_layer_with_dropout_has_gradients_in_evaluation_mode():
    framework = Paddle()
    framework.seed(0)
    layer = nn.LSTM(6, 4, 2, dropout=0.5)
    framework.set_training(layer, False)
    wanted = Wanted(parameters=framework.parameters(layer))
    once, again = (framework.vjp(layer, (TOKENS,), None, wanted) for _ in range(2))
    assert np.array_equal(once.inputs[0], again.inputs[0]) and once.inputs[0].any()
    framework.set_training(layer, True)
    once, again = (framework.call(layer, (TOKENS,)).outputs[0] for _ in range(2))
    assert relative_l2(once, again) > 0.1, "in training mode its dropout is on again"


def tower(library, width, flat):
    conv, norm = (nn.Conv2D, nn.BatchNorm2D) if library is nn else (torch.nn.Conv2d, torch.nn.BatchNorm2d)
    sizes = [8, width, width, 16]
    units = [library.Sequential(conv(a, b, 3, 1, 1), norm(b), library.ReLU()) for a, b in zip([3, *sizes], sizes, strict=False)]
    layers = [layer for unit in units for layer in unit] if flat else units
    return library.Sequential(*layers, conv(16, 5, 1))


def test_another_width_under_other_names_is_a_width_and_no_extra_layer():
    pictures = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    first = localize(tower(nn, 14, True), tower(torch.nn, 12, False), pictures, weights=False).first
    assert first is not None and first.kind is Kind.WIDTH and first.hint.startswith("14 output channels, expected 12"), first
