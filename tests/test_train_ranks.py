"""Training on several ranks by the real launchers: N ranks are one process with the N-fold batch."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.train_log import read_json_lines
from tests.conftest import ROOT, relative_l2
from tests.training import QUICK, curve, train, weights, write_start

ENVIRONMENT = {**os.environ, "PYTHONPATH": "."}
MIX = ("--mixup-alpha", "0.2", "--mix-group", "2", "--label-smoothing", "0.1", "--epochs", "3", "--ema-decay", "0.5")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def begin(small_state, tmp_path_factory):
    return str(write_start(tmp_path_factory.mktemp("start"), small_state))


def launch(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, env=ENVIRONMENT, check=False)


def same_curve(alone, together):
    """Losses, accuracies, learning rates, evaluation and weights of two runs, to rounding."""
    assert len(curve(alone)) == len(curve(together)) == 6
    assert np.ptp(curve(alone)) > 0.05, "a curve that does not move compares nothing"
    assert np.abs(curve(alone) / curve(together) - 1).max() < 1e-4
    for figure in ("top1", "top5", "lr", "avg_samples"):
        assert np.allclose(curve(alone, figure), curve(together, figure), atol=1e-9), figure
    results = [read_json_lines(folder, "eval") for folder in (alone, together)]
    assert [r["samples"] for r in results[0]] == [r["samples"] for r in results[1]] == [16, 16, 16]
    assert np.allclose([r["loss"] for r in results[0]], [r["loss"] for r in results[1]], rtol=1e-3)
    for name, array in weights(alone).items():
        assert relative_l2(weights(together)[name], array) < 1e-3, name


@pytest.mark.slow
def test_two_paddle_ranks_with_synchronised_batch_norm_are_one_process(begin, tmp_path):
    flags = (*MIX, "--pretrained", begin, "--sync-bn")
    run = train(tmp_path / "one", *flags, "--batch-size", "8")
    assert run.returncode == 0, run.stderr
    launcher = ("-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}")
    run = train(tmp_path / "two", *flags, launcher=launcher)
    assert run.returncode == 0, run.stdout + run.stderr
    same_curve(tmp_path / "one", tmp_path / "two")
    assert "[Epoch" not in (tmp_path / "log" / "workerlog.1").read_text(), "rank 0 alone writes"
    # Without it the ranks' statistics part, and so does the curve: the comparison can fail.
    assert train(tmp_path / "apart", *(f for f in flags if f != "--sync-bn"), launcher=launcher).returncode == 0
    with pytest.raises(AssertionError):
        same_curve(tmp_path / "one", tmp_path / "apart")


@pytest.mark.slow
def test_two_machines_with_accumulation_are_one_process(begin, tmp_path):
    """Two launchers on loopback, each a machine of one rank; BatchNorm frozen."""
    flags = (*MIX, "--pretrained", begin, "--freeze-bn")
    run = train(tmp_path / "one", *flags, "--batch-size", "8")
    assert run.returncode == 0, run.stderr
    master = f"127.0.0.1:{free_port()}"

    def machine(rank):
        launcher = (
            "-m", "paddle.distributed.launch", "--master", master, "--nnodes", "2", "--rank", str(rank),
            "--nproc_per_node", "1", "--log_dir", str(tmp_path / f"log{rank}"),
        )  # fmt: skip
        return train(tmp_path / "two", *flags, "--batch-size", "2", "--accumulate", "2", launcher=launcher)

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(machine, (0, 1)))
    assert [run.returncode for run in runs] == [0, 0], runs[0].stdout + runs[1].stdout
    same_curve(tmp_path / "one", tmp_path / "two")


def test_torchrun_trains_the_reference_as_one_process(begin, tmp_path):
    flags = (*MIX, "--framework", "ref", "--pretrained", begin, "--freeze-bn")
    run = train(tmp_path / "one", *flags, "--batch-size", "8")
    assert run.returncode == 0, run.stderr
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    run = train(tmp_path / "two", *flags, "--batch-size", "2", "--accumulate", "2", launcher=launcher)
    assert run.returncode == 0, run.stderr
    same_curve(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_statistics_of_two_ranks_are_averaged(begin, tmp_path):
    """Without synchronised BatchNorm each rank has its own; what is saved is their mean, not rank 0's."""
    launcher = ("-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}")
    # A learning rate of nearly nothing: statistics move, weights do not.
    flags = ("--pretrained", begin, "--epochs", "1", "--lr", "1e-9", "--batch-size", "8")
    assert train(tmp_path / "two", *flags, launcher=launcher).returncode == 0
    assert train(tmp_path / "ref", *flags, "--batch-size", "16").returncode == 0
    two, one = weights(tmp_path / "two"), weights(tmp_path / "ref")
    name = "features.0.1._mean"  # the first layer's mean is linear in the samples: the mean over ranks is the whole's
    assert relative_l2(two[name], one[name]) < 1e-5
    start = read_checkpoint(tmp_path / "two" / LATEST)
    assert start.meta["update"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_a_rank_that_dies_ends_the_run_and_its_log_is_named(framework, lite_copy, tmp_path):
    """One rank meets a damaged picture; the launcher ends the others, and the run goes on from its checkpoint after the mend."""
    victim = sorted((lite_copy / "train").rglob("*.JPEG"))[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:300])
    if framework == "paddle":
        launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}"]
    else:
        launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            f"--log-dir={tmp_path / 'log'}",
            "--redirects=3",
        ]
    command = [sys.executable, *launcher, "tools/train.py", *QUICK, "--framework", framework, "--data-path", str(lite_copy)]
    command += ["--output-dir", str(tmp_path / "out"), "--resume", "auto", "--save-every", "1", "--batch-size", "2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, env=ENVIRONMENT)
    assert run.returncode != 0
    told = run.stdout + run.stderr + "".join(p.read_text() for p in (tmp_path / "log").rglob("*") if p.is_file())
    assert str(victim.name) in told and "is damaged" in told
    assert re.search(r"workerlog\.[01]|rank *: *[01]|exitcode *: *2", run.stdout + run.stderr), run.stderr
    victim.write_bytes(whole)
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, env=ENVIRONMENT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads((tmp_path / "out" / "train_log.jsonl").read_text().splitlines()[-1])["update"] == 8


@pytest.mark.slow
def test_a_paddle_rank_that_pauses_for_longer_than_gloos_30_seconds_does_not_end_the_run(begin, tmp_path):
    """It pauses while it saves, as on a slow disk, and the other rank goes on to its next update."""
    slow = "import os, sys, time; from mobilenetv3_common.checkpoint import CheckpointFolder as F\nsave, pauses = F.save, [35]\n"
    slow += "def late(*args):\n    time.sleep(pauses.pop() if pauses else 0)\n    return save(*args)\nF.save = late\n"
    slow += "from tools.train import main\nsys.exit(main())\n"
    (tmp_path / "slow.py").write_text(slow)
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={tmp_path / 'log'}", str(tmp_path / "slow.py")]
    flags = [*QUICK, "--pretrained", begin, "--epochs", "2", "--lr", "1e-5", "--output-dir", str(tmp_path / "out")]
    run = launch([sys.executable, *launcher, *flags])
    assert run.returncode == 0, run.stdout + "".join(p.read_text() for p in (tmp_path / "log").glob("workerlog.*"))
    assert len(curve(tmp_path / "out")) == 4


def begun(command, tmp_path):
    """A launched run, its output in a file, and the process of each rank once updates are made."""
    with open(tmp_path / "told", "w") as told:
        launcher = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=told, env=ENVIRONMENT)
    deadline = time.monotonic() + 150
    while not (tmp_path / "out" / "train_log.jsonl").exists() or len(curve(tmp_path / "out")) < 2:
        assert launcher.poll() is None and time.monotonic() < deadline, (tmp_path / "told").read_text()
        time.sleep(0.1)
    ranks = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(place.read_text().rsplit(")", 1)[1].split()[1]) == launcher.pid:
                environ = (place.parent / "environ").read_bytes().split(b"\0")
                ranks |= {int(v): int(place.parent.name) for k, _, v in (e.partition(b"=") for e in environ) if k in RANK_NAMES}
    assert sorted(ranks) == [0, 1], ranks
    return launcher, ranks


