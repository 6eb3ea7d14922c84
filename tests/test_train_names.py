"""Classes are matched by name, pictures are regular files counted once, and a run resumes only as itself."""

import dataclasses
import os
import shutil

import numpy as np
import pytest

import mobilenetv3_paddle.train as ours
import mobilenetv3_ref.train as theirs
from mobilenetv3_common.checkpoint import LATEST, Checkpoint, CheckpointFolder, read_checkpoint, write_checkpoint
from mobilenetv3_common.dataset_index import index_dataset, index_splits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import save
from tests.conftest import LITE_DATA

CONFIG = TrainConfig(crop_size=32, resize_size=32, batch_size=4, workers=0, epochs=2, width_mult=0.35, ema_decay=0.5)
BOTH = pytest.mark.parametrize("package", [ours, theirs])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of each package after one update on lite_data, and the data in folders."""
    data = tmp_path_factory.mktemp("data") / "lite"
    shutil.copytree(LITE_DATA, data)
    for name in ("train_list.txt", "val_list.txt"):
        (data / name).unlink()
    found = {}
    for package in (ours, theirs):
        folder = tmp_path_factory.mktemp("run")
        run = package.build_run(dataclasses.replace(CONFIG, data_path=str(data), output_dir=str(folder)), package.Ranks())
        run.train_mode()
        package.update(run, [next(package.micro_batches(run))])
        save(run, CheckpointFolder(folder), best=False)
        found[package] = folder / LATEST
    return found


@pytest.fixture
def folders(lite_folders):
    return lite_folders


# --- classes ---


def test_a_class_that_is_missing_or_renamed_in_validation_is_named(folders):
    train, val = index_splits(folders)
    assert train.classes == val.classes and len(val) == 16
    shutil.rmtree(folders / "val" / "cat")
    with pytest.raises(UserError, match=r"val lacks class 'cat' of .*train: "):
        index_splits(folders)
    _, subset = index_splits(folders, match="subset")
    assert subset.classes == train.classes and len(subset) == 14
    assert all(subset.classes[label] == name.split("/")[1] for name, label in zip(subset.names, subset.labels, strict=True))
    (folders / "val" / "rocket").rename(folders / "val" / "aeroplane")
    for match in ("name", "subset"):
        with pytest.raises(UserError, match=r"val has class 'aeroplane', which .*train does not have"):
            index_splits(folders, match=match)
    assert index_splits(folders, match="position")[1].labels[-1] == 6


def test_a_label_beyond_the_classes_is_named_by_file_and_line(lite_copy):
    for split, label in (("train", "2000000000"), ("train", "9" * 40), ("val", "8")):
        path = lite_copy / f"{split}_list.txt"
        before = path.read_text()
        path.write_text(before + f"{split}/cat/cat_0.JPEG {label}\n")
        with pytest.raises(UserError, match=rf"{split}_list\.txt:17: .* has label {label}, but .* classes"):
            index_splits(lite_copy)
        path.write_text(before)


def test_lists_without_names_go_with_folders_by_a_switch_only(lite_copy):
    (lite_copy / "train_list.txt").unlink()
    assert index_splits(lite_copy)[1].classes[1] == "cat", "classes.txt names the list's"
    (lite_copy / "classes.txt").unlink()
    with pytest.raises(UserError, match=r"val_list\.txt numbers its classes, .*train names them"):
        index_splits(lite_copy)
    assert len(index_splits(lite_copy, match="position")[1]) == 16


def test_folders_called_by_numbers_are_names_too(folders):
    for split in ("train", "val"):
        for number, folder in enumerate(sorted((folders / split).iterdir())):
            folder.rename(folders / split / str(number))
    assert index_splits(folders)[0].classes[0] == "0"
    shutil.rmtree(folders / "val" / "3")
    with pytest.raises(UserError, match="lacks class '3'"):
        index_splits(folders)


@BOTH
def test_evaluation_finds_a_checkpoints_classes_by_name(saved, folders, package):
    config = dataclasses.replace(CONFIG, data_path=str(folders), pretrained=str(saved[package]), framework="ref")
    whole, classes = package.evaluate_config(config, package.Ranks())
    assert len(classes) == 8
    shutil.rmtree(folders / "train")
    shutil.rmtree(folders / "val" / "astronaut")
    with pytest.raises(UserError, match=r"lacks class 'astronaut' of .*latest\.safetensors"):
        package.evaluate_config(config, package.Ranks())
    part, classes = package.evaluate_config(dataclasses.replace(config, match_classes="subset"), package.Ranks())
    assert np.array_equal(part.confusion[1:], whole.confusion[1:]) and part.confusion[0].sum() == 0 and len(classes) == 8


@BOTH
def test_weights_of_other_classes_begin_a_run_by_a_switch_only(saved, folders, package):
    for split in ("train", "val"):
        (folders / split / "cat").rename(folders / split / "dog")
    config = dataclasses.replace(CONFIG, data_path=str(folders), pretrained=str(saved[package]))
    with pytest.raises(UserError, match=r"lacks class 'cat' of .*has class 'dog'.*--reset-classifier"):
        package.build_run(config, package.Ranks())
    assert package.build_run(dataclasses.replace(config, reset_classifier=True), package.Ranks()).update == 0
    assert package.build_run(dataclasses.replace(config, match_classes="position"), package.Ranks()).update == 0


# --- resuming ---


def resume(package, source, data, **more):
    config = dataclasses.replace(CONFIG, data_path=str(data), resume=str(source), **more)
    return package.build_run(config, package.Ranks())


@BOTH
def test_a_run_goes_on_on_its_own_pictures_only(saved, folders, package):
    assert resume(package, saved[package], folders).update == 1, "moved, but the same"
    victim = next((folders / "train" / "cat").iterdir())
    victim.rename(victim.with_name("other.JPEG"))
    with pytest.raises(UserError, match=r"the train split of .* has other files or labels.*--new-data"):
        resume(package, saved[package], folders)
    assert resume(package, saved[package], folders, new_data=True).update == 1
    for split in ("train", "val"):
        (folders / split / "cat").rename(folders / split / "dog")
    with pytest.raises(UserError, match="lacks class 'cat'"):
        resume(package, saved[package], folders, new_data=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"iteration": 10**6}, "iteration 1000000"),
        ({"iteration": -1}, "iteration -1"),
        ({"iteration": 1.5}, "iteration 1.5"),
        ({"epoch": 7}, "of epoch 7: --epochs 2 is less"),
        ({"update": 3}, "update 3"),
        ({"best": float("nan")}, "best nan"),
        ({"best": "high"}, "best 'high'"),
        ({"skipped": None}, "skipped None"),
        ({"scaler": 3, "schedule": 3}, "is damaged: its scaler is 3"),
        ({"config": [1]}, r"is damaged: its config is \[1\]"),
        ({"classes": ["a"]}, "lacks class"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_place_that_no_run_has_is_refused(saved, folders, tmp_path, change, said):
    found = read_checkpoint(saved[theirs])
    write_checkpoint(tmp_path / LATEST, Checkpoint(found.arrays, {**found.meta, **change}))
    with pytest.raises(UserError, match=said):
        resume(theirs, tmp_path / LATEST, folders)


@BOTH
@pytest.mark.parametrize("kind", ["optimizer/", "ema/"])
@pytest.mark.parametrize("all_of_them", [True, False])
def test_a_checkpoint_without_its_optimizer_or_average_is_refused(saved, folders, tmp_path, package, kind, all_of_them):
    found = read_checkpoint(saved[package])
    names = [name for name in found.arrays if name.startswith(kind)]
    assert len(names) > 100
    kept = {name: array for name, array in found.arrays.items() if name not in (names if all_of_them else names[:1])}
    write_checkpoint(tmp_path / LATEST, Checkpoint(kept, found.meta))
    with pytest.raises(UserError, match=rf"do not fit the model: {len(names) if all_of_them else 1} missing key"):
        resume(package, tmp_path / LATEST, folders)


# --- files ---


def test_links_in_a_class_are_followed_once(folders):
    expected = index_dataset(folders, "train").names
    home = folders / "train" / "cat"
    os.symlink(".", home / "loop")
    os.symlink("..", home / "up")
    os.symlink("cat_0.JPEG", home / "again.JPEG")
    assert index_dataset(folders, "train").names == expected
    outside = folders / "more"
    (outside / "deep").mkdir(parents=True)
    shutil.copy(home / "cat_0.JPEG", outside / "deep" / "x.JPEG")
    os.symlink(outside, home / "one")
    os.symlink(outside / "deep", home / "two")
    assert len(index_dataset(folders, "train")) == len(expected) + 1


@pytest.mark.parametrize("kind", ["pipe", "device", "nothing", "other class", "twin"])
def test_what_is_no_picture_of_the_class_is_named(folders, kind):
    home = folders / "train" / "cat"
    if kind == "pipe":
        os.mkfifo(home / "x.JPEG")
    else:
        place = folders / "train" / "twin" if kind == "twin" else home / "x.JPEG"
        os.symlink({"device": "/dev/zero", "nothing": "nowhere", "other class": "../rocket", "twin": "rocket"}[kind], place)
    said = {"pipe": "a pipe", "device": "no regular file", "nothing": "a link to nothing", "other class": "leads to class 'rocket'"}
    with pytest.raises(UserError, match=said.get(kind, "are one folder")):
        index_dataset(folders, "train")


@pytest.mark.parametrize("name", ["train_list.txt", "val_list.txt", "classes.txt"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "nothing"])
def test_a_list_that_is_no_file_is_not_passed_over(lite_copy, name, kind):
    """Both folders are there, and would be read instead."""
    (lite_copy / name).unlink()
    if kind == "pipe":
        os.mkfifo(lite_copy / name)
    elif kind == "folder":
        (lite_copy / name).mkdir()
    else:
        (lite_copy / name).symlink_to("/dev/zero" if kind == "device" else "nowhere")
    with pytest.raises(UserError, match=rf"{name} is no regular file, but .*: remove it or move it away"):
        index_splits(lite_copy)


@pytest.mark.parametrize("kind", ["pipe", "device", "nothing", "folder"])
def test_a_listed_name_that_is_no_file_says_so(lite_copy, kind):
    if kind == "pipe":
        os.mkfifo(lite_copy / "x.jpg")
    elif kind == "folder":
        (lite_copy / "x.jpg").mkdir()
    else:
        (lite_copy / "x.jpg").symlink_to("/dev/zero" if kind == "device" else "nowhere")
    with open(lite_copy / "train_list.txt", "a") as file:
        file.write("x.jpg 0\n")
    with pytest.raises(UserError, match=r"train_list.txt:17: no regular file, but a folder, a pipe, .*x.jpg: correct or remove"):
        index_splits(lite_copy)


def test_a_byte_order_mark_is_no_part_of_a_name(lite_copy):
    plain = index_splits(lite_copy)
    for name in ("train_list.txt", "val_list.txt", "classes.txt"):
        (lite_copy / name).write_bytes(b"\xef\xbb\xbf" + (lite_copy / name).read_bytes())
    assert [(s.names, s.classes) for s in index_splits(lite_copy)] == [(s.names, s.classes) for s in plain]


def test_a_class_name_that_is_not_utf8_is_shown_in_bytes(folders):
    os.rename(folders / "train" / "cat", os.fsencode(folders / "train") + b"/c\xffat")
    with pytest.raises(UserError, match=r"c\\xffat.* not UTF-8"):
        index_dataset(folders, "train")
