"""The command ``mnv3``: its sub-commands, and how messages name commands."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from alignment.flags import audit_name, audit_parser
from mnv3 import cli
from mobilenetv3_common import called
from mobilenetv3_common.config_file import read_recipe, recipe_file
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.evaluation_record import Record
from mobilenetv3_common.run_told import doubts
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import ROOT


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name != "doctor"])
def test_each_sub_command_calls_itself_by_its_name(name, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["mnv3"])
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and shown.startswith(f"usage: mnv3 {name}")
    own = "tools/" + {"export": "export_model", "convert": "convert_weights", "lr-find": "lr_find"}.get(name, name) + ".py"
    assert own not in shown


@pytest.mark.parametrize(
    ("word", "status", "said"), [("trian", 2, "did you mean train?"), ("zzz", 2, "use one of train"), ("", 2, "")]
)
def test_an_unknown_sub_command_is_met_with_the_nearest(word, status, said, capsys):
    assert cli.main([word]) == status
    assert said in capsys.readouterr().err


def test_messages_name_commands_as_the_reader_called_them(monkeypatch):
    text = "make one with tools/export_model.py, python tools/lr_find.py or tools/prepare_digits.py"
    monkeypatch.setattr("sys.argv", ["tools/train.py"])
    assert called.as_called(text) == text
    monkeypatch.setattr("sys.argv", ["mnv3 train"])
    assert called.as_called(text) == "make one with mnv3 export, mnv3 lr-find or tools/prepare_digits.py"
    assert UserError(text).line == called.as_called(text)


def test_commands_that_are_shown_work_in_another_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["/checkout/tools/train.py"])
    monkeypatch.chdir(tmp_path)
    assert called.as_called("next: python tools/predict.py") == "next: mnv3 predict"
    rising = [{"epoch": n, "update": n, "loss": 9.0} for n in range(2)]
    balanced = Record({"top1": 0.5, "samples": 100, "loss": 1.0}, ("a", "b"), np.array([[25, 25], [25, 25]]))
    (tools,) = [line for line in doubts(rising, [{"top1": 0.7, "loss": 1.0}], balanced) if "lr" in line][:1]
    assert "mnv3 lr-find" in tools and "tools/" not in tools


def test_a_report_has_the_audit_as_it_was_called(monkeypatch):
    for called_as, said in (
        ("mnv3 audit", "mnv3 audit"),
        ("/x/bin/pytest", "python -m alignment audit"),
        ("/x/bin/alignment", "alignment audit"),
    ):
        monkeypatch.setattr("sys.argv", [called_as])
        assert audit_name() == said and audit_parser().prog == said


def test_the_engine_is_called_by_its_own_command(tmp_path):
    alignment = Path(sys.executable).parent / "alignment"
    told = [subprocess.run([alignment, *given], capture_output=True, text=True, check=False) for given in ((), ("audit", "--help"))]
    assert all("usage: alignment" in one.stdout and "python -m alignment audit [" not in one.stdout for one in told)
    wrong = subprocess.run([alignment, "audit", "--output-dir", str(tmp_path)], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "did you mean --report?" in wrong.stderr, wrong.stderr


@pytest.mark.parametrize("name", ["lite", "lite.yaml", "configs/lite.yaml"])
def test_an_own_recipe_is_found_from_any_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipe_file(name) == ROOT / "configs" / "lite.yaml"
    assert read_recipe(name, TrainConfig)["epochs"] > 0
    (tmp_path / "configs").mkdir()
    for own in (tmp_path / "lite", tmp_path / "lite.yaml", tmp_path / "configs" / "lite.yaml"):
        own.write_text("epochs: 3\n")
    assert read_recipe(name, TrainConfig) == {"epochs": 3}, "a file of the user's own comes first"


def test_a_recipe_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("liter", "elsewhere/lite.yaml"):
        assert recipe_file(name) == Path(name)
        with pytest.raises(UserError, match=f"cannot read config {name}"):
            read_recipe(name, TrainConfig)


@pytest.mark.parametrize("module", ["alignment", "mnv3", "alignment_doctor --help", "mnv3 train --help"])
def test_a_reader_that_has_gone_is_met_without_a_traceback(module):
    code = "import os, sys, runpy; r, w = os.pipe(); os.close(r); os.dup2(w, 1); sys.argv = sys.argv[1:]; "
    code += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, "-c", code, *module.split()], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.stderr == "" and done.returncode in (0, 1, 2)


def test_the_former_name_of_the_doctor_remains():
    from alignment_doctor.watch import Watch
    from doctor.watch import Watch as former

    assert former is Watch
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "data", "nowhere"], capture_output=True, text=True, cwd=ROOT, timeout=100
    )
    assert done.returncode == 2 and "nowhere" in done.stderr and done.stderr.count("\n") == 1
