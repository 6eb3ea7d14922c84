"""Faults of the network and of its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from mobilenetv3_paddle.models import BatchNorm2D
from mobilenetv3_paddle.models.mobilenetv3 import Hardsigmoid, InvertedResidual, SqueezeExcitation

from .base import Kind, fault, with_loading, with_model

# --- models ----------------------------------------------------------------------------------------------------------------


def each(model: nn.Layer, kind: type) -> list[Any]:
    return [layer for layer in model.sublayers() if isinstance(layer, kind)]


def replace_all(model: nn.Layer, kind: type, make: Callable[[Any], nn.Layer]) -> None:
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent.named_children()):
            if type(child) is kind:
                setattr(parent, name, make(child))


def model_fault(step: int, location: str, hint: Kind, area: str = "models") -> Callable[[Callable], Callable]:
    def register(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        fault(area, step, location, hint, change.__name__)(lambda stack, project: with_model(project, change))
        return change

    return register


@model_fault(1, "features.0.1", Kind.BATCH_NORM_EPS)
def batch_norm_eps(model):
    for layer in each(model, BatchNorm2D):
        layer.eps = 1e-5


@model_fault(1, "features.0.2", Kind.ACTIVATION)
def relu_for_hardswish(model):
    replace_all(model, nn.Hardswish, lambda _: nn.ReLU())


@model_fault(1, "features.1.block.1.scale_activation", Kind.ACTIVATION)
def sigmoid_gate(model):
    replace_all(model, Hardsigmoid, lambda _: nn.Sigmoid())


@model_fault(1, "features.3", Kind.NO_RESIDUAL)
def no_residual(model):
    for layer in each(model, InvertedResidual):
        layer.use_res_connect = False


@model_fault(1, "features.1.block.1", Kind.NO_SQUEEZE_EXCITATION)
def no_squeeze_excitation(model):
    for layer in each(model, SqueezeExcitation):
        layer.forward = lambda x: x


@model_fault(1, "avgpool", Kind.POOLING)
def max_for_average_pool(model):
    model.avgpool = nn.AdaptiveMaxPool2D(1)


@model_fault(1, "features.0.0", Kind.PADDING)
def padding_off_by_one(model):
    first = model.features[0][0]
    first._padding = first._updated_padding = [2, 2]


@model_fault(1, "features.4.block.1.0", Kind.STRIDE)
def stride_forgotten(model):
    model.features[4].block[1][0]._stride = [1, 1]


@model_fault(1, "features.9.block.1.0", Kind.DILATION)
def dilated_by_mistake(model):
    layer = model.features[9].block[1][0]
    layer._dilation = [2, 2]
    layer._padding = layer._updated_padding = [4, 4]


@model_fault(1, "MobileNetV3.forward", Kind.PERMUTED)
def classes_permuted(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output.flip([1]))


@model_fault(1, "MobileNetV3.forward", Kind.FEW_ELEMENTS)
def one_logit_off(model):
    def shift(layer, inputs, output):
        return output + F.one_hot(paddle.to_tensor([7]), output.shape[1]).astype(output.dtype) * 1e-3

    model.register_forward_post_hook(shift)


@model_fault(1, "MobileNetV3.forward", Kind.ZERO)
def output_zero(model):
    model.register_forward_post_hook(lambda layer, inputs, output: output * 0)


@model_fault(1, "features.5", Kind.NOT_FINITE)
def not_a_number(model):
    model.features[5].register_forward_post_hook(lambda layer, inputs, output: output * float("nan"))


@model_fault(1, "features.2", Kind.LAYER_MISSING)
def block_missing(model):
    layers = list(model.features.children())
    model.features = nn.Sequential(*layers[:2], *layers[3:])


@model_fault(1, "classifier.2", Kind.LAYER_EXTRA)
def layer_extra(model):
    width = model.classifier[3].weight.shape[0]
    a, b, c, d = model.classifier.children()
    model.classifier = nn.Sequential(a, b, nn.Linear(width, width), c, d)


@model_fault(1, "features.4.block.2.fc1", Kind.LAYER_RENAMED)
def names_exchanged(model):
    """Two layers have each other's names; forward calls the right ones, so that only weights of the right names show it."""
    se = model.features[4].block[2]
    se.fc1, se.fc2 = se.fc2, se.fc1
    se.forward = lambda x: se.scale_activation(se.fc1(se.activation(se.fc2(se.avgpool(x))))) * x


@model_fault(1, "features.0", Kind.HALF_PRECISION)
def bfloat16_inside(model):
    """In float32 alone: float64 does not have it."""

    def rounded(layer, inputs, output):
        return output.astype("bfloat16").astype(output.dtype) if output.dtype == paddle.float32 else output

    model.features[0].register_forward_post_hook(rounded)


@model_fault(1, "features.0.1", Kind.MOMENTUM_INVERTED)
def momentum_inverted(model):
    for layer in each(model, BatchNorm2D):
        layer.momentum = 0.99


