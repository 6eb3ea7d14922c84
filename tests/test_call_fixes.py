"""A wrong argument of a call of a function is a finding's structure, and its line is corrected without a search."""

from __future__ import annotations

import json

import pytest

from alignment.cli import main

HEAD = "import {0}\nfrom {0} import nn\nimport {0}.nn.functional as F\n"
NET = (
    HEAD
    + """
class Block(nn.{1}):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode={2})

class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.conv = nn.{3}(3, 4, 3, padding=1)
        self.last = nn.{3}(4, 4, 1)
        self.up, self.again = Block("bilinear"), Block("{4}")

    def forward(self, x):
        x = F.interpolate(self.conv(x), scale_factor=2, mode="bilinear")
        x = F.softmax(F.leaky_relu(self.last(x), 0.2), 1) * 30
        x = self.again(self.up(F.pad(x, [1, 2, 0, 1], value=1.0)))
        few, many = {0}.split(x, [1, 3], 1)
        x = x * few.mean() * many.abs().mean() + -0.75
        return x.flatten(1) + 0.5
"""
)
# What becomes of the port's source -> the argument in the finding: function, name, given, found, expected.
CALLS = {
    "another value": ('2, mode="bilinear")', '2, mode="nearest")', ("interpolate", "mode", True, "nearest", "bilinear")),
    "a value that is not given": (", 0.2)", ")", ("leaky_relu", "negative_slope", False, 0.01, 0.2)),
    "by place": (", 0.2)", ", 0.3)", ("leaky_relu", "negative_slope", True, 0.3, 0.2)),
    "an axis": ("0.2), 1)", "0.2), 2)", ("softmax", "axis", True, 2, 1)),
    "the value of a padding": ("value=1.0", "value=0.5", ("pad", "value", True, 0.5, 1.0)),
    "margins": ("[1, 2, 0, 1]", "[2, 1, 0, 1]", ("pad", "pad", True, [2, 1, 0, 1], [1, 2, 0, 1])),
    "an operand": ("* 30", "* 3", ("__mul__", "", True, 3, 30.0)),
    "a negative operand": ("+ -0.75", "+ -0.5", ("__add__", "", True, -0.5, -0.75)),
    "a sign": ("+ -0.75", "+ 0.75", ("__add__", "", True, 0.75, -0.75)),
    "flattened axes": ("x.flatten(1)", "x.flatten(2)", ("flatten", "start_axis", True, 2, 1)),
    "the last flattened axis": ("x.flatten(1)", "paddle.flatten(x, 1, 2)", ("flatten", "stop_axis", True, 2, 3)),
    "flattened from the first axis": ("x.flatten(1)", "x.flatten()", ("flatten", "start_axis", False, 0, 1)),
    "sizes of a split": ("[1, 3]", "[3, 1]", ("split", "num_or_sections", True, [3, 1], [1, 3])),
    "a factor": ("conv(x), scale_factor=2", "conv(x), scale_factor=3", ("interpolate", "scale_factor", True, 3, 2)),
    "factors": ("conv(x), scale_factor=2", "conv(x), scale_factor=[2, 3]", ("interpolate", "scale_factor", True, [2, 3], [2, 2])),
}
# What the corrected line has, where that is not what the right port has.
WRITTEN = {
    "a value that is not given": ("(x), 0.2)", "(x), negative_slope=0.2)"),
    "a sign": ("+ -0.75", "- 0.75"),
    "the last flattened axis": ("x.flatten(1)", "paddle.flatten(x, 1, 3)"),
    "flattened from the first axis": ("x.flatten(1)", "x.flatten(start_axis=1)"),
    "factors": ("scale_factor=2", "scale_factor=[2, 2]"),
}


@pytest.fixture
def audit(tmp_path, capsys, monkeypatch):
    """A function that audits two models of these sources: the mistakes, the diff, and standard output."""
    monkeypatch.chdir(tmp_path)

    def run(ours, theirs):
        for name, source in (("ours.py", ours), ("theirs.py", theirs)):
            (tmp_path / name).write_text(source)
        sides = ["--port", "ours.py:Net", "--reference", "theirs.py:Net", "--input", "2x3x6x5", "--report", "report"]
        assert main(["audit", *sides, "--eval-only", "--write-patch", "fix.diff"]) == 1
        mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
        diff = tmp_path / "fix.diff"
        return mistakes, diff.read_text() if diff.exists() else "", capsys.readouterr().out

    return run


@pytest.mark.parametrize("case", CALLS)
def test_an_argument_of_a_call_is_named_as_structure_and_corrected_in_its_line(case, audit):
    before, after, expected = CALLS[case]
    right = NET.format("paddle", "Layer", "self.mode", "Conv2D", "bilinear")
    wrong = right.replace(before, after)
    assert right.count(before) == 1
    theirs = NET.format("torch", "Module", "self.mode", "Conv2d", "bilinear").replace("* 30", "* 30.0")
    (mistake,), diff, said = audit(wrong, theirs)
    (one,) = mistake["arguments"]
    assert one == {
        "source": mistake["source"],
        **dict(zip(("function", "name", "given", "found", "expected"), expected, strict=True)),
    }
    line = next(line for line in wrong.splitlines() if line not in right.splitlines())
    corrected = next(line for line in right.splitlines() if line not in wrong.splitlines()).replace(*WRITTEN.get(case, ("", "")))
    assert [text for text in mistake["card"] if text[:1] in ("+", "-")] == [f"-{line}", f"+{corrected}"], mistake["card"]
    assert f"-{line}\n+{corrected}\n" in diff and "corrections of 1 of 1 mistake" in said


def test_a_line_that_is_right_in_another_module_of_the_class_is_not_changed(audit):
    ours = NET.format("paddle", "Layer", '"nearest"', "Conv2D", "nearest")
    (mistake,), diff, said = audit(ours, NET.format("torch", "Module", "self.mode", "Conv2d", "nearest"))
    assert mistake["location"] == "up" and mistake["arguments"][0]["expected"] == "bilinear"
    assert not diff and "runs in again, too, which agrees with the reference" in said, said


def test_a_value_that_is_no_plain_one_in_its_line_is_left_to_a_person(audit):
    right = NET.format("paddle", "Layer", "self.mode", "Conv2D", "bilinear")
    ours = right.replace("* 30", "* (15 / 5)")
    (mistake,), diff, said = audit(ours, NET.format("torch", "Module", "self.mode", "Conv2d", "bilinear"))
    assert mistake["arguments"][0]["expected"] == 30 and not diff, mistake
    assert "the operand of __mul__ is no plain value in line" in said, said
