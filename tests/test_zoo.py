"""The zoo: every published difference is shown by numbers without the engine, and a difference that is not known is unexplained."""

from __future__ import annotations

import dataclasses
import json

import pytest

from projects.zoo import __main__ as zoo
from projects.zoo.differences import DIFFERENCES
from projects.zoo.examine import examined
from projects.zoo.pairs import PAIRS, Pair
from tests.conftest import ROOT
from tests.test_audit import PADDLE, TORCH


@pytest.fixture
def tiny(tmp_path):
    """A pair that differs in BatchNorm's variance alone."""
    (tmp_path / "ours.py").write_text(PADDLE)
    (tmp_path / "theirs.py").write_text(TORCH)
    return Pair("tiny", f"{tmp_path}/ours.py:Net", f"{tmp_path}/theirs.py:Net", (3, 16, 12))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_shown_without_the_engine(name):
    assert DIFFERENCES[name].proof()


def test_a_known_difference_explains_a_pair(tiny, tmp_path):
    row = examined(tiny, tmp_path / "zoo")
    assert row["explained"] and row["as_it_is"].startswith("passed (") and row["mended"].startswith("passed (")


def test_a_difference_that_is_not_known_is_unexplained(tiny, tmp_path):
    row = examined(dataclasses.replace(tiny, differences=()), tmp_path / "zoo")
    assert not row["explained"] and row["mended"].startswith("norm: biased variance")


def test_a_known_difference_that_is_not_there_is_unexplained(tiny, tmp_path):
    """A stale entry of the list does not pass."""
    row = examined(dataclasses.replace(tiny, differences=("dropout", "variance")), tmp_path / "zoo")
    assert not row["explained"]


@pytest.mark.slow  # make test-slow
def test_a_pair_of_the_list_by_its_command(tmp_path, capsys):
    assert zoo.main(["squeezenet1_1", "--result-dir", str(tmp_path)]) == 0
    said = json.loads((tmp_path / "squeezenet1_1.json").read_text())
    assert said["as_it_is"].startswith("features.0: padding 1") and said["mended"].startswith("passed (")
    assert "squeezenet1_1: explained" in capsys.readouterr().out and "| squeezenet1_1 |" in (tmp_path / "table.md").read_text()
    assert zoo.main(["squeezenet1_1", "--result-dir", str(tmp_path), "--resume"]) == 0


def test_an_unknown_pair_is_one_line(tmp_path, capsys):
    assert zoo.main(["resnet19", "--result-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: unknown pair 'resnet19'")


def test_the_page_names_the_pairs_of_the_list():
    page = (ROOT / "docs" / "zoo.md").read_text()
    missing = [name for name in PAIRS if f"| {name} |" not in page and f"`{name}`" not in page]
    assert missing == []
