"""Tar shards: the pictures of the folder, in its order, in both frameworks; damaged ones are one line."""

import dataclasses
import io
import os
import random
import shutil
import signal
import tarfile
from pathlib import Path

import numpy as np
import pytest

import mobilenetv3_paddle.data as ours
import mobilenetv3_ref.data as theirs
from mobilenetv3_common import index_cache, training
from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.dataset_index import index_dataset, index_splits, training_classes
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset, TrainPreset
from mobilenetv3_common.sampling import BatchPlan, RunPlan
from mobilenetv3_common.shards import key_of
from tests import numpy_backend
from tests.conftest import LITE_DATA
from tests.test_train_survives import CONFIG_OF, Unheard
from tools import make_shards
from tools.train import main as train_main


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """lite_data in shards of 200 KB."""
    return written(LITE_DATA, tmp_path_factory.mktemp("shards"))


def written(source, target, shard_bytes=200_000):
    indices = dict(zip(("train", "val"), index_splits(source), strict=True))
    counts = make_shards.write_shards(indices, target, shard_bytes)
    assert counts["train"] > 2
    return target


@pytest.fixture
def copy(shards, tmp_path):
    return Path(shutil.copytree(shards, tmp_path / "copy"))


def test_the_list_is_the_folders(shards, lite_folders):
    for index, folder in zip(index_splits(shards), index_splits(lite_folders), strict=True):
        assert (index.names, index.labels, index.classes) == (folder.names, folder.labels, folder.classes)
        assert index.digest() == folder.digest() and index.named
    assert training_classes(shards) == training_classes(lite_folders)


@pytest.mark.parametrize("package", [ours, theirs])
@pytest.mark.parametrize(("backend", "workers"), [("pil", 0), ("cv2", 2), pytest.param("pil", 2, marks=pytest.mark.slow)])
def test_pictures_are_the_folders_bit_for_bit(shards, lite_folders, package, backend, workers):
    """Two ranks, the second epoch from its second batch on: what a resumed run loads."""
    preset = TrainPreset(crop_size=48, auto_augment="ta_wide", mixup_alpha=0.2)
    loaded = []
    for root in (shards, lite_folders):
        index = index_dataset(root, "train")
        dataset = package.ImageDataset(index, preset, 7, backend)
        for rank in range(2):
            plan = BatchPlan(len(index), 4, 7, True, True, rank, 2)
            loader = package.build_loader(dataset, RunPlan(plan, 2, 1, 1), workers)
            loaded.append([np.asarray(tensor) for batch in loader for tensor in batch])
    assert len(loaded[0]) == 3
    for one, other in ((loaded[0], loaded[2]), (loaded[1], loaded[3])):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(loaded[0][0], loaded[1][0])


def test_a_run_goes_on_with_the_shards_where_it_was_stopped_on_the_folder(shards, lite_folders, monkeypatch, tmp_path):
    def run(output, data, stop_at=99, **more):
        seen = []

        class Stop(Unheard):
            signal = property(lambda self: signal.SIGTERM if len(seen) >= stop_at else 0, lambda self, value: None)

        update = numpy_backend.apply_update
        monkeypatch.setattr(training, "StopRequest", Stop)
        monkeypatch.setattr(numpy_backend, "apply_update", lambda *args: (seen.append(1), update(*args))[1])
        config = dataclasses.replace(CONFIG_OF, data_path=str(data), output_dir=str(tmp_path / output), **more)
        status = training.train(numpy_backend, config)
        monkeypatch.setattr(numpy_backend, "apply_update", update)
        return status

    assert run("whole", lite_folders) == 0
    assert run("moved", lite_folders, stop_at=6) == 128 + signal.SIGTERM
    assert read_checkpoint(tmp_path / "moved" / LATEST).meta["update"] == 6, "in the middle of the second epoch"
    assert run("moved", shards, resume="auto") == 0
    one, other = (read_checkpoint(tmp_path / name / LATEST) for name in ("whole", "moved"))
    assert one.meta["best"] == other.meta["best"]
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)


def test_the_command_writes_the_same_shards_each_time(lite_folders, tmp_path, capsys):
    for name in ("a", "b"):
        assert make_shards.main(["--data-path", str(lite_folders), "--output-dir", str(tmp_path / name), "--shard-mb", "1"]) == 0
    assert f"16 train pictures in 1 shard and 16 val pictures in 1 shard in {tmp_path / 'a'}" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["classes.txt", "train-000000.tar", "val-000000.tar"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)
    assert make_shards.main(["--data-path", str(lite_folders), "--output-dir", str(tmp_path / "a")]) == 2
    assert "train-000000.tar is there already" in capsys.readouterr().err


