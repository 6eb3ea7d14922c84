"""``audit`` where a side is an .onnx file: both exporters' forms, either side, two files, and files that cannot be used."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from alignment.cli import main
from alignment.comparisons.model import other_weights
from alignment.frameworks._onnx_files import graph_of
from tests.exported_net import Net, add, change, export, net, node, set_attribute, tokens

REFERENCE = "tests/exported_net.py:net"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("exported")
    export(made / "net.onnx")
    export(made / "plain.onnx", folded=False)
    wrong = onnx.load(str(made / "net.onnx"))
    set_attribute(node(wrong, "AveragePool"), "count_include_pad", 0)
    onnx.save(wrong, str(made / "wrong.onnx"))
    torch.save(net().state_dict(), made / "net.pth")
    return made


def audit(folder, *flags):
    """Exit status, and alignment.json where there is one."""
    status = main(["audit", *map(str, flags), "--report", str(folder / "report")])
    file = folder / "report" / "alignment.json"
    return status, json.loads(file.read_text()) if status != 2 else None


@pytest.mark.parametrize(
    "sides",
    [
        ("--port", "net.onnx", "--reference", REFERENCE),
        ("--port", REFERENCE, "--reference", "net.onnx"),
        ("--port", "net.onnx", "--reference", "plain.onnx"),
    ],
)
def test_sound_sides_pass(sides, folder):
    status, found = audit(folder, *(folder / one if one.endswith(".onnx") else one for one in sides))
    assert status == 0 and found["passed"] and found["first_divergence"] is None
    assert {found["port"], found["reference"]} <= {"onnx", "torch"} and len(found["steps"][0]["quantities"]) > 15


@pytest.mark.parametrize(
    "sides",
    [
        ("--port", "wrong.onnx", "--reference", REFERENCE),
        ("--port", REFERENCE, "--reference", "wrong.onnx"),
        ("--port", "wrong.onnx", "--reference", "net.onnx"),
        ("--port", "net.onnx", "--reference", "wrong.onnx"),
    ],
)
def test_a_mistake_is_placed_whichever_side_is_the_file(sides, folder, capsys):
    status, found = audit(folder, *(folder / one if one.endswith(".onnx") else one for one in sides))
    first = found["localization"]["first"]
    assert status == 1 and "AveragePool" in first["measured"] and first["kind"] == "pooling", first
    assert first["location"] in ("mean", "/mean/AveragePool")
    assert "first divergence" in capsys.readouterr().out
    page = (folder / "report" / "report.html").read_text()  # draws the graph's error along the network, the wrong node marked
    assert "exported graph along the network" in page and f"wrong: {first['location']}" in page


def test_weights_of_a_file_are_the_models(folder):
    class_only = "tests/exported_net.py:Net"
    status, _ = audit(folder, "--port", folder / "net.onnx", "--reference", class_only, "--weights", folder / "net.pth")
    assert status == 0 and isinstance(net(), Net)
    status, found = audit(folder, "--port", folder / "net.onnx", "--reference", class_only)  # fresh weights
    first = found["localization"]["first"]
    assert status == 1 and (first["location"], first["kind"]) == ("(model)", "weights_not_loaded"), first


@pytest.mark.parametrize("sides", [("net.onnx", "another"), ("another", "net.onnx"), ("drawn.onnx", "net.onnx")])
def test_other_weights_are_one_mistake_in_few_words(sides, folder, capsys):
    """Of most layers, in any layout, with a normalisation folded or not, and of two files."""
    (folder / "another.py").write_text("from tests.exported_net import Net\n\ndef another():\n    return Net().eval()\n")
    torch.manual_seed(3)
    export(folder / "drawn.onnx", folded=False, model=Net().eval())
    sides = [f"{folder}/another.py:another" if one == "another" else folder / one for one in sides]
    capsys.readouterr()
    status, found = audit(folder, "--port", sides[0], "--reference", sides[1])
    said = capsys.readouterr().out
    (one,) = found["localization"]["every"]
    assert (
        status == 1 and one["kind"] == "weights_not_loaded" and one["hint"].startswith("the weights are others in 7 of 7 layers: ")
    )
    assert one["measured"].endswith("and 4 more") and len(said) < 3000, said


@pytest.mark.parametrize("change_of", [
    lambda w: w,
    lambda w: w.astype(np.float16).astype(np.float32),
    lambda w: w * np.linspace(0.2, 3, len(w)).reshape(-1, *(1,) * (w.ndim - 1)),  # as a normalisation is folded into it
])  # fmt: skip
def test_weights_that_are_the_models_are_not_called_others(change_of, folder):
    model = onnx.load(str(folder / "plain.onnx"))
    for one in model.graph.initializer:
        if len(one.dims) > 1:
            change(model, one.name, change_of)
    state = {name: tensor.numpy() for name, tensor in net().state_dict().items()}
    assert other_weights.others(graph_of(model), state) == ([], 7)
    change(model, "last.0.weight", lambda w: np.random.default_rng(1).standard_normal(w.shape))
    apart, count = other_weights.others(graph_of(model), state)
    assert len(apart) == 1 and count == 7 and other_weights.finding(graph_of(model), state) is None, "it is said of its own node"
    assert other_weights.others(graph_of(model), {"a": np.ones((3, 3))}) is None, "another network"


def test_two_mistakes_are_both_found(folder, capsys):
    model = onnx.load(str(folder / "wrong.onnx"))
    set_attribute(node(model, "LeakyRelu"), "alpha", None)
    onnx.save(model, str(folder / "two.onnx"))
    status, found = audit(folder, "--port", folder / "two.onnx", "--reference", REFERENCE)
    assert status == 1 and [one["location"] for one in found["localization"]["every"]] == ["mean", "last.1"]
    assert "2. forward: last.1" in capsys.readouterr().out


def test_a_network_with_other_layers_behind_is_not_taken_for_the_same(folder):
    model = onnx.load(str(folder / "net.onnx"))
    add(model, half=np.float32(0.5))
    for name in ("head.2.weight", "gate.up.weight", "last.0.weight"):
        change(model, name, lambda w: np.random.default_rng(1).standard_normal(w.shape))
    onnx.save(model, str(folder / "other.onnx"))
    status, found = audit(folder, "--port", folder / "other.onnx", "--reference", REFERENCE)
    assert status == 1 and [one["location"] for one in found["localization"]["every"]] == ["gate.up", "last.0", "head.2"]


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
def test_what_onnx_runtimes_optimiser_makes_passes(level, folder):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = str(folder / f"{level}.onnx"), 4
    onnxruntime.InferenceSession(str(folder / "plain.onnx"), options, providers=["CPUExecutionProvider"])
    made = onnx.load(str(folder / f"{level}.onnx"))
    fused = [one for one in made.graph.node if one.op_type == "FusedConv"]
    assert bool(fused) == (level == "ORT_ENABLE_EXTENDED")
    assert audit(folder, "--port", folder / f"{level}.onnx", "--reference", REFERENCE)[0] == 0
    for one in fused:  # and where it is broken, it fails
        if helper.get_node_attr_value(one, "activation") == b"LeakyRelu":
            set_attribute(one, "activation_params", [0.3])
    onnx.save(made, str(folder / "fused.onnx"))
    status, found = audit(folder, "--port", folder / "fused.onnx", "--reference", REFERENCE)
    assert status == bool(fused) and (not fused or found["localization"]["first"]["location"] == "last.1")


# --- files that cannot be used ----------------------------------------------------------------------------------------------


def unknown_operator(file, model):
    node(model, "HardSwish").domain = "com.acme"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    onnx.save(model, str(file))


def cut_short(file, model):
    data = model.SerializeToString()
    file.write_bytes(data[: len(data) // 2])


def nothing(file, model):
    file.write_bytes(b"")


def no_model(file, model):
    file.write_bytes(b"this is a text about a network\n" * 50)


def external(file, model, location="weights.bin", size=None):
    tensor = next(one for one in model.graph.initializer if one.name == "last.0.weight")
    data = numpy_helper.to_array(tensor).tobytes()
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(len(data)))):
        tensor.external_data.add(key=key, value=value)
    if size is not None:
        (file.parent / location).write_bytes(data[:size])
    onnx.save(model, str(file))


def external_data_cut_short(file, model):
    external(file, model, "short.bin", 40)


def external_data_elsewhere(file, model):
    external(file, model, "../../etc/passwd")


def directory(file, model):
    file.mkdir()


def with_wrong_wiring(file, model):
    node(model, "Relu").input[0] = "nowhere"
    onnx.save(model, str(file))


REFUSED = {
    unknown_operator: "an operator that ONNX does not have: com.acme::HardSwish (node /stem/stem.2/HardSwish)",
    cut_short: "cut short",
    nothing: "its graph has no nodes",
    no_model: "no ONNX model",
    external: "its weights lie in weights.bin, which is missing",
    external_data_cut_short: "short.bin is cut short: 40 bytes, tensor last.0.weight ends at 512",
    external_data_elsewhere: "outside of the model's folder: not read",
    directory: "there is no such file",
    with_wrong_wiring: "damaged, or cut short",
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
@pytest.mark.parametrize("role", ["--port", "--reference"])
def test_a_file_that_cannot_be_used_is_one_line(make, role, folder, tmp_path, capsys):
    file = tmp_path / "bad.onnx"
    make(file, onnx.load(str(folder / "net.onnx")))
    other = "--reference" if role == "--port" else "--port"
    assert main(["audit", role, str(file), other, REFERENCE, "--report", str(tmp_path / "report")]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0 and f"{role} {file}" in said and REFUSED[make] in said, said
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--training",), "--training"),
        (("--updates", "2"), "--updates does not go with an .onnx file"),
        (("--device", "gpu"), "use --device cpu"),
        (("--seed", "-1"), "--seed must be 0 or more"),
        (("--weights", "none.pth"), "none.pth"),
        (("--input", "2x4x45x35"), "--input 2x4x45x35"),
        (("--input", "2x3x9x9"), "does not compute it on inputs of shape 2x3x9x9"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, words, folder, capsys):
    status, _ = audit(folder, "--port", folder / "net.onnx", "--reference", REFERENCE, *flags)
    said = capsys.readouterr().err.strip()
    assert status == 2 and said.count("\n") == 0 and words in said, said


def test_weights_with_two_files_are_refused(folder, capsys):
    both = ("--port", folder / "net.onnx", "--reference", folder / "plain.onnx", "--weights", folder / "net.pth")
    assert audit(folder, *both)[0] == 2 and "both sides are files: leave it out" in capsys.readouterr().err


def test_sizes_that_vary_are_chosen(folder):
    model = onnx.load(str(folder / "net.onnx"))
    for name, size in zip(("batch", "height", "width"), (0, 2, 3), strict=True):
        model.graph.input[0].type.tensor_type.shape.dim[size].dim_param = name
    for dimension in model.graph.output[0].type.tensor_type.shape.dim:
        dimension.Clear()
    onnx.save(model, str(folder / "varying.onnx"))
    status, _ = audit(folder, "--port", folder / "varying.onnx", "--reference", REFERENCE)
    assert status == 0
    status, _ = audit(folder, "--port", folder / "varying.onnx", "--reference", REFERENCE, "--input", "1x3x49x33")
    assert status == 0


def test_a_model_with_another_number_of_outputs_is_refused(folder, capsys):
    model = onnx.load(str(folder / "net.onnx"))
    model.graph.output.append(onnx.ValueInfoProto(name="/gate/Mul_output_0"))
    onnx.save(onnx.shape_inference.infer_shapes(model), str(folder / "more.onnx"))
    status, _ = audit(folder, "--port", folder / "more.onnx", "--reference", REFERENCE)
    assert status == 2 and "the graph gives 2 tensors" in capsys.readouterr().err


def test_a_node_that_names_fewer_outputs_than_its_operator_has_is_taken_as_it_is(folder):
    """LayerNormalization has three, and exporters name one."""
    model = export(folder / "tokens.onnx", model=tokens(), shape=(2, 7, 16), opset=17)
    assert len(node(model, "LayerNormalization").output) == 1
    sides = ("--reference", "tests/exported_net.py:tokens", "--port")
    status, found = audit(folder, *sides, folder / "tokens.onnx")
    assert status == 0, found["first_divergence"]
    set_attribute(node(model, "LayerNormalization"), "epsilon", 1e-5)
    onnx.save(model, str(folder / "wrong_tokens.onnx"))
    status, found = audit(folder, *sides, folder / "wrong_tokens.onnx")
    assert status == 1 and found["localization"]["first"]["location"].endswith("first"), found["localization"]["first"]