RANK_NAMES = (b"PADDLE_TRAINER_ID", b"RANK")


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("framework", ["paddle", "ref"])
@pytest.mark.parametrize(("timeout", "pause"), [("1800", 45), ("5", 20)], ids=["waited for", "given up"])
def test_a_rank_that_is_stopped_for_a_while_is_waited_for_or_named_with_the_setting(framework, timeout, pause, begin, tmp_path):
    """As by a machine that pauses (SIGSTOP, SIGCONT), wherever the rank is."""
    logs = f"{tmp_path / 'log'}"
    launcher = {
        "paddle": ["-m", "paddle.distributed.launch", "--nproc_per_node=2", f"--log_dir={logs}"],
        "ref": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--redirects=3", f"--log-dir={logs}"],
    }[framework]
    command = [sys.executable, *launcher, "tools/train.py", *QUICK, "--framework", framework, "--epochs", "30", "--lr", "1e-5"]
    command += ["--pretrained", begin, "--output-dir", str(tmp_path / "out"), "--rank-timeout", timeout, "--resume", "auto"]
    run, ranks = begun(command, tmp_path)
    os.kill(ranks[1], signal.SIGSTOP)
    time.sleep(pause)
    with contextlib.suppress(ProcessLookupError):
        os.kill(ranks[1], signal.SIGCONT)
    status = run.wait(200)
    told = (tmp_path / "told").read_text() + "".join(p.read_text() for p in (tmp_path / "log").rglob("*") if p.is_file())
    own = [line for line in told.splitlines() if line.startswith("error: ")]
    assert not re.search(r"tools/train\.py\", line", told), told
    if status == 0:
        assert timeout != "5" or framework == "paddle", "Paddle's gloo waits 30 seconds inside of a backward pass, whatever is set"
        assert len(curve(tmp_path / "out")) == 60, told
        return
    assert timeout == "5" or framework == "paddle", "gloo's own 30 seconds, inside of a backward pass of Paddle's"
    assert any("--rank-timeout" in line for line in own), told
    if timeout == "5":
        return
    assert launch(command).returncode == 0 and len(curve(tmp_path / "out")) == 60, "nothing is lost"
