"""Models as people expect them: ``create_model``, ``load_weights``, and the weights that a run leaves for others."""

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mobilenetv3_common.as_trained import as_trained
from mobilenetv3_common.checkpoint import read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_common.released import card
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import as_torch
from tests.conftest import LITE_DATA, ROOT
from tests.documents import code
from tools.convert_weights import main as convert
from tools.train import main as train

SHORT = ("--epochs", "1", "--batch-size", "16", "--crop-size", "64", "--resize-size", "64", "--workers", "0", "--width-mult", "0.5")


@pytest.fixture(scope="module", params=["paddle", "ref"])
def run(request, tmp_path_factory):
    """A short run of each framework, with its package."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    flags = (
        "--framework",
        request.param,
        "--config",
        "configs/lite.yaml",
        "--data-path",
        "lite_data",
        "--ema-decay",
        "0.9",
        *SHORT,
    )
    assert train([*flags, "--output-dir", str(folder)]) == 0
    return folder, request.param, importlib.import_module(f"mobilenetv3_{request.param}")


def arrays(model):
    return as_torch({name: tensor.numpy() for name, tensor in model.state_dict().items()})


def assert_equal(found, expected):
    assert set(found) == set(expected) and len(found) > 100
    assert all(np.array_equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("name", ["best.safetensors", "best_weights.safetensors", "native"])
def test_every_file_of_a_run_loads_in_python_and_converts(run, name, tmp_path):
    folder, framework, package = run
    file = folder / name.replace("native", "best_weights.pdparams" if framework == "paddle" else "best_weights.pth")
    checkpoint = read_checkpoint(folder / "best.safetensors")
    expected = as_torch(checkpoint.part("ema"))
    model = package.create_model("mobilenet_v3_small", pretrained=file)
    assert_equal(arrays(model), expected)
    fresh = package.create_model("mobilenet_v3_small", num_classes=len(checkpoint.meta["classes"]), width_mult=0.5)
    assert not np.array_equal(arrays(fresh)["features.0.0.weight"], expected["features.0.0.weight"])
    assert_equal(arrays(package.load_weights(fresh, str(file))), expected)
    output = tmp_path / ("other.pth" if framework == "paddle" else "other.pdparams")
    assert convert([str(file), str(output)]) == 0
    other = importlib.import_module("mobilenetv3_ref" if framework == "paddle" else "mobilenetv3_paddle")
    assert_equal(arrays(other.create_model("mobilenet_v3_small", pretrained=output)), expected)


def test_the_frameworks_own_functions_load_them_without_a_warning(run):
    folder, framework, package = run
    classes = len(read_checkpoint(folder / "best.safetensors").meta["classes"])
    model = package.create_model("mobilenet_v3_small", num_classes=classes, width_mult=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if framework == "paddle":
            import paddle

            missing, unexpected = model.set_state_dict(paddle.load(str(folder / "best_weights.pdparams")))
        else:
            import torch

            missing, unexpected = model.load_state_dict(torch.load(folder / "best_weights.pth"))
    assert not missing and not unexpected
    assert_equal(arrays(model), as_torch(read_checkpoint(folder / "best.safetensors").part("ema")))


def test_a_card_says_what_the_weights_are(run):
    folder, framework, _ = run
    text = (folder / "model_card.md").read_text()
    meta = read_checkpoint(folder / "best.safetensors").meta
    assert (
        f"mobilenet_v3_small, width 0.5, {len(meta['classes'])} classes" in text and "crop 64" in text and "moving average" in text
    )
    assert f"0. {meta['classes'][0]}\n" in text and f"mobilenetv3_{framework} import create_model" in text
    data = Path(meta["config"]["data_path"]).name
    figure = re.search(
        r"^\| Validation top-1 \| ([01]\.\d{4}): the share of the pictures in the validation split of (\S+) ", text, re.M
    )
    assert figure and figure[2] == data and f"| Trained on | the training split of {data} |" in text
    of = f"the moving average (decay 0.9), after update {meta['update']}, the best of the run"
    assert of in text and "of the last update" not in text
    without = card({**meta, "config": meta["config"] | {"ema_decay": 0.0, "pretrained": ""}}, framework, None)
    assert (
        "| Weights in the files | the weights themselves, after update" in without
        and "| Validation top-1 | not evaluated |" in without
    )
    assert "| Training began with | fresh weights, drawn at random |" in without


def test_the_readmes_lines_load_a_checkpoint_and_name_a_picture(run, capsys):
    folder, framework, _ = run
    if framework == "paddle":
        for readme in ("README.md", "README_zh.md"):
            exec(code(ROOT / readme, "python")[0].replace("output/lite/best.safetensors", str(folder / "best.safetensors")), {})
            name, probability = capsys.readouterr().out.split()
            assert name in read_checkpoint(folder / "best.safetensors").meta["classes"] and 0 < float(probability) <= 1


def test_the_cards_lines_can_be_pasted(run, monkeypatch):
    folder, _, _ = run
    monkeypatch.chdir(folder)
    made, lines = {}, code(folder / "model_card.md", "python")[0]
    exec(lines, made)
    assert not made["model"].training
    _, _, *feeding = (folder / "model_card.md").read_text().split("```python\n")
    picture = LITE_DATA / "val" / "cat" / "cat_0.JPEG"
    exec(feeding[0].partition("```")[0].replace("picture.jpg", str(picture)), made)
    config = as_trained(TrainConfig(pretrained=str(folder / "best.safetensors")), {})[0]
    expected = eval_transform(Image.open(picture).convert("RGB"), config.eval_preset)
    assert made["pixels"].dtype == np.float32 and np.abs(made["pixels"][0] - expected).max() < 1e-5
    assert list(made["logits"].shape) == [1, len(read_checkpoint(folder / "best.safetensors").meta["classes"])]
    alone = "\n".join(line for line in lines.splitlines() if "pretrained=" not in line)  # the framework's own function by itself
    assert "num_classes=" in alone
    exec(alone, made)
    assert_equal(arrays(made["model"]), as_torch(read_checkpoint(folder / "best.safetensors").part("ema")))


@pytest.mark.parametrize("readme", ["README.md", "README_zh.md"])
def test_the_readmes_network_is_made_for_prediction(readme):
    made = {}
    exec(next(lines for lines in code(ROOT / readme, "python") if "import create_model" in lines), made)
    assert not made["model"].training and list(made["logits"].shape) == [2, 10]


def test_another_number_of_classes_gives_a_fresh_last_layer(run):
    folder, _, package = run
    model = arrays(package.create_model("mobilenet_v3_small", pretrained=folder / "best.safetensors", num_classes=7))
    trained = as_torch(read_checkpoint(folder / "best.safetensors").part("ema"))
    assert model["classifier.3.bias"].shape == (7,)
    assert np.array_equal(model["features.0.0.weight"], trained["features.0.0.weight"])


def test_what_cannot_be_used_is_named(run, tmp_path):
    folder, _, package = run
    with pytest.raises(UserError, match="did you mean 'mobilenet_v3_small'"):
        package.create_model("mobilenet_v3_smal")
    with pytest.raises(UserError, match="holds weights of mobilenet_v3_small"):
        package.create_model("mobilenet_v3_large", pretrained=folder / "best.safetensors")
    with pytest.raises(UserError, match=r"nowhere\.pth"):
        package.create_model("mobilenet_v3_small", pretrained=tmp_path / "nowhere.pth")
    model = package.create_model("mobilenet_v3_small", num_classes=3, width_mult=0.5)
    before = arrays(model)
    with pytest.raises(UserError, match="the model has 3"):
        package.load_weights(model, folder / "best.safetensors")
    assert_equal(arrays(model), before)


def test_importing_the_package_of_paddle_stays_light():
    code = "import mobilenetv3_paddle, sys; print('paddle' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "False\n"
