"""A check that cannot fail is a defect: breakages of what step 1 compares, each of which must fail the step."""

from __future__ import annotations

import dataclasses

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from alignment.sides import PaddleSide
from alignment.steps import forward
from alignment.steps.context import Context
from mobilenetv3_paddle.models import BatchNorm2D
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid, InvertedResidual, SqueezeExcitation
from tests.breaking import broken_model, dropout_missing, each, replace_all


class Scaled(nn.Layer):
    def __init__(self, inner, scale):
        super().__init__()
        self.inner, self.scale = [inner], scale

    def forward(self, x):
        return self.inner[0](x) * self.scale


def wrong_eps(model):
    for layer in each(model, BatchNorm2D):
        layer.eps = 1e-5


def relu_for_hardswish(model):
    replace_all(model, nn.Hardswish, lambda _: nn.ReLU())


def sigmoid_gate(model):
    replace_all(model, Hardsigmoid, lambda _: nn.Sigmoid())


def no_residual(model):
    for layer in each(model, InvertedResidual):
        layer.use_res_connect = False


def no_squeeze_excitation(model):
    for layer in each(model, SqueezeExcitation):
        layer.forward = lambda x: x


def max_for_average_pool(model):
    model.avgpool = nn.AdaptiveMaxPool2D(1)


def padding_off_by_one(model):
    first = model.features[0][0]
    first._padding = [2, 2]
    first._updated_padding = [2, 2]


def classes_permuted(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output.flip([1]))


def output_zero(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output * 0)


def output_nan(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output * float("nan"))


def one_logit_off(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output + F.one_hot(paddle.to_tensor([7]), 1000) * 1e-3)


def momentum_inverted(model):
    for layer in each(model, BatchNorm2D):
        layer.momentum = 0.99


def biased_variance(model):
    def make(layer):
        stock = nn.BatchNorm2D(layer._num_features, epsilon=0.001, momentum=0.99)
        return stock

    replace_all(model, BatchNorm2D, make)


def dropout_rate(model):
    replace_all(model, nn.Dropout, lambda _: nn.Dropout(0.5))


def dropout_downscaled(model):
    replace_all(model, nn.Dropout, lambda layer: nn.Dropout(layer.p, mode="downscale_in_infer"))


class NothingLoaded(PaddleSide):
    def load(self, model, state):
        pass


class SquareWeightsNotTransposed(PaddleSide):
    def load(self, model, state):
        super().load(model, state)
        weight = model.classifier[3].weight
        square = min(weight.shape)
        turned = weight.numpy()
        turned[:square, :square] = turned[:square, :square].T
        weight.set_value(turned)


FORWARD = {
    "BatchNorm eps 1e-5": lambda: broken_model(wrong_eps),
    "ReLU for Hardswish": lambda: broken_model(relu_for_hardswish),
    "sigmoid for hardsigmoid": lambda: broken_model(sigmoid_gate),
    "residual removed": lambda: broken_model(no_residual),
    "squeeze-excitation removed": lambda: broken_model(no_squeeze_excitation),
    "max for average pooling": lambda: broken_model(max_for_average_pool),
    "padding off by one": lambda: broken_model(padding_off_by_one),
    "classes permuted": lambda: broken_model(classes_permuted),
    "output times 0": lambda: broken_model(output_zero),
    "output NaN": lambda: broken_model(output_nan),
    "one logit of 1000 off by 1e-3": lambda: broken_model(one_logit_off),
    "BatchNorm momentum inverted": lambda: broken_model(momentum_inverted),
    "biased running variance": lambda: broken_model(biased_variance),
    "dropout rate": lambda: broken_model(dropout_rate),
    "dropout scaled at inference": lambda: broken_model(dropout_downscaled),
    "dropout missing": lambda: broken_model(dropout_missing),
    "weights never loaded": NothingLoaded,
    "linear weight not transposed": SquareWeightsNotTransposed,
}


def forward_cases(context: Context) -> list[forward.Case]:
    photos, _ = context.photographs(8, 96)
    return [forward.Case("eval.photos.b4", photos[:4], False), forward.Case("train.photos.b4", photos[4:], True)]


def test_step_1_passes(context):
    sound = context()
    assert forward.run(sound, forward_cases(sound)).passed


@pytest.mark.parametrize("breakage", FORWARD)
def test_step_1_fails(context, breakage):
    broken = context(FORWARD[breakage]())
    assert not forward.run(broken, forward_cases(broken)).passed


def test_step_1_refuses_vacuous_weights(context, small_state):
    """Logits of 1e-10 agree whatever is wrong; the evidence says so."""
    tiny = {k: v * 1e-8 if k.startswith("classifier.3") else v for k, v in small_state.items()}
    vacuous = dataclasses.replace(context(), given_state=tiny)
    result = forward.run(vacuous, forward_cases(vacuous))
    assert not result.passed and "logits_std" in result.problems[0]
