"""Conversion faults, each made in the graph of a small network: found, placed at node and module, and named."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from onnx import helper

from alignment.audit.exported import ModulesSide, measured, step_of
from alignment.frameworks import framework
from alignment.frameworks._onnx_files import graph_of
from alignment.kinds import Kind
from tests.exported_net import Net, add, before, change, constant, export, net, node, set_attribute, without

CASES = {}


def fault(place, op, kind, folded=True):
    """A fault: the module that it is in, an operator among the nodes that are named, and its kind (None: not named)."""

    def register(edit):
        CASES[edit.__name__] = place, op, kind, folded, edit
        return edit

    return register


# --- convolutions and folded normalisations ---------------------------------------------------------------------------------


@fault("stem.0", "Conv", Kind.PADDING)
def asymmetric_padding(m):
    set_attribute(node(m, "Conv"), "pads", [0, 0, 2, 2])


@fault("block.0", "Conv", Kind.PADDING)
def padding_on_one_side_only(m):
    set_attribute(node(m, "Conv", 1), "pads", [0, 1, 2, 1])


@fault("stem.0", "Conv", Kind.PADDING)
def padding_lost(m):
    set_attribute(node(m, "Conv"), "pads", [0, 0, 0, 0])


@fault("stem.0", "Conv", Kind.STRIDE)
def stride_lost(m):
    set_attribute(node(m, "Conv"), "strides", [1, 1])


@fault("block.0", "Conv", Kind.DILATION)
def dilation_added(m):
    set_attribute(node(m, "Conv", 1), "dilations", [2, 2])
    set_attribute(node(m, "Conv", 1), "pads", [2, 2, 2, 2])


@fault("stem.0", "Conv", Kind.CHANNELS_REVERSED)
def red_and_blue_swapped_in_the_weights(m):
    change(m, node(m, "Conv").input[1], lambda w: w[:, ::-1])


@fault("stem.0", "Conv", Kind.WEIGHT_TRANSPOSED)
def kernel_transposed(m):
    change(m, node(m, "Conv").input[1], lambda w: w.transpose(0, 1, 3, 2))


@fault("block.0", "Conv", Kind.WEIGHT_FLIPPED)
def kernel_flipped(m):
    change(m, node(m, "Conv", 1).input[1], lambda w: w[:, :, ::-1, ::-1])


def folded_again(m, number, conv, norm, eps):
    """A normalisation folded into a convolution with another eps."""
    scale = (norm.weight / (norm.running_var.double() + eps).sqrt()).detach().numpy()
    bias = np.zeros(len(scale)) if conv.bias is None else conv.bias.detach().numpy()
    shift = (bias - norm.running_mean.numpy()) * scale + norm.bias.detach().numpy()
    change(m, node(m, "Conv", number).input[1], lambda _: conv.weight.detach().numpy() * scale[:, None, None, None])
    change(m, node(m, "Conv", number).input[2], lambda _: shift)


@fault("stem.1", "Conv", Kind.BATCH_NORM_EPS)
def folded_with_the_default_eps(m):
    folded_again(m, 0, *net().stem[:2], 1e-5)


@fault("block.1", "Conv", Kind.BATCH_NORM_EPS)
def folded_without_eps(m):
    folded_again(m, 1, *net().block[:2], 0.0)


@fault("block.0", "Conv", Kind.BIAS_MISSING)
def bias_of_the_convolution_not_folded(m):
    conv, norm = net().block[:2]
    conv.bias = None
    folded_again(m, 1, conv, norm, norm.eps)


@fault("stem.1", "Conv", Kind.NORM_SETTING)
def mean_not_folded(m):
    conv, norm = net().stem[:2]
    norm.running_mean.zero_()
    folded_again(m, 0, conv, norm, norm.eps)


@fault("stem.1", "HardSwish", Kind.LAYER_NOT_CALLED)
def normalisation_not_folded(m):
    change(m, node(m, "Conv").input[1], lambda _: net().stem[0].weight.detach().numpy())
    change(m, node(m, "Conv").input[2], np.zeros_like)


@fault("stem.0", "Conv", Kind.SCALED)
def folded_weight_scaled(m):
    """By the step of a quantiser that was applied twice, say."""
    change(m, node(m, "Conv").input[1], lambda w: 1.01 * w)


@fault("block.1", "Conv", Kind.WEIGHTS_NOT_LOADED)
def folded_with_the_variance_of_another_checkpoint(m):
    conv, norm = net().block[:2]
    norm.running_var[:3] *= 1.5
    folded_again(m, 1, conv, norm, norm.eps)


@fault("stem.1", "Conv", Kind.WEIGHTS_NOT_LOADED)
def folded_with_the_bias_of_another_checkpoint(m):
    conv, norm = net().stem[:2]
    norm.bias.data[2] += 0.5
    folded_again(m, 0, conv, norm, norm.eps)


@fault("stem.0", "Conv", Kind.WEIGHTS_NOT_LOADED)
def one_kernel_of_another_checkpoint(m):
    conv, norm = net().stem[:2]
    conv.weight.data[3] = conv.weight.data[3].flip(0) + 0.01
    folded_again(m, 0, conv, norm, norm.eps)


@fault("stem.1", "BatchNormalization", Kind.BATCH_NORM_EPS, folded=False)
def eps_lost(m):
    set_attribute(node(m, "BatchNormalization"), "epsilon", None)  # the operator's default is 1e-5


@fault("block.1", "BatchNormalization", Kind.BATCH_NORM_EPS, folded=False)
def eps_another(m):
    set_attribute(node(m, "BatchNormalization", 1), "epsilon", 1e-6)


@fault("stem.1", "BatchNormalization", Kind.TRAINING_MODE, folded=False)
def normalisation_in_training_mode(m):
    one = node(m, "BatchNormalization")
    set_attribute(one, "training_mode", 1)
    one.output.extend(["mean_after", "var_after"])


@fault("gate.down", "Conv", Kind.BIAS_MISSING)
def bias_left_out(m):
    del node(m, "Conv", 2).input[2]


@fault("last.0", "Conv", Kind.WEIGHTS_NOT_LOADED)
def weights_of_another_checkpoint(m):
    change(m, "last.0.weight", lambda w: w + np.float32(0.01) * np.sin(np.arange(w.size).reshape(w.shape)))


@fault("head.4", "Gemm", Kind.BIAS_MISSING)
def bias_of_the_classifier_left_out(m):
    del node(m, "Gemm", 1).input[2]


@fault("head.4", "Gemm", Kind.WEIGHTS_NOT_LOADED)
def classes_in_another_order(m):
    change(m, "head.4.weight", lambda w: w[::-1])


# --- activations ------------------------------------------------------------------------------------------------------------


@fault("gate.gate", "HardSigmoid", Kind.ACTIVATION)
def slope_of_the_hard_sigmoid_is_the_operators_default(m):
    set_attribute(node(m, "HardSigmoid"), "alpha", None)  # 0.2


@fault("gate.gate", "HardSigmoid", Kind.ACTIVATION)
def hard_sigmoid_for_sigmoid(m):
    one = node(m, "HardSigmoid")
    one.op_type = "Sigmoid"
    del one.attribute[:]


@fault("stem.2", "Relu", Kind.ACTIVATION)
def relu_for_hard_swish(m):
    node(m, "HardSwish").op_type = "Relu"


@fault("block.2", "Clip", Kind.ACTIVATION)
def upper_bound_of_clip_lost(m):
    del node(m, "Clip").input[2]


@fault("block.2", "Clip", Kind.ACTIVATION)
def lower_bound_of_clip_lost(m):
    node(m, "Clip").input[1] = ""


@fault("block.2", "Clip", Kind.ACTIVATION)
def bounds_of_clip_are_others(m):
    add(m, five=np.float32(1.5))
    node(m, "Clip").input[2] = "five"


@fault("last.1", "LeakyRelu", Kind.ACTIVATION)
def slope_of_leaky_relu_lost(m):
    set_attribute(node(m, "LeakyRelu"), "alpha", None)  # 0.01


@fault("stem.2", "MaxPool", Kind.LAYER_NOT_CALLED)
def activation_left_out(m):
    without(m, node(m, "HardSwish"))


@fault("softmax", "Softmax", Kind.AXIS)
def softmax_over_the_samples(m):
    set_attribute(node(m, "Softmax"), "axis", 0)


@fault("softmax", "LogSoftmax", None)
def logarithm_of_softmax(m):
    node(m, "Softmax").op_type = "LogSoftmax"


@fault("behind softmax", "Softmax", Kind.ACTIVATION_EXTRA)
def softmax_twice(m):
    one = node(m, "Softmax")
    one.output[0] = "once"
    m.graph.node.append(helper.make_node("Softmax", ["once"], ["y"], name="again", axis=1))


@fault("behind gate.up", "Tanh", Kind.ACTIVATION_EXTRA)
def activation_added(m):
    before(m, node(m, "HardSigmoid"), 0, helper.make_node("Tanh", ["/gate/up/Conv_output_0"], ["bent"], name="bent"))


# --- poolings and resizing --------------------------------------------------------------------------------------------------


@fault("mean", "AveragePool", Kind.POOLING)
def margin_counted_no_longer(m):
    set_attribute(node(m, "AveragePool"), "count_include_pad", 0)


@fault("mean", "AveragePool", Kind.POOLING)
def size_rounded_up(m):
    set_attribute(node(m, "AveragePool"), "ceil_mode", 1)


@fault("mean", "MaxPool", Kind.POOLING)
def maxima_for_means(m):
    one = node(m, "AveragePool")
    one.op_type = "MaxPool"
    set_attribute(one, "count_include_pad", None)


@fault("pool", "MaxPool", None)
def margin_of_the_pooling_on_one_side(m):
    set_attribute(node(m, "MaxPool"), "pads", [0, 0, 2, 2])


@fault("pool", "MaxPool", Kind.PADDING)
def margin_of_the_pooling_lost(m):
    set_attribute(node(m, "MaxPool"), "pads", [0, 0, 0, 0])


@fault("pool", "MaxPool", Kind.STRIDE)
def stride_of_the_pooling_lost(m):
    set_attribute(node(m, "MaxPool"), "strides", None)


@fault("head.0", "GlobalMaxPool", Kind.POOLING)
def greatest_for_mean(m):
    node(m, "GlobalAveragePool", 1).op_type = "GlobalMaxPool"


@fault("wide", "Resize", Kind.ALIGN_CORNERS)
def corners_aligned(m):
    set_attribute(node(m, "Resize"), "coordinate_transformation_mode", "align_corners")


@fault("wide", "Resize", None)
def asymmetric_coordinates(m):
    set_attribute(node(m, "Resize"), "coordinate_transformation_mode", "asymmetric")


@fault("wide", "Resize", Kind.INTERPOLATION)
def nearest_for_linear(m):
    one = node(m, "Resize")
    set_attribute(one, "mode", "nearest")
    set_attribute(one, "coordinate_transformation_mode", "asymmetric")


# --- inputs, sums, dropouts, constants --------------------------------------------------------------------------------------


@fault("(input)", "Gather", Kind.CHANNELS_REVERSED)
def red_and_blue_swapped_in_the_graph(m):
    add(m, order=np.array([2, 1, 0]))
    before(m, node(m, "Conv"), 0, helper.make_node("Gather", ["x", "order"], ["swapped"], name="swap", axis=1))


@fault("(input)", "Div", Kind.WRONG_MEAN_STD)
def normalised_twice(m):
    add(m, mean=np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1),
        deviation=np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1))  # fmt: skip
    before(m, node(m, "Conv"), 0, helper.make_node("Sub", ["x", "mean"], ["less"], name="less"),
           helper.make_node("Div", ["less", "deviation"], ["normal"], name="normal"))  # fmt: skip


@fault("(input)", "Div", Kind.NOT_DIVIDED_BY_255)
def divided_by_255_inside(m):
    add(m, levels=np.float32(255))
    before(m, node(m, "Conv"), 0, helper.make_node("Div", ["x", "levels"], ["small"], name="small"))


@fault("gate", "Add", Kind.GATE_ADDED)
def added_for_multiplied(m):
    node(m, "Mul").op_type = "Add"


@fault("mean", "AveragePool", None)
def sum_left_out(m):
    without(m, node(m, "Add"))


@fault("behind head.2", "Dropout", Kind.DROPOUT_ON)
def dropout_in_training_mode(m):
    add(m, ratio=np.float32(0.3), on=np.array(True))
    before(m, node(m, "Gemm", 1), 0,
           helper.make_node("Dropout", ["/head/head.2/Gemm_output_0", "ratio", "on"], ["dropped"], name="drop"))  # fmt: skip


@fault("behind gate.up", "Mul", Kind.SCALED)
def scaled_besides(m):
    add(m, twice=np.float32(2))
    before(m, node(m, "HardSigmoid"), 0, helper.make_node("Mul", ["/gate/up/Conv_output_0", "twice"], ["scaled"], name="scaled"))


@fault("head.2", "Gemm", None)
def in_half_precision(m):
    change(m, "head.2.weight", lambda w: w.astype(np.float16).astype(np.float32))


@functools.cache
def side():
    return ModulesSide("--reference", framework("torch"), net(), "its own")


INPUT = np.random.default_rng(0).standard_normal((2, 3, 45, 35)).astype(np.float32)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return {folded: export(folder / f"{folded}.onnx", folded) for folded in (True, False)}


def audited(model):
    made = measured(graph_of(model), side(), (INPUT,))
    return made, step_of(made)


@pytest.mark.parametrize("folded", [True, False])
def test_a_sound_export_is_silent(folded, graphs):
    made, step = audited(graphs[folded])
    assert step.passed and made.findings() == [] and not made.pairing.left, [q.name for q in step.quantities if not q.passed]
    places = {made.place(one) for one in made.stretches}
    leaves = {name for name, one in net().named_modules() if not list(one.children())}
    folded_away = {"stem.0", "block.0"} if folded else set()
    same = {"head.3"}  # a dropout gives its input back
    assert leaves - places == folded_away | same


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_placed_and_named(name, graphs):
    place, op, kind, folded, edit = CASES[name]
    model = type(graphs[folded])()
    model.CopyFrom(graphs[folded])
    edit(model)
    made, step = audited(model)
    found = made.findings()
    assert step.failed and found, "not found"
    first = found[0]
    assert (first.location, op in first.measured) == (place, True), first
    assert kind is None or first.kind is kind, first
    assert len(found) == 1, [one.line() for one in found]


def test_there_is_a_case_of_every_sort():
    assert len(CASES) >= 45 and sum(kind is not None for _, _, kind, *_ in CASES.values()) >= 0.8 * len(CASES)
    assert constant is not None and isinstance(net(), Net)
