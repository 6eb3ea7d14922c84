"""Files that say what a model is: every edit that makes no sense is one line; odd names and bad pictures lose nothing."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobilenetv3_common.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.terminal import all_printable, printable
from mobilenetv3_common.weights import as_paddle, write_state
from mobilenetv3_paddle.deploy.bundle import DEPLOY_JSON, ONNX, read_bundle
from mobilenetv3_paddle.deploy.engines import create_engine
from mobilenetv3_paddle.deploy.export import export
from mobilenetv3_paddle.deploy.predictor import Predictor
from mobilenetv3_paddle.deploy.trained import load_trained
from tests.conftest import ROOT

CAT = ROOT / "lite_data/val/cat/cat_0.JPEG"
CONFIG = {"model": "mobilenet_v3_small", "width_mult": 0.5, "resize_size": 256, "crop_size": 224, "image_backend": "pil"}
WRONG = [
    None,
    True,
    -1,
    0,
    7,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x\ny",
    "é" * 5000,
    [],
    [[]],
    [None],
    {},
    {"a": 1},
    "../../etc/passwd",
]


@pytest.fixture(scope="module")
def weights(small_state, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("w") / "small.safetensors"
    write_state(path, small_state)
    return path


@pytest.fixture(scope="module")
def exported(weights) -> Path:
    export(load_trained(weights, width_mult=0.5), weights.parent / "e")
    return weights.parent / "e"


def places(value, path=()):
    """Every place of a JSON document; of long lists some."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for number in range(min(len(value), 3)):
            yield from places(value[number], (*path, number))


def edits(document, seed, count):
    """Seeded edits: a value replaced, taken out or added. Gives what was done, and the result."""
    draw, known = random.Random(seed), list(places(document))
    for _ in range(count):
        edited, path = copy.deepcopy(document), draw.choice(known)
        kind, wrong = draw.choice(("replace", "replace", "remove", "add")), draw.choice(WRONG)
        if not path:
            edited = wrong
        else:
            holder = edited
            for step in path[:-1]:
                holder = holder[step]
            if kind == "remove":
                del holder[path[-1]]
            elif kind == "add" and isinstance(holder, list):
                holder.append(wrong)
            elif kind == "add":
                holder[f"{path[-1]}_"] = wrong
            else:
                holder[path[-1]] = wrong
        yield f"{kind} {path} {wrong!r:.40}", edited


def outcome(use):
    """The line with which something is refused; None where it is taken."""
    try:
        use()
    except UserError as error:
        return error.line
    return None


def test_senseless_edits_of_deploy_json_are_a_line(exported, tmp_path):
    folder = Path(shutil.copytree(exported, tmp_path / "e"))
    document = json.loads((folder / DEPLOY_JSON).read_text())
    document["classes"] = document["classes"][:1000]
    taken = []
    for what, edited in edits(document, 0, 400):
        (folder / DEPLOY_JSON).write_text(json.dumps(edited))
        line = outcome(lambda: read_bundle(folder))
        if line is None:
            taken.append((what, edited))
        else:
            assert line.startswith(str(folder)) and "export" in line, line
    for what, edited in taken:  # what is believed makes sense, and is either used or refused with a line
        assert isinstance(edited, dict) and all(isinstance(name, str) for name in edited["classes"]), what
        (folder / DEPLOY_JSON).write_text(json.dumps(edited))

        def run(folder=folder):
            bundle = read_bundle(folder)
            assert len(Predictor(create_engine(bundle), bundle.preset, bundle.classes).predict([CAT.read_bytes()])[0]) == 5

        line = outcome(run)
        changed = len(edited["classes"]) != len(document["classes"]) or edited["preset"]["crop_size"] != 224
        assert (line is not None) == (changed or ONNX not in edited["files"]), (what, line)
    assert 5 < len(taken) < 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["classes"].pop(), "the model has 1000 classes, deploy.json names 999"),
        (lambda d: d["preset"].update(std=[0.0, 1.0, 1.0]), "std is no number from 0.001 to 1"),
        (lambda d: d["preset"].update(mean=[float("nan"), 0, 0]), "mean is no number"),
        (lambda d: d["preset"].update(crop_size=300), "must be at least crop size"),
        (lambda d: d["preset"].update(crop_size=True), "crop_size is no whole number"),
        (lambda d: d["files"].update({"../../etc/passwd": "0" * 64}), "files must be some of"),
        (lambda d: d.update(surprise=1), "surprise is unknown"),
        (lambda d: d.update(model="resnet50"), "model is none of mobilenet_v3_small"),
        (lambda d: d.pop("preset"), "it has no preset"),
    ],
)
def test_an_edited_deploy_json_says_what_is_wrong(exported, tmp_path, change, message):
    folder = Path(shutil.copytree(exported, tmp_path / "e"))
    document = json.loads((folder / DEPLOY_JSON).read_text())
    change(document)
    (folder / DEPLOY_JSON).write_text(json.dumps(document))
    with pytest.raises(UserError, match=message) as caught:
        create_engine(read_bundle(folder))
    assert "\n" not in caught.value.line


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b"", b"null", b"3"])
def test_what_is_no_deploy_json_is_a_line(exported, tmp_path, content):
    folder = Path(shutil.copytree(exported, tmp_path / "e"))
    (folder / DEPLOY_JSON).write_bytes(content)
    with pytest.raises(UserError, match=r"deploy\.json is damaged"):
        read_bundle(folder)


