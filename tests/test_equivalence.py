"""The test of equivalence: its error rates by simulation, against formulas and scipy's own test, and the doctor's command."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from alignment.equivalence import DIFFERENT, EQUAL, UNDECIDED, equivalence, look_level, one_against_many, surely_different
from alignment_doctor.cli import main

MARGIN = 0.15
CORRELATIONS = (0.0, 0.5, 0.9)


def experiments(difference: float, correlation: float, seeds: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies in points of two sides that differ by ``difference``, over seeds that move both alike as the correlation says."""
    rng = np.random.default_rng([seed, seeds, round(10 * correlation)])
    shared, own, other = rng.standard_normal((3, count, seeds))
    spread = 0.2
    theirs = 70 + spread * (math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own)
    ours = 70 + difference + spread * (math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * other)
    return ours, theirs


def rates(difference: float, correlation: float, seeds: int, count: int, margin: float = MARGIN) -> dict[str, float]:
    """How often each answer is given at one look."""
    ours, theirs = experiments(difference, correlation, seeds, count)
    answers = [equivalence(a, b, margin).answer for a, b in zip(ours, theirs, strict=True)]
    return {answer: answers.count(answer) / count for answer in (EQUAL, DIFFERENT, UNDECIDED)}


def in_sequence(difference: float, correlation: float, budget: int, count: int, margin: float = MARGIN) -> dict[str, float]:
    """How often each answer is given where one looks after 3, 4, ... seeds until it is decided."""
    ours, theirs = experiments(difference, correlation, budget, count, seed=1)
    answers = []
    for a, b in zip(ours, theirs, strict=True):
        looks = (equivalence(a[:n], b[:n], margin, budget).answer for n in range(3, budget + 1))
        answers.append(next((answer for answer in looks if answer != UNDECIDED), UNDECIDED))
    return {answer: answers.count(answer) / count for answer in (EQUAL, DIFFERENT, UNDECIDED)}


NOISE = 3 * math.sqrt(0.05 * 0.95 / 10_000)  # of a rate of 5 % over 10,000 experiments, three standard deviations


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_ten_thousand_experiments_err_no_more_than_declared(correlation):
    for seeds in (3, 10):
        for sign in (-1, 1):
            assert rates(sign * MARGIN, correlation, seeds, 10_000)[EQUAL] <= 0.05 + NOISE
        assert rates(0.0, correlation, seeds, 10_000)[DIFFERENT] <= 0.05
        narrow = rates(0.0, correlation, seeds, 10_000, margin=0.001)  # seeds that are noisy beside the margin
        assert 0.02 < narrow[DIFFERENT] <= 0.05 + NOISE and narrow[EQUAL] <= 0.05


def test_the_test_decides_where_the_seeds_suffice():
    """It would be easy to err never: answer "undecided" always."""
    assert rates(0.0, 0.9, 10, 1000)[EQUAL] > 0.75
    assert rates(1.0, 0.5, 10, 1000)[DIFFERENT] > 0.99
    assert rates(0.0, 0.0, 3, 1000)[UNDECIDED] > 0.5, "three noisy seeds tell little"


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_looks_in_sequence_err_no_more_than_one(correlation):
    for sign in (-1, 1):
        assert in_sequence(sign * MARGIN, correlation, 20, 10_000)[EQUAL] <= 0.05 + NOISE
    assert in_sequence(0.0, correlation, 20, 10_000)[DIFFERENT] <= 0.05
    assert in_sequence(0.0, correlation, 20, 10_000, margin=0.001)[DIFFERENT] <= 0.05 + NOISE
    assert in_sequence(0.0, 0.9, 20, 1000)[EQUAL] > 0.95


def test_looks_in_sequence_without_a_budget_would_err_more_often():
    ours, theirs = experiments(MARGIN, 0.5, 20, 1000, seed=1)
    wrong = sum(
        any(equivalence(a[:n], b[:n], MARGIN).answer == EQUAL for n in range(3, 21)) for a, b in zip(ours, theirs, strict=True)
    )
    assert wrong / 1000 > 0.08
    assert in_sequence(MARGIN, 0.5, 20, 1000)[EQUAL] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)
    assert look_level(3) == 0.05 and 0.005 < look_level(20) < look_level(10) < 0.05


