"""Small folders: a share held out by the seed, a batch that fits, averages that are warned of; and evaluation as trained."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from mobilenetv3_common.as_trained import as_trained, without_trained
from mobilenetv3_common.checkpoint import Checkpoint, write_checkpoint
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation import refuse_trained_on
from mobilenetv3_common.held_out import index_held_out, single_pictures, write_lists
from mobilenetv3_common.run import fitted
from mobilenetv3_common.run_told import beginning
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_ref.train import Ranks
from tests.conftest import LITE_DATA, run_command

# --- a share held out ---


@pytest.fixture
def flat(tmp_path):
    """Ten classes of eleven digits, without train/ and val/."""
    write_digits(tmp_path / "digits", train_per_class=11, val_per_class=1)
    (tmp_path / "digits" / "train").rename(tmp_path / "flat")
    shutil.rmtree(tmp_path / "digits")
    return tmp_path / "flat"


def test_a_share_of_each_class_is_held_out_by_the_seed(flat):
    train, val = index_held_out(flat, 0.2, 0)
    assert np.bincount(val.labels).tolist() == [2] * 10 and np.bincount(train.labels).tolist() == [9] * 10
    assert not set(train.names) & set(val.names) and len(train.names) + len(val.names) == 110
    assert train.names == index_held_out(flat, 0.2, 0)[0].names != index_held_out(flat, 0.2, 1)[0].names
    assert train.path(0).is_file() and train.names[0].startswith("digit_0/")


def test_adding_a_picture_to_one_class_leaves_the_others_split(flat):
    before = set(index_held_out(flat, 0.2, 0)[1].names)
    shutil.copy(next((flat / "digit_3").iterdir()), flat / "digit_3" / "zzz.png")
    after = set(index_held_out(flat, 0.2, 0)[1].names)
    assert {n for n in before if "digit_3" not in n} == {n for n in after if "digit_3" not in n}


@pytest.mark.parametrize(("count", "held"), [(1, 0), (2, 1), (3, 1), (4, 1)])
def test_small_classes_keep_a_picture_and_hold_one_out_where_they_can(flat, count, held):
    for path in sorted((flat / "digit_5").iterdir())[count:]:
        path.unlink()
    train, val = index_held_out(flat, 0.2, 0)
    assert val.labels.count(5) == held and train.labels.count(5) == count - held
    assert ("digit_5" in single_pictures(train, val)) == (count == 1)


def test_the_lists_are_a_data_path_of_their_own(flat, tmp_path):
    train, val = index_held_out(flat, 0.2, 0)
    lists = write_lists(tmp_path, train, val)
    for split, index in (("train", train), ("val", val)):
        read = index_dataset(lists, split)
        assert [p.resolve() for p in map(read.path, range(len(read)))] == [p.resolve() for p in map(index.path, range(len(index)))]
        assert list(read.labels) == list(index.labels) and read.classes == index.classes


def test_a_data_path_with_validation_pictures_is_not_split(lite_folders):
    with pytest.raises(UserError, match="has validation pictures of its own: leave --val-share out"):
        index_held_out(lite_folders, 0.2, 0)
    shutil.rmtree(lite_folders / "val")
    assert len(index_held_out(lite_folders, 0.2, 0)[1]) == 8, "train/ alone is split"


def test_pictures_in_shards_are_refused_and_folders_get_the_hint(flat):
    with pytest.raises(UserError, match=r"--val-share 0\.2"):
        index_dataset(flat, "train")
    for path in flat.rglob("*.png"):
        path.unlink()
    with pytest.raises(UserError, match="holds no class folder with pictures"):
        index_held_out(flat, 0.2, 0)


# --- a batch that fits ---


@pytest.mark.parametrize(
    ("pictures", "settings", "batch"),
    [
        (108, {"batch_size": 256}, 64),  # 128 does not fill one batch
        (108, {"batch_size": 32}, 32),
        (108, {"batch_size": 32, "min_updates": 8}, 8),
        (108, {"batch_size": 32, "min_updates": 1000}, 8),  # fewer would spoil the running statistics of BatchNorm
        (6, {"batch_size": 32, "min_updates": 8}, 4),
        (100_000, {"batch_size": 256, "min_updates": 8}, 256),
        (16, {"batch_size": 32, "accumulate": 4}, 4),
        (108, {"batch_size": 256, "mix_group": 128}, 256),  # refused later: the mixing would change
        (1, {"batch_size": 32}, 32),
        (108, {"batch_size": 32, "drop_last": False}, 32),
    ],
)
def test_the_batch_is_halved_until_it_fits(pictures, settings, batch):
    assert fitted(TrainConfig(**settings), pictures, Ranks()).batch_size == batch


# --- the moving average ---


def test_an_average_with_warm_up_forgets_the_first_weights():
    def left(config, steps):
        kept = 1.0
        for update in range(2, steps + 1):
            kept *= config.average_decay(update)
        return kept

    assert left(TrainConfig(ema_decay=0.999), 100) > 0.9
    assert left(TrainConfig(ema_decay=0.999, ema_warmup=True), 100) < 1e-8
    for config in (TrainConfig(ema_decay=0.999), TrainConfig(ema_decay=0.999, ema_warmup=True, ema_every=1)):
        assert config.first_weights_left(100) == pytest.approx(left(config, 100))
    assert TrainConfig(ema_decay=0.9, ema_warmup=True).average_decay(10**6) == 0.9


def begun(index, updates, done=0, **settings):
    """What is said when a run of so many updates an epoch begins, or goes on after some of them."""
    config = TrainConfig(**settings)
    run = SimpleNamespace(
        config=config, train_index=index, val_index=index, updates_per_epoch=updates, ranks_then=0, iteration=done
    )
    return beginning(run, config, None)


def test_an_average_that_keeps_the_first_weights_is_warned_of_and_others_are_not(lite_folders):
    index = index_dataset(lite_folders, "train")
    said = begun(index, 4, ema_decay=0.999, epochs=10)
    assert len(said) == 1 and "after 40 steps 96% of the moving average" in said[0] and "--ema-warmup" in said[0], said
    for settings in ({}, {"ema_decay": 0.999, "ema_warmup": True}, {"ema_decay": 0.9}):
        assert begun(index, 4, epochs=10, **settings) == []
    assert begun(index, 1000, epochs=10, ema_decay=0.999) == [], "a long run forgets them"
    assert "37% of the moving average" in begun(index, 1000, epochs=10, ema_decay=0.9999)[0]


def test_a_run_that_goes_on_between_two_log_lines_says_what_its_next_line_covers(lite_folders):
    index = index_dataset(lite_folders, "train")
    (said,) = begun(index, 25, done=3, print_every=10)
    assert "first log line are of updates 4 to 10 of the epoch alone" in said
    assert "updates 24 to 25 of" in begun(index, 25, done=23, print_every=10)[0]
    assert begun(index, 25, done=20, print_every=10) == begun(index, 25, print_every=10) == []


# --- evaluation as trained ---


@pytest.fixture
def checkpoint(tmp_path):
    def write(held_out=None, **settings):
        config = dataclasses.asdict(TrainConfig(**settings))
        meta = {"config": config, "classes": ["a", "b"], "framework": "paddle"}
        meta |= {} if held_out is None else {"data": {"val": held_out.digest()}}
        write_checkpoint(tmp_path / "best.safetensors", Checkpoint({"model/x": np.zeros(1, np.float32)}, meta))
        return str(tmp_path / "best.safetensors")

    return write


SMALL = {"resize_size": 72, "crop_size": 64, "model": "mobilenet_v3_large", "width_mult": 0.5, "image_backend": "cv2"}


def test_a_checkpoints_own_settings_are_the_default_and_said(checkpoint):
    config, said = as_trained(TrainConfig(pretrained=checkpoint(**SMALL)), {})
    assert {name: getattr(config, name) for name in SMALL} == SMALL
    assert "resize_size 72, crop_size 64" in said and "\n" not in said
    again, said = as_trained(config, {})
    assert again == config and said == "", "a config that agrees is not spoken of"


def test_a_recipe_does_not_override_them_but_a_flag_does(checkpoint, tmp_path):
    path = checkpoint(**SMALL)
    (tmp_path / "r.yaml").write_text("resize_size: 256\ncrop_size: 224\n")
    config = make_config(TrainConfig, tmp_path / "r.yaml", {"pretrained": path, "crop_size": 32})
    config, said = as_trained(config, {"pretrained": path, "crop_size": 32})
    assert (config.resize_size, config.crop_size) == (72, 32)
    assert "--crop-size 32 in place of training's 64" in said and "resize_size 72" in said


def test_a_flags_size_is_held_against_the_checkpoints_others_and_not_the_defaults(checkpoint):
    """80 pixels do not fit a crop of 224, which nobody asked for: the checkpoint's is 64."""
    flags = {"pretrained": checkpoint(**SMALL), "resize_size": 80, "mean": "0.5,0.5,0.5"}
    config, said = as_trained(make_config(TrainConfig, None, without_trained(flags)), flags)
    assert (config.resize_size, config.crop_size, config.mean) == (80, 64, "0.5,0.5,0.5")
    assert "--resize-size 80 in place of training's 72" in said and "crop_size 64" in said
    flags["resize_size"] = 60
    with pytest.raises(UserError, match=r"--resize-size must be at least --crop-size \(64\), found 60"):
        as_trained(make_config(TrainConfig, None, without_trained(flags)), flags)
    flags["pretrained"] = "some.pth"
    with pytest.raises(UserError, match=r"--resize-size must be at least --crop-size \(224\), found 60"):
        as_trained(make_config(TrainConfig, None, without_trained(flags)), flags)


