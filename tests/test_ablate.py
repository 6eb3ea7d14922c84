"""``python -m bench ablate``: hypotheses are removed one at a time, and what no test misses is listed."""

import json

import pytest

from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import FAMILIES, Family, Hypothesis, Observed, confirmed
from bench import ablate
from bench.cli import bench


@pytest.fixture
def family():
    made = Family("of_a_test", lambda: [Observed(2.0, 6.0, 2.0), Observed(3.0, 9.0, 3.0)])
    made.add(Kind.SCALED, "three times", lambda given: 3 * given)
    made.add(Kind.SCALED, "three times again", lambda given: 3 * given)
    yield made
    del FAMILIES[made.name]


@pytest.fixture
def tests_of_a_test(family, tmp_path, monkeypatch):
    """Two processes each import this module of hypotheses; its test misses the first one alone."""
    file = tmp_path / "test_hypotheses_of_a_test.py"
    file.write_text(
        "from alignment.localize.hypotheses.general import RANDOM\n\n"
        "def test_a_generator():\n    assert 'draws_by_itself' in RANDOM.makers\n"
    )
    monkeypatch.setattr(ablate, "tests_of", lambda family: [str(file)] if family.name != "tables" else [])
    return file


@pytest.mark.slow
def test_what_no_test_misses_has_survived(tests_of_a_test, tmp_path, capsys):
    assert bench(["ablate", "random", "squeeze_excitation", "tables", "--result-dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "survived: squeeze_excitation: squeeze_missing" in out and "untested: tables: other_constants" in out
    assert "4 hypotheses: 1 noticed, 2 survived, 1 untested, 0 error" in out
    # A second run takes what is known, and runs the rest: the last line was cut off.
    log = tmp_path / "ablate.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:-1], lines[-1][:9]]) + "\n")
    known = ablate.Log(log, resume=True).known
    assert len(known) == 3 and json.loads(lines[0]).keys() == {"source"}
    log.write_text("\n".join(['{"source": "of another day"}', *lines[1:]]) + "\n")
    assert not ablate.Log(log, resume=True).known


@pytest.mark.parametrize(("argv", "words"), [
    (["convolutions"], "no family of hypotheses is called convolutions"),
    (["--jobs", "0"], "--jobs must be at least 1"),
])  # fmt: skip
def test_bad_input_of_ablate_is_said(argv, words, capsys):
    assert bench(["ablate", *argv]) == 2
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1


def test_tests_that_fail_by_themselves_say_nothing_of_a_hypothesis(tests_of_a_test, tmp_path, capsys):
    tests_of_a_test.write_text("def test_wrong():\n    assert False\n")
    assert bench(["ablate", "random", "--result-dir", str(tmp_path)]) == 2
    assert "fail with every hypothesis in place" in capsys.readouterr().err


def test_a_removed_hypothesis_is_asked_no_more(family):
    assert [one.words for one in family.confirmed()] == ["three times", "three times again"]
    family.remove("three times")
    assert family.hint() == (Kind.SCALED, "three times again")


@pytest.mark.parametrize(("ours", "right", "holds"), [
    ([6.0, 9.0], [2.0, 3.0], True),
    ([6.0, 9.1], [2.0, 3.0], False),  # in one case of two
    ([6.0, 3.0], [2.0, 3.0], False),  # where the port is right, the mistake must not show either
    ([6.0, 9.0], [6.0, 9.0], False),  # nothing is wrong
    ([6.0, float("nan")], [2.0, 3.0], False),
    ([6.0, 9.0], [2.0, None], True),  # the reference gives nothing
])  # fmt: skip
def test_a_hypothesis_holds_in_every_case_that_was_measured(ours, right, holds):
    observed = [Observed(given, a, b) for given, a, b in zip([2.0, 3.0], ours, right, strict=True)]
    hypothesis = Hypothesis(Kind.SCALED, "three times", lambda given: 3 * given)
    assert (list(confirmed([hypothesis], observed)) == [hypothesis]) is holds
