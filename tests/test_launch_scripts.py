"""scripts/train.sh and scripts/train_dist.sh by real shells and launchers."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from mobilenetv3_common.train_log import read_json_lines
from tests.conftest import ROOT
from tests.test_train_ranks import free_port
from tests.training import QUICK

FLAGS = [*QUICK[2:], "--crop-size", "32", "--resize-size", "32", "--save-every", "1"]


def environment(tmp_path, **more):
    return {**os.environ, "PYTHON": sys.executable, "LOG_DIR": str(tmp_path / "log"), "RESTART_DELAY": "0", **more}


def test_train_sh_trains_and_goes_on(tmp_path):
    command = ["scripts/train.sh", "configs/lite.yaml", "lite_data", *FLAGS, "--output-dir", str(tmp_path)]
    for _ in range(2):  # the second time it finds the run done
        run = subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stderr
    assert "resumed at update 8" in run.stdout
    assert [entry["update"] for entry in read_json_lines(tmp_path)] == list(range(1, 9))


@pytest.mark.parametrize("script", ["train.sh", "train_dist.sh"])
def test_the_scripts_say_how_they_are_called(script):
    run = subprocess.run([f"scripts/{script}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2 and run.stderr.startswith("usage: ")


@pytest.mark.slow
def test_train_dist_sh_resumes_after_a_rank_was_killed(tmp_path):
    cluster = {"MASTER": f"127.0.0.1:{free_port()}", "NNODES": "1", "NODE_RANK": "0", "NPROC": "2"}
    command = [
        "scripts/train_dist.sh",
        "configs/lite.yaml",
        "lite_data",
        *FLAGS,
        "--output-dir",
        str(tmp_path),
        "--batch-size",
        "2",
    ]
    command += ["--epochs", "4"]
    with open(tmp_path / "told", "w+") as told:
        run = subprocess.Popen(command, cwd=ROOT, env=environment(tmp_path, **cluster), stdout=told, stderr=told)
        log = tmp_path / "train.log"
        deadline = time.time() + 90
        while not (log.exists() and "iter: 2]" in log.read_text()) and time.time() < deadline:
            time.sleep(0.05)
        ranks = [p for p in psutil.Process(run.pid).children(recursive=True) if "tools/train.py" in p.cmdline()[1:4]]
        ranks = [p for p in ranks if p.environ().get("PADDLE_TRAINER_ID") == "1"]
        assert len(ranks) == 1
        ranks[0].send_signal(signal.SIGKILL)
        assert run.wait(timeout=150) == 0
        told.seek(0)
        text = told.read()
    assert "restart 1 from the last checkpoint" in text and re.search(r"workerlog\.[01]\b", text)
    assert [entry["update"] for entry in read_json_lines(tmp_path)] == list(range(1, 17))
    assert "resumed at update" in log.read_text()


def test_train_dist_sh_gives_up_after_its_restarts(tmp_path):
    cluster = {"MASTER": "127.0.0.1:1", "NNODES": "1", "NODE_RANK": "0", "MAX_RESTARTS": "2", "PYTHON": "false"}
    run = subprocess.run(
        ["scripts/train_dist.sh", "configs/lite.yaml", "lite_data"],
        cwd=ROOT, env=environment(tmp_path) | cluster, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 1 and run.stderr.count("from the last checkpoint") == 2
    assert "given up, exit status 1, restarts: 2;" in run.stderr and "workerlog" in run.stderr


def test_train_dist_sh_does_not_repeat_what_cannot_work(tmp_path):
    cluster = {"MASTER": f"127.0.0.1:{free_port()}", "NNODES": "1", "NODE_RANK": "0"}
    command = ["scripts/train_dist.sh", "configs/lite.yaml", "nowhere", "--output-dir", str(tmp_path)]
    run = subprocess.run(
        command, cwd=ROOT, env=environment(tmp_path, **cluster), capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 2 and "it is not started again" in run.stderr and "restart 1" not in run.stderr
    assert "data path nowhere is not a folder" in "".join(p.read_text() for p in (tmp_path / "log").glob("workerlog.*"))


@pytest.mark.parametrize(("code", "restarts"), [(-9, True), (2, False), (143, False), (-15, False)])
def test_train_dist_sh_looks_at_the_rank_that_failed_first(tmp_path, code, restarts):
    """The launcher stops rank 0 because rank 1 has failed, and ends with the 143 of the one that it stopped."""
    launcher = tmp_path / "python"
    told = f"LAUNCH ERROR Container failed !!!\nContainer rank 1 status failed cmd [a, b] code {code} log x/workerlog.1 "
    launcher.write_text(f"#!/bin/bash\necho '{told}' >&2\nexit 143\n")
    launcher.chmod(0o755)
    cluster = {"MASTER": "127.0.0.1:1", "NNODES": "1", "NODE_RANK": "0", "PYTHON": str(launcher), "MAX_RESTARTS": "1"}
    run = subprocess.run(
        ["scripts/train_dist.sh", "configs/lite.yaml", "lite_data"],
        cwd=ROOT, env=environment(tmp_path) | cluster, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ("restart 1 from the last checkpoint" in run.stderr) == restarts, run.stderr
    assert run.returncode == (2 if code == 2 else 247 if restarts else 143) and "code" in run.stderr


@pytest.mark.parametrize(("status", "asked"), [(15, False), (143, False), (130, False), (129, False), (0, True)])
@pytest.mark.slow
def test_train_dist_sh_does_not_restart_a_stop_that_was_asked_for(tmp_path, status, asked):
    """15 is what Paddle's launcher ends with after SIGTERM. A signal to the script reaches the launcher, and is waited for."""
    launcher = tmp_path / "python"
    wait = f"trap 'echo told > {tmp_path}/launcher; exit {status}' TERM; echo up > {tmp_path}/up; sleep 20 >&- 2>&- & wait"
    launcher.write_text(f"#!/bin/bash\n{wait if asked else f'exit {status}'}\n")
    launcher.chmod(0o755)
    cluster = {"MASTER": "127.0.0.1:1", "NNODES": "1", "NODE_RANK": "0", "PYTHON": str(launcher)}
    run = subprocess.Popen(
        ["scripts/train_dist.sh", "configs/lite.yaml", "lite_data"],
        cwd=ROOT, env=environment(tmp_path) | cluster, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    if asked:
        deadline = time.time() + 20
        while not (tmp_path / "up").exists() and time.time() < deadline:
            time.sleep(0.02)
        run.send_signal(signal.SIGTERM)
    told = run.communicate(timeout=30)[1]
    assert run.returncode == (143 if asked else status) and "restart" not in told
    assert (tmp_path / "launcher").exists() == asked
