"""Experiment trackers get a run's figures under one name, whatever happens to the run or to them."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mobilenetv3_ref.train as theirs
from mobilenetv3_common import tracking
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import read_json_lines
from tests.conftest import ROOT
from tests.test_train_loop import CONFIG, small_torch
from tests.test_train_options import own_signals  # noqa: F401
from tests.test_train_rolling_back import StopsAt
from tests.training import QUICK

COMMAND = (sys.executable, "tools/train.py", *QUICK, "--framework", "ref", "--crop-size", "32", "--resize-size", "32")


class InAFile:
    """A tracker that writes into a file of its own."""

    name = "in_a_file"

    def __init__(self, folder, known, settings):
        self.id = known or f"run{len(list(folder.parent.glob('run*')))}"
        self.path = folder.parent / self.id
        self.path.touch()
        self.say({"begun": settings["lr"], "again": known is not None})

    def say(self, entry):
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")

    def log(self, figures, update):
        if update == 7 and "breaks" in str(self.path):
            raise ConnectionError("the server\nhas gone")
        self.say({"update": update, **figures})

    def close(self, failed):
        self.say({"failed": failed})


@pytest.fixture
def in_a_file(monkeypatch):
    monkeypatch.setitem(tracking.TRACKERS, "json", InAFile)  # a name that is installed


def said(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("own_signals", "in_a_file")
def test_a_stopped_run_goes_on_under_its_name_and_another_run_has_another(tmp_path):
    config = dataclasses.replace(CONFIG, output_dir=str(tmp_path / "out"), log_to="json", print_every=1, lr=0.01)
    assert theirs.train(config, small_torch, StopsAt(3)) == 143
    assert theirs.train(dataclasses.replace(config, resume="auto"), small_torch) == 0
    entries = said(tmp_path / "run0")
    assert [entry["update"] for entry in entries if "train/loss" in entry] == list(range(1, 9))
    assert [entry["train/loss"] for entry in entries if "train/loss" in entry] == [
        entry["loss"] for entry in read_json_lines(tmp_path / "out")
    ]
    assert [entry["update"] for entry in entries if "eval/top1" in entry] == [4, 8]
    assert [entry["again"] for entry in entries if "again" in entry] == [False, True] and entries[-1] == {"failed": False}
    with pytest.raises(UserError, match="diverged"):
        theirs.train(dataclasses.replace(config, lr=1e30), small_torch)
    assert said(tmp_path / "run1")[-1] == {"failed": True} and said(tmp_path / "run0") == entries


@pytest.mark.usefixtures("own_signals", "in_a_file")
def test_a_tracker_that_breaks_does_not_end_the_run(tmp_path):
    folder = tmp_path / "breaks" / "out"
    assert (
        theirs.train(dataclasses.replace(CONFIG, output_dir=str(folder), log_to="json", print_every=1, lr=0.01), small_torch) == 0
    )
    assert "in_a_file failed (the server has gone): the run goes on without it" in (folder / "train.log").read_text()
    assert len(read_json_lines(folder)) == 8 and [e.get("update") for e in said(tmp_path / "breaks" / "run0")][-1] == 6


def test_what_cannot_track_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    for given, words in (
        ("wandb,tensorboard", "one or more of wandb, mlflow"),
        (",", "with commas between"),
        ("", "must not be empty"),
    ):
        with pytest.raises(UserError, match=words):
            TrainConfig(log_to=given)
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="--log-to wandb: the package is not installed: pip install wandb"):
        theirs.train(dataclasses.replace(CONFIG, output_dir=str(tmp_path / "out"), log_to="wandb"), small_torch)
    assert not (tmp_path / "out").exists()


def run_twice(folder: Path, name: str, **environment: str) -> None:
    """An epoch, and the next one after a resumption, with a loader worker."""
    for more in (("--epochs", "1"), ("--epochs", "2", "--resume", "auto")):
        command = [*COMMAND, "--lr-schedule", "constant", "--workers", "1", "--log-to", name, "--output-dir", str(folder), *more]
        env = {**os.environ, "PYTHONPATH": ".", **environment}
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=env)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_mlflow_has_the_figures_of_both_halves_of_a_run(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra track")
    run_twice(tmp_path / "out", "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/out/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("mobilenetv3").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["optimizer"] == "sgd"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    logged = [(entry["update"], entry["loss"]) for entry in read_json_lines(tmp_path / "out")]
    assert sorted((point.step, point.value) for point in history) == logged and len(logged) == 8


@pytest.mark.slow
def test_wandb_has_the_figures_of_both_halves_of_a_run(tmp_path):
    pytest.importorskip("wandb", reason="needs the extra track")
    run_twice(tmp_path / "out", "wandb", WANDB_MODE="offline")
    folders = sorted((tmp_path / "out" / "wandb").glob("offline-run-*"))
    name = json.loads((tmp_path / "out" / tracking.TRACKED).read_text())["wandb"]
    assert len(folders) == 2 and all(folder.name.endswith(name) for folder in folders)
    data = b"".join(path.read_bytes() for folder in folders for path in folder.glob("*.wandb"))
    for entry in read_json_lines(tmp_path / "out"):
        assert repr(entry["loss"]).encode() in data, entry["update"]
