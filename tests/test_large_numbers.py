"""Numbers of hundreds of digits, and outputs that nobody can write, are one line with status 2 in every command."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from mobilenetv3_common.config_file import read_recipe
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import ROOT

NINES = "9" * 400
FIELDS = ["lr", "batch_size", "epochs", "num_classes", "width_mult", "seed", "ema_decay"]


@pytest.mark.parametrize("value", [NINES, "-" + NINES, "9" * 5000, str(2**63)])
@pytest.mark.parametrize("field", FIELDS)
def test_a_recipe_refuses_a_number_of_hundreds_of_digits(field, value, tmp_path):
    (tmp_path / "r.yaml").write_text(f"{field}: {value}\n")
    with pytest.raises(UserError, match=r"r\.yaml"):
        read_recipe(tmp_path / "r.yaml", TrainConfig)
    (tmp_path / "r.yaml").write_text(f"{field}: {10**18}\n")
    assert read_recipe(tmp_path / "r.yaml", TrainConfig)[field] == 10**18, "a large number is the config's to refuse"


FLAGS = {
    "train": ["--batch-size", "--seed", "--epochs", "--num-classes", "--workers"],
    "convert_weights": ["--num-classes"],
    "serve": ["--workers", "--decoders", "--port", "--max-batch", "--threads"],
    "predict": ["--topk", "--batch-size"],
    "align": ["--seed", "--ranks"],
    "benchmark": ["--repeats"],
}


@pytest.mark.parametrize(("tool", "flag"), [(tool, flag) for tool, flags in FLAGS.items() for flag in flags])
def test_a_flag_refuses_a_number_of_hundreds_of_digits(tool, flag, capfd):
    main = importlib.import_module(f"tools.{tool}").main
    for value in (NINES, f"-{NINES}", "9" * 5000):
        try:
            status = main([f"{flag}={value}"] if tool != "benchmark" else ["service", f"{flag}={value}"])
        except SystemExit as end:
            status = end.code
        said = capfd.readouterr().err
        assert status == 2 and said.count("\n") == 1 and flag in said and len(said) < 6000, said[:300]


COMMANDS = {
    "the list of faults": ["tools/align.py", "--inject", "list"],
    "the engine's help": ["-m", "alignment", "--help"],
    "a compared record": ["-m", "alignment.compare", "RECORD", "RECORD"],
    "a list of findings": ["tools/doctor.py", "data", "lite_data"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_one_line(name, unbuffered, tmp_path):
    import numpy as np

    np.savez(tmp_path / "r.npz", x=np.arange(3.0))
    command = [str(tmp_path / "r.npz") if part == "RECORD" else part for part in COMMANDS[name]]
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, *command], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert run.returncode == 2 and "Traceback" not in run.stderr, run.stderr
    assert run.stderr.splitlines()[-1] == "error: standard output: No space left on device"
    assert run.stderr.count("No space left") == 1 and "Exception ignored" not in run.stderr


def test_an_output_that_can_be_written_changes_nothing(capfd):
    @exit_on_user_error
    def main():
        print("said")
        return 3

    assert main() == 3 and capfd.readouterr() == ("said\n", "")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--num-classes", "2000000000"], "--num-classes 2000000000: FILE has 8; leave --num-classes out"),
        (["--num-classes", "9"], "--num-classes 9: FILE has 8; leave --num-classes out"),
        (["--width-mult", "1e6"], "--width-mult 1000000.0: FILE has 0.25; leave --width-mult out"),
        (["--width-mult", "3"], "--width-mult 3.0: FILE has 0.25; leave --width-mult out"),
    ],
)
def test_a_conversion_makes_no_network_that_its_file_does_not_hold(flags, words, tmp_path, capfd):
    import torch

    from mobilenetv3_ref.models import mobilenet_v3_small
    from tools.convert_weights import main

    file = tmp_path / "x.pth"
    torch.save(mobilenet_v3_small(num_classes=8, width_mult=0.25).state_dict(), file)
    assert main([str(file), str(tmp_path / "x.pdparams"), *flags]) == 2
    assert words.replace("FILE", str(file)) in capfd.readouterr().err and not (tmp_path / "x.pdparams").exists()
    assert main([str(file), str(tmp_path / "x.pdparams"), "--num-classes", "8", "--width-mult", "0.25"]) == 0
    torch.save({"x": torch.zeros(3)}, file)
    assert main([str(file), str(tmp_path / "y.pdparams"), *flags]) == 2 and not (tmp_path / "y.pdparams").exists()
