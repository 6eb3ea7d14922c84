"""Data sets larger than the steps look at: trees and list files of 33 to 5,000 pictures, with uneven classes."""

from __future__ import annotations

import dataclasses
import json

import pytest

from alignment.cli import main
from alignment.steps import data
from tests.large_data import make_data

SIZES = (33, 500, 5000)


@pytest.mark.parametrize("listed", [False, True], ids=["folders", "list files"])
@pytest.mark.parametrize("count", SIZES)
def test_step_2_passes_on_any_number_of_pictures(count, listed, tmp_path):
    root = make_data(tmp_path / "data", count, listed)
    assert main(["--steps", "2", "--data-path", str(root), "--result-dir", str(tmp_path / "result")]) == 0
    (step,) = json.loads((tmp_path / "result" / "alignment.json").read_text())["steps"]
    rows = {quantity["name"]: quantity for quantity in step["quantities"]}
    assert step["evidence"]["pictures"] == 32 and step["evidence"]["eval_labels"] == 5
    if not listed:
        assert rows["eval.file_names.torchvision"]["shape"] == rows["eval.labels.torchvision"]["shape"] == [count]


@pytest.mark.parametrize("change", ["another order", "another class"])
def test_a_folder_that_is_listed_otherwise_than_torchvision_lists_it_fails(change, context, tmp_path, monkeypatch):
    sound = dataclasses.replace(context(), data_path=make_data(tmp_path / "data", 40, listed=False))
    index = sound.index("val")
    names, labels = list(index.names), list(index.labels)
    if change == "another order":
        names[9], names[14] = names[14], names[9]  # neither is among the 32 pictures whose pixels are compared
    else:
        labels[4] = 3
    other = dataclasses.replace(index, names=tuple(names), labels=tuple(labels))
    monkeypatch.setattr(type(sound), "index", lambda self, split: other)
    rows = list(data._against_torchvision(sound, data.first_pictures(other), list(data.batches(
        sound.ref, sound, data.first_pictures(index), data.EvalPreset(), 0))))  # fmt: skip
    failed = {row.name for row in rows if not row.passed}
    assert failed == {"eval.file_names.torchvision" if change == "another order" else "eval.labels.torchvision"}
