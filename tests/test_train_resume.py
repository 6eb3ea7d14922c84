"""Checkpoints: a run that was killed, stopped or damaged goes on exactly, or says clearly why it cannot."""

import os
import random
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mobilenetv3_common.checkpoint import BEST, LATEST, Checkpoint, CheckpointFolder, read_checkpoint, write_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_log import read_json_lines
from tests.conftest import ROOT
from tests.training import QUICK, curve, start, train, weights, write_start

# Everything that has a state: momentum, second moments, averages, schedule, augmentation, mixing, dropout.
STATEFUL = (
    "--epochs", "4", "--save-every", "1", "--optimizer", "rmsprop", "--eps", "0.0316", "--ema-decay", "0.9", "--dropout", "0.3",
    "--auto-augment", "imagenet", "--mixup-alpha", "0.2", "--random-erase", "0.3", "--crop-size", "32", "--resize-size", "32",
    "--workers", "1",
)  # fmt: skip

SMALL_PICTURES = ("--crop-size", "32", "--resize-size", "32")


def same_to_the_last_bit(one, other):
    one, other = read_checkpoint(one / LATEST), read_checkpoint(other / LATEST)
    assert one.arrays.keys() == other.arrays.keys() and len(one.arrays) > 400
    assert [name for name in one.arrays if not np.array_equal(one.arrays[name], other.arrays[name])] == []
    for key in ("epoch", "iteration", "update", "best", "schedule"):
        assert one.meta[key] == other.meta[key]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", pytest.param("ref", marks=pytest.mark.weekly)])
def test_killed_at_ten_random_moments_and_resumed_a_run_ends_bit_identical(framework, tmp_path):
    flags = (*STATEFUL, "--framework", framework, "--epochs", "6")
    assert train(tmp_path / "whole", *flags).returncode == 0
    rng = random.Random(0 if framework == "paddle" else 1)
    kills = 0
    resumed_within_an_epoch = False
    for _ in range(40):
        run = start(tmp_path / "killed", *flags, "--resume", "auto")
        if kills < 5:  # ten over both frameworks, and each costs a start
            left = rng.randint(2, 3)  # updates; before the second one the first has been saved
            for line in run.stdout:
                resumed_within_an_epoch |= "resumed at update" in line and int(re.search(r"update (\d+)", line)[1]) % 4 != 0
                left -= "iter:" in line
                if left == 0:
                    break
            time.sleep(rng.random() * 0.03)  # an update on a fast machine
            kills += run.poll() is None
            run.kill()
            run.communicate()
        else:
            told = run.communicate(timeout=120)[0]
            assert run.returncode == 0, told
            break
    assert kills == 5 and resumed_within_an_epoch
    same_to_the_last_bit(tmp_path / "whole", tmp_path / "killed")
    assert np.array_equal(curve(tmp_path / "whole"), curve(tmp_path / "killed")), "the log holds every update once"


@pytest.mark.parametrize(
    ("framework", "number"),
    [("paddle", signal.SIGTERM), pytest.param("ref", signal.SIGINT, marks=[pytest.mark.slow, pytest.mark.weekly])],
)
def test_a_signal_saves_and_exits(framework, number, tmp_path):
    flags = (*STATEFUL, "--framework", framework, "--save-every", "0", "--epochs", "6")
    run = start(tmp_path / "run", *flags, start_new_session=True)
    for line in run.stdout:
        if "iter: 2]" in line:
            break
    os.killpg(run.pid, number)  # the whole group, workers too, as Ctrl-C does
    told = run.communicate(timeout=60)[0]
    assert run.returncode == 128 + number, told
    assert f"stopped by signal {int(number)}" in told and "Traceback" not in told
    stopped = read_checkpoint(tmp_path / "run" / LATEST).meta
    assert stopped["update"] >= 2
    assert train(tmp_path / "run", *flags, "--resume", "auto").returncode == 0
    assert train(tmp_path / "whole", *flags).returncode == 0
    same_to_the_last_bit(tmp_path / "whole", tmp_path / "run")


def test_latest_best_and_the_last_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for update, best in ((1, True), (2, False), (3, False)):
        folder.save(Checkpoint({"model/x": np.full(3, update, np.float32)}, {"update": update}), best)
    assert [p.name for p in folder.numbered()] == ["update_000000002.safetensors", "update_000000003.safetensors"]
    assert read_checkpoint(tmp_path / LATEST).meta["update"] == 3
    assert read_checkpoint(tmp_path / BEST).meta["update"] == 1
    assert read_checkpoint(tmp_path / BEST).weights()["x"][0] == 1


def test_another_runs_folder_is_set_aside(tmp_path):
    def begin(source=None):
        folder = CheckpointFolder(tmp_path / "run")
        earlier = folder.set_aside(source)
        folder.save(Checkpoint({"model/x": np.zeros(1, np.float32)}, {"update": 9}), True)
        return earlier and earlier.name

    assert begin() is None
    assert begin(tmp_path / "run" / LATEST) is None, "it goes on from there"
    assert [begin(), begin(), begin(tmp_path / "elsewhere" / LATEST)] == ["earlier_1", "earlier_2", "earlier_3"]
    kept = sorted(str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob(LATEST))
    assert kept == [f"earlier_{n}/{LATEST}" for n in (1, 2, 3)] + [LATEST]


