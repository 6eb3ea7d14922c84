"""Quantised graphs against the model in float32, or its file: sound ones are silent; each mistake is found, placed and named."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest

from alignment.audit.exported import ModulesSide, measured, step_of
from alignment.cli import main
from alignment.frameworks import framework
from alignment.frameworks._onnx_files import graph_of
from alignment.kinds import Kind
from tests.exported_net import export, net, node, set_attribute
from tests.exported_nets import pixels
from tests.quantised_net import Numbers, activation_of, held, own, put, quantised, weight_of

INPUT = np.random.default_rng(99).standard_normal((2, 3, 45, 35)).astype(np.float32)
CASES = {}


def fault(place, op, kind, words, graph="net"):
    """A mistake: the module that it is in, the node that is named, its kind, part of its words, and the graph."""

    def register(edit):
        CASES[edit.__name__] = place, op, kind, words, graph, edit
        return edit

    return register


def requantised(m, one, scale, array, axis=0):
    """A weight with other scales, well rounded."""
    levels = np.clip(np.rint(array / np.reshape(scale, [-1 if place == axis else 1 for place in range(array.ndim)])), -127, 127)
    put(m, one.input[0], levels.astype(np.int8))
    put(m, one.input[1], np.asarray(scale, np.float32))
    put(m, one.input[2], np.zeros(np.shape(scale), np.int8))


def folded(conv, norm):
    """A convolution's weight with the normalisation behind it folded in."""
    scale = (norm.weight / (norm.running_var.double() + norm.eps).sqrt()).detach().numpy()
    return conv.weight.detach().double().numpy() * scale[:, None, None, None]


def original(name):
    return net().state_dict()[name].numpy().astype(np.float64)


@fault("stem.0", "Conv", Kind.QUANTISED_PER_TENSOR, "one scale for all 8 channels, where other layers have one a channel")
def one_scale_for_all_channels(m):
    one, array = weight_of(m, "Conv"), folded(*net().stem[:2])
    requantised(m, one, np.full(8, np.abs(array).max() / 127), array)


@fault("block.0", "Conv", Kind.QUANTISED_PER_TENSOR, "one scale for all 8 channels")
def one_number_for_all_channels(m):
    one, array = weight_of(m, "Conv", 1), folded(*net().block[:2])
    requantised(m, one, np.float32(np.abs(array).max() / 127), array)


@fault("stem.0", "Conv", Kind.QUANTISED_SCALE, "the scales of the channels 3 and 5 are exchanged")
def scales_of_two_channels_exchanged(m):
    name = weight_of(m, "Conv").input[1]
    scale = held(m, name).copy()
    scale[[3, 5]] = scale[[5, 3]]
    put(m, name, scale)


@fault("block.0", "Conv", Kind.ZERO_POINT, "zero point 3, expected 0")
def zero_point_off(m):
    one = weight_of(m, "Conv", 1)
    put(m, one.input[2], held(m, one.input[2]) + np.int8(3))


@fault("last.0", "Conv", Kind.ZERO_POINT, "signed and unsigned levels are exchanged")
def levels_read_as_unsigned(m):
    one = weight_of(m, "Conv", 4)
    put(m, one.input[0], held(m, one.input[0]).view(np.uint8))
    put(m, one.input[2], held(m, one.input[2]).view(np.uint8))


@fault("head.2", "Gemm", Kind.ZERO_POINT, "signed and unsigned levels are exchanged: zero point 0, expected 128")
def unsigned_levels_without_their_zero_point(m):
    one = weight_of(m, "Gemm")
    put(m, one.input[0], (held(m, one.input[0]).astype(np.int16) + 128).astype(np.uint8))
    put(m, one.input[2], np.zeros(held(m, one.input[2]).shape, np.uint8))


@fault("stem.2", "QuantizeLinear", Kind.ZERO_POINT, "read back with zero point")
def activation_read_back_with_another_zero_point(m):
    _, back = activation_of(m, "MaxPool")
    own(m, back, zero=held(m, back.input[2]) + np.uint8(5))


@fault("gate.up", "QuantizeLinear", Kind.ZERO_POINT, "cuts off")
def activation_without_its_zero_point(m):
    forth, back = activation_of(m, "HardSigmoid", 1)
    for one in (forth, back):
        own(m, one, zero=np.uint8(0))