def checkpoint(small_state, **meta) -> Checkpoint:
    arrays = {f"model/{name}": np.asarray(array) for name, array in as_paddle(small_state).items()}
    names = [f"class {number}" for number in range(1000)]
    return Checkpoint(arrays, {"config": CONFIG, "classes": names, "update": 1, "epoch": 1, **meta})


def test_senseless_edits_of_a_checkpoint_s_metadata_are_a_line(small_state, tmp_path):
    sound = checkpoint(small_state)
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, sound)
    assert load_trained(path).classes[:2] == ("class 0", "class 1")
    meta = {"config": CONFIG, "classes": sound.meta["classes"][:1000]}
    refused = 0
    for what, edited in edits(meta, 1, 150):
        write_checkpoint(path, Checkpoint(sound.arrays, edited))
        line = outcome(lambda: load_trained(path))
        refused += line is not None
        if line is None:
            assert isinstance(edited, dict) and len(edited["classes"]) == 1000, what
            assert {key: edited["config"][key] for key in ("model", "width_mult")} == {
                "model": CONFIG["model"],
                "width_mult": 0.5,
            }, what
    assert refused > 90


def test_seven_names_for_eight_classes_are_refused(small_state, tmp_path):
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, checkpoint(small_state, classes=[f"class {number}" for number in range(999)]))
    with pytest.raises(UserError, match="names 999 classes, but its last layer has 1000"):
        load_trained(path)
    (tmp_path / "names.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"names\.txt has 2 class names, but the model has 1000"):
        load_trained(path, classes=tmp_path / "names.txt")
    assert read_checkpoint(path).meta["classes"][0] == "class 0"


def test_an_export_leaves_nothing_of_an_earlier_one(weights, exported, tmp_path):
    folder = Path(shutil.copytree(exported, tmp_path / "e"))
    (folder / "model_int8.onnx").write_bytes(b"of another network")
    (folder / "notes.txt").write_text("mine")
    export(load_trained(weights, width_mult=0.5), folder, ("paddle",))
    assert sorted(p.name for p in folder.iterdir()) == ["deploy.json", "inference.json", "inference.pdiparams", "notes.txt"]


def command(*args, **options):
    return subprocess.run(
        [sys.executable, *map(os.fspath, args)], cwd=ROOT, capture_output=True, timeout=120, check=False, **options
    )


def test_infer_goes_on_past_bad_pictures_odd_names_and_standard_input(exported, tmp_path):
    pictures = tmp_path / "p"
    pictures.mkdir()
    for name in ("a.jpg", "line\nbreak.jpg", "n" * 240 + ".jpg", "café ☕.jpg"):
        shutil.copy(CAT, pictures / name)
    shutil.copy(CAT, os.fsencode(pictures) + b"/bytes\xff.jpg")
    (pictures / "bad.jpg").write_bytes(CAT.read_bytes()[:3000])
    (pictures / "worse.jpg").write_text("text")
    flags = ("--model-dir", exported, "--topk", "1", "--json", tmp_path / "r.json")
    run = command("tools/infer.py", *flags, "--img-path", pictures, "--batch-size", "3")
    assert run.returncode == 2
    errors = run.stderr.decode().splitlines()
    assert len(errors) == 2 and "bad.jpg is damaged" in errors[0] and "worse.jpg is not a picture" in errors[1]
    lines = run.stdout.decode().splitlines()
    assert (
        len(lines) == 10 and any("bytes\\xff.jpg" in line for line in lines) and any("line\\nbreak.jpg" in line for line in lines)
    )
    rows = json.loads((tmp_path / "r.json").read_text())["pictures"]
    assert len(rows) == 5 and len({row["predictions"][0]["name"] for row in rows}) == 1
    run = command("tools/infer.py", *flags, "--img-path", pictures / "worse.jpg")
    assert run.returncode == 2 and run.stderr.count(b"\n") == 1
    run = command("tools/infer.py", *flags, "--img-path", "-", "--repeats", "2", input=CAT.read_bytes())
    assert run.returncode == 0 and run.stdout.decode().splitlines()[0] == "-", run.stderr


def test_predict_takes_odd_names_and_standard_input(weights, tmp_path):
    shutil.copy(CAT, os.fsencode(tmp_path) + b"/bytes\xff" + b"n" * 200 + b".jpg")
    flags = ("--pretrained", weights, "--width-mult", "0.5", "--save-dir", tmp_path / "seen", "--topk", "1")
    run = command("tools/predict.py", *flags, "--img-path", tmp_path, "-", input=CAT.read_bytes())
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.decode().splitlines()) == 4 and len(list((tmp_path / "seen").iterdir())) == 2
    run = command("tools/predict.py", *flags, "--img-path", "x" * 5000)
    assert run.returncode == 2 and run.stderr.count(b"\n") == 1 and b"File name too long" in run.stderr
    odd = os.fsdecode(b"a\xff\n")
    assert printable(odd) == "a\\xff\\n" and all_printable(["b", odd]) == ["b", "a\\xff\\n"] and all_printable(["b"]) == ["b"]