def test_other_weights_say_nothing_and_damaged_ones_are_refused(checkpoint, tmp_path):
    config = TrainConfig(pretrained=str(tmp_path / "some.pth"))
    assert as_trained(config, {}) == (config, "")
    path = checkpoint(**SMALL)
    meta = {"config": {"crop_size": "64"}, "classes": ["a"]}
    write_checkpoint(path, Checkpoint({"model/x": np.zeros(1, np.float32)}, meta))
    with pytest.raises(UserError, match="damaged: its crop_size is 64"):
        as_trained(TrainConfig(pretrained=path), {})


def test_the_held_out_share_is_what_is_evaluated(checkpoint, flat):
    path = checkpoint(val_share=0.25, seed=7)
    config, _ = as_trained(TrainConfig(pretrained=path, data_path=str(flat)), {})
    assert (config.val_share, config.seed) == (0.25, 7)
    config, _ = as_trained(TrainConfig(pretrained=path, data_path=str(LITE_DATA)), {})
    assert config.val_share is None, "pictures of its own are evaluated whole"


def test_pictures_that_were_trained_on_are_not_evaluated(checkpoint, flat):
    """The seed follows the checkpoint where the share is given, too; other pictures, shares and seeds are refused."""
    _, held_out = index_held_out(flat, 0.25, 7)
    path = checkpoint(val_share=0.25, seed=7, held_out=held_out)
    config, _ = as_trained(TrainConfig(pretrained=path, data_path=str(flat), val_share=0.25), {"val_share": 0.25})
    assert (config.val_share, config.seed) == (0.25, 7)
    refuse_trained_on(config, held_out)
    for share, seed in ((0.25, 8), (0.5, 7)):
        with pytest.raises(UserError, match="some may have been trained on"):
            refuse_trained_on(config, index_held_out(flat, share, seed)[1])