@pytest.mark.parametrize("framework", ["paddle", pytest.param("ref", marks=[pytest.mark.slow, pytest.mark.weekly])])
def test_a_second_run_in_a_folder_writes_nothing_over(framework, tmp_path):
    flags = ("--framework", framework, *SMALL_PICTURES, "--save-every", "1")
    assert train(tmp_path, *flags).returncode == 0
    before = {name: (tmp_path / name).read_bytes() for name in (LATEST, BEST, "config.yaml", "train.log", "train_log.jsonl")}
    done = train(tmp_path, *flags, "--epochs", "1", "--seed", "1")
    assert done.returncode == 0 and f"the earlier run in {tmp_path} was moved to {tmp_path / 'earlier_1'}" in done.stdout
    assert {name: (tmp_path / "earlier_1" / name).read_bytes() for name in before} == before
    assert read_checkpoint(tmp_path / LATEST).meta["update"] == 4
    assert [path.name[-13:] for path in CheckpointFolder(tmp_path).numbered()] == [f"{n}.safetensors" for n in (2, 3, 4)]


def test_floats_survive_and_leftovers_of_a_killed_write_are_removed(tmp_path):
    meta = {"update": 1, "lr": 0.1 + 0.2, "tiny": 5e-324}
    write_checkpoint(tmp_path / "a.safetensors", Checkpoint({"model/x": np.zeros(())}, meta))
    assert read_checkpoint(tmp_path / "a.safetensors").meta == meta
    assert read_checkpoint(tmp_path / "a.safetensors").arrays["model/x"].shape == ()
    (tmp_path / ".update_000000001.safetensors.abc.tmp").write_bytes(b"half")
    CheckpointFolder(tmp_path)
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run = train(folder, "--crop-size", "32", "--resize-size", "32", "--epochs", "1")
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--width-mult", "0.75"), "--width-mult 0.5 there, 0.75 here"),
        (("--model", "mobilenet_v3_large"), "--model mobilenet_v3_small there, mobilenet_v3_large here"),
        (("--batch-size", "2"), "4 pictures a forward pass of all ranks there, 2 here"),
        (("--optimizer", "adamw"), "--optimizer sgd there, adamw here"),
        (("--framework", "ref"), "is from --framework paddle"),
    ],
)
def test_another_runs_checkpoint_is_refused(finished, tmp_path, flags, said):
    before = (finished / LATEST).read_bytes()
    run = train(tmp_path, *SMALL_PICTURES, "--epochs", "1", *flags, "--resume", str(finished))
    assert run.returncode == 2 and said in run.stderr
    assert run.stderr.count("\n") == 1, run.stderr
    assert (finished / LATEST).read_bytes() == before


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.5, 0.999])
def test_a_checkpoint_cut_short_is_refused_and_the_folder_kept(finished, tmp_path, share):
    whole = (finished / LATEST).read_bytes()
    (tmp_path / LATEST).write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match="damaged or cut short"):
        read_checkpoint(tmp_path / LATEST)
    if share == 0.5:
        run = train(tmp_path, *SMALL_PICTURES, "--resume", "auto")
        assert run.returncode == 2 and "cut short" in run.stderr and run.stderr.count("\n") == 1
        assert sorted(p.name for p in tmp_path.iterdir()) == [LATEST], "nothing is written over"


def test_a_full_disk_ends_the_run_and_keeps_the_old_checkpoint(finished, tmp_path):
    """The system refuses to write beyond a size, as a full disk does."""
    command = [sys.executable, "tools/train.py", *QUICK, *SMALL_PICTURES, "--output-dir", str(tmp_path / "out")]
    assert train(tmp_path / "out", *SMALL_PICTURES, "--epochs", "1", "--lr-schedule", "constant").returncode == 0
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").glob("*.safetensors")}

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    command += ["--epochs", "2", "--lr-schedule", "constant", "--resume", "auto"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=limit, timeout=120, check=False)
    assert run.returncode == 2 and "cannot write" in run.stderr and "File too large" in run.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").glob("*.safetensors")} == before


@pytest.mark.slow
def test_weights_of_every_kind_begin_a_run(finished, small_state, tmp_path):
    """.pth of torch, .pdparams and .safetensors of Paddle, and a checkpoint; another class count only by its flag."""
    torch_file = write_start(tmp_path, small_state)
    for path in (torch_file, finished / LATEST):
        run = train(tmp_path / path.stem, *SMALL_PICTURES, "--epochs", "1", "--lr", "1e-12", "--pretrained", str(path))
        assert run.returncode == 0, run.stderr
    loaded = weights(tmp_path / "latest")
    assert np.allclose(loaded["classifier.3.weight"], weights(finished)["classifier.3.weight"], atol=1e-9)
    more = (*SMALL_PICTURES, "--epochs", "1", "--pretrained", str(finished / LATEST), "--num-classes", "9")
    run = train(tmp_path / "nine", *more)
    assert run.returncode == 2 and "--reset-classifier" in run.stderr
    assert train(tmp_path / "nine", *more, "--reset-classifier").returncode == 0
    assert read_json_lines(tmp_path / "nine", "eval")