def test_shards_are_no_larger_than_asked_and_a_bad_picture_leaves_none(lite_folders, shards, tmp_path, capsys):
    assert max(path.stat().st_size for path in shards.glob("*.tar")) <= 200_000
    victim = lite_folders / "val" / "cat" / "cat_0.JPEG"
    indices = {"train": index_dataset(lite_folders, "train"), "val": index_dataset(lite_folders, "val")}
    victim.unlink()
    with pytest.raises(UserError, match=r"cannot read picture .*cat_0.JPEG: No such file"):
        make_shards.write_shards(indices, tmp_path / "new", 10**6)
    assert not list((tmp_path / "new").iterdir())


def test_names_that_can_be_no_key_are_numbers(lite_folders, tmp_path):
    home = lite_folders / "train" / "cat"
    (home / "cat_0.JPEG").rename(home / "cat.0.x.JPEG")
    (home / "cat_1.JPEG").rename(home / os.fsdecode(b"cat\xff.JPEG"))
    index = index_dataset(written(lite_folders, tmp_path / "new"), "train")
    folder = index_dataset(lite_folders, "train")
    place = folder.names.index("train/cat/cat.0.x.JPEG")
    assert index.names[place] == f"train/{place:09d}.JPEG" and index.labels == folder.labels
    assert os.fsencode(index.names[place + 1]) == b"train/cat/cat\xff.JPEG"
    assert all(index.path(i).read() == folder.path(i).read_bytes() for i in range(16))
    assert [key_of(name) for name in ("a/b.c.JPG", "a.b/c", ".x", "n_1.JPEG")] == [("a/b", "c.jpg"), None, None, ("n_1", "jpeg")]


def test_shards_of_others_are_read(tmp_path, lite_folders):
    """Another order of the members, other texts, folders, PAX and long names; labels without names."""
    picture = (lite_folders / "train/cat/cat_0.JPEG").read_bytes()
    members = [("./", None), ("./0001.cls", b"3\n"), ("./0001.json", b"{}"), ("./0001.jpg", picture), ("readme", b"hello"),
               ("x" * 90 + "/" + "ä" * 60 + ".cls", b"0"), ("x" * 90 + "/" + "ä" * 60 + ".PNG", picture)]  # fmt: skip
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)):
        with tarfile.open(tmp_path / f"train-{number}.tar", "w", format=form) as tar:
            for name, data in members[:5] if form == tarfile.USTAR_FORMAT else members:
                member = tarfile.TarInfo(name)
                member.type, member.size = (tarfile.DIRTYPE, 0) if data is None else (tarfile.REGTYPE, len(data))
                tar.addfile(member, io.BytesIO(data or b""))
    index = index_dataset(tmp_path, "train")
    assert list(index.labels) == [3, 0, 3, 0, 3] and index.classes == ("0", "1", "2", "3") and not index.named
    assert all(index.path(i).read() == picture for i in range(5))
    dataset = ours.ImageDataset(index, EvalPreset(32, 32))
    assert dataset[next(iter(BatchPlan(5, 1)))[0]][0].shape == (3, 32, 32)
    with pytest.raises(UserError, match=r"train-0.tar: \./0001.cls is label 3, but the model has 2 classes"):
        index_dataset(tmp_path, "train", num_classes=2)


def header_at(path, name):
    with tarfile.open(path) as tar:
        return tar.getmember(name)


