"""Runs that are killed at least ten times at each kind of moment, and end bit-identical to one that was not."""

import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.train_log import JSON_LINES, TEXT_LOG, read_json_lines
from tests.conftest import ROOT
from tests.training import QUICK

KILLS = 10
# Forks a process for each start, on the framework in numpy, so that a start takes no second; the last one is not killed.
STARTS = """
import dataclasses, json, os, random, sys
from mobilenetv3_common import train_log, training
from mobilenetv3_common.train_config import TrainConfig
from tests import numpy_backend
from tests.killed import Killer
kind, folder, seed, most, flags = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
train_log.SCALARS = {}  # their packages take seconds to import
config = TrainConfig(**flags, output_dir=folder, resume="auto")
rng, ends = random.Random(seed), []
while len(ends) <= (10 if kind != "none" else 0):
    at = rng.randint(1, most)
    sys.stdout.flush()
    if not (child := os.fork()):
        if kind != "none" and len(ends) < 10:
            Killer(kind, at, rng).install(numpy_backend)
        os.dup2(2, 1)
        os._exit(training.train(numpy_backend, config))
    rng.random(), rng.random()
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))
"""
CONFIG = {
    "framework": "numpy", "data_path": "lite_data", "crop_size": 16, "resize_size": 16, "batch_size": 4, "workers": 0, "epochs": 12,
    "lr": 0.01, "print_every": 1, "save_every": 1, "keep": 2,
}  # fmt: skip


def starts(kind, folder, seed=0, most=1):
    run = subprocess.run(
        [sys.executable, "-c", STARTS, kind, str(folder), str(seed), str(most), json.dumps(CONFIG)],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def same_end(whole, killed):
    """Checkpoint, best figure and logs of two runs."""
    one, other = (read_checkpoint(folder / LATEST) for folder in (whole, killed))
    assert one.arrays.keys() == other.arrays.keys()
    assert [name for name in one.arrays if not np.array_equal(one.arrays[name], other.arrays[name])] == []
    assert all(one.meta[key] == other.meta[key] for key in ("epoch", "iteration", "update", "best", "schedule", "to_evaluate"))
    for kind in ("train", "eval"):
        entries = [read_json_lines(folder, kind) for folder in (whole, killed)]
        figures = [[(e["update"], e["loss"], e["top1"]) for e in of_run] for of_run in entries]
        assert figures[0] == figures[1] and len(figures[0]) > 1, kind
    texts = [(folder / TEXT_LOG).read_text().splitlines() for folder in (whole, killed)]
    assert len({tuple(line[:20] for line in text if line.startswith("[E")) for text in texts}) == 1
    assert not list(killed.glob(".*.tmp")) and not list(killed.glob("earlier_*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert starts("none", folder) == [0]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("temporary", 7), ("rename", 16), ("evaluation", 7), ("logging", 11), ("update", 7)])
def test_killed_ten_times_in_one_kind_of_moment_a_run_ends_bit_identical(kind, most, whole, tmp_path):
    ends = starts(kind, tmp_path, most=most)
    assert ends == [-signal.SIGKILL] * KILLS + [0], "each start is killed, the last one is not"
    same_end(whole, tmp_path)


@pytest.mark.slow
def test_a_run_that_lost_an_update_is_told_apart(whole, tmp_path):
    """The comparison can fail: one weight, one line of the log."""
    import shutil

    from mobilenetv3_common.checkpoint import write_checkpoint

    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    same_end(whole, copy)
    found = read_checkpoint(copy / LATEST)
    name = next(iter(found.arrays))
    found.arrays[name] = np.nextafter(found.arrays[name], 1)
    write_checkpoint(copy / LATEST, found)
    with pytest.raises(AssertionError):
        same_end(whole, copy)
    shutil.copy(whole / LATEST, copy / LATEST)
    lines = (copy / JSON_LINES).read_text().splitlines(keepends=True)
    (copy / JSON_LINES).write_text("".join(lines[:5] + lines[4:]))
    with pytest.raises(AssertionError):
        same_end(whole, copy)


STATEFUL = (
    "--epochs", "6", "--save-every", "1", "--optimizer", "rmsprop", "--eps", "0.0316", "--ema-decay", "0.9", "--dropout", "0.3",
    "--mixup-alpha", "0.2", "--random-erase", "0.3", "--crop-size", "32", "--resize-size", "32", "--batch-size", "2",
    "--resume", "auto",
)  # fmt: skip
LAUNCHERS = {
    "ref": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    "paddle": ("-m", "paddle.distributed.launch", "--nproc_per_node=2"),
}


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("framework", LAUNCHERS)
def test_ranks_killed_ten_times_resume_bit_identical(framework, tmp_path):
    """Either rank, in an update, an evaluation, or (rank 0) while it writes; the launcher ends the other one."""
    rng = random.Random(3)

    def launch(folder, kind="none", at=1, rank=0):
        log = {"paddle": [f"--log_dir={tmp_path / 'log'}"], "ref": []}[framework]
        command = [sys.executable, *LAUNCHERS[framework], *log, "tests/killed.py", kind, str(at), str(rank), str(rng.randrange(99))]
        command += [*QUICK, *STATEFUL, "--framework", framework, "--output-dir", str(folder)]
        env = {**os.environ, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, env=env, check=False)

    run = launch(tmp_path / "whole")
    assert run.returncode == 0, run.stdout + run.stderr
    moments = [("update", 3, 0), ("update", 2, 1), ("evaluation", 2, 1), ("temporary", 2, 0), ("rename", 5, 0)] * 2
    places = []
    for kind, at, rank in moments:
        run = launch(tmp_path / "killed", kind, at, rank)
        assert run.returncode != 0, (kind, at, rank, run.stdout, run.stderr)
        latest = tmp_path / "killed" / LATEST
        places.append(read_checkpoint(latest).meta["update"] if latest.exists() else 0)
    assert len(moments) >= KILLS and len(set(places)) > 4, places
    run = launch(tmp_path / "killed")
    assert run.returncode == 0, run.stdout + run.stderr
    same_end(tmp_path / "whole", tmp_path / "killed")
