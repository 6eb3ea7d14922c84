"""Crops out of a padded picture, and a mean and deviation of one's own: CIFAR-10's recipe, against torchvision's own transforms."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

import mobilenetv3_paddle.data
import mobilenetv3_ref.data
from alignment_doctor.check.checks.batch import _augments
from mobilenetv3_common.as_trained import as_trained
from mobilenetv3_common.checkpoint import Checkpoint, write_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.released import card
from mobilenetv3_common.sampling import SampleKey, generator, padded_crop_box, sample_params
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_paddle.deploy.trained import load_trained
from tests.conftest import run_command

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
GIVEN = {"mean": "0.4914,0.4822,0.4465", "std": "0.2023,0.1994,0.2010"}
PICTURE = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)


def by_torchvision(size, box, flip, picture=PICTURE):
    """MindSpore's guide, its torch side, with what is random given."""
    top, left = (place + 4 for place in box[:2])

    class Drawn(transforms.RandomCrop):
        @staticmethod
        def get_params(img, output_size):
            return top, left, *output_size

    steps = [Drawn(32, padding=4), transforms.RandomHorizontalFlip(float(flip)), transforms.Resize(size), transforms.ToTensor()]
    return transforms.Compose([*steps, transforms.Normalize(MEAN, STD)])(Image.fromarray(picture)).numpy()


@pytest.mark.parametrize("package", [mobilenetv3_paddle, mobilenetv3_ref], ids=["paddle", "torch"])
@pytest.mark.parametrize("size", [32, 224])
def test_a_picture_is_what_torchvisions_own_pipeline_makes_of_it(package, size):
    preset = TrainConfig(crop_padding=4, crop_size=size, resize_size=size, **GIVEN).train_preset
    seen = set()
    for number in range(12):
        params = sample_params(preset, 0, SampleKey(0, number, number), 32, 32)
        ours = np.asarray(package.data.train_transform(Image.fromarray(PICTURE), preset, params))
        np.testing.assert_allclose(ours, by_torchvision(size, params.crop, params.flip), atol=1.01 / 255 / min(STD))
        assert np.abs(ours - by_torchvision(size, params.crop, params.flip)).mean() < 1e-3, "a level up or down is rare"
        moved = (params.crop[0] + 1, *params.crop[1:])
        assert np.abs(ours - by_torchvision(size, moved, params.flip)).max() > 1 if moved[0] <= 4 else True
        seen.add(params.crop[:2])
    assert len(seen) > 8 and any(min(place) < 0 for place in seen) and any(max(place) > 0 for place in seen)


@pytest.mark.parametrize("package", [mobilenetv3_paddle, mobilenetv3_ref], ids=["paddle", "torch"])
def test_opencvs_pictures_are_cut_alike(package):
    preset = TrainConfig(crop_padding=4, crop_size=32, resize_size=32, **GIVEN).train_preset
    for number in range(12):
        params = sample_params(preset, 0, SampleKey(0, number, number), 32, 32)
        ours = np.asarray(package.data.train_transform(PICTURE, preset, params))
        np.testing.assert_allclose(ours, by_torchvision(32, params.crop, params.flip), atol=1e-6)


def test_places_are_drawn_as_torchvision_draws_them():
    """Each of the 81 places is equally likely; chi-squared with 80 degrees of freedom, above 155 once in a million."""
    ours = [padded_crop_box(generator("crop", 0, 0, number), 32, 32, 4) for number in range(8_100)]
    torch.manual_seed(0)
    padded = torch.empty(3, 40, 40)
    theirs = [transforms.RandomCrop.get_params(padded, (32, 32)) for _ in range(8_100)]
    counts = [
        np.bincount([(t - at) * 9 + (le - at) for t, le, _, _ in boxes], minlength=81) for boxes, at in ((ours, -4), (theirs, 0))
    ]
    for count in counts:
        assert len(count) == 81 and ((count - 100) ** 2 / 100).sum() < 155
    assert {box[2:] for box in ours} == {(32, 32)}
    one_short = np.bincount([min(box[0] + 4, 7) * 9 + box[1] + 4 for box in ours], minlength=81)
    assert ((one_short - 100) ** 2 / 100).sum() > 155, "a range that is one short is seen"


