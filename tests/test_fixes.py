"""Corrections of the port's source: cards, one diff, and a copy that is audited; nothing is offered that is not known."""

from __future__ import annotations

import json
import subprocess

import pytest

from alignment.cli import main
from tests.test_audit_sections import PADDLE, TORCH

# What becomes of the port's source -> the corrected line, in evaluation mode or in training mode.
KNOWN = {
    "eps": ("nn.BatchNorm2D(6)", "nn.BatchNorm2D(6, epsilon=1e-3)", "self.norm = nn.BatchNorm2D(6, epsilon=1e-05)"),
    "padding": ("3, padding=1)", "3, padding=0)", "self.conv = nn.Conv2D(3, 6, 3, padding=1)"),
    "in a function around it": ("nn.BatchNorm2D(6)", "made(6)", "return nn.BatchNorm2D(width, epsilon=1e-05)"),
    "by place": ("nn.Conv2D(3, 6, 3, padding=1)", "nn.Conv2D(3, 6, 3, 2, 1)", "self.conv = nn.Conv2D(3, 6, 3, 1, 1)"),
}
# What is searched for: no setting is a plain value in the line that makes the layer.
SEARCHED = {
    "a name for the value": ("nn.BatchNorm2D(6)", "nn.BatchNorm2D(6, epsilon=EPS)", "self.norm = nn.BatchNorm2D(6)"),
    "another function": (".mean([2, 3])", ".max([2, 3])", ".mean([2, 3])"),
}
LINE = "return self.head(nn.functional.relu(self.norm(self.conv(x))).mean([2, 3]))"
OTHERWISE = """x = nn.functional.relu(self.norm(self.conv(x)))
        x = paddle.cumsum(x, 2) * x
        least = x.min([2, 3])
        return self.head(x.std([2, 3]) * least + least)"""
UNKNOWN = {"another computation in several lines": (LINE, OTHERWISE)}
MORE = "\nEPS = 1e-3\n\ndef made(width):\n    return nn.BatchNorm2D(width, epsilon=1e-3)\n"


