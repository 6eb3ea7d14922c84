"""``python -m bench patches``: known mistakes in the source of a copy end with a patch that applies and is verified."""

from __future__ import annotations

import ast
import collections
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.patch_cases import PORT, REFERENCE, functional_cases, layer_cases
from bench.patches import Row, sample, table
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


@pytest.mark.slow  # make test-slow
def test_one_mistake_of_each_list_ends_with_a_verified_patch(tmp_path):
    command = [sys.executable, "-m", "bench", "patches", "--sample", "1", "--result-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    rows = [json.loads(line) for line in Path(tmp_path / "patches.jsonl").read_text().splitlines()]
    assert done.returncode == 0 and [row["source"] for row in rows] == ["functional", "layers"], done.stdout + done.stderr
    assert all(row["verified"] and row["patch"].startswith(f"--- a/{PORT}") for row in rows)
    again = subprocess.run([*command, "--resume"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert "verified: " not in again.stdout.partition("\n\n")[0] and again.returncode == 0, again.stdout
