"""result/: what one alignment left there does not stand beside another's page."""

from __future__ import annotations

import json

import paddle
import torch

from alignment import audit


def linear():
    return torch.nn.Linear(4, 3)


def linear_port():
    return paddle.nn.Linear(4, 3)


def convolution():
    return torch.nn.Conv2d(3, 2, 3)


def convolution_port():
    return paddle.nn.Conv2D(3, 2, 3)


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_another_alignments_results_go_and_other_files_stay(tmp_path):
    audit(linear_port, linear, inputs="2x4", report=tmp_path, quiet=True)
    first = names(tmp_path)
    assert {"alignment.json", "report.html", "forward_paddle.npy", "forward_ref.npy", "log/forward_diff.log"} <= first
    for name in ("data_paddle.npy", "losses_ref.npy", "log/train_diff.log", "forward_paddle_mine.npy", "notes.txt"):
        (tmp_path / name).write_text("kept?")
    audit(linear_port, linear, inputs="2x4", report=tmp_path, quiet=True)
    assert {"data_paddle.npy", "losses_ref.npy", "log/train_diff.log"} <= names(tmp_path), "its own further steps stay"
    audit(convolution_port, convolution, inputs="2x3x8x8", report=tmp_path, quiet=True, training=False)
    left = names(tmp_path)
    assert not {"data_paddle.npy", "log/train_diff.log"} & left, "they were of another model"
    assert {"forward_paddle_mine.npy", "notes.txt"} <= left
    assert json.loads((tmp_path / "alignment.json").read_text())["model"] == "Conv2d", "the class: the function does not name it"


def test_a_hostile_file_of_results_names_nothing_outside(tmp_path):
    outside, folder = tmp_path / "x.npy", tmp_path / "result"
    outside.write_text("kept")
    (folder / "forward_..").mkdir(parents=True)
    held = {"project": "p", "model": "m", "port": "../../x", "reference": "../../x", "steps": [{"name": "../x"}]}
    (folder / "alignment.json").write_text(json.dumps(held))
    audit(linear_port, linear, inputs="2x4", report=folder, quiet=True, training=False)
    assert outside.read_text() == "kept"
    for damaged in ("", "[]", "{}", '{"project": []}'):
        (folder / "alignment.json").write_text(damaged)
        assert audit(linear_port, linear, inputs="2x4", report=folder, quiet=True, training=False).passed
