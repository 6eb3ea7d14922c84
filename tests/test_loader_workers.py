"""Loader workers that end in every way: one line, status 2, within ten seconds, and no process or shared memory left behind."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

DIED = "WorkerError 2: a loader worker has ended, perhaps because memory or shared memory (/dev/shm) ran out: "
NO_ROOM = "UserError 2: the loader's workers get no shared memory"
TOLD = {
    "killed_at_work": (DIED, "was killed by SIGKILL)"),
    "killed_by_a_bus_error": (NO_ROOM, "--shm-size 8g"),
    "crashed": (DIED, "was killed by SIGSEGV)"),
    "left_with_a_status": (DIED, "ended with status 3)"),
    "left_with_status_0": (DIED, "--resume auto ("),
    "out_of_memory": (DIED, "(in it memory ran out)"),
    "killed_while_another_loader_is_asked": (DIED, "was killed by SIGKILL)"),
    "no_more_files": ("UserError 2: ", "Too many open files"),
}


@pytest.mark.slow
@pytest.mark.parametrize("package", ["paddle", "ref"])
def test_workers_that_end_in_every_way_are_one_line_and_none_is_left(package):
    run = subprocess.run(
        [sys.executable, "tests/worker_ends.py", package],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0 and "Traceback" not in run.stderr, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["whole"]["said"] == 16 and told["left_early"]["said"] == 1, "sound loops lose nothing"
    assert told["left_by_an_error"]["said"] == "UserError 2: of the loop"
    for case, (begins, holds) in TOLD.items():
        assert str(told[case]["said"]).startswith(begins) and holds in told[case]["said"], (case, told[case])
    unsent = NO_ROOM if package == "paddle" else DIED
    assert str(told["batch_that_cannot_be_sent"]["said"]).startswith(unsent)
    for case, found in told.items():
        assert found["left"] == [] and found["seconds"] < 10, (case, found)
    assert told["whole"]["files"] == told["batch_that_cannot_be_sent"]["files"], "no shared memory is left"