@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_a_small_folder_is_trained_and_evaluated_by_the_documented_commands(flat, tmp_path, framework):
    out = tmp_path / "out"
    recipe = ("--config", "configs/finetune.yaml", "--data-path", flat, "--val-share", "0.2", "--framework", framework)
    quick = ("--crop-size", "32", "--resize-size", "36", "--epochs", "3", "--workers", "0", "--width-mult", "0.35")
    made = run_command("tools/train.py", *recipe, *quick, "--output-dir", out, PYTHONPATH=".")
    assert made.returncode == 0, made.stderr
    assert "--batch-size 32 was lowered to 8: 90 training pictures make 11 updates an epoch" in made.stdout
    assert "20 of 110 pictures are held out" in made.stdout and (out / "split" / "val_list.txt").is_file()
    weights = ("--pretrained", out / "best.safetensors", "--framework", framework)
    done = run_command("tools/eval.py", *weights, "--data-path", flat, "--json", tmp_path / "e.json", PYTHONPATH=".")
    assert done.returncode == 0 and "crop_size 32" in done.stderr and "val_share 0.2" in done.stderr, done.stderr
    result = json.loads((tmp_path / "e.json").read_text())
    best = max(json.loads(line)["top1"] for line in (out / "train_log.jsonl").read_text().splitlines() if '"eval"' in line)
    assert result["samples"] == 20 and result["top1"] == best
