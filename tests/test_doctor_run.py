"""tools/doctor.py RUN: one command that examines a run by all that its folder holds."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from alignment_doctor.cli import main
from alignment_doctor.findings import Verdict, checks_of, examine
from alignment_doctor.run import checks
from alignment_doctor.run.subject import load
from mobilenetv3_common import training
from mobilenetv3_common.checkpoint import LATEST, read_checkpoint, write_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation_record import EVALUATION, read_record, write_record
from mobilenetv3_common.train_log import JSON_LINES, TEXT_LOG
from tests import numpy_backend
from tests.conftest import ROOT
from tests.test_train_survives import CONFIG_OF, Unheard


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a sound run: softmax regression that learns lite_data by heart."""
    folder = tmp_path_factory.mktemp("made") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "StopRequest", Unheard)
        config = dataclasses.replace(CONFIG_OF, epochs=12, lr=0.05, eval_every=4, framework="ref", output_dir=str(folder))
        assert training.train(numpy_backend, config) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def problems(folder):
    found = {one.check.id: one.outcome for one in examine(checks, load(folder))}
    return {id: outcome.where for id, outcome in found.items() if outcome.verdict is Verdict.FOUND}


def test_a_sound_run_has_no_problem_and_one_summary(folder, capsys):
    assert len(checks_of(checks)) == 4
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert main([str(folder), "--json-file", str(folder.parent / "told.json")]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^run.ended +none found +12 of 12 epochs, 48 updates$", told, re.M) and "best after epoch" in told
    assert "weights.*" in told and "data.*" in told and "watch not examined: the run was not watched" in told
    assert f"check --run {folder}" in told and told.splitlines()[-1].startswith(f"No problem found in {folder} by ")
    figures = json.loads((folder.parent / "told.json").read_text())
    assert (
        figures["command"] == "run"
        and figures["facts"]["updates"] == 48
        and "latest.safetensors" in figures["facts"]["checkpoints"]
    )
    assert {one["id"].partition(".")[0] for one in figures["checks"]} == {"run", "weights", "data"}, "the table alone is short"
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def changed(folder, **meta):
    checkpoint = read_checkpoint(folder / LATEST)
    checkpoint.meta |= meta
    write_checkpoint(folder / LATEST, checkpoint)


def ends_early(folder):
    told = (folder / TEXT_LOG).read_text()
    (folder / TEXT_LOG).write_text(told[: told.index("[Epoch 7, iter: 1]")])
    changed(folder, epoch=7, update=28)


def ends_before_evaluation(folder):
    changed(folder, to_evaluate=True)


def ends_before_a_checkpoint(folder):
    for path in folder.glob("*.safetensors"):
        path.unlink()
    os.unlink(folder / EVALUATION)


def loss_is_no_number(folder):
    lines = (folder / JSON_LINES).read_text().splitlines()
    entry = json.loads(lines[-2]) | {"kind": "train", "loss": float("nan"), "lr": 0.1}
    (folder / JSON_LINES).write_text("\n".join([*lines[:-2], json.dumps(entry), lines[-1]]) + "\n")


def file_is_cut(folder):
    path = sorted(folder.glob("update_*"))[0]
    cut = path.read_bytes()[:-100]
    path.unlink()  # latest may be the same file
    path.write_bytes(cut)


def guesses(folder):
    record = read_record(folder)
    everything = np.zeros_like(record.confusion)
    everything[:, 0] = record.confusion.sum(1)
    write_record(folder, dataclasses.replace(record, confusion=everything, figures=record.figures | {"top1": 0.125}))
    lines = (folder / JSON_LINES).read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    entries = [entry | {"top1": 0.125} if entry["kind"] == "eval" else entry for entry in entries]
    (folder / JSON_LINES).write_text("".join(json.dumps(entry) + "\n" for entry in entries))


PLANTED = {
    "ended early": (ends_early, "run.ended", "last line: "),
    "not evaluated": (ends_before_evaluation, "run.ended", "last line: "),
    "no checkpoint": (ends_before_a_checkpoint, "run.ended", "last line: "),
    "nan": (loss_is_no_number, "run.finite", "update 48: loss nan"),
    "cut": (file_is_cut, "run.files", "is damaged or not a safetensors file"),
    "guesses": (guesses, "run.learning", "is at chance: always answering the most frequent class gives 0.1250"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_problem_of_a_run_is_found_and_nothing_else(folder, name):
    plant, check, place = PLANTED[name]
    plant(folder)
    found = problems(folder)
    assert set(found) == {check} and any(place in where for where in found[check]), found


def test_what_is_no_mistake_is_none(folder):
    """A run that still goes on; one that --early-stop ended; a last line of the log that is written just now."""
    changed(folder, epoch=7, update=28, stale=3, config=read_checkpoint(folder / LATEST).meta["config"] | {"early_stop": 3})
    with (folder / JSON_LINES).open("a") as file:
        file.write('{"kind": "tra')
    assert problems(folder) == {}
    changed(folder, stale=0)
    assert set(problems(folder)) == {"run.ended"}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == "held\n"
    assert problems(folder) == {}, "it still goes on"
    holder.communicate("\n", timeout=20)
    assert set(problems(folder)) == {"run.ended"}


HOLDS = """
import sys
from mobilenetv3_common.run_lock import run_lock
with run_lock(sys.argv[1]):
    print("held", flush=True)
    input()
"""


def test_a_log_of_another_program_is_looked_at(tmp_path, capsys):
    (tmp_path / "summary.csv").write_text("epoch,train_loss,eval_top1,lr\n0,2.3,10.0,0.1\n1,nan,12.0,0.1\n2,2.2,13,0.1\n")
    assert main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "update 2: loss nan" in told and "not judged: whether it learnt" in told
    assert "data not examined: the log does not say which pictures the run has" in told


def test_what_cannot_be_examined_is_one_line(tmp_path, folder, capsys):
    (tmp_path / "empty").mkdir()
    wrong = (
        (tmp_path / "empty", "no other log"),
        ("lite_data", "python tools/doctor.py data lite_data"),
        ("out/run", "no such run"),
    )
    for path, words in wrong:
        assert main(["run", str(path)]) == 2
        told = capsys.readouterr().err
        assert words in told and told.count("\n") == 1
    with pytest.raises(UserError, match="no such run"):
        load(folder / TEXT_LOG / "x")


def test_a_run_whose_folder_has_the_name_of_a_command_is_examined(tmp_path, monkeypatch):
    from alignment_doctor.cli import with_command

    monkeypatch.chdir(tmp_path)
    assert with_command(["data"]) == ["data"]
    (tmp_path / "data").mkdir()
    assert with_command(["data"]) == ["run", "data"] and with_command(["data", "FOLDER"]) == ["data", "FOLDER"]
