"""More conversion faults: layout, dtype of indices, a fixed batch, opset changes, preprocessing; with the source line of each."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from torch import nn

from alignment.audit.exported import ModulesSide, measured, step_of
from alignment.frameworks import framework
from alignment.frameworks._onnx_files import graph_of
from alignment.kinds import Kind
from tests.exported_net import add, before, change, constant, export, net, node, set_attribute, without
from tests.exported_nets import SameConv, inside, pixels, words

ROOT = Path(__file__).parents[1]
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 5000, (2, 9))
INPUTS = {
    "net": RNG.standard_normal((2, 3, 45, 35)).astype(np.float32),
    "plain": RNG.standard_normal((2, 3, 45, 35)).astype(np.float32),
    "pixels": RNG.random((2, 3, 16, 16)).astype(np.float32),
    "words": IDS,
}
MODELS = {"net": net, "plain": net, "pixels": pixels, "words": words}
CASES = {}


def fault(place, op, kind, graph):
    """A fault: the module that it is in, an operator among the nodes that are named, its kind (None: not named), and the graph."""

    def register(edit):
        CASES[edit.__name__] = place, op, kind, graph, edit
        return edit

    return register


# --- layout -----------------------------------------------------------------------------------------------------------------


@fault("(input)", "Reshape", Kind.LAYOUT, "pixels")
def channels_last_taken_for_channels_first(m):
    """NHWC pictures, reshaped where they ought to be transposed."""
    add(m, first=np.array([2, 16, 16, 3]))
    before(m, node(m, "Sub"), 0, helper.make_node("Reshape", ["x", "first"], ["as_last"], name="as_last"),
           helper.make_node("Transpose", ["as_last"], ["turned"], name="turned", perm=[0, 3, 1, 2]))  # fmt: skip


@fault("behind small", "Transpose", Kind.LAYOUT, "pixels")
def flattened_with_channels_last(m):
    one = node(m, "Flatten")
    before(m, one, 0, helper.make_node("Transpose", [one.input[0]], ["last"], name="to_last", perm=[0, 2, 3, 1]))


@fault("(input)", "Transpose", Kind.AXES_SWAPPED, "pixels")
def height_and_width_swapped(m):
    before(m, node(m, "Sub"), 0, helper.make_node("Transpose", ["x"], ["turned"], name="turned", perm=[0, 1, 3, 2]))


@fault("square", "Gemm", Kind.WEIGHT_TRANSPOSED, "pixels")
def linear_layer_not_transposed(m):
    change(m, node(m, "Gemm").input[1], np.transpose)


# --- indices and batch ------------------------------------------------------------------------------------------------------


def cast_ids(m, to):
    one = node(m, "Gather")
    place = list(one.input).index("x")
    before(m, one, place, helper.make_node("Cast", ["x"], ["narrow"], name="narrow", to=to),
           helper.make_node("Cast", ["narrow"], ["ids"], name="back", to=TensorProto.INT64))  # fmt: skip


@fault("table", "Gather", Kind.INDICES, "words")
def indices_in_one_byte(m):
    cast_ids(m, TensorProto.UINT8)


@fault("(input)", "Cast", Kind.HALF_PRECISION, "words")
def indices_in_half_precision(m):
    cast_ids(m, TensorProto.FLOAT16)


@fault("table", "Gather", Kind.INDICES, "words")
def indices_count_from_one(m):
    one = node(m, "Gather")
    add(m, one=np.array(1), most=np.array(4999))
    before(m, one, 1, helper.make_node("Add", ["x", "one"], ["next"], name="next"),
           helper.make_node("Min", ["next", "most"], ["within"], name="within"))  # fmt: skip


@fault("row", "Reshape", Kind.BATCH, "pixels")
def batch_fixed_at_one(m):
    one = node(m, "Flatten")
    add(m, sizes=np.array([1, -1]))
    one.op_type, one.input[:] = "Reshape", [one.input[0], "sizes"]
    del one.attribute[:]


@fault("gate.pool", "ReduceMean", Kind.BATCH, "net")
def mean_over_the_batch_too(m):
    """A pooling written for a batch of one: every sample is given the mean of all."""
    one = node(m, "GlobalAveragePool")
    add(m, axes=np.array([0, 2, 3]))
    one.op_type = "ReduceMean"
    one.input.append("axes")


# --- opsets -----------------------------------------------------------------------------------------------------------------


@fault("block.2", "Clip", Kind.ACTIVATION, "net")
def both_bounds_of_clip_lost(m):
    """Opset 11 has the bounds as inputs, earlier ones as attributes."""
    del node(m, "Clip").input[1:]


@fault("stem.1", "BatchNormalization", Kind.NORM_SETTING, "plain")
def weight_and_bias_exchanged(m):
    one = node(m, "BatchNormalization")
    one.input[1], one.input[2] = one.input[2], one.input[1]


@fault("block.1", "BatchNormalization", Kind.TRAINING_MODE, "plain")
def second_normalisation_in_training_mode(m):
    one = node(m, "BatchNormalization", 1)
    set_attribute(one, "training_mode", 1)
    one.output.extend(["mean_after", "var_after"])


@fault("behind head.2", "Mul", Kind.SCALED, "plain")
def dropout_scales_in_inference(m):
    """What opsets before 7 did in a test, with is_test lost."""
    add(m, kept=np.float32(0.7))
    before(m, node(m, "Gemm", 1), 0,
           helper.make_node("Mul", ["/head/head.2/Gemm_output_0", "kept"], ["less"], name="dropout_scale"))  # fmt: skip


@fault("wide", "Resize", Kind.INTERPOLATION, "pixels")
def nearest_pixel_rounded_otherwise(m):
    set_attribute(node(m, "Resize"), "nearest_mode", "ceil")


@fault("wide", "Resize", Kind.INTERPOLATION, "pixels")
def nearest_pixel_for_the_one_below(m):
    one = node(m, "Resize")
    set_attribute(one, "nearest_mode", "round_prefer_ceil")


@fault("bend", "Elu", Kind.ACTIVATION, "pixels")
def alpha_of_elu_is_another(m):
    set_attribute(node(m, "Elu"), "alpha", 0.5)


@fault("margin", "Pad", Kind.PADDING, "pixels")
def pads_in_the_other_order(m):
    """ONNX counts from the first axis, torch from the last."""
    change_pads(m, [0, 0, 1, 3, 0, 0, 2, 0])


@fault("margin", "Pad", Kind.PADDING, "pixels")
def margin_reflects(m):
    set_attribute(node(m, "Pad"), "mode", "reflect")


def change_pads(m, pads):
    one = node(m, "Pad")
    add(m, other_pads=np.array(pads))
    one.input[1] = "other_pads"


@fault("last", "Gemm", Kind.BIAS_MISSING, "pixels")
def beta_of_the_product_is_zero(m):
    set_attribute(node(m, "Gemm", 1), "beta", 0.0)


@fault("square", "Gemm", Kind.SCALED, "pixels")
def alpha_of_the_product_is_another(m):
    set_attribute(node(m, "Gemm"), "alpha", 0.5)
    set_attribute(node(m, "Gemm"), "beta", 0.5)


@fault("block.act", "Pow", Kind.ACTIVATION, "words")
def gelu_by_the_tangent(m):
    """The tanh form in the place of the error function's."""
    one = node(m, "Erf")
    x = next(other.input[0] for other in m.graph.node if other.output[0] == one.input[0])
    add(m, three=np.float32(3), cubic=np.float32(0.044715), root=np.float32(np.sqrt(2 / np.pi)))
    made = [("Pow", x, "three"), ("Mul", "t0", "cubic"), ("Add", x, "t1"), ("Mul", "t2", "root")]
    before(m, one, 0, *(helper.make_node(op, [a, b], [f"t{n}"], name=f"t{n}") for n, (op, a, b) in enumerate(made)))
    one.op_type = "Tanh"


