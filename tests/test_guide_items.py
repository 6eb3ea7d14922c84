"""The page of the guides' items: every file and every test that it names exists, and its counts are those of its rows."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs/guide_items.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d{3}\.\d{2,3} ", line)]


def problems(rows: list[list[str]]) -> list[str]:
    """What is wrong with rows: a place or a test that is not there, or neither a test nor a reason."""
    found = []
    for item, where, shown in rows:
        place = where.strip("`")
        if place != "-" and not (ROOT / place).exists():
            found.append(f"{item}: there is no {place}")
        tests = re.findall(r"tests/(?:\w+/)*\w+\.py(?:::\w+)?", shown)
        if not tests and not re.match(r"no: \w+ \w+", shown):
            found.append(f"{item}: neither a test nor a reason")
        for test in tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
            if not text or (name and not re.search(rf"^def {name}\(", text, re.M)):
                found.append(f"{item}: there is no {test}")
    return found


def test_every_file_and_test_of_the_page_exists():
    assert problems(ROWS) == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["x", "`alignment/gone.py`", "`tests/test_docs.py`"], "there is no alignment/gone.py"),
        (["x", "`alignment`", "`tests/test_gone.py`"], "there is no tests/test_gone.py"),
        (["x", "`alignment`", "`tests/test_docs.py::test_gone`"], "there is no tests/test_docs.py::test_gone"),
        (["x", "`alignment`", "yes"], "neither a test nor a reason"),
    ],
)
def test_a_row_that_does_not_hold_is_found(row, words):
    assert words in problems([row])[0]


def test_the_counts_are_those_of_the_rows():
    told = re.search(r"have (\d+) items.*?(\d+) are here, (\d+) in part, and (\d+) (?:is|are) not", PAGE, re.S)
    said = [int(number) for number in told.groups()]
    no = sum(shown.startswith("no: ") for _, _, shown in ROWS)
    part = sum(shown.startswith("in part: ") for _, _, shown in ROWS)
    assert said == [len(ROWS), len(ROWS) - no - part, part, no] and part <= 8
    numbers = [item.split()[0] for item, _, _ in ROWS]
    assert len(set(numbers)) == len(numbers) and {number[:3] for number in numbers} == {"000", "001", "002", "003", "004"}