@fault("gate.up", "Conv", Kind.QUANTISED_SCALE, "the weight has the scale of another layer, block.0")
def scale_of_another_layer(m):
    put(m, weight_of(m, "Conv", 3).input[1], held(m, weight_of(m, "Conv", 1).input[1]))


@fault("mean", "QuantizeLinear", Kind.QUANTISED_SCALE, "the activation has the scale of another layer's")
def scale_of_another_activation(m):
    forth, back = activation_of(m, "Resize")
    softmax = node(m, "Softmax").output[0]
    other = next(one for one in m.graph.node if one.op_type == "QuantizeLinear" and one.input[0] == softmax)
    for one in (forth, back):
        one.input[1], one.input[2] = other.input[1], other.input[2]


@fault("last.1", "QuantizeLinear", Kind.QUANTISED_SCALE, "read back with scale")
def activation_read_back_with_another_scale(m):
    _, back = activation_of(m, "GlobalAveragePool", 1)
    own(m, back, scale=1.3 * held(m, back.input[1]))


@fault("last.0", "QuantizeLinear", Kind.CALIBRATION, "of the values saturate")
def calibrated_on_other_pictures(m):
    forth, back = activation_of(m, "LeakyRelu")
    for one in (forth, back):
        own(m, one, scale=held(m, one.input[1]) / np.float32(4))


@fault("head.2", "Gemm", Kind.QUANTISED_SCALE, "the bias is quantised with scale")
def bias_of_its_own_scale(m):
    """Its values are right, but no accumulator has this scale."""
    one = weight_of(m, "Gemm", 0, slot=2)
    scale = held(m, one.input[1])
    put(m, one.input[0], np.rint(original("head.2.bias") / (50 * scale)).astype(np.int32))
    put(m, one.input[1], 50 * scale)


@fault("last.0", "Conv", Kind.QUANTISED_SCALE, "the bias is quantised with scale")
def bias_read_with_another_scale(m):
    """With the scale of the weight alone."""
    put(m, weight_of(m, "Conv", 4, slot=2).input[1], held(m, weight_of(m, "Conv", 4).input[1]))


@fault("last.0", "Conv", Kind.QUANTISED_TWICE, "the weight is quantised twice")
def weight_quantised_twice(m):
    """With one scale, then with one a channel."""
    one, array = weight_of(m, "Conv", 4), original("last.0.weight")
    scale = np.abs(array).max() / 127
    requantised(m, one, held(m, one.input[1]), np.rint(array / scale) * scale)


@fault("gate.down", "Conv", Kind.QUANTISED_TWICE, "the weight is quantised twice")
def weight_quantised_again_in_the_graph(m):
    """Nodes that quantise what was quantised: with half of the levels first."""
    one, array = weight_of(m, "Conv", 2), original("gate.down.weight")
    scale = held(m, one.input[1])
    requantised(m, one, 2 * scale, array)
    for name, other in (("again_scale", scale), ("again_zero", np.zeros(scale.shape, np.int8))):
        m.graph.initializer.append(onnx.numpy_helper.from_array(other, name))
    place = list(m.graph.node).index(one)
    last = one.output[0]
    one.output[0] = "once"
    for number, (op, given, made) in enumerate((("QuantizeLinear", "once", "again"), ("DequantizeLinear", "again", last))):
        new = onnx.helper.make_node(op, [given, "again_scale", "again_zero"], [made], name=made, axis=0)
        m.graph.node.insert(place + 1 + number, new)


@fault("last.0", "Conv", Kind.NOT_QUANTISED, "left out of quantisation")
def layer_left_out(m):
    one = weight_of(m, "Conv", 4)
    m.graph.initializer.append(onnx.numpy_helper.from_array(original("last.0.weight").astype(np.float32), "plain_weight"))
    node(m, "Conv", 4).input[1] = "plain_weight"
    m.graph.node.remove(one)


@fault("square", "Gemm", Kind.QUANTISED_AXIS, "the scales of the channels lie along axis 1, expected axis 0", "pixels")
def scales_read_along_another_axis(m):
    set_attribute(weight_of(m, "Gemm"), "axis", 1)


