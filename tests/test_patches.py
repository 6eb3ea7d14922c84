"""``python -m bench patches``: known mistakes in the source of a copy end with a patch that applies and is verified."""

from __future__ import annotations

import ast
import collections
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from bench.cli import bench
from bench.edited import Attempt
from bench.patch_cases import PORT, REFERENCE, functional_cases, layer_cases
from bench.patch_edits import _Search, _search, corrector, sources_of
from bench.patch_rows import Row, table
from bench.patches import edits_of_steps, sample
from projects.mobilenetv3.edits import EDITS
from tests.conftest import ROOT

FUNCTIONAL, LAYERS = ROOT / "projects/functional/project.py", ROOT / "projects/layers/pairs.py"


def test_every_known_mistake_is_made_in_the_source_of_the_port():
    functional, layers = list(functional_cases(FUNCTIONAL)), list(layer_cases(LAYERS))
    assert len(functional) == 51 and len(layers) == 136
    sound = (FUNCTIONAL.parent / PORT).read_text()
    assert all(case.files[PORT] != sound for case in functional)
    for case in [*functional, *layers]:
        for text in case.files.values():
            ast.parse(text)
        names = {node.name for node in ast.walk(ast.parse(case.files[PORT])) if isinstance(node, ast.ClassDef)}
        assert case.model in names and case.files[PORT] != case.files[REFERENCE]


def test_a_sample_is_spread_over_the_kinds():
    cases = list(functional_cases(FUNCTIONAL))
    kinds = {case.kind for case in cases}
    drawn = sample(cases, len(kinds), 0)
    assert {case.kind for case in drawn} == kinds and sample(cases, 5, 1) == sample(cases, 5, 1) != sample(cases, 5, 2)
    assert collections.Counter(case.name for case in sample(cases, None, 0)) == collections.Counter(case.name for case in cases)


def test_the_table_counts_and_names_what_has_no_verified_patch():
    rows = [Row("a", "eps", "layers", [], True, True, True), Row("b", "eps", "layers", [], True), Row("c", "axis", "functional")]
    said = table(rows).splitlines()
    assert said[3].split() == ["all", "3", "2", "1", "1", "33", "%"], said
    assert [line for line in said if line.startswith("  functional, c [axis]: NO PATCH")]


def test_what_cannot_be_used_is_one_line(capsys):
    for words, said in (
        (["functionals"], "there is no such list of mistakes: use functional, layers, edits"),
        (["layers", "--steps", "3"], "--steps goes with the list edits"),
        (["edits", "--steps", "9"], "--steps '9'"),
    ):
        assert bench(["patches", *words]) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: ") and told.count("\n") == 1 and said in told


def test_a_correction_changes_no_check_and_nothing_of_the_reference():
    class Shop:
        root, project = ROOT, ROOT / "projects/mobilenetv3/project.py"
        own: ClassVar = {"alignment", "bench", "mobilenetv3_common", "mobilenetv3_paddle", "mobilenetv3_ref", "projects", "tests"}
        theirs: ClassVar = ["mobilenetv3_ref.data", "mobilenetv3_ref.train"]

    wanted = ["mobilenetv3_common", "mobilenetv3_paddle", "projects/mobilenetv3/project.py"]
    assert sources_of(Shop()) == wanted  # type: ignore[arg-type]


class Shop:
    """A workshop in which the candidates of some numbers pass a trial, and those of some texts the whole step."""

    def __init__(self, root, passing=(), whole=()):
        self.root, self.passing, self.whole = root, passing, whole
        self.tasks, self.budgets = [], []

    def first_right(self, task, changes, begin, budget):
        self.tasks.append(task)
        self.budgets.append(budget)
        right = next((number for number in self.passing if number >= begin), None)
        return right, len(changes) - begin if right is None else right - begin + 1

    def run(self, tasks):
        for task in tasks:
            yield task, Attempt("passed" if task.changed["port.py"] in self.whole else "failed", problem="row: differs")


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Looks for a correction of ``a = 1`` among three; gives what came of it."""
    (tmp_path / "port.py").write_text("a = 0\n")
    (tmp_path / "copy").mkdir()
    monkeypatch.chdir(tmp_path / "copy")
    changes = [("constant", [("port.py", 4, 5, text)]) for text in "820"]
    found = Attempt("failed", problem="row: differs", by_step={"5": 10.0}, candidates=changes)

    def search(shop):
        row = Row("mistake", "kind", "edits")
        _search(row, _Search(shop, SimpleNamespace(step=5), {"port.py": "a = 1\n"}, tmp_path / "copy", found), 240.0)
        return row

    return tmp_path, search


def test_a_trial_that_does_not_end_is_stopped_long_before_the_search_is(searched):
    """A change may make a network that is far too large: its trial once lasted longer than the whole budget."""
    folder, search = searched
    shop = Shop(folder)
    row = search(shop)
    assert not row.written and row.problem == "3 of 3 candidates tried"
    assert [task.limit for task in shop.tasks] == [90.0] and shop.tasks[0].quick and shop.tasks[0].suspect == "row"


def test_what_passes_a_trial_and_not_the_whole_step_is_refused_and_the_search_goes_on(searched):
    folder, search = searched
    row = search(Shop(folder, passing=(0, 2), whole=("a = 0\n",)))
    assert row.verified and row.restored and row.problem == "" and "+a = 0" in row.patch, row
    refused = search(Shop(folder, passing=(0, 1)))
    assert not refused.verified and refused.problem == "still wrong: failed: row: differs"


def test_a_sample_of_edits_is_of_the_steps_that_owe_them():
    project = ROOT / "projects/mobilenetv3/project.py"
    assert len(edits_of_steps(project, None)) == 288
    assert {fault.step for fault in edits_of_steps(project, "3,4")} == {3, 4}
    drawn = sample(edits_of_steps(project, "3"), 4, 0)
    assert len({fault.kind for fault in drawn}) == 4


@pytest.mark.slow
@pytest.mark.weekly  # tests/test_fixes.py and the test below verify corrections
def test_one_edit_of_the_source_is_corrected_and_verified(tmp_path):
    """A comparison of ranks the other way round: what the reference reads corrects it, and the file reads as before."""
    fault = EDITS.faults["smallest_logits"]
    with corrector(ROOT / "projects/mobilenetv3/project.py", jobs=1, budget=300) as correct:
        row = correct(fault)
    assert row.verified and row.restored and row.found == ["top_k_correct: smallest"], row
    assert row.patch.startswith("--- a/mobilenetv3_paddle/metric/accuracy.py") and "+    ahead = " in row.patch


@pytest.mark.slow  # make test-slow
def test_one_mistake_of_each_list_ends_with_a_verified_patch(tmp_path):
    command = [sys.executable, "-m", "bench", "patches", "--sample", "1", "--result-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    rows = [json.loads(line) for line in Path(tmp_path / "patches.jsonl").read_text().splitlines()]
    assert done.returncode == 0 and [row["source"] for row in rows] == ["functional", "layers"], done.stdout + done.stderr
    assert all(row["verified"] and row["patch"].startswith(f"--- a/{PORT}") for row in rows)
    again = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert "verified: " not in again.stdout.partition("\n\n")[0] and again.returncode == 0, again.stdout
