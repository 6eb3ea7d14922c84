"""Nouns and verbs agree with a count of one, wherever a line is made of a count."""

import ast
import re

import pytest

from alignment.finding import Finding
from alignment_doctor.findings import found, judged, nothing
from mobilenetv3_common.counted import agreed, counted, numbered
from tests.conftest import ROOT

PACKAGES = (
    "alignment",
    "alignment_doctor",
    "mobilenetv3_common",
    "mobilenetv3_paddle",
    "mobilenetv3_ref",
    "mnv3",
    "bench",
    "projects",
)

CASES = {
    "1 pictures": "1 picture",
    "1 classes are without a picture": "1 class is without a picture",
    "1 tensors differ": "1 tensor differs",
    "the units of 1 layers are equal and stay equal": "the units of 1 layer are equal and stay equal",
    "1 groups, expected 2": "1 group, expected 2",
    "at update 3: 1 more lines": "at update 3: 1 more line",
    "2 of 1 batches, 1 processes": "2 of 1 batch, 1 process",
    "1 activations are dead": "1 activation is dead",
    "1 losses": "1 loss",
    "covered: 1 things (--covered lists them)": "covered: 1 thing (--covered lists them)",
    "called 1 times in the port's forward": "called 1 time in the port's forward",
    "1 of 1 parameters never get a gradient": "1 of 1 parameter never gets a gradient",
    "1 parameters no longer get a gradient": "1 parameter no longer gets a gradient",
}
# Counts that are no one, and a one that is no count of the noun behind it.
SILENT = ("11 pictures", "1 of 5 tensors differ", "0.1 values", "1,001 files are pictures", "e-1 layers", "batch 8 x 1", "1 is",
          "2 classes", "step 1 forward", "layer1 tensors")  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_a_count_of_one_has_its_noun_and_verb(text):
    assert agreed(text) == CASES[text] == agreed(CASES[text])


@pytest.mark.parametrize("text", SILENT)
def test_other_text_stays_as_it_is(text):
    assert agreed(text) == text


@pytest.mark.parametrize("package", PACKAGES)
def test_no_sentence_has_a_plural_in_brackets(package):
    """``3 value(s) differ``."""
    wrong = []
    for file in sorted((ROOT / package).rglob("*.py")):
        for one in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and re.search(r"(?<![_.])\b[a-z]+\(e?s\)", one.value):
                wrong.append(f"{file.relative_to(ROOT)}:{one.lineno}: {one.value}")
    assert not wrong, wrong


def test_a_list_of_numbers_has_its_noun():
    assert numbered("step", [4]) == "step 4" and numbered("step", [1, "5 (in part)"]) == "steps 1, 5 (in part)"
    assert (counted(1, "batch"), counted(2, "full batch"), counted(0, "class")) == ("1 batch", "2 full batches", "0 classes")


def test_what_the_doctor_and_the_engine_say_agrees():
    assert (
        found("1 pictures", ["a"]).measured
        == judged(["a"], "1 pictures", "").measured
        == nothing("1 pictures").measured
        == "1 picture"
    )
    one = Finding("structure", "conv", hint="1 groups, expected 2", measured="1 values")
    assert (one.hint, one.measured) == ("1 group, expected 2", "1 value")
    assert counted(1, "mistake") == "1 mistake" and counted(0, "mistake") == "0 mistakes"


def test_nouns_have_their_own_plural():
    nouns = ("epoch", "batch", "entry", "axis", "class", "missing key", "training picture", "box")
    words = [counted(2, noun).removeprefix("2 ") for noun in nouns]
    assert words == ["epochs", "batches", "entries", "axes", "classes", "missing keys", "training pictures", "boxes"]
    assert [counted(1, noun) for noun in nouns] == [f"1 {noun}" for noun in nouns]