@pytest.fixture
def audit(tmp_path, capsys, monkeypatch):
    """A function that audits a port with pieces of its source replaced: status, standard output, the mistakes' cards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(TORCH)

    def run(*flags, edits):
        source = PADDLE + MORE
        for before, after in edits:
            assert before in source
            source = source.replace(before, after, 1)
        (tmp_path / "ours.py").write_text(source)
        sides = ["--port", "ours.py:Net", "--reference", "theirs.py:Net", "--input", "2x3x10x8", "--report", "report"]
        status = main(["audit", *sides, "--write-patch", "fix.diff", *flags])
        assert (tmp_path / "ours.py").read_text() == source, "a user's own file stays as it is"
        record = json.loads((tmp_path / "report" / "alignment.json").read_text())
        return status, capsys.readouterr().out, [one["card"] for one in record["mistakes"]]

    return run


@pytest.mark.parametrize("case", KNOWN)
def test_a_setting_is_corrected_in_its_line_and_the_diff_applies(audit, case, tmp_path):
    before, after, line = KNOWN[case]
    status, said, cards = audit("--eval-only", edits=[(before, after)])
    assert status == 1 and [one.replace(" ", "") for one in cards[0] if one.startswith("+")] == [f"+{line}".replace(" ", "")], cards
    assert [one.startswith("-") for one in cards[0]].count(True) == 1 and 3 <= len(cards[0]) <= 6
    block, page = ((tmp_path / "report" / name).read_text() for name in ("report.md", "report.html"))
    assert all(line in text for text in (said, block, page))
    done = subprocess.run(["git", "apply", "fix.diff"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and line in (tmp_path / "ours.py").read_text(), done.stderr


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize("case", SEARCHED)
def test_a_correction_is_searched_for_and_verified(audit, case):
    before, after, right = SEARCHED[case]
    status, said, cards = audit("--eval-only", "--try-patch", edits=[(before, after)])
    assert status == 1 and any(one.startswith("+") and right in one for one in cards[0]), cards
    assert "patch verified: the corrected copy passes an audit with other weights" in said


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_has_the_ports_lines_and_no_correction(audit, case, tmp_path):
    status, said, cards = audit("--eval-only", "--try-patch", edits=[UNKNOWN[case]])
    assert status == 1 and (tmp_path / "fix.diff").read_text() == "", said
    assert not [one for card in cards for one in card if one.startswith(("+", "-"))]
    assert [one for one in cards[0] if one.startswith("> ")], cards
    assert (
        "fix.diff: corrections of 0 of 1 mistake" in said
        and "no correction was found that makes" in said
        and "git apply" not in said
    )
    assert "patch: Net.forward: no correction found" in said


def test_momentum_that_was_copied_is_corrected_and_the_copy_verified(audit):
    status, said, cards = audit("--try-patch", edits=[("nn.BatchNorm2D(6)", "nn.BatchNorm2D(6, momentum=0.1)")])
    assert status == 1 and "+        self.norm = nn.BatchNorm2D(6, momentum=0.9)" in cards[0]
    assert "patch verified: the corrected copy passes an audit with other weights" in said


# Two wrong settings of one layer, and the line that corrects both: neither hides the other.
TWICE = {
    "eps and momentum": (
        "nn.BatchNorm2D(6)",
        "nn.BatchNorm2D(6, epsilon=1e-3, momentum=0.1)",
        "self.norm = nn.BatchNorm2D(6, epsilon=1e-05, momentum=0.9)",
    ),
    "stride and padding": (
        "nn.Conv2D(3, 6, 3, padding=1)",
        "nn.Conv2D(3, 6, 3, stride=2, padding=0)",
        "self.conv = nn.Conv2D(3, 6, 3, stride=1, padding=1)",
    ),
}


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize("case", TWICE)
def test_two_wrong_settings_of_one_layer_are_corrected_in_one_line(audit, case, tmp_path):
    before, after, line = TWICE[case]
    status, said, cards = audit("--try-patch", edits=[(before, after)])
    assert status == 1 and f"+        {line}" in cards[0], cards
    assert "patch verified: the corrected copy passes an audit with other weights" in said, said


def test_settings_that_are_only_spelled_otherwise_stay_as_they_are(audit, tmp_path):
    """Beside a wrong setting of the same layer, and in a right port, where there is nothing to correct."""
    spelled = "nn.Conv2D(3, 6, (3, 3), stride=[1, 1], padding={}, dilation=(1, 1))"
    status, said, cards = audit("--eval-only", edits=[("nn.Conv2D(3, 6, 3, padding=1)", spelled.format("0"))])
    assert status == 1 and f"+        self.conv = {spelled.format('1')}" in cards[0], cards
    status, said, cards = audit("--eval-only", edits=[("nn.Conv2D(3, 6, 3, padding=1)", spelled.format("[1, 1]"))])
    assert status == 0 and cards == [] and (tmp_path / "fix.diff").read_text() == "", said


def test_a_card_has_the_ports_own_name_beside_the_references(audit, tmp_path):
    renamed = [("self.conv = nn.Conv2D(3, 6, 3, padding=1)", "self.first = nn.Conv2D(3, 6, 3, padding=0)")]
    status, said, _ = audit("--eval-only", edits=[*renamed, ("self.conv(x)", "self.first(x)")])
    (mistake,) = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert status == 1 and (mistake["location"], mistake["own"]) == ("conv", "first"), said
    block, page = ((tmp_path / "report" / name).read_text() for name in ("report.md", "report.html"))
    assert "kind: padding, first in the port, line to change: ours.py:" in said
    assert "padding at conv (first in the port)" in page and "1. `conv` (`first` in the port)" in block
    audit("--eval-only", edits=[KNOWN["padding"][:2]])
    (mistake,) = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert mistake["own"] == "" and "in the port)" not in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.slow  # make test-slow
def test_a_correction_beside_an_unknown_mistake_is_not_called_verified(audit):
    status, said, cards = audit(
        "--eval-only", "--try-patch", edits=[KNOWN["eps"][:2], UNKNOWN["another computation in several lines"]]
    )
    assert status == 1 and len(cards) == 2, said
    assert (
        "corrections of 1 of 2 mistakes" in said and "patch not verified: the corrected copy still fails: FAIL: 1 mistake" in said
    )
