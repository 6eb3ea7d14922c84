"""What int8 costs, layer by layer: ratios against a formula, a layer that is spoilt, a sound network, and the page."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_paddle.deploy import int8_page, timing
from mobilenetv3_paddle.deploy.bundle import ONNX, ONNX_INT8, Bundle, read_bundle
from mobilenetv3_paddle.deploy.engines import OnnxRuntimeEngine
from mobilenetv3_paddle.deploy.int8_graph import bfloat16_bits, but_one, in_bfloat16, inside, quantized
from mobilenetv3_paddle.deploy.int8_layers import BAD, ratio, relative, rounded
from mobilenetv3_paddle.deploy.predictor import find_pictures
from mobilenetv3_paddle.deploy.quantize import ALL, AS_KEPT, EVERYTHING, STORED, Quantized, Trial, quantize
from tests.browser import DESK, PHONE, browser, opened
from tests.conftest import ROOT

PICTURES = find_pictures([ROOT / "lite_data"])
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
# Products of int8 are summed in 16 bits there, and saturate: the first layer of the network is bad in truth (docs/deploy.md).
saturates = pytest.mark.skipif(
    "avx2" in CPU and "vnni" not in CPU, reason="ONNX Runtime saturates on an x86 processor without VNNI"
)
CLASSES = tuple("abcdef")
SIDE, CHANNELS = 32, 16


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint16])
def test_a_uniform_signal_has_the_ratio_of_the_formula(kind):
    """A uniform quantiser of b bits gives a uniform signal that fills its range 20 log10(2^b) dB."""
    limits = np.iinfo(kind)
    zero, step = (limits.min + limits.max + 1) // 2, 0.37
    signal = np.random.default_rng(0).uniform(limits.min - zero - 0.5, limits.max - zero + 0.5, 1_000_000) * step
    made = rounded(signal, np.float64(step), np.array(zero, kind))
    assert len(np.unique(made)) == limits.max - limits.min + 1
    assert ratio(signal, made) == pytest.approx(20 * np.log10(2**limits.bits), abs=0.02)


def test_a_ratio_is_finite_and_falls_by_twenty_where_the_noise_is_ten_times():
    right = np.random.default_rng(0).standard_normal(1000)
    assert ratio(right, right * 1.1) == pytest.approx(20) and ratio(right, right * 2) == pytest.approx(0)
    assert ratio(right, right) == 200 and ratio(right * 0, right) == -200
    assert relative(right, right * 1.1) == pytest.approx(0.1) and relative(right * 0, right) is None


def test_weights_whose_logits_are_not_finite_are_refused_before_the_layers_are_measured(tmp_path):
    made = export_of(tmp_path)
    model = onnx.load(str(made.path(ONNX)))
    next(one for one in model.graph.initializer if one.name == "bias").CopyFrom(
        numpy_helper.from_array(np.full(len(CLASSES), np.nan, np.float32), "bias")
    )
    onnx.save(model, str(made.path(ONNX)))
    with pytest.raises(UserError, match="not finite"):
        quantize(made, PICTURES, "auto")
    assert not (tmp_path / ONNX_INT8).exists()


def test_bfloat16_is_rounded_as_torch_rounds_it():
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) * 10.0 ** np.arange(-5, 5).repeat(1000)
    values = np.concatenate([values, [0, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 3e38]]).astype(
        np.float32
    )  # halves go to the even one
    right = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(bfloat16_bits(values), right)


def network(spoilt=""):
    """Convolutions, ReLUs, means and a linear layer, as a model; what is spoilt leaves what it computes as it is.

    ``weights``: in the second convolution the weights of a channel that is always zero are huge in every output channel.
    ``range``: one channel out of the first is a thousand times as large, and its weights in the second are a thousandth.
    """
    generator = np.random.default_rng(0)
    tensors = {
        "first": generator.standard_normal((CHANNELS, 3, 3, 3)) / 3,
        "second": generator.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 10,
        "third": generator.standard_normal((CHANNELS, CHANNELS, 1, 1)) / 3,
        "linear": generator.standard_normal((CHANNELS, len(CLASSES))),
        "bias": np.zeros(len(CLASSES)),
    }
    if spoilt == "weights":
        tensors["first"][0] = 0
        tensors["second"][:, 0, 1, 1] = 1e5
    if spoilt == "range":
        tensors["first"][0] *= 1000
        tensors["second"][:, 0] /= 1000
    nodes = []
    for name, source in (("first", "images"), ("second", "first_relu"), ("third", "second_relu")):
        pads = {"pads": [1] * 4} if name != "third" else {}
        nodes += [
            helper.make_node("Conv", [source, name], [f"{name}_out"], name, **pads),
            helper.make_node("Relu", [f"{name}_out"], [f"{name}_relu"], f"{name}_relu"),
        ]
    nodes += [
        helper.make_node("GlobalAveragePool", ["third_relu"], ["means"], "means"),
        helper.make_node("Flatten", ["means"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "linear", "bias"], ["logits"], "last"),
    ]
    given = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])
    found = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", len(CLASSES)])
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "small", [given], [found], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model, images):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"images": images})[0]


def some_images(count=16):
    return np.random.default_rng(1).standard_normal((count, 3, SIDE, SIDE)).astype(np.float32)


def export_of(folder, spoilt=""):
    """An export of the network, whose bias makes every class the likeliest of some pictures."""
    from mobilenetv3_paddle.deploy.predictor import Predictor

    model = network(spoilt)
    preset = EvalPreset(SIDE + 4, SIDE)
    made = Bundle("mobilenet_v3_small", preset, "pil", CLASSES, "small", "0" * 64, folder=folder)
    reader = Predictor(functools.partial(run, model), preset, CLASSES)
    logits = run(model, np.stack([reader.preprocess(reader.decode(path)) for path in PICTURES]))
    scaled = 3 / logits.std(0)
    for tensor in model.graph.initializer:
        if tensor.name == "linear":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * scaled, "linear"))
        if tensor.name == "bias":
            tensor.CopyFrom(numpy_helper.from_array(-logits.mean(0) * scaled, "bias"))
    onnx.save(model, str(folder / ONNX))
    made.add(ONNX)
    made.write()
    return made


@pytest.fixture(autouse=True)
def short_timing(monkeypatch):
    monkeypatch.setattr(timing, "REPEATS", 1)
    monkeypatch.setattr(timing, "LONGEST_SPIN", 0.0)


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """The export of a network, and what is known of its layers, measured once."""

    @functools.cache
    def measured(spoilt):
        made = export_of(tmp_path_factory.mktemp("export"), spoilt)
        return made, quantize(made, PICTURES, "auto", explain=True)

    return measured


@pytest.mark.parametrize(
    ("spoilt", "worst", "cause"),
    [pytest.param("weights", {"second"}, "weights", marks=saturates), ("range", {"first", "second"}, None)],
)
def test_a_layer_that_is_spoilt_is_the_worst_and_stays_in_float32(spoilt, worst, cause, explained):
    bundle, found = explained(spoilt)
    bad = {name for name, layer in found.layers.items() if layer.bad}
    assert bad == worst == set(list(found.layers)[: len(worst)])
    assert all(layer.alone.ratio > BAD + 5 for name, layer in found.layers.items() if name not in bad)
    if cause:
        layer = found.layers["second"]
        assert layer.cause[0] == cause and layer.cause[1] < BAD and layer.without.ratio > layer.alone.ratio + 10
    trials = {trial.name: trial for trial in found.trials}
    assert found.chosen != EVERYTHING and trials[EVERYTHING].agreement < 0.9 < trials[found.chosen].agreement
    kept = onnx.load(str(bundle.folder / ONNX_INT8)).graph
    assert {node.name for node in kept.node if node.op_type == "Conv"} >= worst
    assert {tensor.name for tensor in kept.initializer if tensor.data_type == TensorProto.FLOAT} >= worst, "their weights, too"
    assert "bad, left in float32 wherever not everything is in int8: " in found.line()
    assert "second" in int8_page.lines(found)[-2] and int8_page.lines(found)[-2].startswith("bad, below 20 dB alone: ")


def test_without_keep_auto_the_spoilt_weights_are_stored_in_int8_and_that_is_said(tmp_path):
    found = quantize(export_of(tmp_path, "weights"), PICTURES)
    assert found.layers == {} and "use --precision fp32" in found.warnings()[0]
    assert max(trial.agreement for trial in found.trials) < 0.9


@saturates
def test_in_a_sound_network_no_layer_is_bad(explained):
    bundle, found = explained("")
    ratios = [layer.alone.ratio for layer in found.layers.values()]
    assert len(ratios) == 4 and ratios == sorted(ratios) and ratios[0] > BAD + 5
    assert not any(layer.bad for layer in found.layers.values())
    assert any(line.startswith("no layer is bad") for line in int8_page.lines(found)) and "bad, left" not in found.line()
    costs = found.inside.costs
    assert costs["float32"].ratio > 100 > costs["bfloat16, emulated"].ratio > costs[ALL].ratio
    assert costs[AS_KEPT].ratio >= costs[ALL].ratio
    assert set(found.inside.errors) == set(costs) and {*found.layers} <= {*found.inside.places}
    for errors in found.inside.errors.values():
        assert len(errors) == len(found.inside.places) and None not in errors
    assert read_bundle(bundle.folder).int8["layers"]["first"]["alone"]["ratio"] == found.layers["first"].alone.ratio


def test_all_but_one_layer_is_what_the_quantiser_makes(tmp_path):
    plain, images = network(), some_images()
    prepared = tmp_path / "prepared.onnx"
    onnx.save(plain, str(prepared))
    names = ["first", "second", "third", "last"]
    quantized(prepared, tmp_path / "all.onnx", names, images, stored=False)
    everything = onnx.load(str(tmp_path / "all.onnx"))
    for name in names:
        quantized(prepared, tmp_path / "but.onnx", [one for one in names if one != name], images, stored=False)
        right = run(onnx.load(str(tmp_path / "but.onnx")), images)
        made = run(but_one(everything, plain, name), images)
        assert ratio(right, made) > 60, name
        assert ratio(right, run(everything, images)) < 50, name


def test_every_value_is_rounded_to_bfloat16():
    plain, images = network(), some_images()
    low = in_bfloat16(network())
    onnx.checker.check_model(low, full_check=True)
    names = ["first_out", "first_relu", "second_out", "flat", "logits"]
    right, made = (inside(model, names, images) for model in (plain, low))
    for name in names:
        assert not (made[name].view(np.uint32) & 0xFFFF).any() and 30 < ratio(right[name], made[name]) < 65, name
    x = torch.nn.functional.conv2d(
        *(
            torch.from_numpy(one).to(torch.bfloat16).float()
            for one in (images, numpy_helper.to_array(plain.graph.initializer[0]).copy())
        ),
        padding=1,
    )
    assert ratio(x.to(torch.bfloat16).float().numpy(), made["first_out"]) > 60


def test_an_engine_takes_a_model_that_is_kept_in_bytes(tmp_path):
    low = in_bfloat16(network())
    onnx.save(low, str(tmp_path / "low.onnx"))
    made = export_of(tmp_path)
    assert np.allclose(OnnxRuntimeEngine(made, "int8", 1, path=tmp_path / "low.onnx")(some_images()), run(low, some_images()))


def test_where_times_cannot_be_believed_that_is_said():
    def tried(stored, kept):
        return Quantized("kept", 100, 128, 128, [Trial(STORED, 0, 26, 1.0, 0.0, stored), Trial("kept", 3, 26, 1.0, 0.0, kept)])

    calm = tried(1.0, 0.4)
    calm.choose()
    assert calm.chosen == "kept"
    assert tried(1.0, 0.9).warnings() == [] and tried(1.0, 0.9).worth()[0]
    assert "and not faster" in tried(1.0, 1.3).warnings()[0] and not tried(1.0, 1.3).worth()[0]
    large = Quantized("kept", 27, 128, 128, [Trial(STORED, 0, 26, 1.0, 0.0, 1.0), Trial("kept", 3, 26, 1.0, 0.0, 1.0)])
    assert large.worth() == (False, "the file has 0.96 of fp32's size, and nothing is known to be faster")
    for control in (0.5, 2.0):
        busy = tried(control, 0.4)
        busy.choose()
        assert busy.chosen == STORED, "the fastest by chance"
        assert "its time is not known" in tried(control, 0.9).warnings()[0]


@saturates
@pytest.mark.parametrize("spoilt", ["", "weights"])
def test_the_page_says_it_on_a_desk_and_on_a_phone(spoilt, explained):
    bundle, found = explained(spoilt)
    path = int8_page.write(bundle.folder, bundle, found)
    with browser() as chromium:
        for viewport in (DESK, PHONE):
            with opened(chromium, path.resolve().as_uri(), viewport=viewport) as page:
                assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
                assert page.locator(".layers tr.wrong").count() == bool(spoilt)
                text = page.inner_text("main")
                assert "worth having here" in text and ("wrong: second" in page.content()) == bool(spoilt)
                assert ("No layer is bad" in text) == (not spoilt)
                for name in ("float32", ALL, AS_KEPT, "bfloat16, emulated"):
                    assert name in text
