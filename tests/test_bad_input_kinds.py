"""Bad input of kinds that the generator of ``test_bad_input`` does not make: one line, exit status 2, nothing is written over."""

import io
import json
import os
import shutil
import tarfile

import numpy as np
import pytest

from mobilenetv3_common import training
from mobilenetv3_common.checkpoint import LATEST, read_checkpoint, write_checkpoint
from tests.conftest import LITE_DATA
from tests.test_bad_input import contents, finished, wrong  # noqa: F401
from tests.test_train_survives import Unheard
from tests.training import QUICK
from tools.train import main as train

SETTINGS = {
    "roll back": ["--roll-back=-1"],
    "factor": ["--roll-back=1", "--roll-back-factor=1"],
    "unknown tracker": ["--log-to=tensorboard"],
    "no tracker": ["--log-to=,"],
    "compile in paddle": ["--compile"],
    "channels last in paddle": ["--channels-last"],
    "two few weights of classes": ["--class-weights=1,2"],
    "weights of classes missing": ["--class-weights=nowhere.txt"],
    "weights of classes nan": ["--class-weights=1,1,1,1,1,1,1,nan"],
    "teacher missing": ["--teacher=nowhere.pth"],
    "teacher is text": ["--teacher=README.md"],
    "teacher is a folder": ["--teacher=lite_data"],
    "pattern of nothing": ["--param-groups=zzz*:lr=2"],
    "pattern without colon": ["--param-groups=("],
    "milestones": ["--lr-schedule=multistep", "--lr-milestones=1e3"],
    "views": ["--tta=seven"],
    "cache in a file": ["--picture-cache=README.md"],
    "cache below a file": ["--picture-cache=README.md/x"],
    "cache of nothing": ["--picture-cache-gb=0"],
    "config is a folder": ["--config=configs"],
    "config has no end": ["--config=/dev/zero"],
    "data are a file": ["--data-path=README.md"],
    "data are the split": ["--data-path=lite_data/train"],
    "output below a device": ["--output-dir=/dev/null/x"],
    "output is a device": ["--output-dir=/dev/null"],
}


@pytest.fixture
def place(finished, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(training, "StopRequest", Unheard)
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path


def refused(place, capfd, name, bad):
    before = contents(place)
    try:
        status = train([*QUICK, f"--output-dir={place / 'run'}", "--resume=auto", *bad])
    except SystemExit as error:
        status = error.code
    told = capfd.readouterr()
    changed = {k: v for k, v in contents(place).items() if before.get(k) != v} or before.keys() - contents(place).keys()
    assert wrong(name, bad, status, told.out + told.err, changed) == []
    return told.err


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name, place, capfd):
    assert refused(place, capfd, name, SETTINGS[name])


NUMBERS = ("x", -1, 1.5, True, None, [1], {"a": 1}, 10**400)
META = {
    **{f"{key} {value!r}"[:40]: {key: value} for key in ("epoch", "update", "skipped") for value in ("x", -1, 1.5, True, None)},
    **{f"rollbacks {value!r}"[:40]: {"rollbacks": value} for value in NUMBERS if value is not True},
    **{f"rate_factor {value!r}"[:40]: {"rate_factor": value} for value in (*NUMBERS, 0, float("nan"), 2.0) if value is not True},
    **{f"stale {value!r}"[:40]: {"stale": value} for value in NUMBERS if value is not True},
    **{f"{key} {value!r}": {key: value} for key in ("config", "classes", "schedule", "scaler", "data") for value in (5, "x", [1])},
    "best": {"best": 7},
    "global batch": {"global_batch": "4"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", META)
def test_meta_of_a_checkpoint(name, place, capfd):
    _of_meta(META[name], name, place, capfd)


@pytest.mark.parametrize("name", ["rollbacks 'x'", "rate_factor nan", "stale [1]", "config 5", "classes 'x'"])
def test_meta_of_a_checkpoint_in_short(name, place, capfd):
    _of_meta(META[name], name, place, capfd)


def _of_meta(change, name, place, capfd):
    checkpoint = read_checkpoint(place / "run" / LATEST)
    checkpoint.meta |= change
    (place / "run" / LATEST).unlink()
    write_checkpoint(place / "run" / LATEST, checkpoint)
    said = refused(place, capfd, name, [])
    assert LATEST in said, "the checkpoint is named"


TENSORS = {
    "of integers": lambda array: array.astype(np.int64),
    "not finite": lambda array: np.full_like(array, np.nan),
    "of another shape": lambda array: array[..., None],
    "empty": lambda array: array[:0],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "optimizer"])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_a_checkpoint(name, kind, place, capfd):
    checkpoint = read_checkpoint(place / "run" / LATEST)
    key = next(key for key in checkpoint.arrays if key.startswith(f"{kind}/") and checkpoint.arrays[key].ndim == 4)
    checkpoint.arrays[key] = TENSORS[name](checkpoint.arrays[key])
    (place / "run" / LATEST).unlink()
    write_checkpoint(place / "run" / LATEST, checkpoint)
    refused(place, capfd, f"{kind} {name}", [])


def tar_of(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


PICTURE = sorted((LITE_DATA / "train" / "cat").glob("*.JPEG"))[0].read_bytes()
SHARDS = {
    "no member": [],
    "no class": [("a.jpg", PICTURE)],
    "no picture": [("a.cls", b"1")],
    "class of letters": [("a.jpg", PICTURE), ("a.cls", b"cat")],
    "class far away": [("a.jpg", PICTURE), ("a.cls", b"900")],
    "class below zero": [("a.jpg", PICTURE), ("a.cls", b"-1")],
    "key twice": [("a.jpg", PICTURE), ("a.cls", b"1"), ("a.jpg", PICTURE), ("a.cls", b"1")],
    "picture of text": [("a.jpg", b"text"), ("a.cls", b"1")],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARDS)
def test_shards(name, place, capfd):
    data = place / "data"
    data.mkdir()
    shutil.copytree(LITE_DATA / "val", data / "val")
    (data / "classes.txt").write_text("".join(f"{folder.name}\n" for folder in sorted((LITE_DATA / "val").iterdir())))
    tar_of(data / "train-000.tar", SHARDS[name])
    refused(place, capfd, name, [f"--data-path={data}", "--check-data", "--new-data"])


@pytest.mark.slow
def test_names_that_move_the_cursor_are_shown_as_they_are(place, capfd):
    data = place / "data"
    shutil.copytree(LITE_DATA, data)
    for name in ("train_list.txt", "val_list.txt"):
        (data / name).unlink()
    picture = sorted((data / "train" / "cat").glob("*.JPEG"))[0]
    os.rename(picture, picture.with_name("\x1b[2Jx\ny.JPEG"))
    (data / "train" / "cat" / "\x1b[2Jx\ny.JPEG").write_bytes(b"text")
    said = refused(place, capfd, "escape", [f"--data-path={data}", "--check-data", "--new-data"])
    assert "\x1b" not in said, json.dumps(said)