@fault("block", "Softmax", None, "words")
def softmax_along_the_queries(m):
    """Opset 13 counts the axis otherwise than 11 did."""
    set_attribute(node(m, "Softmax"), "axis", 1)


@fault("block.first", "LayerNormalization", Kind.NORM_EPS, "words")
def eps_of_the_layer_normalisation_lost(m):
    set_attribute(node(m, "LayerNormalization"), "epsilon", None)


# --- preprocessing ----------------------------------------------------------------------------------------------------------


@fault("normalise", "Pad", Kind.LAYER_NOT_CALLED, "pixels")
def normalisation_left_to_the_client(m):
    without(m, node(m, "Sub"))
    without(m, node(m, "Div"))


@fault("normalise", "Div", Kind.MEAN_STD_SWAPPED, "pixels")
def mean_and_deviation_exchanged(m):
    less, over = node(m, "Sub"), node(m, "Div")
    less.input[1], over.input[1] = over.input[1], less.input[1]


@fault("normalise", "Div", Kind.WRONG_MEAN_STD, "pixels")
def mean_and_deviation_of_bgr(m):
    """Reversed with the channels of a decoder that has since been replaced."""
    for name in (node(m, "Sub").input[1], node(m, "Div").input[1]):
        change(m, name, lambda x: x[:, ::-1])


@fault("normalise", "Div", Kind.WRONG_MEAN_STD, "pixels")
def another_networks_mean_and_deviation(m):
    change(m, node(m, "Sub").input[1], lambda x: 0 * x + 0.5)
    change(m, node(m, "Div").input[1], lambda x: 0 * x + 0.5)


@fault("normalise", "Div", Kind.NOT_DIVIDED_BY_255, "pixels")
def mean_and_deviation_of_255_levels(m):
    change(m, node(m, "Sub").input[1], lambda x: 255 * x)
    change(m, node(m, "Div").input[1], lambda x: 255 * x)


@fault("normalise", "Sub", Kind.WRONG_STD, "pixels")
def deviation_left_out(m):
    without(m, node(m, "Div"))


