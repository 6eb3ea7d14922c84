"""Two-rank runs that are stopped or killed in mid-epoch, by real launchers and signals, end bit-identical to one that was not."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.train_log import read_json_lines
from tests.conftest import ROOT
from tests.test_train_kills import LAUNCHERS, same_end
from tests.training import QUICK, train

TIMES = 20
EPOCH = 4  # updates of two ranks with two pictures each
FLAGS = (
    "--crop-size", "32", "--resize-size", "32", "--batch-size", "2", "--optimizer", "rmsprop", "--eps", "0.0316",
    "--ema-decay", "0.9", "--dropout", "0.3", "--random-erase", "0.3", "--resume", "auto", "--keep", "2",
)  # fmt: skip


class Launched:
    """Two ranks under a framework's own launcher."""

    def __init__(self, framework, folder, *flags, script="tools/train.py", **more):
        self.folder, self.said = folder, folder.with_suffix(".out")
        logs = {"paddle": [f"--log_dir={folder}.log"], "ref": []}[framework]
        command = [sys.executable, *LAUNCHERS[framework], *logs, str(script), *QUICK, *FLAGS, *flags]
        command += ["--framework", framework, "--output-dir", str(folder)]
        env = {**os.environ, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1", **more}
        with self.said.open("w") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output)

    def ranks(self):
        """Their processes."""
        pid, found = self.process.pid, []
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if f"{self.folder}" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
        return found

    def until(self, update, seconds=150):
        """Wait until the log has an update."""
        begun = time.monotonic()
        while logged(self.folder) < update:
            assert self.process.poll() is None and time.monotonic() - begun < seconds, self.told()
            time.sleep(0.01)

    def end(self, seconds=60):
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()

    def told(self):
        logs = Path(f"{self.folder}.log").glob("workerlog.*")
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in (self.said, *logs))


def logged(folder):
    try:
        return max((entry["update"] for entry in read_json_lines(folder)), default=0)
    except (OSError, ValueError):
        return 0


def whole(framework, folder, epochs):
    run = Launched(framework, folder, "--epochs", str(epochs))
    assert run.end(300) == 0, run.told()


# The run waits after an update for the signal, so that it surely arrives there, on however busy a machine.
WAITING = """
import os, sys, time
from mobilenetv3_common import training
agreed, done = training.agreed_signal, 0
def waiting(ranks, stop):
    global done
    done += 1
    while done == int(os.environ["WAIT_AFTER"]) and not stop.signal:
        time.sleep(0.01)
    return agreed(ranks, stop)
training.agreed_signal = waiting
"""
TRAINING = """
from tools.train import main
sys.exit(main())
"""


def stopped(framework, folder, epochs, after, script=WAITING + TRAINING):
    """Start a run and stop it by SIGTERM once it has made some updates; gives the update where its checkpoint then stands."""
    file = folder.with_suffix(".py")
    file.write_text(script)
    stood = logged(folder)
    run = Launched(framework, folder, "--epochs", str(epochs), script=file, WAIT_AFTER=str(after))
    run.until(stood + after)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() != 0, run.told()
    assert read_checkpoint(folder / LATEST).meta["iteration"] == (stood + after) % EPOCH, run.told()
    return stood + after


def interrupted(framework, folder, epochs, rng, times, killed):
    """Start a run again and again, and interrupt it after some updates; gives where its checkpoint then stood in its epoch."""
    places = []
    for number in range(times):
        stood = logged(folder)
        often = ("--save-every", "1") if killed else ()
        run = Launched(framework, folder, "--epochs", str(epochs), *often)
        run.until(stood + rng.choice([1, 2, 3, 5, 6]))
        time.sleep(rng.random() * 0.1)
        if killed:
            os.kill(rng.choice([*run.ranks(), run.process.pid]) if number % 4 else run.ranks()[0], signal.SIGKILL)
        else:
            run.process.send_signal(signal.SIGTERM)
        assert run.end() != 0, run.told()
        for rank in alive(folder):  # of a launcher that was killed: the ranks notice it
            wait_for_end(rank)
        places.append(read_checkpoint(folder / LATEST).meta["iteration"])
    whole(framework, folder, epochs)
    return places


