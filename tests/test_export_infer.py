"""Export and the inference engines: they agree with the training engine, and a damaged export is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import DEPLOY_JSON, ONNX, PADDLE_WEIGHTS, read_bundle
from mobilenetv3_paddle.deploy.engines import ENGINES, DygraphEngine, create_engine
from mobilenetv3_paddle.deploy.export import check, export
from mobilenetv3_paddle.deploy.predictor import Predictor, find_pictures, softmax
from mobilenetv3_paddle.deploy.trained import load_trained
from tests.conftest import ROOT, run_command

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
        engine = create_engine(bundle, name)
        for size in (1, 8, 32):  # the batch is dynamic
            got = softmax(np.concatenate([engine(batch[i : i + size]) for i in range(0, 32, size)]))
            assert np.abs(got - right).max() <= 1e-5, (name, size)
            assert np.array_equal(got.argmax(1), right.argmax(1)), (name, size)


def test_the_check_refuses_an_export_of_other_weights(exported, weights):
    trained = load_trained(weights, width_mult=0.5)
    bundle = read_bundle(exported)
    assert max(check(bundle, trained.layer).values()) <= 1e-5
    bias = trained.layer.classifier[3].bias
    bias.set_value(bias.numpy() + np.arange(1000, dtype=np.float32) * 1e-4)
    with pytest.raises(UserError, match="the export is not the network: onednn differs by"):
        check(bundle, trained.layer)


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
    "int8 elsewhere": (["--engine", "paddle", "--precision", "int8"], "--engine paddle has no int8 here"),
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
    "int8 without pictures": (["--int8"], "--int8 needs --calibration-data"),
    "int8 without onnx": (["--int8", "--calibration-data", "lite_data", "--formats", "paddle"], "--int8 is made from ONNX"),
    "other weights": (["--pretrained", "gone.pdparams"], "no such weights file"),
}


@pytest.mark.parametrize("case", EXPORT_REFUSED)
def test_a_bad_export_is_refused_in_one_line(weights, tmp_path, case):
    arguments, message = EXPORT_REFUSED[case]
    run = run_command("tools/export_model.py", "--pretrained", weights, "--output-dir", tmp_path / "e", *arguments)
    assert run.returncode == 2 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1 and message in run.stderr
    assert not (tmp_path / "e").exists()
