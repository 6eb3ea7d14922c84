"""Export and the inference engines: they agree with the training engine, and a damaged export is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy import fastest
from mobilenetv3_paddle.deploy.bundle import DEPLOY_JSON, ONNX, PADDLE_WEIGHTS, read_bundle
from mobilenetv3_paddle.deploy.engines import ENGINES, DygraphEngine, cpu_threads, create_engine
from mobilenetv3_paddle.deploy.export import _relative, check, export, unsaturated
from mobilenetv3_paddle.deploy.predictor import Predictor, find_pictures, softmax
from mobilenetv3_paddle.deploy.quantize import EVERYTHING, Quantized, Trial, quantize
from mobilenetv3_paddle.deploy.timing import settle
from mobilenetv3_paddle.deploy.trained import load_trained
from tests.conftest import ROOT, run_command

OPENVINO = importlib.util.find_spec("openvino") is not None
PICTURES = find_pictures([ROOT / "lite_data/train", ROOT / "lite_data/val"])


@pytest.fixture(scope="module")
def weights(small_state, tmp_path_factory) -> Path:
    from mobilenetv3_common.weights import write_state

    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    write_state(path, small_state)
    return path


@pytest.fixture(scope="module")
def exported(weights, tmp_path_factory) -> Path:
    """What the command makes, int8 included."""
    folder = tmp_path_factory.mktemp("exported")
    run = run_command(
        "tools/export_model.py", "--pretrained", weights, "--width-mult", "0.5", "--output-dir", folder,
        "--int8", "--calibration-data", ROOT / "lite_data/train",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "onnxruntime: probabilities differ" in run.stdout
    return folder


def test_every_engine_gives_the_training_engines_probabilities_on_all_of_lite_data(exported, weights):
    trained = load_trained(weights, width_mult=0.5)
    bundle = read_bundle(exported)
    truth = Predictor(DygraphEngine(trained.layer), trained.preset, trained.classes)
    batch = np.stack([truth.preprocess(truth.decode(path)) for path in PICTURES])
    assert len(batch) == 32
    right = softmax(truth.engine(batch))
    assert right.max(1).std() > 1e-4, "the pictures are told apart"
    for name in ENGINES:
        if name == "openvino" and not OPENVINO:
            continue  # test_openvino_in_fp32_and_bfloat16 says that it is skipped
        engine = create_engine(bundle, name)
        for size in (1, 8, 32):  # the batch is dynamic
            got = softmax(np.concatenate([engine(batch[i : i + size]) for i in range(0, 32, size)]))
            assert np.abs(got - right).max() <= 1e-5, (name, size)
            assert np.array_equal(got.argmax(1), right.argmax(1)), (name, size)


def bfloat16():
    """Whether OpenVINO finds the arithmetic in this processor."""
    openvino = importlib.import_module("openvino")
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


@pytest.mark.skipif(not OPENVINO, reason="needs OpenVINO: pip install '.[openvino]'")
def test_openvino_in_fp32_and_bfloat16(exported):
    bundle = read_bundle(exported)
    images = np.random.default_rng(0).standard_normal((3, 3, 224, 224)).astype(np.float32)
    right = create_engine(bundle, "onnxruntime")(images)
    engine = create_engine(bundle, "openvino")
    first = engine(images)
    assert engine.name == "openvino fp32" and engine.version
    assert np.abs(softmax(first) - softmax(right)).max() <= 1e-5
    engine(images[:1])
    assert np.array_equal(first, engine(images)), "what was answered is not written over by the next run"
    if not bfloat16():
        with pytest.raises(UserError, match="no bfloat16 arithmetic"):
            create_engine(bundle, "openvino", "bf16")
        return
    low = create_engine(bundle, "openvino", "bf16")(images)
    assert 1e-4 < np.linalg.norm(low - right) / np.linalg.norm(right) < 0.1, "it computes in bfloat16, and about the same"


@pytest.mark.skipif(OPENVINO, reason="OpenVINO is installed")
def test_without_openvino_one_line_says_what_to_install(exported):
    with pytest.raises(UserError, match=r"--engine openvino needs the package openvino: pip install '\.\[openvino\]'"):
        create_engine(read_bundle(exported), "openvino")


def test_auto_keeps_the_fastest_engine_whose_predictions_hold(exported, tmp_path, monkeypatch):
    bundle = read_bundle(shutil.copytree(exported, tmp_path / "e"))
    with pytest.raises(UserError, match="no engine was measured; export it with --engine auto"):
        create_engine(bundle, "auto")

    def flawed(images):  # the quickest of all, and wrong
        return np.roll(create_engine(bundle, "onnxruntime")(images), 1, axis=1)

    installed = {**fastest._installed(bundle, 0), ("paddle", "fp32"): flawed}
    assert ("onnxruntime", "int8") in installed and ("onednn", "fp32") in installed
    threads = []
    monkeypatch.setattr(fastest, "_installed", lambda bundle, number: threads.append(number) or installed)
    names = [f"{engine} {precision}" for engine, precision in installed]
    times = {name: 2.0 + i for i, name in enumerate(names)} | {"paddle fp32": 0.1, "onednn fp32": 1.0}
    monkeypatch.setattr(fastest, "side_by_side", lambda engines, image: times)
    found = fastest.measure(bundle, PICTURES)
    assert (found[0].engine, found[0].precision) == ("onednn", "fp32")
    wrong = next(one for one in found if one.engine == "paddle")
    assert not wrong.holds and "do not hold" in wrong.line()
    read = read_bundle(bundle.folder)
    assert read.fastest["engine"] == "onednn" and read.fastest["processor"] and read.fastest["pictures"] == 32
    assert create_engine(read, "auto").name == "onednn fp32"
    assert read.fastest["threads"] == cpu_threads()
    fastest.measure(bundle, PICTURES, 1)
    assert read_bundle(bundle.folder).fastest["threads"] == 1 and threads == [0, 1]
    with pytest.raises(UserError, match="chooses the precision itself"):
        create_engine(read, "auto", "int8")
    with pytest.raises(UserError, match="7 picture"):
        fastest.measure(bundle, PICTURES[:7])


@pytest.mark.slow
def test_layers_that_lose_most_in_int8_are_measured_and_left_in_float32(exported, tmp_path):
    copy = tmp_path / "exported"
    shutil.copytree(exported, copy)
    pictures = sorted((ROOT / "lite_data/train").rglob("*.JPEG"))
    found = quantize(read_bundle(copy), pictures, keep="auto")
    ratios = [layer.alone.ratio for layer in found.layers.values()]
    assert len(ratios) >= 50 and ratios == sorted(ratios) and ratios[0] < ratios[-1] - 3, "no layer loses more than another"
    everything, but_some = ({t.name: t for t in found.trials}[n] for n in (EVERYTHING, "all but the 32 layers that lose most"))
    assert everything.operators - but_some.operators == 32  # which of them agrees better is the weights' own affair
    assert list(read_bundle(copy).int8["layers"]) == list(found.layers) and next(iter(found.layers)) in found.line()


def test_int8_is_judged_on_pictures_that_did_not_calibrate_it(exported):
    told = read_bundle(exported).int8
    assert (told["calibrated_on"], told["judged_on"]) == (8, 8)
    assert any("8 pictures are too few to show an agreement of 99%" in warning for warning in told["warnings"])
    good, slow, wrong = (
        Trial(*values) for values in (("a", 1, 10, 1.0, 0, 0.9), ("b", 1, 10, 1.0, 0, 1.2), ("c", 1, 10, 0.938, 0, 0.5))
    )
    large = Trial("d", 1, 41, 1.0, 0, 0.5)
    for kept, words in (
        (good, None),
        (slow, "1.20 of fp32's time"),
        (wrong, "use --precision fp32"),
        (large, "use --precision fp32"),
    ):
        warnings = Quantized(kept.name, 40, 100, 100, [kept]).warnings()
        assert not warnings if words is None else words in warnings[0]


AFTER_A_RUN = """
import statistics, sys, time
import numpy as np
from mobilenetv3_paddle.deploy.bundle import read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine

engine = create_engine(read_bundle(sys.argv[1]), threads=2)
spent = []
for _ in range(9):
    engine(np.zeros((1, 3, 224, 224), np.float32))
    before = time.process_time()
    time.sleep(0.03)
    spent.append(time.process_time() - before)
print(statistics.median(spent))
"""


def test_the_default_engines_threads_sleep_after_a_run(exported):
    run = run_command("-c", AFTER_A_RUN, exported)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 0.008  # seconds of processor time in 0.03 s; 0.028 where nothing limits how long they spin


@pytest.mark.parametrize(("version", "limit", "stop"), [("1.23.2", "", "1"), ("1.27.0", "100", ""), ("2.0.1", "100", "")])
def test_onnx_runtimes_threads_are_limited_in_every_version(exported, monkeypatch, version, limit, stop):
    import onnxruntime

    def made(model, options, providers):
        found.append([entry(options, "session.intra_op.spin_duration_us"), entry(options, "session.force_spinning_stop")])
        return session(model, options, providers=providers)

    def entry(options, name):
        try:
            return options.get_session_config_entry(name)
        except RuntimeError:  # it is not set
            return ""

    found, session = [], onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "InferenceSession", made)
    monkeypatch.setattr(onnxruntime, "__version__", version)
    create_engine(read_bundle(exported))
    assert found == [[limit, stop]]


def test_settle_waits_for_threads_that_still_spin():
    end = time.monotonic() + 0.15

    def spin() -> None:
        while time.monotonic() < end:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    settle()
    assert time.monotonic() >= end
    thread.join()
    start = time.monotonic()
    settle()
    assert time.monotonic() - start < 0.3, "it waits for nothing where nothing spins"


def test_the_check_refuses_an_export_of_other_weights(exported, weights):
    trained = load_trained(weights, width_mult=0.5)
    bundle = read_bundle(exported)
    assert all(one.probability <= 1e-5 and 0 < one.logits <= 1e-4 for one in check(bundle, trained.layer).values())
    bias = trained.layer.classifier[3].bias
    bias.set_value(bias.numpy() + np.arange(1000, dtype=np.float32) * 1e-4)
    with pytest.raises(UserError, match="the export is not the network: onednn differs by"):
        check(bundle, trained.layer)


@pytest.mark.parametrize(("scale", "contrast"), [(1.0, 1.0), (300.0, 0.03), (1e9, 1.0)])
def test_pictures_of_the_check_are_fainter_where_the_network_is_certain_of_them(scale, contrast):
    """Probabilities of 0 and 1 differed by 8e-30, whatever the logits were."""
    drawn = [np.random.default_rng(0).standard_normal((8, 3, 4, 4)).astype(np.float32)]
    (images,), (logits,) = unsaturated(lambda images: scale * images.mean((2, 3)), drawn)
    np.testing.assert_array_equal(images, drawn[0] * np.float32(contrast))
    np.testing.assert_array_equal(logits, scale * images.mean((2, 3)))


@pytest.mark.parametrize(
    ("got", "right", "expected"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0),  # a last layer of zeros gave NaN, and was called another network
        ([1e-9, 0.0], [0.0, 0.0], np.inf),
        ([1e30, 2e30], [1e30, 2e30], 0.0),  # whose squares overflow
        ([1e30, 2.2e30], [1e30, 2e30], 0.2 / 5**0.5),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
    ],
)
def test_the_distance_of_logits_of_any_size(got, right, expected):
    assert _relative(np.float32([got]), np.float32([right])) == pytest.approx(expected, rel=1e-5)


def test_the_folder_carries_preprocessing_classes_and_digests(exported, weights):
    content = json.loads((exported / DEPLOY_JSON).read_text())
    assert content["preset"] == {"resize_size": 256, "crop_size": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    assert len(content["classes"]) == 1000 and content["weights"] == weights.name and len(content["weights_sha256"]) == 64
    assert set(content["files"]) == {"inference.json", "inference.pdiparams", "model.onnx", "model_int8.onnx"}
    assert sorted(p.name for p in exported.iterdir()) == sorted([*content["files"], DEPLOY_JSON])


@pytest.mark.slow
def test_an_export_that_fails_leaves_the_old_one(exported, weights, tmp_path, monkeypatch):
    target = Path(shutil.copytree(exported, tmp_path / "e"))
    before = {p.name: p.read_bytes() for p in target.iterdir()}
    monkeypatch.setattr("mobilenetv3_paddle.deploy.export.MAX_PROBABILITY_DIFF", -1.0)
    with pytest.raises(UserError, match="the export is not the network"):
        export(load_trained(weights, width_mult=0.5), target, ("paddle",))
    assert {p.name: p.read_bytes() for p in target.iterdir()} == before


def damage(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)


DAMAGES = {
    "one bit of the weights": (
        lambda folder: damage(folder, PADDLE_WEIGHTS),
        "inference.pdiparams is damaged",
    ),
    "no model": (lambda folder: (folder / ONNX).unlink(), "has no model.onnx: export the model again"),
    "no deploy.json": (lambda folder: (folder / DEPLOY_JSON).unlink(), "is no exported model"),
    "deploy.json cut short": (lambda folder: (folder / DEPLOY_JSON).write_text('{"format"'), "deploy.json is damaged"),
    "another format": (lambda folder: (folder / DEPLOY_JSON).write_text('{"format": "x"}'), "deploy.json is damaged"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_export_is_refused(exported, tmp_path, case):
    breaker, message = DAMAGES[case]
    folder = Path(shutil.copytree(exported, tmp_path / "e"))
    breaker(folder)
    with pytest.raises(UserError, match=message):
        read_bundle(folder)


def infer(*args):
    return run_command("tools/infer.py", *args)


def test_infer_names_classes_and_reports_times(exported, tmp_path):
    flags = ("--model-dir", exported, "--img-path", ROOT / "lite_data/val", "--batch-size", "5", "--json", tmp_path / "r.json")
    run = infer(*flags, "--benchmark", "--repeats", "2")
    assert run.returncode == 0, run.stderr
    for line in ("---- environment ----", "---- preprocess (ms a batch) ----", "p99", "memory (MiB)", "pictures/s"):
        assert line in run.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["data"] == {"pictures": 32, "batch size": 5, "batches": 8}
    assert len(report["pictures"]) == 16 and report["environment"]["engine"] == "onnxruntime fp32"
    times = report["inference (ms a batch)"]
    assert 0 < times["p50"] <= times["p90"] <= times["p99"]
    table = infer(*flags[:4], "--engine", "onednn", "--topk", "1")
    assert table.returncode == 0 and len(table.stdout.splitlines()) == 32
    assert [p["predictions"][0]["name"] for p in report["pictures"]] == [
        line.split("%  ")[1] for line in table.stdout.splitlines()[1::2]
    ]


def test_onnx_runtime_needs_neither_paddle_nor_torch(exported):
    code = (
        "import sys; sys.path.insert(0, 'tools'); import infer; status = infer.main(sys.argv[1:]); "
        "assert not {'paddle', 'torch'} & set(sys.modules); sys.exit(status)"
    )
    run = run_command("-c", code, "--model-dir", exported, "--img-path", PICTURES[0])
    assert run.returncode == 0, run.stderr


REFUSED = {
    "no export": (["--model-dir", "docs"], "docs is no exported model"),
    "int8 elsewhere": (["--engine", "paddle", "--precision", "int8"], "--engine paddle has no int8 here: use --engine onnxruntime"),
    "batch size": (["--batch-size", "0"], "--batch-size must be at least 1"),
    "no GPU": (["--device", "gpu"], "--device gpu: this ONNX Runtime has no CUDA"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line(exported, case):
    arguments, message = REFUSED[case]
    run = infer("--model-dir", exported, "--img-path", PICTURES[0], *arguments)
    assert run.returncode == 2 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1 and message in run.stderr


EXPORT_REFUSED = {
    "unknown format": (["--formats", "paddle,caffe"], "caffe is unknown"),
    "layers to keep without int8": (["--int8-keep", "auto"], "give --int8 too"),
    "a report without measuring layers": (
        ["--int8", "--int8-report", "r", "--calibration-data", "x"],
        "give --int8 --int8-keep auto too",
    ),
    "int8 without pictures": (["--int8"], "--int8 needs --calibration-data"),
    "pictures that are missing": (["--int8", "--calibration-data", "no/such"], "no such picture or folder: no/such"),
    "int8 on few pictures": (
        ["--int8", "--calibration-data", "lite_data/train/cat"],
        "--calibration-data holds 2 pictures: int8 needs 16 at least, half of them to judge by",
    ),
    "auto without pictures": (["--engine", "auto"], "--engine auto needs --calibration-data"),
    "int8 without onnx": (["--int8", "--calibration-data", "lite_data", "--formats", "paddle"], "--int8 is made from ONNX"),
    "other weights": (["--pretrained", "gone.pdparams"], "no such weights file"),
}


@pytest.mark.parametrize("case", EXPORT_REFUSED)
def test_a_bad_export_is_refused_in_one_line(weights, tmp_path, case):
    arguments, message = EXPORT_REFUSED[case]
    run = run_command("tools/export_model.py", "--pretrained", weights, "--output-dir", tmp_path / "e", *arguments)
    assert run.returncode == 2 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1 and message in run.stderr
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("before", [False, True])
def test_a_damaged_calibration_picture_leaves_no_part_of_an_export(weights, tmp_path, before):
    pictures, target, report = tmp_path / "pictures", tmp_path / "new/e", tmp_path / "reports/r"
    shutil.copytree(ROOT / "lite_data/train", pictures)
    (pictures / "cat/cat_0.JPEG").write_bytes(b"\xff\xd8\xff\xe0 damaged")
    if before:
        target.mkdir(parents=True)
        (target / DEPLOY_JSON).write_text("of an earlier export")
    run = run_command(
        "tools/export_model.py", "--pretrained", weights, "--width-mult", "0.5", "--crop-size", "64", "--output-dir", target,
        "--int8", "--int8-keep", "auto", "--int8-report", report, "--calibration-data", pictures,
    )  # fmt: skip
    assert run.returncode == 2 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1, run.stderr
    assert "cat_0.JPEG" in run.stderr and not report.parent.exists()
    assert [p.name for p in target.rglob("*")] == [DEPLOY_JSON] if before else not target.parent.exists()
