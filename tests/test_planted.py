"""``python -m bench planted``: small differences in real runs, judged by the test of equivalence."""

import json
from dataclasses import replace

import numpy as np
import pytest

from alignment.equivalence import EQUAL, Equivalence
from bench import planted as bench_planted
from bench.cli import bench
from bench.planted import NOTHING, PLANTED, RECIPE, REFERENCE, Log, judged, planted, table
from mobilenetv3_common import samples, sampling
from mobilenetv3_common.presets import TrainPreset
from mobilenetv3_common.sampling import SampleKey, sample_params
from mobilenetv3_common.train_config import TrainConfig

RNG = np.random.default_rng(0)
THEIRS = RNG.normal(95.0, 0.8, 10)


def test_twenty_differences_and_nothing_are_planted():
    assert PLANTED[0].name == NOTHING and len(PLANTED) > 20 and len({one.name for one in PLANTED}) == len(PLANTED)
    sound = TrainConfig(**RECIPE, epochs=2)
    for one in PLANTED[1:]:
        assert one.changes or one.around is not PLANTED[0].around
        assert not one.changes or TrainConfig(**{**RECIPE, **one.changes}, epochs=2) != sound, one.name


def test_what_is_patched_is_another_thing_inside_and_the_same_after():
    preset, by_name = TrainPreset(crop_size=32), {one.name: one for one in PLANTED}
    keys = [SampleKey(epoch, at + 100 * epoch, at) for epoch in (0, 1) for at in range(128)]
    draw = lambda: [samples.sample_params(preset, 0, key, 64, 64) for key in keys]  # noqa: E731
    right = draw()
    with by_name["one seed for all workers"].around():
        made = draw()
    assert len(set(right)) > 250 and len(set(made)) == 32, "four workers draw the same, and in every epoch"
    assert samples.sample_params is sample_params and draw() == right
    with by_name["the same order in every epoch"].around():
        assert np.array_equal(sampling.epoch_order(20, 0, 0), sampling.epoch_order(20, 0, 3))
    assert not np.array_equal(sampling.epoch_order(20, 0, 0), sampling.epoch_order(20, 0, 3))


def test_a_difference_is_judged_as_it_comes_and_one_above_the_margin_is_never_equal():
    sound = judged(NOTHING, THEIRS + RNG.normal(0, 0.05, 10), THEIRS, 0.15, 0.07)
    assert sound.judged.answer == EQUAL and sound.judged.seeds < 10 and not sound.wrong
    large = judged("large", THEIRS - 2 + RNG.normal(0, 0.1, 10), THEIRS, 0.15, 0.07)
    assert large.judged.answer == "different" and large.judged.seeds == 3
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(0, 0.6, 10)
        assert not judged("noisy", THEIRS + 0.6 + noise - noise.mean(), THEIRS, 0.15, 0.07).wrong


def test_a_wrong_equal_is_counted(monkeypatch):
    """With the rule that was here before, a gap below both sides' ranges, noisy seeds make anything equal."""

    def ranges(ours, theirs, margin, budget, step):
        gap, allowed = abs(np.mean(ours) - np.mean(theirs)), np.ptp(ours) + np.ptp(theirs)
        return Equivalence(EQUAL if gap < allowed else "different", len(ours), gap, 0.0, 0.0, 0.0, margin, 0.0, 0.05)

    found = {REFERENCE: [*THEIRS], "one point": [*(THEIRS - 1 + RNG.normal(0, 0.1, 10))]}
    assert not any(row.wrong for row in table(found, [0.15, 2.0], 0.07)[1])
    monkeypatch.setattr(bench_planted, "equivalence", ranges)
    text, rows = table(found, [0.15, 2.0], 0.07)
    assert [row.wrong for row in rows] == [True, False] and "equal (3) WRONG" in text


def test_what_the_log_has_is_not_run_again(tmp_path):
    file = tmp_path / "planted.jsonl"
    log = Log(file, "a plan", resume=True)
    assert log.get("x", 0, lambda: 90.0) == 90.0 and log.get("x", 0, lambda: 0.0) == 90.0
    with open(file, "a") as out:
        out.write('{"plan": "a plan", "pla')  # the run was killed here
    again = Log(file, "a plan", resume=True)
    assert again.known == {("x", 0): 90.0} and again.get("x", 1, lambda: 91.0) == 91.0
    assert Log(file, "another plan", resume=True).known == {} and Log(file, "a plan", resume=True).known == {}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds", "2"], "--seeds must be at least 3"),
        (["--epochs", "1"], "--epochs must be at least 2"),
        (["--margin", "0"], "--margin must be above 0"),
        (["--names", "no such"], "--names no such: no such difference; there are nothing, "),
        (["gone.py"], "gone.py"),
    ],
)
def test_a_flag_that_cannot_be_used_is_one_line(flags, said, tmp_path, capsys):
    assert bench(["planted", *flags, "--result-dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


@pytest.mark.slow
@pytest.mark.weekly
def test_runs_of_both_frameworks_end_alike_and_a_planted_difference_is_not_equal(tmp_path, capsys, monkeypatch):
    """Three seeds of two epochs; the third part of the rate moves the port's accuracy by points."""
    command = ["--seeds", "3", "--epochs", "2", "--names", "nothing,a third of the rate", "--result-dir", str(tmp_path), "--resume"]
    assert planted(command) == 0
    lines = {line.split(" | ")[0].strip("| "): line for line in capsys.readouterr().out.splitlines() if line.startswith("|")}
    assert "| equal (3) | equal (3) |" in lines[NOTHING]
    assert "| equal (" not in lines["a third of the rate"]
    rows = [json.loads(line) for line in (tmp_path / "planted.jsonl").read_text().splitlines()]
    assert len(rows) == 9 and {row["seed"] for row in rows} == {0, 1, 2} and len({row["top1"] for row in rows}) > 3
    monkeypatch.setattr(bench_planted, "trained", None)
    assert planted(command) == 0, "nothing is run again"
    monkeypatch.setattr(bench_planted, "judged", lambda *given: replace(judged(*given), mean=9.0))
    assert planted(command) == 1 and "2 of 4 verdicts call a difference above the margin equal" in capsys.readouterr().out
