"""docs/screenshots/audit.svg, the animated picture of the README: sound, small, and what the commands print today."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ElementTree

import pytest

from alignment.flags import audit_parser
from scripts.record_audit import AUDIT, OUTPUT, SCENES, SECONDS, Frame, _at_speed, _row, drawing, printed, recorded
from tests.conftest import ROOT
from tests.documents import without_figures

NAME = "{http://www.w3.org/2000/svg}"


def lines_of(svg):
    """Every line that the recording shows, without the places of its pieces."""
    root = ElementTree.fromstring(svg)
    return ["".join(row.itertext()) for row in root.iter(f"{NAME}text")]


def plain(lines):
    return {without_figures(line) for line in lines if len(line.split()) > 2}


def test_the_picture_is_a_sound_file_of_20_seconds_that_runs_and_loads_nothing():
    text = OUTPUT.read_text(encoding="utf-8")
    assert OUTPUT.stat().st_size < 1_000_000
    assert re.search(r"animation:play (\d+)s", text)[1] == f"{SECONDS:g}" == "20"
    assert "prefers-reduced-motion" in text and "<title>" in text
    root = ElementTree.fromstring(text)
    assert not [e for e in root.iter() if e.tag in (f"{NAME}script", f"{NAME}image", f"{NAME}foreignObject")]
    targets = {value for e in root.iter() for name, value in e.attrib.items() if name.endswith("href")}
    assert targets <= {f"#{e.get('id')}" for e in root.iter(f"{NAME}text")}
    assert "/tmp/" not in text and str(ROOT) not in text and "/root" not in text, "no paths of a machine"


def test_it_shows_the_three_scenes_and_their_verdicts():
    whole = "\n".join(lines_of(OUTPUT.read_text()))
    for said, command, _ in SCENES:
        assert said in whole and command[:60] in whole.replace("\n", "")
    assert "FAIL: 1 mistake found in the port." in whole and "PASS: no mistake found in the port" in whole
    assert "kind: ac" in whole and "line to change: port.py:29" in whole
    assert "-        self.act = nn.GELU(approximate=True)" in whole and "+        self.act = nn.GELU(approximate=False)" in whole
    audit_parser().parse_args(shlex.split(AUDIT)[2:])  # the flags are those of today
    assert "docs/screenshots/audit.svg" in (ROOT / "README.md").read_text() and "audit.svg" in (ROOT / "README_zh.md").read_text()


@pytest.mark.slow
def test_it_shows_what_the_commands_print_today():
    before, now = plain(lines_of(OUTPUT.read_text())), plain(lines_of(drawing(recorded())))
    assert len(now) > 30 and len(before ^ now) <= 2, before ^ now  # a table's width follows its figures


def test_frames_are_brought_to_the_length_and_equal_ones_become_one():
    a, b = ((("a", "#fff", False),),), ((("b", "#fff", False),),)
    made = _at_speed([Frame(a, 1), Frame(a, 1), Frame(b, 3)])
    assert [frame.rows for frame in made] == [a, b] and [frame.seconds for frame in made] == [8.0, 12.0]
    svg = drawing(made)
    assert lines_of(svg) == ["a", "b"] and svg.count("<use ") == 2 and "40.000%{" in svg


def test_a_command_runs_in_a_terminal_and_a_missing_one_is_named(tmp_path):
    from mobilenetv3_common.errors import UserError

    (tmp_path / "bin").mkdir()
    assert printed("[ -t 1 ] && tput cols", tmp_path).strip() == "100"
    with pytest.raises(UserError, match="a program that is not there: no_such_program"):
        printed("no_such_program", tmp_path)


def test_a_line_keeps_its_colours_and_columns():
    import pyte

    screen = pyte.Screen(100, 2)
    pyte.Stream(screen).feed("ab \033[31mFAIL <1>\033[0m  end")
    row = _row(screen.buffer[0])
    assert row == (("ab ", "#e6edf3", False), ("FAIL <1>", "#ff7b72", False), ("  end", "#e6edf3", False))
    assert "FAIL &lt;1&gt;" in drawing([Frame((row,), 20)])
