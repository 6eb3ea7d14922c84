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
from bench.patch_edits import _Search, corrector, sources_of
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


def test_a_trial_that_does_not_end_is_stopped_long_before_the_search_is(tmp_path):
    """A change may make a network that is far too large: its trial once lasted longer than the whole budget."""
    (tmp_path / "port.py").write_text("a = 1\n")
    tasks = []

    class Shop:
        root = tmp_path

        def run(self, given):
            for task in given:
                tasks.append(task)
                yield task, Attempt("timed out")

    changes = [("constant", [("port.py", 4, 5, "8")]), ("constant", [("port.py", 4, 5, "2")])]
    found = Attempt("failed", problem="row: differs", by_step={"5": 10.0}, candidates=changes)
    (tmp_path / "copy").mkdir()
    search = _Search(Shop(), SimpleNamespace(step=5), {}, tmp_path / "copy", found)
    assert search.first(budget=240.0) == (None, 2)
    assert [task.limit for task in tasks] == [60.0, 60.0] and all(task.quick for task in tasks)


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
