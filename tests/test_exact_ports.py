"""Exact mode and a port's own layers: what is written by hand and right passes, whatever holds a constant in float32; what is wrong
is wrong in exact mode, too, in its place and with its constant."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn
from paddle.nn.functional import hardsigmoid

from alignment.comparisons.model import explain as models
from alignment.comparisons.model import forward
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.localize import localize
from alignment.models import rounding
from alignment.models.weights import copy_weights
from mobilenetv3_paddle.models import BatchNorm2D
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid
from projects.mobilenetv3.faults.base import with_model
from projects.mobilenetv3.project import PROJECT
from tests.conftest import relative_l2

INPUTS = np.random.default_rng(0).standard_normal((4, 8, 6, 6)).astype(np.float32) * 0.1


def channels(values):
    return values.reshape([1, -1, 1, 1])


class BatchNormByHand(BatchNorm2D):
    """Mean and variance written out, eps in float64."""

    def forward(self, x):
        mean, variance = self._mean, self._variance
        if self.training:
            mean, variance = x.mean([0, 2, 3]), x.var([0, 2, 3], unbiased=False)
            count = x.shape[0] * x.shape[2] * x.shape[3]
            with paddle.no_grad():
                self._mean.set_value(self._mean * (1 - self.momentum) + mean * self.momentum)
                self._variance.set_value(self._variance * (1 - self.momentum) + variance * (self.momentum * count / (count - 1)))
        scale = self.weight / paddle.sqrt(variance + self.eps)
        return x * channels(scale) + channels(self.bias - mean * scale)


class ByHandInTraining(BatchNormByHand):
    """The stock kernel in evaluation mode, the formula in training."""

    def forward(self, x):
        return super().forward(x) if self.training else BatchNorm2D.forward(self, x)


class ByHandInEvaluation(BatchNormByHand):
    def forward(self, x):
        return BatchNorm2D.forward(self, x) if self.training else super().forward(x)


def by_hand(kind, every=1, eps=None):
    """Replaces every so many BatchNorm2D of a model by another class, with its own eps or another one."""

    def change(model):
        layers = [layer for layer in model.sublayers() if type(layer) is BatchNorm2D]
        for layer in layers[::every]:
            layer.__class__ = kind
            layer.eps = eps or layer.eps

    return change


def small_cases(context):
    photos, _ = context.material.photographs(4, 96)
    return [forward.PassCase(f"{mode}.photos", (photos,), mode == "train") for mode in ("eval", "train")]


NORMS = {
    "all": by_hand(BatchNormByHand),
    "every third": by_hand(BatchNormByHand, 3),
    "in training alone": by_hand(ByHandInTraining),
    "in evaluation alone, every second": by_hand(ByHandInEvaluation, 2),
}


@pytest.mark.parametrize("case", NORMS)
def test_normalisation_by_hand_passes(case, context):
    port = context(with_model(PROJECT, NORMS[case]))
    result = forward.run(port, small_cases(port))
    failed = [f"{row.name}: {row.reason}" for row in result.quantities if not row.passed]
    assert result.passed, failed[:3]
    if case == "all":
        assert models.forward_and_backward(port) is None and models.in_training(port) is None


@pytest.mark.parametrize("eps", [1e-5, 0.0011])
def test_normalisation_by_hand_with_another_eps_is_found(eps, context):
    port = context(with_model(PROJECT, by_hand(BatchNormByHand, eps=eps)))
    result = forward.run(port, small_cases(port)[:1])
    assert result.failed and any("exact mode" in row.reason for row in result.quantities)
    found = models.forward_and_backward(port)
    assert (found.location, found.kind) == ("features.0.1", "batch_norm_eps") and f"wrong eps: {eps:.3g}" in found.hint, (
        found.line()
    )


class PaddleLayerNorm(nn.LayerNorm):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + self._epsilon).sqrt() * self.weight + self.bias


class TorchLayerNorm(torch.nn.LayerNorm):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.own_eps = self.eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + self.own_eps).sqrt() * self.weight + self.bias


class TorchBatchNorm(torch.nn.Module):
    def __init__(self, count, eps):
        super().__init__()
        self.weight, self.bias, self.eps = torch.nn.Parameter(torch.ones(count)), torch.nn.Parameter(torch.zeros(count)), eps
        self.register_buffer("running_mean", torch.zeros(count))
        self.register_buffer("running_var", torch.ones(count))

    def forward(self, x):
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            with torch.no_grad():  # as Paddle's own
                self.running_mean.lerp_(mean, 0.1)
                self.running_var.lerp_(variance, 0.1)
        shape = (1, -1, 1, 1)
        normal = (x - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()
        return normal * self.weight.view(shape) + self.bias.view(shape)


PAIRS = {
    "layer normalisation by hand in the port": (PaddleLayerNorm(6, 1e-3), torch.nn.LayerNorm(6, 1e-3)),
    "layer normalisation by hand in the reference": (nn.LayerNorm(6, 1e-3), TorchLayerNorm(6, 1e-3)),
    "layer normalisation by hand in both": (PaddleLayerNorm(6, 1e-3), TorchLayerNorm(6, 1e-3)),
    "batch normalisation by hand in the reference": (nn.BatchNorm2D(8, epsilon=1e-3), TorchBatchNorm(8, 1e-3)),
    "instance normalisation": (nn.InstanceNorm2D(8, epsilon=1e-3), torch.nn.InstanceNorm2d(8, eps=1e-3, affine=True)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("case", PAIRS)
def test_either_side_may_normalise_by_hand(case, training):
    ours, theirs = (kind(layer) for kind, layer in zip((nn.Sequential, torch.nn.Sequential), PAIRS[case], strict=True))
    copy_weights(theirs, ours)
    for port, reference in ((ours, theirs), (theirs, ours)):
        found = localize(port, reference, INPUTS, training=training).first
        assert found is None, found.line()


@pytest.mark.parametrize("case", [case for case in PAIRS if "by hand in the" in case])
def test_with_one_rounding_alone_they_would_fail(case, monkeypatch):
    monkeypatch.setattr(rounding, "choose", lambda *args: ({}, {}))
    ours, theirs = (kind(layer) for kind, layer in zip((nn.Sequential, torch.nn.Sequential), PAIRS[case], strict=True))
    copy_weights(theirs, ours)
    assert localize(ours, theirs, INPUTS).first.location == "0"


def test_the_wrong_eps_of_one_of_two_norms_is_no_rounding():
    ours = nn.Sequential(PaddleLayerNorm(6, 1e-3), PaddleLayerNorm(6, 1.0000001e-3))
    theirs = torch.nn.Sequential(torch.nn.LayerNorm(6, 1e-3), torch.nn.LayerNorm(6, 1e-3))
    found = localize(ours, theirs, INPUTS, weights=False).first
    assert found.location == "1", found.line()


# --- gates -----------------------------------------------------------------------------------------------------------------


class Function(nn.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


GATES = {
    "divided": lambda x: F.relu6(x + 3) / 6,
    "clipped": lambda x: paddle.clip(x / 6 + 0.5, 0.0, 1.0),
    "minimum and maximum": lambda x: paddle.minimum(paddle.maximum(x + 3, paddle.zeros_like(x)), paddle.full_like(x, 6)) / 6,
    "the stock function": lambda x: F.hardsigmoid(x),
    "the stock function, imported by its name": lambda x: hardsigmoid(x),
    "a sixth in float32": lambda x: F.hardsigmoid(x, slope=float(np.float32(1 / 6))),
    "hard swish": lambda x: F.hardsigmoid(x, slope=1 / 6),
}
WRONG_GATES = {
    "0.1666": (lambda x: F.hardsigmoid(x, slope=0.1666), "slope 0.1666 and offset 0.5, expected 0.166666667 and 0.5"),
    "0.167": (lambda x: F.hardsigmoid(x, slope=0.167), "slope 0.167 and offset 0.5"),
    "0.2": (lambda x: F.hardsigmoid(x, slope=0.2), "it computes Hardsigmoid of slope 0.2"),
    "offset 0.51": (lambda x: F.hardsigmoid(x, slope=1 / 6, offset=0.51), "slope 0.166666667 and offset 0.51"),
    "by hand, 0.1667": (lambda x: paddle.clip(x * 0.1667 + 0.5, 0.0, 1.0), "slope 0.1667 and offset 0.5"),
    "by hand, 0.1666667": (lambda x: paddle.clip(x * 0.1666667 + 0.5, 0.0, 1.0), "slope 0.1666667 and offset 0.5"),
    "nearly a sixth": (lambda x: F.hardsigmoid(x, slope=1 / 6 + 1e-7), "slope 0.166666767 and offset 0.5"),
}
SWISHES = {
    "of the stock gate": lambda x: x * F.hardsigmoid(x),
    "divided": lambda x: x * F.relu6(x + 3) / 6,
    "the stock function": F.hardswish,
}


@pytest.mark.parametrize("case", GATES)
def test_a_gate_that_is_written_otherwise_passes(case):
    for layer in (Function(GATES[case]), nn.Sequential(Function(GATES[case]))):
        assert localize(nn.Sequential(layer), torch.nn.Sequential(torch.nn.Hardsigmoid()), INPUTS * 40).first is None


@pytest.mark.parametrize("case", SWISHES)
def test_a_hard_swish_that_is_written_otherwise_passes(case):
    pair = nn.Sequential(Function(SWISHES[case])), torch.nn.Sequential(torch.nn.Hardswish())
    found = localize(*pair, INPUTS * 40).first
    assert found is None, found.line()


@pytest.mark.parametrize("case", WRONG_GATES)
def test_a_gate_with_another_constant_is_found_and_the_constant_named(case):
    function, words = WRONG_GATES[case]
    gate = localize(nn.Sequential(Function(function)), torch.nn.Sequential(torch.nn.Hardsigmoid()), INPUTS * 40).first
    assert gate.location == "0" and gate.kind in ("activation", "float32_constant") and words in gate.hint, gate.line()
    swish = nn.Sequential(Function(lambda x: x * function(x)))
    found = localize(swish, torch.nn.Sequential(torch.nn.Hardswish()), INPUTS * 40).first
    assert found.location == "0"
    if "it computes" not in words:
        assert words in found.hint, found.line()


def test_the_projects_own_gate_keeps_its_slope_in_exact_mode(context, monkeypatch):
    monkeypatch.setattr(Hardsigmoid, "forward", lambda self, x: F.hardsigmoid(x, slope=0.1666, offset=0.5))
    port = context()
    result = forward.run(port, small_cases(port)[:1])
    assert any("exact mode differs" in row.reason for row in result.quantities)
    found = models.forward_and_backward(port)
    assert (found.location, found.kind) == ("features.1.block.1.scale_activation", "activation")
    assert found.hint.startswith("slope 0.1666 and offset 0.5, expected 0.166666667 and 0.5: tests/test_exact_ports.py:")


def test_an_exact_layer_does_not_take_the_ports_own_constant_away():
    class Gate(nn.Layer):
        """A layer with a kernel of its own."""

        def __init__(self, slope):
            super().__init__()
            self.slope = slope

        def forward(self, x):
            return paddle.clip(x * float(np.float32(self.slope)) + 0.5, 0.0, 1.0)

    class Exact(nn.Layer):
        """Written from the right formula: it does not ask for the slope."""

        def forward(self, x):
            return paddle.clip(x / 6 + 0.5, 0.0, 1.0)

    x = np.linspace(-4, 4, 101)
    framework = Paddle(layers={Gate: "hardsigmoid"}, exact_layers={Gate: lambda layer: Exact()})
    for slope, expected in ((1 / 6, 1 / 6), (0.1666, float(np.float32(0.1666)))):
        made = framework.make_exact(nn.Sequential(Gate(slope)))
        assert relative_l2(framework.call(made, (x,)).outputs[0], np.clip(x * expected + 0.5, 0, 1)) < 1e-15
        gradient = framework.vjp(made, (x,), [np.ones(101)], _inputs()).inputs[0]
        assert gradient[50] == pytest.approx(expected, rel=1e-14)
    assert framework.layer(made[0]).kind == "hardsigmoid"


def _inputs():
    from alignment.frameworks.base import Wanted

    return Wanted()


# --- other layers with constants -------------------------------------------------------------------------------------------

CONSTANTS = {
    "leaky ReLU": (nn.LeakyReLU(0.1), torch.nn.LeakyReLU(0.1)),
    "hard shrink": (nn.Hardshrink(0.3), torch.nn.Hardshrink(0.3)),
    "soft plus": (nn.Softplus(0.7), torch.nn.Softplus(0.7)),
    "threshold": (nn.ThresholdedReLU(0.3), torch.nn.Threshold(0.3, 0.0)),
    "mish": (nn.Mish(), torch.nn.Mish()),
    "log softmax": (nn.LogSoftmax(1), torch.nn.LogSoftmax(1)),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_layers_with_constants_agree_in_exact_mode(case):
    ours, theirs = (kind(layer) for kind, layer in zip((nn.Sequential, torch.nn.Sequential), CONSTANTS[case], strict=True))
    found = localize(ours, theirs, INPUTS * 40).first
    assert found is None, found.line()
    assert Torch().layer(theirs[0]).title
