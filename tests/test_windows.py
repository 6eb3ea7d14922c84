"""Attention over windows: a square index that is no weight, products that turn their operand, parts that are joined."""

import json

import pytest

from alignment.cli import main
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
# What is changed in the port's source -> place, words of the only mistake.
MISTAKES = {
    "no scale": ("qkv[0] * self.scale", "qkv[0]", "blocks.0", "* 0.353553 is missing before @"),
    "order": ("(0, 2, 1, 3)", "(0, 1, 2, 3)", "Windows.forward", "first number 1, then number 3, then number 2, then number 4"),
    "turned index": ("grid[:, :, None] - grid[:, None]", "grid[:, None] - grid[:, :, None]", "blocks.0.index", "constants"),
}  # fmt: skip


def audited(source, folder):
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:Windows", "--reference", f"{FOLDER}/windows_theirs.py:Windows"]
    status = main(["audit", "--eval-only", *sides, "--input", "2x16x16", "--report", str(folder / "report")])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


def test_a_sound_port_passes(tmp_path):
    status, found = audited((FOLDER / "windows_ours.py").read_text(), tmp_path)
    assert status == 0, found["localization"]


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_beside_a_square_index_is_the_only_finding(case, tmp_path):
    before, after, place, words = MISTAKES[case]
    source = (FOLDER / "windows_ours.py").read_text()
    assert before in source
    status, found = audited(source.replace(before, after), tmp_path)
    (mistake,) = found["localization"]["every"]
    assert status == 1 and place in mistake["location"] and words in mistake["hint"], mistake