def test_the_answer_is_that_of_two_one_sided_t_tests():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        count, deviation, mean = rng.integers(3, 12), rng.uniform(0.02, 0.4), rng.uniform(-0.4, 0.4)
        theirs, d = rng.normal(70, 0.3, count), rng.normal(mean, deviation, count)
        below = stats.ttest_1samp(d, MARGIN, alternative="less").pvalue < 0.05
        above = stats.ttest_1samp(d, -MARGIN, alternative="greater").pvalue < 0.05
        beyond = min(
            stats.ttest_1samp(d, MARGIN, alternative="greater").pvalue, stats.ttest_1samp(d, -MARGIN, alternative="less").pvalue
        )
        expected = EQUAL if below and above else DIFFERENT if beyond < 0.025 else UNDECIDED
        assert equivalence(theirs + d, theirs, MARGIN).answer == expected
        seen.add(expected)
    assert seen == {EQUAL, DIFFERENT, UNDECIDED}


def test_noisier_seeds_never_make_it_equal():
    theirs = np.array([70.0, 70.4, 69.7, 70.1])
    answers = [
        equivalence(theirs + 0.02 + noise * np.array([1, -1, 1, -1]), theirs, MARGIN).answer for noise in (0.01, 0.05, 0.3, 3.0)
    ]
    assert answers == [EQUAL, EQUAL, UNDECIDED, UNDECIDED]
    # Three seeds of .44, .51, .68 allowed any mean gap below .48 before.
    assert equivalence([0.14, 0.21, 0.38], [0.44, 0.51, 0.68], 0.0015).answer == DIFFERENT
    assert equivalence([0.30, 0.60, 0.40], [0.44, 0.51, 0.68], 0.0015).answer == UNDECIDED


def test_equal_numbers_are_known_no_closer_than_their_digits():
    same = [0.5, 0.5, 0.5]
    assert equivalence(same, same).answer == EQUAL
    judged = equivalence(same, same, step=1 / 64)
    assert judged.answer == UNDECIDED and judged.more and judged.more > 10, "64 pictures cannot tell .15 points from none"
    assert equivalence(same, same, step=1 / 50_000).answer == EQUAL


def test_further_seeds_decide_about_as_often_as_said():
    ours, theirs = experiments(0.0, 0.5, 200, 400)
    decided = []
    for a, b in zip(ours, theirs, strict=True):
        first = equivalence(a[:10], b[:10], MARGIN)
        if first.more and 10 + first.more <= 200:
            decided.append(equivalence(a[: 10 + first.more], b[: 10 + first.more], MARGIN).decided)
    assert len(decided) > 100 and np.mean(decided) > 0.6
    assert equivalence([1.15, 1.2, 1.1], [1.0, 1.0, 1.0], MARGIN).more is None, "a difference of the margin itself is never decided"


def test_one_run_against_several_counts_its_own_spread():
    theirs = [67.0, 67.1, 66.9]
    assert one_against_many(66.0, theirs, MARGIN).answer == DIFFERENT
    assert one_against_many(67.0, theirs, MARGIN).answer == UNDECIDED
    assert one_against_many(67.0, [67.0, 67.01, 66.99], MARGIN).answer == EQUAL
    rng = np.random.default_rng(3)
    wrong = [one_against_many(70.15 + rng.normal(0, 0.03), rng.normal(70, 0.03, 8), MARGIN).answer for _ in range(4000)]
    assert wrong.count(EQUAL) / 4000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)


@pytest.mark.parametrize(
    ("ours", "theirs", "margin"), [([1.0], [1.0, 2.0], 1), ([], [], 1), ([math.nan], [1.0], 1), ([1.0] * 3, [1.0] * 3, 0)]
)
def test_what_cannot_be_compared_raises(ours, theirs, margin):
    with pytest.raises(ValueError, match=r"margin|numbers"):
        equivalence(ours, theirs, margin)
    with pytest.raises(ValueError, match="budget"):
        equivalence([1.0] * 5, [1.0] * 5, 1, budget=4)


# --- the command ----------------------------------------------------------------------------------------------------------------


REFERENCE = {0: 67.61, 1: 67.55, 2: 67.70, 3: 67.58}
PORT = {3: 67.60, 0: 67.58, 2: 67.66, 1: 67.57}


def table(path, values, header="seed,top1", shift=0.0, scale=1.0):
    path.write_text(f"{header}\n" + "".join(f"{seed},{scale * (value + shift):.6g}\n" for seed, value in values.items()))
    return str(path)


