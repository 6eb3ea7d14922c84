"""Data sets larger than the steps look at: trees and list files of 33 to 5,000 pictures, with uneven classes."""

from __future__ import annotations

import dataclasses
import json

import pytest

from alignment.comparisons.data.evaluation import Evaluation
from bench.faults_found import Bench
from projects.mobilenetv3.project import PROJECT
from tests.large_data import make_data
from tools.align import main

SIZES = [(5000, True)]
OTHERS = [(33, False), (33, True), (500, False), (500, True), (5000, False)]  # weekly


@pytest.fixture(scope="module")
def bench():
    """The steps on smaller cases, as the fault benchmark runs them."""
    return Bench(PROJECT)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "listed"), [*SIZES, *(pytest.param(*other, marks=pytest.mark.weekly) for other in OTHERS)])
def test_the_steps_pass_on_any_number_of_pictures(count, listed, bench, tmp_path):
    """Steps 1 to 4 on all of them, 5 and 6 on one: step 5 takes its photographs as step 1 does, and 6 makes its own data."""
    sized = dataclasses.replace(bench.context(PROJECT), data_path=make_data(tmp_path / "data", count, listed))
    last = 6 if (count, listed) == (500, True) else 4
    results = {}
    for result in bench.steps(sized):
        assert result.passed, [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
        results[result.step] = result
        if result.step == last:
            break
    assert list(results) == list(range(1, last + 1))
    rows = {quantity.name: quantity for quantity in results[2].quantities}
    assert results[2].evidence["pictures"] == 32 and results[2].evidence["eval_labels"] == 5
    if not listed:
        assert rows["eval.file_names.torchvision"].shape == rows["eval.labels.torchvision"].shape == [count]


@pytest.mark.slow
def test_the_command_passes_step_2_on_more_pictures_than_it_compares(tmp_path):
    root = make_data(tmp_path / "data", 33, listed=False)
    assert main(["--steps", "2", "--data-path", str(root), "--result-dir", str(tmp_path / "result")]) == 0
    (step,) = json.loads((tmp_path / "result" / "alignment.json").read_text())["steps"]
    assert step["evidence"]["pictures"] == 32


@pytest.mark.parametrize("change", ["another order", "another class"])
def test_a_folder_that_is_listed_otherwise_than_torchvision_lists_it_fails(change, context, tmp_path, monkeypatch):
    sound = dataclasses.replace(context(), data_path=make_data(tmp_path / "data", 40, listed=False))
    index = sound.material.index("val")
    names, labels = list(index.names), list(index.labels)
    if change == "another order":
        names[9], names[14] = names[14], names[9]  # neither is among the 32 pictures whose pixels are compared
    else:
        labels[4] = 3
    other = dataclasses.replace(index, names=tuple(names), labels=tuple(labels))
    monkeypatch.setattr(type(sound.material), "index", lambda self, split: other)
    evaluation = Evaluation(sound)
    rows = evaluation.judge(*(evaluation.measure(sound, role) for role in ("port", "reference")))
    failed = {row.name for row in rows if not row.passed}
    assert failed == {"eval.file_names.torchvision" if change == "another order" else "eval.labels.torchvision"}
