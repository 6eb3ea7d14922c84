"""What is changed in an ONNX model before ONNX Runtime computes it, and that no result is."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from mobilenetv3_paddle.deploy.onnx_graph import flatten_maps, for_cpu, repeat_channel_factors


def product(shape, factor, swapped=False, constant=False):
    """A model that multiplies its input, of this shape, by another input or a constant of the shape ``factor``."""
    names = ["factor", "x"] if swapped else ["x", "factor"]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    constants = []
    if constant:
        constants = [numpy_helper.from_array(np.ones(factor, np.float32), "factor")]
    else:
        inputs.append(helper.make_tensor_value_info("factor", TensorProto.FLOAT, factor))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    graph = helper.make_graph([helper.make_node("Mul", names, ["y"])], "product", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model, **inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_factors_of_channels_are_repeated_and_the_product_is_the_same(batch, swapped):
    made = [product(["N", 32, 7, 14], ["N", 32, 1, 1], swapped) for _ in range(2)]
    assert repeat_channel_factors(made[1]) == 1
    onnx.checker.check_model(made[1], full_check=True)
    assert [node.op_type for node in made[1].graph.node] == ["Resize", "Mul"]
    generator = np.random.default_rng(0)
    inputs = {
        "x": generator.standard_normal((batch, 32, 7, 14)).astype(np.float32),
        "factor": generator.standard_normal((batch, 32, 1, 1)).astype(np.float32),
    }
    before, after = (run(model, **inputs) for model in made)
    assert before.shape == (batch, 32, 7, 14) and np.array_equal(before, after)


@pytest.mark.parametrize(
    ("shape", "factor"),
    [
        (["N", 32, 28, 28], ["N", 32, 1, 1]),  # a large map
        (["N", 32, 1, 1], ["N", 32, 1, 1]),
        (["N", 32, 7, 7], ["N", 1, 1, 1]),  # one factor for all channels
        (["N", 32, 7, 7], ["M", 32, 1, 1]),  # perhaps one for all pictures
        (["N", 32, 7, 7], ["N", 1, 7, 7]),  # one for each place
        (["N", 32, "H", "W"], ["N", 32, 1, 1]),
        (["N", 32, 7, None], ["N", 32, 1, 1]),
        ([None, 32, 7, 7], [None, 32, 1, 1]),
        (["N", 32, 7], ["N", 32, 1]),
        (["N", 32, 7, 7, 7], ["N", 32, 1, 1, 1]),
        (["N", 32, 7, 7, 1], ["N", 32, 1, 1]),
    ],
)
def test_other_products_stay(shape, factor):
    assert repeat_channel_factors(product(shape, factor)) == 0


def test_other_types_and_older_operators_stay():
    half = product(["N", 32, 7, 7], ["N", 32, 1, 1])
    for value in half.graph.input:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    assert repeat_channel_factors(half) == 0
    old = product(["N", 32, 7, 7], ["N", 32, 1, 1])
    old.opset_import[0].version = 12
    assert repeat_channel_factors(old) == 0
    old.opset_import[0].version = 13
    assert repeat_channel_factors(old) == 1


def test_a_constant_and_other_operators_stay():
    assert repeat_channel_factors(product(["N", 32, 7, 7], [1, 32, 1, 1], constant=True)) == 0
    added = product(["N", 32, 7, 7], ["N", 32, 1, 1])
    added.graph.node[0].op_type = "Add"
    assert repeat_channel_factors(added) == 0


def reshaped(shape, computed=True, declared=None):
    """A model whose rows are its input's maps; the new shape is computed from the input's, as Paddle2ONNX writes it."""
    rows = declared or [shape[0], int(np.prod(shape[1:]))]
    sizes = [size if isinstance(size, int) else 48 for size in rows[1:]]
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    constants = [
        numpy_helper.from_array(np.array(value, np.int64), name) for name, value in {"0": [0], "1": [1], "-1": [-1]}.items()
    ]
    if computed:
        nodes[:0] = [
            helper.make_node("Shape", ["x"], ["sizes"]),
            helper.make_node("Slice", ["sizes", "0", "1"], ["first"]),
            helper.make_node("Concat", ["first", "-1"], ["shape"], axis=0),
        ]
    else:
        constants.append(numpy_helper.from_array(np.array([-1, *sizes], np.int64), "shape"))
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in (("x", shape), ("y", rows))]
    graph = helper.make_graph(nodes, "reshaped", made[:1], made[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("computed", [True, False])
def test_maps_become_rows_by_one_operator(computed):
    before, after = (reshaped(["N", 8, 3, 2], computed) for _ in range(2))
    assert flatten_maps(after) == 1
    onnx.checker.check_model(after, full_check=True)
    assert [node.op_type for node in after.graph.node] == ["Flatten"]
    for batch in (1, 5):
        x = np.random.default_rng(0).standard_normal((batch, 8, 3, 2)).astype(np.float32)
        assert run(before, x=x).shape == (batch, 48) and np.array_equal(run(before, x=x), run(after, x=x))


@pytest.mark.parametrize(
    ("shape", "declared"),
    [
        (["N", 8, 3, 2], ["M", 24]),  # more rows than pictures
        (["N", 8, 3, "W"], ["N", 48]),
        (["N", 8, 6], ["N", 48]),
        ([None, 8, 3, 2], [None, 48]),
        (["N", 8, 3, 2], ["N", 6, 8]),
    ],
)
def test_other_shapes_stay(shape, declared):
    model = reshaped(shape, computed=False, declared=declared)
    assert flatten_maps(model) == 0 and [node.op_type for node in model.graph.node] == ["Reshape"]


def test_a_graph_within_the_graph_may_use_the_computed_shape():
    """The operators that compute it are removed where nobody uses them, and names inside another graph are not looked at."""
    model = reshaped(["N", 8, 3, 2], True)
    computed = model.graph.node[-1].input[1]
    branches = {
        name: helper.make_graph(
            [helper.make_node("Cast", [computed], [name], to=TensorProto.FLOAT)], name, [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])],
        )
        for name in ("then_branch", "else_branch")
    }  # fmt: skip
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    model.graph.node.append(helper.make_node("If", ["always"], ["told"], **branches))
    model.graph.output.append(helper.make_tensor_value_info("told", TensorProto.FLOAT, [2]))
    assert flatten_maps(model) == 0
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows, told = session.run(None, {"x": np.zeros((5, 8, 3, 2), np.float32)})
    assert rows.shape == (5, 48) and told[0] == 5


def test_what_is_no_model_is_left_to_onnx_runtime(tmp_path):
    path = tmp_path / "model.onnx"
    for content in (b"", b"no model", bytes(1000)):
        path.write_bytes(content)
        assert for_cpu(path) == str(path)
    assert for_cpu(tmp_path) == str(tmp_path) and for_cpu(tmp_path / "none") == str(tmp_path / "none")
    onnx.save(product(["N", 32, 28, 28], ["N", 32, 1, 1]), str(path))
    assert for_cpu(path) == str(path)


def reorders(model, tmp_path):
    """How often ONNX Runtime converts a map to the plain layout, on this processor."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return sum(node.op_type == "ReorderOutput" for node in onnx.load(options.optimized_model_filepath).graph.node)


def test_onnx_runtime_no_longer_converts_the_layout_around_the_factor(tmp_path):
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal((32, inputs, 1, 1)).astype(np.float32) for inputs in (32, 32, 32)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Conv", ["pooled", "w1"], ["gate"]),
        helper.make_node("Mul", ["map", "gate"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "squeeze_and_excitation",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 32, 7, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32, 7, 7])],
        [numpy_helper.from_array(weight, f"w{number}") for number, weight in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    plain = tmp_path / "plain.onnx"
    onnx.save(model, str(plain))
    prepared = for_cpu(plain)
    x = generator.standard_normal((2, 32, 7, 7)).astype(np.float32)
    assert np.array_equal(run(model, x=x), run(onnx.load_from_string(prepared), x=x))
    before = reorders(str(plain), tmp_path)
    if before < 2:
        pytest.skip("ONNX Runtime keeps no blocks of channels on this processor")
    assert reorders(prepared, tmp_path) == 1  # of the output