def alive(folder):
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"--output-dir\0{folder}\0" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def wait_for_end(pid, seconds=20):
    begun = time.monotonic()
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() - begun < seconds, f"process {pid} does not end"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", pytest.param("ref", marks=pytest.mark.weekly)])
def test_two_ranks_stopped_in_mid_epoch_end_bit_identical(framework, tmp_path):
    whole(framework, tmp_path / "whole", 3)
    assert stopped(framework, tmp_path / "stopped", 3, 2) == 2
    assert stopped(framework, tmp_path / "stopped", 3, 5) == 7
    whole(framework, tmp_path / "stopped", 3)
    same_end(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
def test_another_number_of_ranks_goes_on_with_the_mean_and_says_so(tmp_path):
    stopped("ref", tmp_path / "run", 3, 2)
    stood = read_checkpoint(tmp_path / "run" / LATEST)
    assert len({name.split("/")[0] for name in stood.arrays if "rank" in name}) == 2
    one = train(tmp_path / "run", *FLAGS, "--epochs", "3", "--batch-size", "4", "--framework", "ref")
    assert one.returncode == 0, one.stderr
    assert "the checkpoint is of 2 ranks in mid-epoch" in one.stdout
    assert read_checkpoint(tmp_path / "run" / LATEST).meta["update"] == 3 * EPOCH


MERGING = """
training.statistics_of_ranks = lambda run: training.merge_statistics(run) or {}
"""


@pytest.mark.slow
def test_a_run_whose_ranks_merge_where_they_stop_is_told_apart(tmp_path):
    """The comparison can fail: with the means in the place of each rank's own statistics the run ends elsewhere."""
    whole("ref", tmp_path / "whole", 3)
    stopped("ref", tmp_path / "stopped", 3, 2, WAITING + MERGING + TRAINING)
    whole("ref", tmp_path / "stopped", 3)
    with pytest.raises(AssertionError, match="ema/features"):
        same_end(tmp_path / "whole", tmp_path / "stopped")


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("framework", LAUNCHERS)
@pytest.mark.timeout(3600)
def test_two_ranks_interrupted_twenty_times_end_bit_identical(framework, killed, tmp_path):
    epochs = TIMES * 7 // EPOCH + 2
    whole(framework, tmp_path / "whole", epochs)
    places = interrupted(framework, tmp_path / "again", epochs, random.Random(5), TIMES, killed)
    assert len(places) == TIMES and sum(place > 0 for place in places) > TIMES // 2, places
    same_end(tmp_path / "whole", tmp_path / "again")
    print(f"{framework}: {TIMES} {'kills' if killed else 'stops'}, places in the epoch: {places}")


def workers_of(pid):
    found = [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return [int(child) for child in found]


@pytest.mark.slow
@pytest.mark.parametrize("framework", LAUNCHERS)
def test_a_loader_worker_of_one_rank_that_is_killed_ends_both_ranks(framework, tmp_path):
    """Its rank says it in one line and ends with status 2; the launcher ends the other one, and nothing is left."""
    run = Launched(framework, tmp_path / "run", "--epochs", "500", "--workers", "1")
    run.until(2)
    ranks = run.ranks()
    (worker,) = workers_of(ranks[1])
    begun = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    while Path(f"/proc/{ranks[1]}/status").exists() and "State:\tZ" not in Path(f"/proc/{ranks[1]}/status").read_text():
        assert time.monotonic() - begun < 10, "the rank does not end"
        time.sleep(0.02)
    assert run.end(30) != 0 and alive(tmp_path / "run") == []
    told = [line for line in run.told().splitlines() if line.startswith("error: a loader worker has ended")]
    assert told and len(set(told)) == 1 and f"(process {worker} was killed by SIGKILL)" in told[0]
    said = {"paddle": r"code 2 log", "ref": r"failed \(exitcode: 2\) local_rank: 1 "}[framework]
    assert re.search(said, run.told()), run.told()  # the rank that ended is named, not the one that lost its neighbour