@functools.cache
def side(graph):
    return ModulesSide("--reference", framework("torch"), MODELS[graph](), "its own")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    made = {"net": export(folder / "net.onnx"), "plain": export(folder / "plain.onnx", folded=False)}
    made["pixels"] = export(folder / "pixels.onnx", model=pixels(), shape=(2, 3, 16, 16), opset=17)
    for value in (*made["pixels"].graph.input, *made["pixels"].graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    made["words"] = export(folder / "words.onnx", model=words(), given=IDS, opset=17)
    return made


def audited(model, graph):
    made = measured(graph_of(model), side(graph), (INPUTS[graph],))
    return made, step_of(made)


@pytest.mark.parametrize("graph", ["pixels", "words"])
def test_a_sound_export_is_silent(graph, graphs):
    made, step = audited(graphs[graph], graph)
    assert step.passed and made.findings() == [] and not made.pairing.left, [q.name for q in step.quantities if not q.passed]


@pytest.mark.parametrize("sort", [nn.Conv2d, SameConv], ids=lambda one: one.__name__)
def test_layers_that_call_others_inside_are_followed(sort, tmp_path):
    """Every node has its place, none by a guess: a class with its activation inside, and paddings computed in floating numbers."""
    model, x = inside(sort), RNG.standard_normal((2, 3, 33, 32)).astype(np.float32)
    graph = export(tmp_path / "inside.onnx", model=model, given=x, opset=17)
    assert (sort is SameConv) == any(one.op_type == "Ceil" for one in graph.graph.node)
    other = ModulesSide("--reference", framework("torch"), model, "its own")
    made = measured(graph_of(graph), other, (x,))
    assert step_of(made).passed and not made.findings() and not any(one.parted for one in made.stretches)
    change(graph, node(graph, "Conv", 1).input[1], lambda weight: 1.01 * weight)
    found = measured(graph_of(graph), other, (x,)).findings()
    told = ("norm2", Kind.UNKNOWN) if sort is SameConv else ("second", Kind.SCALED)  # what pads besides is not computed again
    assert [(one.location, one.kind or Kind.UNKNOWN) for one in found] == [told] and "second" in found[0].measured, found


def symmetric(channels, made, kernel, stride, **more):
    return nn.Conv2d(channels, made, kernel, stride, padding=kernel // 2, **more)


@pytest.mark.parametrize("width", [32, 33])
@pytest.mark.parametrize("padded", ["file", "model"])
def test_padding_on_one_side_is_named_whichever_side_has_it(padded, width, tmp_path):
    """A class of somebody's own that pads by what the sizes ask for, as TensorFlow does, against a convolution's own padding."""
    models = inside(SameConv), inside(symmetric)
    models[1].load_state_dict(models[0].state_dict())
    exported, other = models if padded == "file" else models[::-1]
    x = RNG.standard_normal((2, 3, width, width)).astype(np.float32)
    graph = export(tmp_path / "same.onnx", model=exported, given=x, opset=17)
    found = measured(graph_of(graph), ModulesSide("--reference", framework("torch"), other, "its own"), (x,)).findings()
    assert [(one.location, one.kind) for one in found] == [(name, Kind.PADDING) for name in ("first", "second", "third")], found
    lies = (
        "(0, 1, 0, 1) (left, right, top, bottom), as TensorFlow's SAME"
        if width == 32
        else "(0, 2, 0, 2) (left, right, top, bottom)"
    )
    words = f"it lies {lies}, expected (1, 1) on both sides" if padded == "file" else f"padding 1 on both sides, expected {lies}"
    assert words in found[0].hint, found[0].hint


def sound_cast(m):
    """Numbers below 5000 in 16 bits are what they were."""
    cast_ids(m, TensorProto.INT16)


def test_indices_that_fit_are_silent(graphs):
    model = copied(graphs["words"])
    sound_cast(model)
    assert audited(model, "words")[0].findings() == []


def copied(model):
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_placed_and_named(name, graphs):
    place, op, kind, graph, edit = CASES[name]
    model = copied(graphs[graph])
    edit(model)
    made, step = audited(model, graph)
    found = made.findings()
    assert step.failed and found, "not found"
    first = found[0]
    assert (first.location, op in first.measured) == (place, True), first
    assert kind is None or first.kind is kind, first
    assert len(found) == 1, [one.line() for one in found]
    file, _, line = first.source.rpartition(":")
    text = (ROOT / file).read_text().splitlines()[int(line) - 1]
    own = place.removeprefix("behind ").split(".")
    assert any(f"self.{name}" in text or f"{name}, " in text or "nn.Sequential" in text for name in own) or "def forward" in text, (
        text
    )


def test_there_is_a_case_of_every_sort():
    from tests.test_exported_faults import CASES as EARLIER

    every = [*EARLIER.values(), *CASES.values()]
    assert len(every) >= 60 and sum(case[2] is not None for case in every) >= 0.8 * len(every)
    assert constant is not None
