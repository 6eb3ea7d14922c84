"""Corrections of the port's source: cards, one diff, and a copy that is audited; nothing is offered that is not known."""

from __future__ import annotations

import argparse
import html
import json
import multiprocessing
import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alignment import api
from alignment.aligned import Aligned
from alignment.api import Place
from alignment.audit import command
from alignment.audit.command import Offer, _next
from alignment.audit.fixes import cards
from alignment.audit.markdown import _found
from alignment.audit.trial import Job, answered, right
from alignment.cli import main
from alignment.coverage import Coverage
from alignment.finding import Finding, Localization
from alignment.kinds import Kind
from alignment.project import import_file
from alignment.raised import shown
from alignment.repair.candidates import Candidate
from alignment.repair.edits import SourceEdit
from alignment.repair.search import QUICK, corrections
from alignment.repair.search import SEARCHED as SEARCHED_FOR
from alignment.report.page_cards import cards as drawn
from alignment.report.sections import Sections, is_sentence
from alignment.report.table import kind_and_source, with_kind
from tests.test_audit_sections import PADDLE, TORCH

# What becomes of the port's source -> the corrected line, in evaluation mode or in training mode.
KNOWN = {
    "eps": ("nn.BatchNorm2D(6)", "nn.BatchNorm2D(6, epsilon=1e-3)", "self.norm = nn.BatchNorm2D(6, epsilon=1e-05)"),
    "padding": ("3, padding=1)", "3, padding=0)", "self.conv = nn.Conv2D(3, 6, 3, padding=1)"),
    "in a function around it": ("nn.BatchNorm2D(6)", "made(6)", "return nn.BatchNorm2D(width, epsilon=1e-05)"),
    "by a caller": ("nn.BatchNorm2D(6)", "given(6, 1e-3)", "self.norm = given(6, 1e-05)"),
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
MORE += "\ndef given(width, eps):\n    return nn.BatchNorm2D(width, epsilon=eps)\n"


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
@pytest.mark.parametrize("case", [pytest.param("a name for the value", marks=pytest.mark.weekly), "another function"])
def test_a_correction_is_searched_for_and_verified(audit, case):
    before, after, right = SEARCHED[case]
    status, said, cards = audit("--eval-only", "--try-patch", edits=[(before, after)])
    assert status == 1 and any(one.startswith("+") and right in one for one in cards[0]), cards
    assert "patch verified: the corrected copy passes an audit with other weights" in said


FORGETFUL = """{imports}

class Block(nn.{module}):
    def __init__(self, cin, cout, {name}):
        super().__init__()
        self.a = nn.{conv}(cin, cout, 3, {given}, 1)
        self.b = nn.{conv}(cout, cout, 3, 1, 1)

    def forward(self, x):
        return self.b(self.a(x))

class Net(nn.{module}):
    def __init__(self):
        super().__init__()
        self.one = Block(3, 4, {strides[0]})
        self.two = Block(4, 5, {strides[1]})

    def forward(self, x):
        return self.two(self.one(x)).mean([2, 3])
"""
# The port's argument and what it gives its layer -> the correction; none where no argument has the right values.
SHARED = {
    "an argument that is not read": ("stride", (1, 2), "1", "stride"),
    "by another name": ("reduction", (1, 2), "1", "reduction"),
    "an argument of other values": ("width", (1, 3), "1", ""),
    "wrong in every layer": ("width", (1, 3), "3", "2"),
}


@pytest.mark.parametrize("case", SHARED)
def test_a_line_that_makes_right_layers_too_is_not_given_another_constant(case, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, given_to_blocks, given, right = SHARED[case]
    strides = (2, 2) if case.startswith("wrong") else (1, 2)
    torch = {"imports": "from torch import nn", "module": "Module", "conv": "Conv2d", "name": "stride", "given": "stride"}
    paddle = {"imports": "from paddle import nn", "module": "Layer", "conv": "Conv2D", "name": name, "given": given}
    Path("their_blocks.py").write_text(FORGETFUL.format(**torch, strides=strides))
    Path("our_blocks.py").write_text(FORGETFUL.format(**paddle, strides=given_to_blocks))
    sides = ["--port", "our_blocks.py:Net", "--reference", "their_blocks.py:Net", "--input", "2x3x12x12"]
    assert main(["audit", *sides, "--eval-only", "--write-patch", "fix.diff", "--report", "report"]) == 1
    said = capsys.readouterr().out
    if right:
        assert f"+        self.a = nn.Conv2D(cin, cout, 3, {right}, 1)\n" in Path("fix.diff").read_text(), said
    else:
        assert "  no correction is known of two.a: " in said and not Path("fix.diff").exists(), said
    made = [import_file(Path(one)).Net() for one in ("our_blocks.py", "their_blocks.py")]  # nobody sees how these are made
    lines = api.audit(*made, inputs="2x3x12x12", training=False).mistakes[0].lines
    assert ("+        self.a = nn.Conv2D(cin, cout, 3, 2, 1)" in lines) == (right == "2"), lines


@pytest.mark.slow
@pytest.mark.weekly  # a whole search without an answer
def test_a_trial_passes_a_port_whose_only_difference_is_the_frameworks_own_variance(tmp_path):
    (tmp_path / "theirs.py").write_text(TORCH)
    (tmp_path / "ours.py").write_text(PADDLE)
    inputs = (np.random.default_rng(0).standard_normal((2, 3, 10, 8)).astype(np.float32),)
    sides = (f"{tmp_path}/ours.py:Net", {}), (f"{tmp_path}/theirs.py:Net", {})
    job = Job(*sides, inputs, training=True, how=SEARCHED_FOR, ignored=frozenset({"biased_variance"}))
    assert right(job) and not right(replace(job, ignored=frozenset()))
    (tmp_path / "ours.py").write_text(PADDLE.replace(LINE, LINE.replace("(x)))", "(x))).detach()")))
    assert not right(job)


def test_the_mode_of_a_dropout_is_corrected_in_its_line(audit, tmp_path):
    used = LINE.replace("self.head(", "self.head(self.drop(").replace(".mean([2, 3])", ".mean([2, 3]))")
    given = "torch.relu(self.norm(self.conv(x))).mean((2, 3))"
    assert given in TORCH
    theirs = TORCH.replace("self.head = ", "self.drop = nn.Dropout(0.25)\n        self.head = ", 1)
    theirs = theirs.replace(given, f"self.drop({given})", 1)
    (tmp_path / "theirs.py").write_text(theirs)
    made = ("self.head = ", 'self.drop = nn.Dropout(0.25, mode="downscale_in_infer")\n        self.head = ')
    status, said, cards = audit(edits=[made, (LINE, used)])
    assert status == 1 and "corrections of 1 of 1 mistake" in said, said
    assert any('+        self.drop = nn.Dropout(0.25, mode="upscale_in_train")' in line for line in cards[0]), cards


def test_a_number_that_the_constructor_sets_has_its_line(audit, tmp_path):
    theirs = TORCH.replace("self.head = ", "self.scale = 0.9\n        self.head = ", 1).replace(
        ".mean((2, 3))", ".mean((2, 3)) * self.scale", 1
    )
    (tmp_path / "theirs.py").write_text(theirs)
    made = ("self.head = ", "self.scale = 0.8\n        self.head = ")
    status, said, cards = audit("--eval-only", edits=[made, (LINE, LINE.replace(".mean([2, 3])", ".mean([2, 3]) * self.scale"))])
    assert status == 1 and "* 0.8, expected 0.9" in said, said
    assert [line for line in cards[0] if line[0] in "+-"] == [f"{sign}        self.scale = 0.{n}" for sign, n in ("-8", "+9")], (
        cards
    )


BLOCKS = """
import {0}
from {0} import nn

class Block(nn.{1}):
    def __init__(self, stride):
        super().__init__()
        self.one = nn.{2}(4, 4, 3, stride=stride, padding=1)
        self.two = nn.{2}(4, 4, 3, stride=1, padding=1)
        self.beside = nn.{2}(4, 4, 1, stride=stride)
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.relu(self.one(x))
        out = self.two(out)
        out = out + self.beside(x)
        out = self.relu(out)
        return out

class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.stem = nn.{2}(3, 4, 3)
        self.blocks = nn.Sequential(Block(1), Block(2), Block(1))

    def forward(self, x):
        return self.blocks(self.stem(x))
"""
SECOND = "self.two = nn.Conv2D(4, 4, 3, stride={}"
EXCHANGED = [("3, stride=stride,", "3, stride=1,"), (SECOND.format("1,"), SECOND.format("stride,"))]


@pytest.fixture
def of_blocks(tmp_path, monkeypatch, capsys):
    """A function that audits a port of blocks with pieces replaced: status, standard output, and what the patch makes of it."""
    monkeypatch.chdir(tmp_path)

    def run(edits, *flags):
        source = right = BLOCKS.format("paddle", "Layer", "Conv2D")
        for before, after in edits:
            assert before in source, before
            source = source.replace(before, after, 1)
        (tmp_path / "ours.py").write_text(source)
        (tmp_path / "theirs.py").write_text(BLOCKS.format("torch", "Module", "Conv2d"))
        sides = [
            "--port",
            "ours.py:Net",
            "--reference",
            "theirs.py:Net",
            "--input",
            "2x3x14x12",
            "--report",
            "report",
            "--eval-only",
        ]
        status = main(["audit", *sides, "--write-patch", "fix.diff", *flags])
        if (tmp_path / "fix.diff").exists():
            subprocess.run(["git", "apply", "fix.diff"], cwd=tmp_path, check=True)
        return status, capsys.readouterr().out, (tmp_path / "ours.py").read_text(), right

    return run


def test_settings_that_were_exchanged_are_corrected_for_every_layer_of_their_lines(of_blocks):
    """The one has a number where the function's argument belongs, the other the argument where a number does."""
    status, said, made, right = of_blocks(EXCHANGED)
    assert status == 1 and "with these 2 mistakes fixed in memory, steps 1, 5 pass" in said and made == right, said


HELPER = """class Block(nn.Layer):
    def made(self, k, s=1, p=1):
        return nn.Conv2D(4, 4, k, stride=s, padding=p)

"""
HELPED = [
    ("class Block(nn.Layer):\n", HELPER),
    ("nn.Conv2D(4, 4, 3, stride=stride, padding=1)", "self.made(3, stride)"),
    ("nn.Conv2D(4, 4, 3, stride=1, padding=1)", "self.made(3, 1)"),
]
# What the call of the helper gives instead of what it should -> the corrected call; empty where none is known.
BY_A_HELPER = {
    "a number for the function's argument": ("made(3, stride)", "made(3, 1)", "made(3, stride)"),
    "the function's argument for a number": ("made(3, 1)", "made(3, stride)", "made(3, 1)"),
    "left to the helper's default": ("made(3, stride)", "made(3)", "made(3, s=stride)"),
    "computed": ("made(3, stride)", "made(3, stride // 2 or 1)", ""),
}


@pytest.mark.parametrize("case", BY_A_HELPER)
def test_a_setting_behind_a_helper_is_corrected_where_the_helper_is_called(of_blocks, case):
    right, wrong, corrected = BY_A_HELPER[case]
    status, said, made, _ = of_blocks([*HELPED, (f"self.{right}", f"self.{wrong}")])
    assert status == 1 and "(via ours.py:7)" in said, said
    assert (f"self.{corrected or wrong}" in made) and ("fix.diff: not written" in said) is (not corrected), said


def test_an_argument_that_was_not_handed_on_is_handed_on_by_its_name(of_blocks):
    """Every layer of the line needs the same number: the name that holds it in the function around the call is meant."""
    helper = HELPER.replace("s=1, p=1", "stride=1, p=0").replace("stride=s", "stride=stride")
    beside = ("nn.Conv2D(4, 4, 1, stride=stride)", "nn.Conv2D(4, 4, 1) if stride == 1 else self.made(1)")
    status, said, made, _ = of_blocks([(HELPED[0][0], helper), beside])
    assert status == 1 and "else self.made(1, stride=stride)\n" in made, said
    renamed = [("stride):", "by):"), ("3, stride=stride,", "3, stride=by,"), (beside[0], beside[1].replace("stride ==", "by =="))]
    assert "else self.made(1, stride=2)\n" in of_blocks([(HELPED[0][0], helper), *renamed])[2]


AFTER = "        out = self.two(out)\n        out = out + self.beside(x)\n        out = self.relu(out)\n"
BEFORE = {
    "a statement of its own": "        out = self.two(out)\n        out = self.relu(out)\n        out = out + self.beside(x)\n",
    "around what is added to": "        out = self.relu(self.two(out))\n        out += self.beside(x)\n",
}


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize("case", BEFORE)
def test_an_activation_before_a_sum_is_moved_behind_it_and_the_copy_verified(of_blocks, case):
    status, said, made, _ = of_blocks([(AFTER, BEFORE[case])], "--try-patch", "--patch-budget", "60")
    assert status == 1 and "kind: activation_order" in said, said
    assert "patch verified: the corrected copy passes an audit with other weights" in said, said
    assert re.search(r"out (=|\+=) .*self\.beside\(x\)", made)


def test_a_line_that_makes_layers_of_several_settings_is_not_corrected_for_one_of_them(of_blocks):
    """No name of the function holds what every layer of the line should have."""
    edits = [
        ("self, stride):", "self, made):"),
        ("3, stride=stride,", "3, stride=1,"),
        ("1, stride=stride)", '1, stride=made["by"])'),
    ]
    edits += [("Block(1), Block(2), Block(1)", "*(Block({'by': n}) for n in (1, 2, 1))")]
    status, said, made, _ = of_blocks(edits)
    assert status == 1 and "stride 1, expected 2" in said and "fix.diff: not written" in said, said
    assert "3, stride=1," in made


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_has_the_ports_lines_and_no_correction(audit, case, tmp_path):
    (tmp_path / "fix.diff").write_text("of an earlier audit\n")
    status, said, cards = audit("--eval-only", "--try-patch", "--patch-budget", "15", edits=[UNKNOWN[case]])
    assert status == 1 and not (tmp_path / "fix.diff").exists(), said
    assert not [one for card in cards for one in card if one.startswith(("+", "-"))]
    assert [one for one in cards[0] if one.startswith("> ")] and all(card[-1] for card in cards), cards
    assert (
        "fix.diff: not written, and the one of an earlier audit removed: corrections of 0 of 1 mistake" in said
        and "  next: no verified correction was found; correct the first mistake by hand" in said
        and "git apply" not in said
    )
    why = r"(none of \d+ candidates makes the port right: it may|\d+ of \d+ trials made, the likeliest)"
    assert re.search(rf"patch: Net.forward: no correction found: {why}", said) and "(as_the_reference)" not in said, said


def test_no_patch_is_left_where_there_is_no_mistake(audit, tmp_path):
    status, said, _ = audit("--eval-only", "--try-patch", edits=[])
    assert status == 0 and "fix.diff: not written: there is no mistake to correct" in said and "patch:" not in said, said
    assert not (tmp_path / "fix.diff").exists()


def test_what_a_card_says_in_words_stands_outside_of_the_source():
    one = Finding("forward", "norm", Kind.OTHER_FUNCTION, "words", "1", source="ours.py:1")
    said = [["> 1 x"], ["the same line as mistake 1"]]
    changed = Sections(False, "FAIL", [one], [], [], [], [], cards=[["-x", "+y"]])
    assert "```diff\n-x\n+y\n```" in "\n".join(_found(Aligned([], Localization(one), Coverage([]), changed)))
    page = drawn([one, one], said, [])
    assert "<h3>1. another function at norm</h3>" in page.replace("<wbr>", ""), page
    assert not [kind for kind in Kind if "_" in kind.words or not kind.words], "titles are words"
    assert Place("norm", "call_extra", "", "1").card().startswith("an extra call at norm\n")
    assert Place("norm", "unknown", "", "1").card().startswith("a difference at norm\n")
    through = Finding("forward", "conv", Kind.STRIDE, "stride 1", "1", source="ours.py:9", via="ours.py:3")
    assert kind_and_source(through).endswith("line to change: ours.py:9 (via ours.py:3)")
    whole = with_kind(replace(through, hint="ours.py:9: eps 1e-3; ours.py:3: and momentum"))
    assert whole.count("ours.py:9") == 1 and "eps 1e-3; ours.py:3: and momentum (" in whole
    assert "Line to change: ours.py:9 (via ours.py:3)." in drawn([through], [], []).replace("<wbr>", "")
    assert "line: ours.py:9 (via ours.py:3)" in Place("conv", "stride", "", "1", "ours.py:9", via="ours.py:3").card()
    assert "<p>the same line as mistake 1.</p>" in page and page.count("<pre") == 1
    sections = Sections(False, "FAIL", [one, one], [], [], [], [], cards=said)
    block = "\n".join(_found(Aligned([], Localization(one), Coverage([]), sections)))
    assert "2. `norm`: the same line as mistake 1.\n" in block and "1. `norm`:\n\n```text\n> 1 x\n```" in block, block
    assert "```diff" not in block, "nothing is changed"
    assert "| 1, 2 | norm, and also norm | other_function | words | ours.py:1 |" in block, "one row for what is said twice"


def test_a_search_that_is_broken_off_leaves_its_report(audit, tmp_path, monkeypatch):
    def broken_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("alignment.repair.search.corrections", broken_off)
    status, said, _ = audit("--eval-only", "--try-patch", edits=[(".mean([2, 3])", ".max([2, 3])")])
    (mistake,) = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert status == 130 and mistake["kind"] == "other_function", (status, mistake, said)
    assert "expected mean" in (tmp_path / "report" / "report.html").read_text()


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
@pytest.mark.parametrize("case", ["eps and momentum", pytest.param("stride and padding", marks=pytest.mark.weekly)])
def test_two_wrong_settings_of_one_layer_are_corrected_in_one_line(audit, case, tmp_path):
    before, after, line = TWICE[case]
    status, said, cards = audit("--try-patch", edits=[(before, after)])
    assert status == 1 and f"+        {line}" in cards[0], cards
    assert "patch verified: the corrected copy passes an audit with other weights" in said, said
    assert len(cards) == 1, "one edit is one mistake"


@pytest.mark.parametrize("whole", [True, False])
def test_what_may_stand_behind_a_mistake_is_left_out_once_a_corrected_copy_passed(tmp_path, capsys, monkeypatch, whole):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text(TORCH)
    many = "return 0.9 * self.head(nn.functional.relu(self.norm(self.conv(x)).sin().cos().sin().cos().sin()).mean([2, 3]))"
    (tmp_path / "ours.py").write_text(PADDLE.replace(LINE, many))
    monkeypatch.setattr(command, "_cards", lambda *given: ([], [], "", whole))
    main(["audit", "--port", "ours.py:Net", "--reference", "theirs.py:Net", "--input", "2x3x10x8", "--eval-only"])
    said, block = capsys.readouterr().out, (tmp_path / "result" / "report.md").read_text()
    assert ("a further mistake in its forward" in said) is ("a further mistake in its forward" in block) is (not whole), said


def test_a_correction_that_is_not_known_has_its_reason_and_the_next_step(audit, tmp_path):
    status, said, cards = audit("--eval-only", edits=[SEARCHED["a name for the value"][:2], KNOWN["padding"][:2]])
    assert status == 1 and "fix.diff: corrections of 1 of 2 mistakes; apply them" in said, said
    why = "  no correction is known of norm: no setting of a layer that is a plain value in the source explains it\n"
    assert why in said and len(cards) == 2
    following = "corrections of 1 of 2 mistakes are shown; --try-patch searches for more, --write-patch FILE.diff writes them"
    block, page = ((tmp_path / "report" / name).read_text() for name in ("report.md", "report.html"))
    assert f"  next: {following}\n" in said and f"**Next:** {following}." in block and following in re.sub("<wbr>", "", page)
    _, said, _ = audit("--eval-only", edits=[KNOWN["padding"][:2]])
    assert "no correction" not in said and "--try-patch" not in said
    assert "  next: apply the corrections in fix.diff with git apply or patch -p1, and run the audit again\n" in said


def of_the_report(folder):
    """What the three forms of a report say below the mistakes."""
    said = json.loads((folder / "report" / "alignment.json").read_text())["patch"]
    block, page = ((folder / "report" / name).read_text() for name in ("report.md", "report.html"))
    page = html.unescape(re.sub("<wbr>", "", page))
    assert said and all(line in page and f"- {line}" in block for line in said), (said, block)
    return said


def test_a_patch_that_is_refused_is_said_first_and_not_recommended(audit, tmp_path):
    """A port that computes otherwise in another folder, as its copy does."""
    moved = f".mean([2, 3]) + float(__import__('pathlib').Path(__file__).parent != __import__('pathlib').Path({str(tmp_path)!r}))"
    status, said, _ = audit(
        "--eval-only", "--try-patch", "--patch-budget", "0", edits=[KNOWN["padding"][:2], (".mean([2, 3])", moved)]
    )
    below = said.partition("Your mistakes: 1 mistake")[2]
    refused = "patch not verified: the corrected copy still fails: FAIL"
    assert status == 1 and of_the_report(tmp_path)[0].startswith(refused) and refused in below, said
    assert below.index(refused) < below.index("next: do not apply the corrections as they are") and "git apply" not in said, said
    assert "fix.diff: corrections of 1 of 1 mistake; not verified, not to be applied as they are\n" in said
    audit("--eval-only", "--try-patch", edits=[KNOWN["padding"][:2]])
    assert of_the_report(tmp_path) == ["patch verified: the corrected copy passes an audit with other weights"]


def test_the_report_says_why_there_is_no_correction(audit, tmp_path):
    _, said, _ = audit("--eval-only", "--try-patch", "--patch-budget", "0", edits=[SEARCHED["another function"][:2]])
    (why,) = of_the_report(tmp_path)
    assert why.startswith("Net.forward: no correction found: not searched: its share of --patch-budget, 0 seconds") and why in said


@pytest.mark.parametrize("where", [".", "elsewhere", "port"])
def test_the_command_that_is_shown_applies_the_patch_of_a_port_in_another_folder(where, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "a port"
    for one in (folder, tmp_path / "elsewhere"):
        one.mkdir()
    (folder / "ours.py").write_text(PADDLE.replace(*KNOWN["padding"][:2], 1))
    (folder / "theirs.py").write_text(TORCH)
    monkeypatch.chdir(here := {".": tmp_path, "elsewhere": tmp_path / "elsewhere", "port": folder}[where])
    sides = ["--port", f"{folder}/ours.py:Net", "--reference", f"{folder}/theirs.py:Net", "--input", "2x3x10x8", "--eval-only"]
    assert main(["audit", *sides, "--write-patch", "fix.diff", "--report", "report"]) == 1
    said = capsys.readouterr().out
    command = re.search(r"next: apply the corrections in fix.diff with (.*), and run the audit again", said)[1]
    command = "git apply fix.diff" if command == "git apply or patch -p1" else command
    subprocess.run(command, shell=True, cwd=here, check=True)
    assert (folder / "ours.py").read_text() == PADDLE, command


def test_two_mistakes_of_one_line_have_one_card():
    assert __file__.endswith(".py")  # a file that is loaded
    line = f"{shown(Path(__file__).resolve())}:3"
    first, second, third = cards([(), (), ()], [line, line, ""])
    assert first[-1].strip() and second == ["the same line as mistake 1"] and third == []
    assert [is_sentence(one) for one in (first, second, third)] == [False, True, False]


class Tried:
    """Tries candidates; those named are right."""

    def __init__(self, right=(), seconds=0.0):
        self.right, self.seconds = right, seconds

    def __call__(self, fixes, how, left=frozenset()):
        time.sleep(self.seconds)
        return any(edit.text in self.right for fix in fixes for edit in fix)


def searched(tried, passes, budget=60.0, kind="unknown"):
    """Lines that are said of mistakes whose candidates are given by their texts."""
    lines = []
    made = [[Candidate("number", (SourceEdit(Path("port.py"), 0, 1, text, 7),)) for text in texts] for texts in tried]
    corrections([()] * len(made), [(f"place{n}", kind) for n in range(len(made))], made, passes, budget, lines.append)
    return [one.line() for one in lines]


def test_why_no_correction_was_found_is_said():
    assert searched([["a", "b"]], Tried(right=("b",))) == ["place0: corrected in port.py:7"]
    (several,) = searched([["a", "b"]], Tried())
    assert several.startswith("place0: no correction found: none of 2 candidates makes the port right: it may take several")
    assert searched([[]], Tried())[0].startswith("place0: no correction found: no candidate: the lines to blame are not known")
    late = searched([list("abcdef"), ["a"]], Tried(seconds=0.05), budget=0.2)
    assert re.match(
        r"place0: no correction found: [1-4] of 12 trials made, the likeliest changes first, and none made the port right: "
        r"its share of --patch-budget, 0\.1 seconds, was over; the other trials take about [12] seconds? more, or "
        r"correct the lines by hand",
        late[0],
    )
    (never,) = searched([["a"]], Tried(), budget=0.0)
    assert never.startswith(
        "place0: no correction found: not searched: its share of --patch-budget, 0 seconds, was over; with more, 1 c"
    )
    assert "a larger" not in late[0] + never
    both = searched([["b"], ["a"]], Tried(right=("b",)))
    assert both[1] == "place1: no correction found: it follows from a mistake that is corrected, and goes with it"
    fresh = searched([["b"], ["a"]], Tried(right=("b",)), kind="initialisation")
    assert fresh[1].startswith("place1: no correction found: a trial gives both sides the same weights")


def test_a_known_correction_that_is_refused_gives_way_to_one_that_is_found():
    edits = {text: (SourceEdit(Path("port.py"), 0, 1, text, 7),) for text in "abc"}
    tried = [[Candidate("number", edits[text])] for text in "bc"]
    for known, works, found in (("a", "ac", "a"), ("a", "b", "b"), ("a", "", "a")):
        lines = []
        fixes = corrections([edits[known]], [("place0", "stride")], tried[:1], Tried(works), 60.0, lines.append)
        assert fixes == [edits[found]] and len(lines) == (works != "ac"), (known, works)
    assert (
        "no correction found: the one that its settings tell does not make the port right; none of 1 candidate" in lines[0].line()
    )
    assert corrections([edits["a"]], [("place0", "stride")], tried[:1], Tried("b"), 0.0) == [edits["a"]], "no time to try it"


def test_no_line_is_promised_where_none_is_known():
    flags = argparse.Namespace(try_patch=False, write_patch=None)
    assert _next(flags, Offer([()])).startswith("correct the first mistake by hand, at the line that the report shows, and run")
    assert _next(flags, Offer([()], lined=False)).startswith("correct the first mistake by hand, and run the audit again")


def test_nothing_is_left_to_correct_by_hand_once_the_copy_passes():
    """A mistake without a correction of its own went with the one that has one."""
    flags, made = argparse.Namespace(try_patch=True, write_patch=None), [(SourceEdit(Path("port.py"), 0, 1, "a", 7),), ()]
    assert "correct the others by hand" in _next(flags, Offer(made))
    assert _next(flags, Offer(made, passed=True)).startswith("apply the corrections that are shown")


def test_a_mistake_that_nothing_corrects_does_not_hide_the_correction_of_the_next():
    """It may stay while others are tried; and the likeliest of a mistake are tried in every way before unlikely ones in one."""
    made = []

    def passes(fixes, how, left=frozenset()):
        made.append((how, fixes[-1][0].text if fixes else ""))
        return any(edit.text == "right" for fix in fixes for edit in fix) and ("place0", "unknown") in left

    lines = searched([["a", "b"], ["right", *"cdefghijklmn"]], passes)
    assert lines[0].startswith("place0: no correction found: none of 2 candidates") and lines[1] == "place1: corrected in port.py:7"
    assert (QUICK, "n") not in made, "an unlikely one was tried before the likeliest was searched with"


def test_a_mistake_that_takes_long_leaves_time_for_the_next():
    lines = searched([["a"] * 100, ["b"]], Tried(right=("b",), seconds=0.05), budget=2.0)
    assert "its share of --patch-budget, 1 seconds," in lines[0] and lines[1] == "place1: corrected in port.py:7", lines


def test_what_a_framework_says_when_it_is_imported_is_not_shown(capfd, monkeypatch):
    def noisy():
        os.write(2, b"No ccache found\n")
        os.write(1, b"loaded\n")
        return "done"

    fork = multiprocessing.get_context("fork")
    assert answered(fork, noisy, (), 30) == "done"
    os.write(1, b"then\n")  # the streams are back
    assert capfd.readouterr() == ("then\n", "")
    monkeypatch.setenv("ALIGNMENT_SHOW_TRIALS", "1")
    answered(fork, noisy, (), 30)
    assert capfd.readouterr() == ("loaded\n", "No ccache found\n")


def test_settings_that_are_only_spelled_otherwise_stay_as_they_are(audit, tmp_path):
    """Beside a wrong setting of the same layer, and in a right port, where there is nothing to correct."""
    spelled = "nn.Conv2D(3, 6, (3, 3), stride=[1, 1], padding={}, dilation=(1, 1))"
    status, said, cards = audit("--eval-only", edits=[("nn.Conv2D(3, 6, 3, padding=1)", spelled.format("0"))])
    assert status == 1 and f"+        self.conv = {spelled.format('1')}" in cards[0], cards
    status, said, cards = audit("--eval-only", edits=[("nn.Conv2D(3, 6, 3, padding=1)", spelled.format("[1, 1]"))])
    assert status == 0 and cards == [] and not (tmp_path / "fix.diff").exists(), said


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


@pytest.mark.slow
@pytest.mark.weekly  # a whole search without an answer
def test_a_correction_beside_an_unknown_mistake_is_not_called_verified(audit):
    status, said, cards = audit(
        "--eval-only", "--try-patch", edits=[KNOWN["eps"][:2], UNKNOWN["another computation in several lines"]]
    )
    assert status == 1 and len(cards) == 2, said
    assert (
        "corrections of 1 of 2 mistakes" in said and "patch not verified: the corrected copy still fails: FAIL: 1 mistake" in said
    )


CONFIGURED = """
import json

import {0}
from {0} import nn


class Net(nn.{1}):
    def __init__(self, width):
        super().__init__()
        self.words, self.mix = nn.Embedding(9, width), nn.Linear(width, width)

    def forward(self, ids, mask):
        mixed = nn.functional.leaky_relu(self.mix(self.words(ids)), 0.1)
        return {{"hidden": mixed * mask[:, :, None]}}


def made(file="width.json"):
    with open(file) as text:
        return Net(json.load(text)["width"])


def given(samples, rng):
    return {{"ids": rng.integers(0, 9, (samples, 5)), "mask": rng.integers(0, 2, (samples, 5)).astype("float32")}}
"""


@pytest.mark.parametrize("named", ["MODULE", "FILE.py"])
def test_a_copy_is_tried_where_the_models_read_their_configuration_and_on_inputs_by_name(named, tmp_path, monkeypatch, capsys):
    """Models that read a file of the working folder, and inputs in a dictionary: no correction of such a port was right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    stem = f"configured_{named[:4].lower()}"
    Path("width.json").write_text('{"width": 6}')
    for side, names in {"ours": ("paddle", "Layer"), "theirs": ("torch", "Module")}.items():
        text = CONFIGURED.format(*names)
        Path(f"{stem}_{side}.py").write_text(text.replace("0.1)", "0.2)") if side == "ours" else text)
    end = "" if named == "MODULE" else ".py"
    sides = [f"--{role}={stem}_{side}{end}:made" for role, side in {"port": "ours", "reference": "theirs"}.items()]
    given = [f"--input={stem}_theirs{end}:given", "--report=report", "--eval-only", "--try-patch", "--patch-budget=60"]
    assert main(["audit", *sides, *given]) == 1
    said = capsys.readouterr().out
    assert "patch verified" in said and "no correction found" not in said, said
    assert "0.2)" in Path(f"{stem}_ours.py").read_text(), "the user's own file stays as it is"
