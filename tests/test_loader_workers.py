"""Loader workers that end in every way: one line, status 2, within ten seconds, and no process or shared memory left behind."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mobilenetv3_common import loader_workers
from mobilenetv3_common.dataset_index import index_dataset
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.sampling import BatchPlan
from mobilenetv3_paddle.data import loader
from tests.conftest import LITE_DATA, ROOT

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


def test_a_worker_that_stands_still_as_it_begins_is_forked_again(tmp_path, monkeypatch):
    """As one does for which a lock is held that a thread of its parent had at the fork: here the first fork's second worker."""
    free = loader._free_a_tensor

    def held():
        with contextlib.suppress(FileExistsError):
            (tmp_path / "stood").touch(exist_ok=False)
            (tmp_path / "who").write_text(str(os.getpid()))
            time.sleep(1000)
        free()

    monkeypatch.setattr(loader, "_free_a_tensor", held)
    monkeypatch.setattr(loader_workers, "BEGINNING", 0.5)
    dataset = loader.ImageDataset(index_dataset(LITE_DATA, "val"), EvalPreset(crop_size=32, resize_size=32))
    plan = BatchPlan(len(dataset), 4)
    begun = time.monotonic()
    numbers = [number for batch in loader.build_loader(dataset, plan, 2) for number in batch[-1].tolist()]
    assert numbers == list(range(len(dataset))) and time.monotonic() - begun < 60
    assert not Path(f"/proc/{(tmp_path / 'who').read_text()}").exists()