@model_fault(1, "features.0.1", Kind.BIASED_VARIANCE)
def biased_variance(model):
    def stock(layer):
        return nn.BatchNorm2D(layer._num_features, epsilon=layer.eps, momentum=0.99)

    replace_all(model, BatchNorm2D, stock)


@model_fault(1, "features.0.1", Kind.TRAINING_MODE)
def evaluation_mode_forgotten(model):
    model.eval = lambda: model


@model_fault(1, "features.0.1", Kind.EVALUATION_MODE)
def batch_norm_frozen(model):
    def frozen(layer):
        return lambda x: F.batch_norm(x, layer._mean, layer._variance, layer.weight, layer.bias, training=False, epsilon=layer.eps)

    for layer in each(model, BatchNorm2D):
        layer.forward = frozen(layer)


@model_fault(1, "classifier.2", Kind.DROPOUT_RATE)
def dropout_rate(model):
    replace_all(model, nn.Dropout, lambda _: nn.Dropout(0.5))


@model_fault(1, "classifier.2", Kind.DROPOUT_SCALE)
def dropout_downscaled(model):
    replace_all(model, nn.Dropout, lambda layer: nn.Dropout(layer.p, mode="downscale_in_infer"))


@model_fault(1, "classifier.2", Kind.DROPOUT_MISSING)
def dropout_missing(model):
    replace_all(model, nn.Dropout, lambda _: nn.Identity())


class AlwaysDropout(nn.Layer):
    """``F.dropout`` without its ``training`` argument, as it is often called."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, input):
        return F.dropout(input, self.p)


@model_fault(1, "classifier.2", Kind.DROPOUT_ON)
def dropout_left_on(model):
    replace_all(model, nn.Dropout, lambda layer: AlwaysDropout(layer.p))


@model_fault(5, "features.3.block.0.0", Kind.FROZEN)
def parameter_frozen(model):
    model.features[3].block[0][0].weight.stop_gradient = True


@model_fault(5, "features.5", Kind.DETACHED)
def graph_detached(model):
    model.features[5].register_forward_post_hook(lambda layer, inputs, output: output.detach())


# --- weights ---------------------------------------------------------------------------------------------------------------


@model_fault(1, "features.11.block.0.0.weight", Kind.PARAMETERS_SHARED, area="weights")
def parameters_shared(model):
    model.features[11].block[0][0].weight = model.features[10].block[0][0].weight


def loading_fault(location: str, hint: Kind) -> Callable[[Callable], Callable]:
    """A fault of what is loaded: the function changes the reference's canonical state before it is."""

    def register(change: Callable[[dict], dict]) -> Callable:
        fault("weights", 1, location, hint, change.__name__)(lambda stack, project: with_loading(project, change))
        return change

    return register


@fault("weights", 1, "features.0.0.weight", Kind.WEIGHTS_NOT_LOADED)
def weights_not_loaded(stack, project):
    return project.with_models(lambda spec: dataclasses.replace(spec, load=lambda model, state: None))


@loading_fault("classifier.3.weight", Kind.WEIGHT_TRANSPOSED)
def linear_not_transposed(state):
    weight = state["classifier.3.weight"]
    square = min(weight.shape)
    weight[:square, :square] = weight[:square, :square].T.copy()
    return state


@loading_fault("features.1.block.0.0.weight", Kind.WEIGHT_TRANSPOSED)
def kernels_transposed(state):
    wrong = {n: a.transpose(0, 1, 3, 2) for n, a in state.items() if a.ndim == 4 and a.shape[1] == 1 and a.shape[2] > 1}
    return state | wrong


@loading_fault("features.0.0.weight", Kind.CHANNELS_REVERSED)
def weights_for_bgr(state):
    state["features.0.0.weight"] = state["features.0.0.weight"][:, ::-1]
    return state


@loading_fault("features.0.1.running_mean", Kind.WEIGHTS_NOT_LOADED)
def statistics_not_loaded(state):
    fresh = {"running_mean": np.zeros_like, "running_var": np.ones_like}
    return {n: fresh[n.rsplit(".", 1)[-1]](a) if "running_" in n else a for n, a in state.items()}


@loading_fault("classifier.3.bias", Kind.WEIGHTS_NOT_LOADED)
def bias_not_loaded(state):
    state["classifier.3.bias"][:] = 0
    return state


@loading_fault("features.0.0.weight", Kind.HALF_PRECISION)
def weights_in_float16(state):
    return {n: a.astype(np.float16).astype(a.dtype) for n, a in state.items()}


@loading_fault("features.5.block.1.0.weight", Kind.WEIGHTS_SWAPPED)
def weights_swapped(state):
    a, b = "features.5.block.1.0.weight", "features.6.block.1.0.weight"
    return state | {a: state[b], b: state[a]}
