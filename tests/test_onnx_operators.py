"""Exact mode's operators against ONNX Runtime's, one by one: the same numbers but for rounding to float32."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from alignment.compare import distance, norm
from alignment.frameworks._onnx_exact import OPERATORS
from alignment.frameworks._onnx_files import graph_of
from alignment.frameworks.onnx import Onnx

RNG = np.random.default_rng(0)
RTOL = 2e-6  # places between pixels are float32 in ONNX Runtime


def conv(**settings):
    group = settings.get("group", 1)
    return "Conv", {"W": RNG.standard_normal((8, 4 // group, 3, 3)), "B": RNG.standard_normal(8)}, settings


def resize(scale=None, sizes=None, **settings):
    names = {"roi": np.zeros(0), "scales": np.zeros(0) if scale is None else np.array([1, 1, *scale])}
    return "Resize", names | ({} if sizes is None else {"sizes": np.array([2, 4, *sizes])}), settings


CASES = {
    "conv": conv(pads=[1, 1, 1, 1]),
    "conv, stride": conv(strides=[2, 3], pads=[0, 1, 1, 1]),
    "conv, margins on one side": conv(pads=[0, 0, 2, 2]),
    "conv, dilated": conv(dilations=[2, 1], pads=[2, 1, 2, 1]),
    "conv, groups": conv(group=2),
    "conv, depthwise": conv(group=4, strides=[2, 2]),
    "conv, SAME_UPPER": conv(auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv, SAME_LOWER": conv(auto_pad="SAME_LOWER", strides=[2, 2]),
    "conv, VALID": conv(auto_pad="VALID"),
    "maxima": ("MaxPool", {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "maxima, rounded up": ("MaxPool", {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "maxima, dilated": ("MaxPool", {}, {"kernel_shape": [2, 2], "strides": [1, 1], "dilations": [2, 2]}),
    "means": ("AveragePool", {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "means with the margin": ("AveragePool", {}, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    "means, rounded up": ("AveragePool", {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "global mean": ("GlobalAveragePool", {}, {}),
    "hard swish": ("HardSwish", {}, {}),
    "hard sigmoid": ("HardSigmoid", {}, {"alpha": 0.25, "beta": 0.4}),
    "leaky relu": ("LeakyRelu", {}, {"alpha": 0.3}),
    "softmax": ("Softmax", {}, {"axis": 1}),
    "clip": ("Clip", {"min": np.float32(-0.5), "max": np.float32(0.7)}, {}),
    "normalisation": (
        "BatchNormalization",
        {"scale": RNG.random(4), "B": RNG.random(4), "mean": RNG.random(4), "var": RNG.random(4)},
        {"epsilon": 1e-3},
    ),
    "layer normalisation": ("LayerNormalization", {"scale": RNG.random(11)}, {"axis": -1, "epsilon": 1e-3}),
    "sum over axes": ("ReduceMean", {}, {"axes": [2, 3], "keepdims": 0}),
    "cast": ("Cast", {}, {"to": TensorProto.FLOAT}),
    **{
        f"resize, {mode}, {coordinates}": resize((2.0, 1.5), mode=mode, coordinate_transformation_mode=coordinates)
        for mode in ("linear", "cubic", "nearest")
        for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    },
    **{
        f"resize, nearest, {rounding}": resize((0.6, 2.3), mode="nearest", nearest_mode=rounding)
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    },
    "resize to sizes": resize(sizes=(7, 20), mode="linear"),
    "resize, smaller": resize((0.5, 0.4), mode="linear"),
}


def model_of(case, opset=17):
    op, held, settings = CASES[case]
    names, constants = ["x"], []
    for name, array in held.items():
        kind = np.int64 if name == "sizes" else np.float32
        names.append("" if name in ("roi", "scales") and array.size == 0 and name != "roi" else name)
        constants.append(numpy_helper.from_array(np.asarray(array, kind), name))
    one = helper.make_node(op, names, ["y"], name="one", **settings)
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 9, 11])
    graph = helper.make_graph([one], "one", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def both(model):
    graph, side, x = graph_of(model), Onnx(), np.random.default_rng(1).standard_normal((2, 4, 9, 11)).astype(np.float32)
    exact = side.in_float64(side.copy(graph))
    return side.call(graph, (x,)).outputs[0], side.call(exact, (x.astype(np.float64),)).outputs[0]


@pytest.mark.parametrize("case", CASES)
def test_an_operator_computes_what_onnx_runtime_does(case):
    runtime, exact = both(model_of(case))
    assert runtime.dtype == np.float32 and exact.dtype == np.float64 and runtime.shape == exact.shape
    assert distance(runtime, exact) <= RTOL * norm(exact)


def test_every_own_operator_has_a_case():
    own = {one.__name__ for one in OPERATORS if one.op_domain == ""}
    assert own <= {op for op, _, _ in CASES.values()} | QUANTISED


QUANTISED = {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("opset", [13, 17, 19, 21])
@pytest.mark.parametrize("settings", ["one for all", "one a channel", "without a zero point"])
def test_quantising_is_onnx_runtimes(settings, opset):
    scale = np.array([0.5, 0.25, 0.125, 1], np.float32) if settings == "one a channel" else np.array(0.25, np.float32)
    zero = np.full(scale.shape, -5, np.int8)
    names = ["s", "z"] if settings != "without a zero point" else ["s"]
    nodes = [helper.make_node(op, [given, *names], [made]) for op, given, made in
             (("QuantizeLinear", "x", "q"), ("DequantizeLinear", "q", "y"))]  # fmt: skip
    held = [numpy_helper.from_array(array, name) for name, array in zip(names, (scale, zero), strict=False)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4, 9]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    x = (20 * np.random.default_rng(0).standard_normal((2, 4, 9))).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    exact = ReferenceEvaluator(model, new_ops=list(OPERATORS)).run(None, {"x": x})[0]
    assert np.array_equal(session.run(None, {"x": x})[0], exact) and len(np.unique(exact)) > 20


def test_another_setting_would_be_seen():
    model = model_of("means")
    model.graph.node[0].attribute.append(helper.make_attribute("count_include_pad", 1))
    runtime, exact = both(model)
    plain, _ = both(model_of("means"))
    assert distance(runtime, exact) <= RTOL * norm(exact) < distance(plain, exact)


def test_a_value_between_stays_in_float64():
    """A cast to float32 inside a graph does not round in exact mode."""
    model = model_of("cast")
    _, exact = both(model)
    x = np.random.default_rng(1).standard_normal((2, 4, 9, 11)).astype(np.float32)
    assert np.array_equal(exact, x.astype(np.float64))
    third = helper.make_node("Mul", ["x", "third"], ["m"])
    model.graph.node[0].input[0] = "m"
    model.graph.node.insert(0, third)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1 / 3), "third"))
    _, exact = both(model)
    assert not np.array_equal(exact, exact.astype(np.float32)) and onnx.IR_VERSION
