"""tools/doctor.py profile: phases, operators, transforms and memory of both frameworks; planted costs are found."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
import time
import types

import numpy as np
import pytest

from alignment_doctor.cli import main
from alignment_doctor.findings import Verdict, examine
from alignment_doctor.profile import checks, subject
from alignment_doctor.profile.advice import advice
from alignment_doctor.profile.before import against, earlier_facts
from alignment_doctor.profile.command import facts
from alignment_doctor.profile.subject import PHASES, Profile, measure
from alignment_doctor.profile.trace import Operator, operators, own_times
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import LITE_DATA, ROOT

SMALL = {
    "data_path": str(LITE_DATA), "crop_size": 32, "resize_size": 36, "width_mult": 0.5, "workers": 0, "batch_size": 4, "epochs": 2,
    "device": "cpu",
}  # fmt: skip
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]


def profile_of(times, memory=(100.0,) * 6, **settings):
    """A profile as if these times (seconds) had been measured."""
    made = Profile(TrainConfig(**{**SMALL, **settings}), picture=0.01, memory=list(memory), processors=4)
    made.phases = {name: [seconds] * 5 for name, seconds in zip(PHASES, times, strict=True)}
    return made


def problems(profile):
    return {one.check.id for one in examine(checks, profile) if one.outcome.verdict is Verdict.FOUND}


def test_each_check_finds_its_problem_and_is_silent_without():
    sound = (0.001, 0.1, 0.2, 0.05, 0.001)
    assert problems(profile_of(sound)) == set()
    assert problems(profile_of((0.2, *sound[1:]))) == {"profile.data_wait"}
    assert problems(profile_of((*sound[:4], 0.2))) == {"profile.gap"}
    assert problems(profile_of(sound, np.arange(6) * 20.0)) == {"profile.memory"}
    assert problems(profile_of(sound, [100, 180, 180, 181, 181, 181])) == set()  # caches that fill at the beginning


def test_the_recommendation_is_the_one_with_the_largest_gain():
    assert advice(profile_of((0.001, 0.1, 0.2, 0.05, 0.001))) is None
    told = advice(profile_of((0.04, 0.01, 0.02, 0.01, 0.02), ema_decay=0.9))
    assert told.text.startswith("--workers 1: ") and told.gain == pytest.approx(1 - 0.06 / 0.1)
    told = advice(profile_of((0.001, 0.1, 0.2, 0.05, 0.2), ema_decay=0.9, workers=2))
    assert told.text.startswith("--ema-every 10") and told.gain == pytest.approx(0.9 * 0.2 / 0.551)


def test_an_operators_own_time_leaves_out_what_it_calls():
    spans = {"a": (0, 10), "b": (1, 4), "c": (2, 1), "d": (12, 3)}
    events = [{"name": name, "ts": begun, "dur": long} for name, (begun, long) in spans.items()]
    assert {event["name"]: own for event, own in own_times(events)} == {"a": 6.0, "b": 3.0, "c": 1.0, "d": 3.0}


@pytest.mark.parametrize("framework", ["ref", "paddle"])
def test_a_run_is_measured_and_written(framework, tmp_path, capsys):
    files = {name: tmp_path / f"p.{name}" for name in ("json", "html", "csv", "trace")}
    command = ["profile", *FLAGS, f"--framework={framework}", "--updates=2", *(f"--{n}={p}" for n, p in files.items())]
    assert main(command) in (0, 1)
    shown = capsys.readouterr().out
    assert "note: an update takes" in shown and "note: recommendation: " in shown
    facts = json.loads(files["json"].read_text())["facts"]
    assert all(facts["phases"][name] > 0 for name in PHASES)
    assert sum(facts["phases"].values()) == pytest.approx(facts["seconds_an_update"])
    names = {one["name"] for one in facts["operators"]}
    assert {"ref": "aten::convolution_backward", "paddle": "conv2d_grad"}[framework] in names
    assert sum(one["share"] for one in facts["operators"]) == pytest.approx(1)
    assert {"image.decode_image", "dataset.train_transform"} <= set(facts["transforms"])
    rows = list(csv.DictReader(files["csv"].open()))
    assert len(rows) == len(facts["operators"]) == len(operators(files["trace"])) > 20
    assert framework == "paddle" or any("4x3x32x32" in row["shapes"] and "float float" in row["types"] for row in rows)
    assert "Transforms" in files["html"].read_text()


@pytest.mark.parametrize(("framework", "asked", "batch"), [("ref", 256, 16), ("paddle", 64, 16), ("ref", 16, 16)])
def test_the_batch_that_a_run_would_have_is_measured_and_said(framework, asked, batch, tmp_path, capsys, monkeypatch):
    """The 16 pictures make no batch of 256: a run lowers it, and a profile of another batch would be of another run."""
    measured = []
    whole = subject.micro_batches
    monkeypatch.setattr(subject, "micro_batches", lambda run: (measured.append(len(b[1])) or (b, *r) for b, *r in whole(run)))
    flags = [*FLAGS, f"--batch-size={asked}", f"--framework={framework}", "--updates=2", f"--json={tmp_path}/p.json"]
    assert main(["profile", *flags]) in (0, 1)
    facts = json.loads((tmp_path / "p.json").read_text())["facts"]
    assert facts["batch_size"] == batch and set(measured) == {batch}
    said = f"note: --batch-size {asked} was lowered to {batch}: 16 training pictures make 1 update an epoch with it"
    assert (said in capsys.readouterr().out) == (asked != batch)


@pytest.mark.parametrize("framework", ["ref", "paddle"])
def test_the_loaders_queue_is_full_where_updates_are_slow_and_empty_where_pictures_are(framework):
    module = importlib.import_module(f"mobilenetv3_{framework}.train.backend")

    def slowed(pictures, updates):
        class Slow(module.ImageDataset):
            def decode(self, path):
                time.sleep(pictures)
                return super().decode(path)

        class Guard(module.Guard):
            def __init__(self, *args):
                time.sleep(updates)
                super().__init__(*args)

        changed = types.SimpleNamespace(**{**vars(module), "ImageDataset": Slow, "Guard": Guard})
        with module.started("cpu") as ranks:
            return measure(changed, TrainConfig(**{**SMALL, "workers": 1, "framework": framework}), ranks, 3)

    starved, fed = slowed(0.03, 0.0), slowed(0.0, 0.15)
    assert starved.room == fed.room > 0 and len(starved.ready) == len(fed.ready) == 3
    assert np.median(starved.ready) == 0 and np.median(fed.ready) >= fed.room - 1
    (told,) = [one.outcome.measured for one in examine(checks, starved) if one.check.id == "profile.data_wait"]
    assert told.endswith(f"with 1 worker, which have 0 of {starved.room} batches ready")


def keeping(module, times):
    """A backend whose engine adds losses up with their graphs, and begins anew after so many updates."""
    kept = []

    def accumulate_gradients(model, criterion, batches, *others, **named):
        class Summing(type(criterion)):
            def forward(self, *given):
                loss = super().forward(*given)
                kept[:] = [kept[0] + loss] if kept else [loss]
                return loss

        begun = len(model_updates)
        model_updates.append(begun)
        if begun % times == 0:
            kept.clear()
        own, criterion.__class__ = criterion.__class__, Summing
        try:
            return module.accumulate_gradients(model, criterion, batches, *others, **named)
        finally:
            criterion.__class__ = own

    model_updates = []
    return types.SimpleNamespace(**{**vars(module), "accumulate_gradients": accumulate_gradients})


@pytest.mark.parametrize("framework", ["ref", "paddle"])
@pytest.mark.parametrize(("times", "expected"), [(1, False), (3, False), (1000, True)])
def test_a_sum_of_losses_that_keeps_their_graphs_is_found(framework, times, expected):
    """Its memory may grow by less than is seen; a sum that is begun anew is none, where this falls into the updates measured."""
    module = importlib.import_module(f"mobilenetv3_{framework}.train.backend")
    with module.started("cpu") as ranks:
        profile = measure(keeping(module, times), TrainConfig(**SMALL, framework=framework), ranks, 5)
    assert (profile.held >= 12) == expected and ("profile.memory" in problems(profile)) == expected
    (told,) = [one.outcome.measured for one in examine(checks, profile) if one.check.id == "profile.memory"]
    assert ("earlier updates are still alive: a sum or a list keeps them" in told) == expected


@pytest.mark.slow
def test_a_slow_decoder_is_found_with_a_recommendation(monkeypatch):
    monkeypatch.setattr(subject, "SAMPLES", 4)
    module = importlib.import_module("mobilenetv3_ref.train.backend")

    class Slow(module.ImageDataset):
        def decode(self, path):
            time.sleep(0.08)
            return super().decode(path)

    framework = types.SimpleNamespace(**{**vars(module), "ImageDataset": Slow})
    with module.started("cpu") as ranks:
        profile = measure(framework, TrainConfig(**SMALL), ranks, 2)
    profile.processors = 4
    assert "profile.data_wait" in problems(profile)
    assert advice(profile).text.startswith("--workers ")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--updates=1"], "--updates must be at least 2, found 1"),
        (["--csv=/nowhere/x.csv"], "there is no folder /nowhere; make it first"),
        (["--before=/nowhere.json"], "--before /nowhere.json is no --json of a profile"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(flags, said, capsys):
    assert main(["profile", *FLAGS, *flags]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.slow
def test_an_earlier_profile_is_compared_with(tmp_path, capsys):
    """A file with the phases alone, as earlier versions wrote it, will do."""
    phases = dict.fromkeys(PHASES, 1000.0)
    (tmp_path / "before.json").write_text(json.dumps({"facts": {"phases": phases}}))
    assert main(["profile", *FLAGS, "--updates=2", f"--before={tmp_path}/before.json"]) in (0, 1)
    told = capsys.readouterr().out
    assert "note: before: 5000000.0 ms an update; now 0.00 of it" in told and "ms before -> now: data wait 1000000.0 -> " in told
    assert "operators that changed" not in told and "batches ready" not in told


def test_the_three_parts_of_a_profile_stand_beside_those_before():
    """What MindSpore's guide shows: the gap between updates halves, casts go, and the queue is full."""
    was = profile_of((0.2, 0.1, 0.1, 0.05, 0.05))
    was.operators = [Operator("Cast", "2x2", 8, 0.1), Operator("Conv", "2x2", 4, 0.2), Operator("Conv", "4x4", 4, 0.2)]
    now = profile_of((0.01, 0.1, 0.1, 0.05, 0.01), workers=2)
    now.operators, now.ready, now.room = [Operator("Conv", "2x2", 4, 0.15), Operator("Relu", "2x2", 4, 0.002)], [3, 4, 4], 4
    earlier = json.loads(json.dumps(facts(was)))
    notes = against(now, earlier_facts(earlier))
    assert notes[0] == "before: 500.0 ms an update; now 0.54 of it"
    assert "data wait 200.0 -> 10.0" in notes[1] and "iteration gap 50.0 -> 10.0" in notes[1]
    assert notes[2].endswith("before -> now: Conv 200.0 -> 75.0, Cast 50.0 -> 0.0, Relu 0.0 -> 1.0")
    assert notes[3] == "batches ready before -> now: no queue -> 4 of 4" and len(notes) == 4


@pytest.mark.slow
@pytest.mark.parametrize("package", ["paddle", "ref"])
def test_a_loader_worker_that_is_killed_is_one_line(package, tmp_path):
    """The doctor's own loaders end as those of a run."""
    kill = "import os, signal, sys\nfrom mobilenetv3_common.samples import Samples\n"
    kill += "whole = Samples._picture\n"
    kill += "Samples._picture = lambda *args: whole(*args) if os.getpid() == main else os.kill(os.getpid(), signal.SIGKILL)\n"
    kill += "main = os.getpid()\nfrom tools import doctor\nsys.exit(doctor.main())\n"
    flags = [flag for flag in FLAGS if "workers" not in flag]
    command = [sys.executable, "-c", kill, "profile", *flags, "--workers=2", f"--framework={package}", "--updates=2"]
    begun = time.monotonic()
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == 2 and "Traceback" not in run.stderr and time.monotonic() - begun < 60, run.stderr
    lines = [line for line in run.stderr.splitlines() if "ccache" not in line and "warnings.warn" not in line]
    assert len(lines) == 1 and lines[0].startswith("error: a loader worker has ended, perhaps because memory"), run.stderr