def refusal(root, capsys):
    """The one line that training on damaged shards ends with."""
    flags = ["--framework", "ref", "--data-path", str(root), "--output-dir", str(root / "out"), "--crop-size", "32"]
    assert train_main([*flags, "--resize-size", "32", "--batch-size", "4", "--workers", "0", "--epochs", "1"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1, told
    return told


def test_a_shard_cut_short_is_named_with_its_member(copy, capsys):
    path = copy / "train-000001.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as tar:
        names = tar.getnames()
    cuts = {f"cut short within {names[2]}": header_at(path, names[2]).offset_data + 700,
            f"cut short after {names[1]}": header_at(path, names[2]).offset,
            f"after {names[3]}": header_at(path, names[4]).offset + 100}  # fmt: skip
    for said, length in cuts.items():
        path.write_bytes(whole[:length])
        assert said in refusal(copy, capsys)
        with pytest.raises(UserError, match=f"{path.name}: .*{said}: write or fetch|{path.name}: .*{said} "):
            index_dataset(copy, "train")
    path.write_bytes(b"")
    assert f"{path}: damaged or cut short after its beginning" in refusal(copy, capsys)
    path.write_bytes(whole)
    assert len(index_dataset(copy, "train")) == 16


def test_a_damaged_header_in_the_middle_is_not_the_end(copy, capsys):
    path = copy / "train-000001.tar"
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        names = tar.getnames()
    data[header_at(path, names[2]).offset + 3] ^= 1
    path.write_bytes(data)
    assert f"{path}: damaged or cut short after {names[1]}" in refusal(copy, capsys)


def test_a_damaged_picture_in_a_shard_is_named(copy, capsys):
    path = copy / "train-000001.tar"
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        member = tar.getmembers()[0]
    data[member.offset_data : member.offset_data + 20] = bytes(20)
    path.write_bytes(data)
    assert f"{path}: {member.name} is not a picture" in refusal(copy, capsys)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("a.jpg", b"x")], "a.jpg has no a.cls beside it"),
        ([("a.cls", b"1")], "a.cls has no picture beside it"),
        ([("a.jpg", b"x"), ("a.png", b"x"), ("a.cls", b"1")], "a.png is a second picture of one key, after a.jpg"),
        ([("a.jpg", b"x"), ("a.cls", b"one")], "a.cls holds no class number"),
        ([("a.jpg", b"x"), ("a.cls", b"-1")], "a.cls holds no class number"),
        ([("a.jpg", b"x"), ("a.cls", b"9" * 30)], "a.cls is label 999"),
        ([("a.jpg", b"x"), ("a.cls", b"1"), ("a.cls", b"1")], "a.cls is there twice"),
        ([("a.jpg", b"x"), ("b.jpg", b"x"), ("a.cls", b"1"), ("b.cls", b"1")], "a.jpg has no a.cls beside it"),
        ([("a.txt", b"x")], "train-*.tar hold no picture"),
        ([("a.jpg", None)], "a.jpg is no plain file"),
    ],
)
def test_members_that_make_no_sample_are_named(tmp_path, members, said):
    with tarfile.open(tmp_path / "train-0.tar", "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size, member.linkname = len(data or b""), "x" * (data is None)
            member.type = tarfile.SYMTYPE if data is None else tarfile.REGTYPE
            tar.addfile(member, io.BytesIO(data or b""))
    with pytest.raises(UserError) as error:
        index_dataset(tmp_path, "train")
    assert said in error.value.line and "train-" in error.value.line


def test_random_damage_is_one_line_or_the_same_list(copy):
    path, rng = copy / "train-000001.tar", random.Random(5)
    whole, index = path.read_bytes(), index_dataset(copy, "train")
    refused = []
    for _ in range(60):
        data = bytearray(whole)
        if rng.random() < 0.5:
            data = data[: rng.randrange(len(data) - 1024)]
        else:
            start = rng.randrange(len(data) // 512) * 512
            data[start : start + 512] = rng.randbytes(512)
        path.write_bytes(data)
        try:
            found = index_dataset(copy, "train")
            assert (found.names, found.labels) == (index.names, index.labels)
        except UserError as error:
            refused.append(error.line)
    assert len(refused) > 25 and all(path.name in line for line in refused)


def test_a_shard_that_changes_under_a_run_is_noticed(copy):
    index = index_dataset(copy, "train")
    path = copy / "train-000000.tar"
    assert index.path(0).read()
    path.write_bytes(path.read_bytes() + bytes(512))
    with pytest.raises(UserError, match=r"train-000000.tar: .*: the shard has changed since it was listed"):
        index.path(0).read()


def test_lists_of_shards_are_kept_and_made_anew(copy, monkeypatch, tmp_path):
    monkeypatch.setattr(index_cache, "AT_LEAST", 1)
    monkeypatch.setenv("MOBILENETV3_CACHE", str(tmp_path / "cache"))
    for path in copy.glob("*.tar"):
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    first = {split: index_dataset(copy, split) for split in ("train", "val")}
    assert len(list((tmp_path / "cache" / "index").iterdir())) == 2
    with monkeypatch.context() as patch:
        patch.setattr("mobilenetv3_common.dataset_index.list_shard", None)
        for split, index in first.items():
            again = index_dataset(copy, split)
            assert again == index and again.path(5).read() == index.path(5).read() == (LITE_DATA / index.names[5]).read_bytes()
    last = sorted(copy.glob("train-*.tar"))[-1]
    last.rename(copy / "train-999999.tar")
    assert str(index_dataset(copy, "train").path(15)).startswith(str(copy / "train-999999.tar"))
    (copy / "train-999999.tar").unlink()
    assert len(index_dataset(copy, "train")) < 16