def test_the_random_resized_crop_is_as_it_was_without_padding():
    preset, key = TrainPreset(crop_size=32, crop_scale=(0.5, 1.0)), SampleKey(0, 3, 3)
    params = sample_params(preset, 0, key, 32, 32)
    assert params.crop[2] * params.crop[3] // 32 >= 16 and min(params.crop[:2]) >= 0
    assert sample_params(TrainPreset(crop_padding=0), 0, key, 20, 30).crop == (0, 0, 20, 30)
    assert _augments(TrainPreset(crop_padding=4, hflip_prob=0.0)) and not _augments(TrainPreset(crop_padding=0, hflip_prob=0.0))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"mean": "0.4,0.5"},
            "--mean must be three numbers from 0 to 1 with commas between, as in 0.485,0.456,0.406, found 0.4,0.5",
        ),
        ({"mean": "125,122,113"}, "--mean must be three numbers from 0 to 1"),
        ({"mean": "nan,0.5,0.5"}, "--mean must be three numbers"),
        ({"std": "0,0.2,0.2"}, "--std must be three numbers from 0.001 to 1"),
        ({"std": "a,b,c"}, "--std must be three numbers"),
        ({"crop_padding": -1}, "--crop-padding must be"),
        ({"crop_padding": 4, "reduced_decoding": True}, "leave --reduced-decoding out"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line(settings, said):
    with pytest.raises(UserError, match="--") as caught:
        TrainConfig(**settings)
    assert said in caught.value.line and "\n" not in caught.value.line


META = {"resize_size": 40, "crop_size": 32, "model": "mobilenet_v3_small", "width_mult": 0.35, "image_backend": "pil"}


def test_mean_and_deviation_travel_with_the_weights(tmp_path):
    path = tmp_path / "best.safetensors"
    write_checkpoint(path, Checkpoint({"model/x": np.zeros(1, np.float32)}, {"config": META | GIVEN, "classes": ["a"]}))
    config, said = as_trained(TrainConfig(pretrained=str(path)), {})
    assert (config.eval_preset.mean, config.eval_preset.std) == (MEAN, STD) and "mean 0.4914,0.4822,0.4465" in said
    kept, said = as_trained(TrainConfig(pretrained=str(path), mean="0.5,0.5,0.5"), {"mean": "0.5,0.5,0.5"})
    assert kept.eval_preset.mean == (0.5, 0.5, 0.5) and "--mean 0.5,0.5,0.5 in place of training's" in said
    meta = {"config": META | GIVEN | {"pretrained": None, "ema_decay": 0.0}, "classes": ["a"], "update": 3}
    assert "the mean 0.4914, 0.4822, 0.4465, by the standard deviation 0.2023, 0.1994, 0.2010 of red" in card(meta, "ref", None)


@pytest.mark.slow
def test_an_export_has_the_normalisation_of_the_training(tmp_path):
    """A run with its own mean and deviation: the export has them from the checkpoint."""
    run = ["tools/train.py", "--config", "configs/lite.yaml", "--data-path", "lite_data", "--epochs", "1", "--workers", "0"]
    own = ["--mean", GIVEN["mean"], "--std", GIVEN["std"], "--crop-padding", "4", "--width-mult", "0.35"]
    done = run_command(*run, *own, "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    weights = tmp_path / "out" / "best.safetensors"
    done = run_command(
        "tools/export_model.py", "--pretrained", weights, "--save-inference-dir", tmp_path / "infer", "--formats", "onnx"
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "infer" / "deploy.json").read_text())
    assert json.dumps(list(MEAN)) in json.dumps(written) and json.dumps(list(STD)) in json.dumps(written)
    picture = ["--img-path", "lite_data/val/cat/cat_0.JPEG", "--pretrained", weights, "--topk", "1"]
    done = run_command("tools/predict.py", *picture)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    done = run_command("tools/predict.py", *picture, "--mean", "0.1,0.2,0.3")
    assert done.returncode == 0 and f"mean (0.1, 0.2, 0.3) in place of training's {MEAN}" in done.stderr, done.stderr
    damaged = Checkpoint({"model/x": np.zeros(1, np.float32)}, {"config": META | {"mean": "1,2"}, "classes": ["a"]})
    write_checkpoint(tmp_path / "damaged.safetensors", damaged)
    with pytest.raises(UserError, match=r"is damaged .*mean must be three numbers"):
        load_trained(tmp_path / "damaged.safetensors")