def test_the_command_says_equal_different_and_undecided(tmp_path, capsys):
    one = table(tmp_path / "a.csv", REFERENCE)
    assert main(["equal", one, table(tmp_path / "b.csv", PORT), "--json", str(tmp_path / "j.json")]) == 0
    assert "equal within the margin: mean difference of 4 pairs -0.0075" in " ".join(capsys.readouterr().out.split())
    facts = json.loads((tmp_path / "j.json").read_text())["facts"]
    assert facts["seeds"] == ["0", "1", "2", "3"] and np.allclose(facts["differences"], [-0.03, 0.02, -0.04, 0.02])
    assert main(["equal", one, table(tmp_path / "b.csv", PORT, shift=-1)]) == 1
    assert "different: mean difference of 4 pairs -1.01" in capsys.readouterr().out
    assert main(["equal", one, table(tmp_path / "b.csv", PORT), "--margin", "0.05", "--budget", "20"]) == 1
    assert "about 5 more seeds would decide" in capsys.readouterr().out


def test_fractions_are_brought_to_points_and_said(tmp_path, capsys):
    """A margin of .15 would be fifteen points there, and everything equal."""
    one = table(tmp_path / "a.csv", REFERENCE, scale=0.01)
    other = table(tmp_path / "b.csv", PORT, shift=-1, scale=0.01)
    assert main(["equal", one, other]) == 1
    assert "results between 0 and 1 are taken times 100" in capsys.readouterr().out
    assert main(["equal", one, other, "--unit", "plain"]) == 0


def test_seeds_are_paired_by_name_else_by_line(tmp_path, capsys):
    one = table(tmp_path / "a.csv", REFERENCE)
    assert main(["equal", one, table(tmp_path / "b.csv", {**PORT, 9: 10.0})]) == 0
    assert "since one side alone has them: seeds 9" in capsys.readouterr().out
    (tmp_path / "b.txt").write_text("67.6\n67.56\n67.71\n67.57\n")
    assert main(["equal", one, str(tmp_path / "b.txt")]) == 0
    assert "paired by line" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no results"),
        ("seed,top1\n", "no results below it"),
        ("seed,top1\n0,67\n0,68\n", "line 3: seed 0 is there twice"),
        ("seed,top1\n0,nan\n1,2\n", "line 2: no finite number"),
        ("seed,top1\n0\n", "line 2: no finite number"),
        ("seed,first,second\n0,1,2\n", "which of the columns"),
        ("67\n68\n", "b.csv 2: name the seeds"),
        ("seed,top1\n7,67\n8,68\n", "no seed in common"),
        ("\0\1", "no table of results"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path, text, said, capsys):
    one = table(tmp_path / "a.csv", REFERENCE)
    (tmp_path / "b.csv").write_text(text)
    assert main(["equal", one, str(tmp_path / "b.csv")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and said in error


@pytest.mark.parametrize(
    "flags",
    [["--margin", "0"], ["--margin", "nan"], ["--budget", "2"], ["--budget", "3"], ["--pictures", "0"], ["--column", "loss"]],
)
def test_a_flag_that_cannot_be_used_is_one_line(tmp_path, flags, capsys):
    one, other = table(tmp_path / "a.csv", REFERENCE), table(tmp_path / "b.csv", PORT)
    assert main(["equal", one, other, *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and (flags[0] in error or "'loss'" in error)


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_step_6_fails_one_sound_port_in_a_hundred_at_most(correlation, seeds):
    """10,000 experiments; three standard deviations of the count are added."""
    bound = 0.01 + 3 * math.sqrt(0.01 * 0.99 / 10_000)
    for margin in (MARGIN, 1e-4):  # with the second one all differences lie beyond the margin, and the rate is at its largest
        ours, theirs = experiments(0.0, correlation, seeds, 10_000, seed=2)
        found = [surely_different(a, b, margin) for a, b in zip(ours, theirs, strict=True)]
        assert np.mean(found) <= bound, margin
    assert np.mean(found) > 0.002, "a test that never fails would err never"
    ours, theirs = experiments(-6 * 0.2, correlation, seeds, 2_000, seed=3)
    assert np.mean([surely_different(a, b) for a, b in zip(ours, theirs, strict=True)]) > 0.75


def test_two_seeds_are_never_surely_different():
    assert not surely_different([0.1, 0.1], [0.9, 0.9]) and surely_different([0.1, 0.1, 0.1], [0.9, 0.9, 0.91])


def test_rounding_is_no_difference_in_words(tmp_path, capsys):
    """The sums of these accuracies are equal; their differences' mean is -3.6e-15 by rounding."""
    for name, values in (("A", "91.0 91.2 90.9 91.1"), ("B", "91.1 91.1 91.0 91.0")):
        (tmp_path / f"{name}.csv").write_text(values.replace(" ", "\n"))
    assert main(["equal", f"{tmp_path}/A.csv", f"{tmp_path}/B.csv", "--margin", ".15"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "mean difference of 4 pairs +0 (interval" in told and "e-1" not in told and "by 1 check." in told