@fault("square", "Gemm", Kind.QUANTISED_AXIS, "no integer kernel can compute it", "pixels")
def scales_made_along_another_axis(m):
    one, array = weight_of(m, "Gemm"), pixels().state_dict()["square.weight"].numpy().astype(np.float64)
    requantised(m, one, np.abs(array).max(0) / 127, array, axis=1)
    set_attribute(one, "axis", 1)


MODELS = {"net": net, "pixels": pixels}
SHAPES = {"net": (2, 3, 45, 35), "pixels": (2, 3, 16, 16)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("quantised")
    for name, model in MODELS.items():
        export(made / f"{name}.onnx", model=model(), shape=SHAPES[name], opset=17)
        quantised(made / f"{name}.onnx", made / f"{name}_int8.onnx", Numbers(shape=SHAPES[name]))
    return made


@functools.cache
def side(graph, file=None):
    """The model in float32, or its file."""
    if file is None:
        return ModulesSide("--reference", framework("torch"), MODELS[graph](), "its own")
    return ModulesSide("--reference", framework("onnx"), graph_of(onnx.load(str(file))), "its own")


def audited(model, reference, graph="net", **more):
    x = np.random.default_rng(99).standard_normal(SHAPES[graph]).astype(np.float32)
    made = measured(graph_of(model), reference, (x,), **more)
    return step_of(made), made.findings()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("reference", ["model", pytest.param("file", marks=pytest.mark.slow)])
def test_a_mistake_is_found_placed_and_named(name, reference, folder):
    place, op, kind, words, graph, edit = CASES[name]
    model = onnx.load(str(folder / f"{graph}_int8.onnx"))
    edit(model)
    step, found = audited(model, side(graph, folder / f"{graph}.onnx" if reference == "file" else None), graph)
    assert step.failed and found, "not found"
    first = found[0]
    assert len(found) == 1, [one.line() for one in found]
    assert (first.kind, op in first.measured) == (kind, True), first.line()
    if reference == "model":
        assert first.location == place and words in first.hint and first.source, first.line()


SOUND = {
    "QDQ": {},
    "signed activations": {"activation": "QInt8"},
    "symmetric activations": {"activation": "QInt8", "extra_options": {"ActivationSymmetric": True}},
    "unsigned weights": {"weight": "QUInt8", "per_channel": False},
    "symmetric unsigned weights": {"weight": "QUInt8"},
    "per tensor": {"per_channel": False},
    "7 bits": {"reduce_range": True},
    "16 bits": {"activation": "QUInt16"},
    "entropy": {"method": "Entropy"},
    "percentile": {"method": "Percentile"},
    "convolutions only": {"op_types_to_quantize": ["Conv"]},
    "weights in float too": {"extra_options": {"AddQDQPairToWeight": True}},
    "QOperator": {"form": "QOperator"},
    "QOperator, signed": {"form": "QOperator", "activation": "QInt8"},
    "QOperator, per tensor": {"form": "QOperator", "per_channel": False},
    "QOperator, convolutions only": {"form": "QOperator", "op_types_to_quantize": ["Conv"]},
}


@pytest.mark.parametrize("graph", ["net", pytest.param("pixels", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_quantisation_is_silent(name, graph, folder, tmp_path):
    model = quantised(folder / f"{graph}.onnx", tmp_path / "made.onnx", Numbers(shape=SHAPES[graph]), **SOUND[name])
    for reference in (side(graph), side(graph, folder / f"{graph}.onnx")):
        step, found = audited(model, reference, graph)
        assert step.passed and not found, [one.line() for one in found] + step.problems
        assert "signal-to-noise ratio" in step.quantities[-1].reason


def test_two_quantised_files_are_compared_as_they_are(folder):
    model = onnx.load(str(folder / "net_int8.onnx"))
    same = side("net", folder / "net_int8.onnx")
    assert audited(model, same)[0].passed
    set_attribute(node(model, "LeakyRelu"), "alpha", 0.3)
    assert audited(model, same)[0].failed


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_other_mistakes_of_a_quantised_graph_are_found_as_in_any(form, folder, tmp_path):
    sound = export(tmp_path / "wrong.onnx")
    set_attribute(node(sound, "LeakyRelu"), "alpha", 0.3)
    set_attribute(node(sound, "Conv", 1), "pads", [0, 0, 2, 2])
    onnx.save(sound, str(tmp_path / "wrong.onnx"))
    model = quantised(tmp_path / "wrong.onnx", tmp_path / "made.onnx", form=form)
    step, found = audited(model, side("net"))
    assert step.failed and [(one.location, one.kind) for one in found] == [
        ("block.0", Kind.PADDING),
        ("last.1", Kind.ACTIVATION),
    ], found


def test_weights_of_another_checkpoint_are_no_matter_of_quantisation(folder):
    model = onnx.load(str(folder / "net_int8.onnx"))
    one = weight_of(model, "Gemm")
    put(model, one.input[0], np.random.default_rng(0).integers(-127, 128, held(model, one.input[0]).shape).astype(np.int8))
    step, found = audited(model, side("net"))
    assert step.failed and [one.location for one in found] == ["head.2"] and found[0].kind is Kind.WEIGHTS_NOT_LOADED, found


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_layers_that_are_kept_are_told(form, folder, tmp_path):
    kept = ["/last/last.0/Conv", "/head/head.4/Gemm"]
    model = quantised(folder / "net.onnx", tmp_path / "made.onnx", form=form, nodes_to_exclude=kept)
    step, found = audited(model, side("net"))
    assert [(one.location, one.kind) for one in found] == [("last.0", Kind.NOT_QUANTISED), ("head.4", Kind.NOT_QUANTISED)], found
    step, found = audited(model, side("net"), kept=["last.0", "/head/head.4/Gemm"])
    assert step.passed and not found
    step, found = audited(model, side("net"), kept=["last.0", "head.4", "stem.0"])
    assert [(one.location, one.kind) for one in found] == [("stem.0", Kind.QUANTISED_EXTRA)], found


def calibrated(folder, size):
    return quantised(folder / "net.onnx", folder / f"of_{size}.onnx", Numbers(size=size))


def test_pictures_that_the_file_was_not_calibrated_on_are_judged_where_they_are_given(folder):
    """Drawn numbers that the input's own quantiser cuts off say nothing of the others."""
    model = calibrated(folder, 0.3)
    assert audited(model, side("net"))[0].passed
    step, found = audited(model, side("net"), drawn=False)
    assert step.failed and {one.kind for one in found} == {Kind.CALIBRATION} and found[0].location == "(input)", found
    assert "of the values saturate" in found[0].hint


def command(folder, capsys, *flags):
    status = main(["audit", *map(str, flags), "--report", str(folder / "report")])
    out = capsys.readouterr()
    return status, out.out + out.err


def test_the_command_says_what_quantisation_costs_whichever_side_is_quantised(folder, capsys):
    reference = "tests/exported_net.py:net"
    for sides in ((folder / "net_int8.onnx", reference), (reference, folder / "net_int8.onnx"),
                  (folder / "net.onnx", folder / "net_int8.onnx"), (folder / "net_int8.onnx", folder / "net.onnx")):  # fmt: skip
        status, said = command(folder, capsys, "--port", sides[0], "--reference", sides[1])
        assert status == 0 and "quantised graph (14 constants and " in said and "dB against float32" in said, said
    model = onnx.load(str(folder / "net_int8.onnx"))
    CASES["zero_point_off"][-1](model)
    onnx.save(model, str(folder / "wrong.onnx"))
    status, said = command(folder, capsys, "--port", folder / "wrong.onnx", "--reference", reference)
    assert (
        status == 1 and "first divergence: forward: block.0: zero point 3, expected 0 (node /block/block.0/Conv (Conv)" in said
    ), said


@pytest.mark.parametrize(
    ("port", "flags", "words"),
    [
        ("net_int8.onnx", ("--float-layers", "nowhere"), "neither a module nor a node is called 'nowhere'"),
        ("net.onnx", ("--float-layers", "last.0"), "nothing in this one is quantised: leave it out"),
        ("", ("--float-layers", "last.0"), "--float-layers goes with a quantised .onnx file: leave it out"),
    ],
)
def test_layers_that_are_no_layers_are_refused_in_one_line(port, flags, words, folder, capsys):
    reference = "tests/exported_net.py:net"
    status, said = command(folder, capsys, "--port", folder / port if port else reference, "--reference", reference, *flags)
    assert status == 2 and said.strip().count("\n") == 0 and words in said, said
