"""What happens around a run: stops, locks, full disks, bad pictures, other ranks. Nothing hangs, and nothing is lost."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

import mobilenetv3_paddle.train as ours
import mobilenetv3_ref.train as theirs
from mobilenetv3_common import training
from mobilenetv3_common.checkpoint import (
    CONFIG,
    LATEST,
    OTHER_CONFIG,
    CheckpointFolder,
    find_checkpoint,
    read_checkpoint,
    write_effective,
)
from mobilenetv3_common.data_check import check_pictures
from mobilenetv3_common.dataset_index import index_splits
from mobilenetv3_common.errors import RankError, UserError, exit_on_user_error, naming_lost_ranks
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.run_control import StopRequest
from mobilenetv3_common.run_lock import LOCK, run_lock
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import TrainLog, read_json_lines
from tests import numpy_backend
from tests.conftest import ROOT, run_command

CONFIG_OF = TrainConfig("numpy", data_path="lite_data", crop_size=16, resize_size=16, batch_size=4, workers=0, epochs=2, lr=0.01,
                        hflip_prob=0.0, min_crop_scale=1.0, print_every=1)  # fmt: skip
FIGURES = dict.fromkeys(("top1", "top5", "lr", "loss", "avg_reader_cost", "avg_batch_cost", "avg_samples", "avg_ips"), 0.5)


class Unheard(StopRequest):
    """No signals: the test process keeps its own."""

    def listen(self):
        return self


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(training, "StopRequest", Unheard)


def run_numpy(folder, **more):
    return training.train(numpy_backend, dataclasses.replace(CONFIG_OF, output_dir=str(folder), **more))


# --- evaluation ---


def test_a_bad_validation_picture_costs_no_epoch(quiet, lite_copy, tmp_path):
    victim = sorted((lite_copy / "val").rglob("*.JPEG"))[5]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:200])
    with pytest.raises(UserError, match=victim.name):
        run_numpy(tmp_path / "out", data_path=str(lite_copy))
    kept = read_checkpoint(tmp_path / "out" / LATEST).meta
    assert (kept["update"], kept["epoch"], kept["to_evaluate"], kept["best"]) == (4, 1, True, -1.0)
    victim.write_bytes(whole)
    assert run_numpy(tmp_path / "out", data_path=str(lite_copy), resume="auto") == 0
    assert run_numpy(tmp_path / "whole", data_path=str(lite_copy)) == 0
    for kind in ("train", "eval"):
        one, other = (read_json_lines(tmp_path / name, kind) for name in ("out", "whole"))
        assert [(e["update"], e["loss"], e["top1"]) for e in one] == [(e["update"], e["loss"], e["top1"]) for e in other]
    one, other = (read_checkpoint(tmp_path / name / LATEST) for name in ("out", "whole"))
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in other.arrays)
    assert one.meta["best"] == other.meta["best"] and not other.meta["to_evaluate"]


def test_a_stop_in_evaluation_is_heeded_and_the_evaluation_made_up_for(quiet, monkeypatch, tmp_path):
    asked = []
    judge = numpy_backend.judge_batch

    class Asked(Unheard):
        signal = property(lambda self: signal.SIGTERM if asked else 0, lambda self, value: None)

    def stop_first(*args):
        asked.append(True)
        return judge(*args)

    monkeypatch.setattr(training, "StopRequest", Asked)
    monkeypatch.setattr(numpy_backend, "judge_batch", stop_first)
    assert run_numpy(tmp_path) == 128 + signal.SIGTERM
    assert len(asked) == 1, "not the whole evaluation"
    monkeypatch.setattr(numpy_backend, "judge_batch", judge)
    asked.clear()
    assert run_numpy(tmp_path, resume="auto") == 0
    assert [entry["update"] for entry in read_json_lines(tmp_path, "eval")] == [4, 8]


@pytest.mark.parametrize("package", [ours, theirs])
def test_a_run_that_diverged_is_caught_in_evaluation(package, tmp_path):
    config = dataclasses.replace(CONFIG_OF, framework="ref", crop_size=32, resize_size=32, width_mult=0.35, momentum=0.9)
    run = package.build_run(config, package.Ranks())
    loader = package.evaluation_loader(run)
    assert np.isfinite(package.evaluate_run(run, loader).loss)
    weight = run.model.classifier[3].weight
    with torch.no_grad():
        weight.set_value(weight * float("nan")) if package is ours else weight.fill_(float("nan"))
    with pytest.raises(UserError, match="logits of validation pictures are not finite"):
        package.evaluate_run(run, loader)


# --- one run, one folder ---


def test_a_second_run_in_a_folder_that_is_in_use_is_refused(tmp_path):
    hold = "import sys; from mobilenetv3_common.run_lock import run_lock\nwith run_lock(sys.argv[1]):\n"
    hold += " print('held', flush=True); input()"
    first = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert first.stdout.readline() == b"held\n"
    with pytest.raises(UserError, match=rf"another run is at work in .*\(process {first.pid} on .*choose another --output-dir"):
        with run_lock(tmp_path):
            pass
    first.kill()
    first.wait()
    assert (tmp_path / LOCK).exists(), "the file outlives a kill"
    with run_lock(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists(), "but does not lock"


@pytest.mark.parametrize("inside", ["train", "val/cat", "train/run"])
def test_a_run_among_the_pictures_is_refused(quiet, lite_copy, inside):
    """Its folders would be classes of the next run."""
    before = sorted(lite_copy.rglob("*"))
    with pytest.raises(UserError, match=r"lies among the pictures of .*: choose another --output-dir"):
        run_numpy(lite_copy / inside, data_path=str(lite_copy))
    assert sorted(lite_copy.rglob("*")) == before


def test_a_run_that_cannot_begin_leaves_no_folder(quiet, tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        run_numpy(tmp_path / "out", data_path="nowhere")
    assert not (tmp_path / "out").exists()


def test_the_users_own_config_is_kept(tmp_path):
    (tmp_path / CONFIG).write_text("epochs: 3  # mine\n")
    assert write_effective(tmp_path, CONFIG_OF).name == OTHER_CONFIG
    (tmp_path / "train.log").write_text("of a run that was killed before its first checkpoint\n")
    assert CheckpointFolder(tmp_path).set_aside(None) == tmp_path / "earlier_1"
    assert sorted(p.name for p in (tmp_path / "earlier_1").iterdir()) == [OTHER_CONFIG, "train.log"]
    assert (tmp_path / CONFIG).read_text() == "epochs: 3  # mine\n"
    (tmp_path / CONFIG).unlink()
    assert write_effective(tmp_path, CONFIG_OF).name == CONFIG == write_effective(tmp_path, CONFIG_OF).name


def put(path, kind):
    """Something that is no file where a run would write or read one."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "nothing": "nowhere", "loop": path.name}[kind])


NO_FILES = pytest.mark.parametrize("kind", ["pipe", "folder", "device", "nothing", "loop"])


def test_tables_of_an_earlier_run_or_of_the_user_are_moved_and_not_emptied(tmp_path):
    (tmp_path / "train.csv").write_text("picture,label\n")
    (tmp_path / "eval.csv").symlink_to("nowhere")
    assert CheckpointFolder(tmp_path).set_aside(None) == tmp_path / "earlier_1"
    TrainLog(tmp_path, 3, 4).close()
    assert (tmp_path / "earlier_1" / "train.csv").read_text() == "picture,label\n"
    assert (tmp_path / "earlier_1" / "eval.csv").is_symlink() and not (tmp_path / "eval.csv").is_symlink()


@NO_FILES
def test_what_is_no_file_in_a_runs_folder_neither_hangs_nor_is_passed_over(kind, tmp_path):
    for name in ("train.csv", "train.log", CONFIG, LATEST):
        put(tmp_path / name, kind)
    for name in ("train.log", "train.csv"):
        with pytest.raises(UserError, match=rf"{name} is no regular file, but .*: remove it or move it away"):
            TrainLog(tmp_path, 3, 4, resumed_at=4)
        (tmp_path / name).rename(tmp_path / f"{name}.away")
    with pytest.raises(UserError, match=rf"{LATEST} is no regular file"):
        find_checkpoint("auto", tmp_path)
    assert write_effective(tmp_path, CONFIG_OF).name == OTHER_CONFIG
    (tmp_path / OTHER_CONFIG).write_text("epochs: 3  # mine too\n")
    with pytest.raises(UserError, match=rf"neither .*{CONFIG} nor {OTHER_CONFIG} is a run's: move one away"):
        write_effective(tmp_path, CONFIG_OF)
    assert (tmp_path / OTHER_CONFIG).read_text() == "epochs: 3  # mine too\n"


@pytest.mark.parametrize("kind", ["pipe", "device", "nothing", "loop", "link", "file"])
def test_what_is_no_lock_is_left_alone(kind, tmp_path):
    (tmp_path / "mine").write_text("precious")
    if kind == "link":
        (tmp_path / LOCK).symlink_to("mine")
    elif kind == "file":
        (tmp_path / LOCK).write_text("precious")
    else:
        put(tmp_path / LOCK, kind)
    with pytest.raises(UserError, match=r"\.lock is not a run's lock: move it away"), run_lock(tmp_path):
        pass
    assert os.path.lexists(tmp_path / LOCK) and (tmp_path / "mine").read_text() == "precious"
    assert kind != "file" or (tmp_path / LOCK).read_text() == "precious"


def test_leftovers_of_killed_writes_go(tmp_path):
    names = (".config.yaml.x1.tmp", ".train_log.jsonl.x1.tmp", ".latest.safetensors.tmp", ".update_000000001.safetensors.x.tmp")
    for name in (*names, ".users.tmp"):
        (tmp_path / name).write_text("half")
    CheckpointFolder(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".users.tmp"]


def test_a_resumed_log_repeats_no_line(tmp_path):
    log = TrainLog(tmp_path, 3, 4)
    log.line("a model, 8 classes")
    for update in range(1, 7):
        log.train((update - 1) // 4, (update - 1) % 4 + 1, update, FIGURES)
        if update == 4:
            log.evaluation(0, 4, {**FIGURES, "samples": 16}, 0.5)
    log.close()
    with open(tmp_path / "train.log", "a") as file:
        file.write("[Epoch 1, it")  # killed
    for resumed_at, to_evaluate, trained, evaluated in ((5, False, 5, 1), (4, False, 4, 1), (4, True, 4, 0), (0, False, 0, 0)):
        TrainLog(tmp_path, 3, 4, resumed_at, to_evaluate).close()
        lines = (tmp_path / "train.log").read_text().splitlines()
        assert lines[0] == "a model, 8 classes"
        assert [line[:11] for line in lines[1:]].count("[Eval epoch") == evaluated
        assert len(lines) == 1 + trained + evaluated
        assert (len(read_json_lines(tmp_path)), len(read_json_lines(tmp_path, "eval"))) == (trained, evaluated)


@pytest.mark.parametrize("name", ["train.log", "train_log.jsonl"])
def test_a_full_disk_while_logging_is_one_line(tmp_path, name):
    log = TrainLog(tmp_path, 1, 4)
    os.symlink("/dev/full", tmp_path / name)
    with pytest.raises(UserError, match=rf"cannot write .*{name}: No space left on device; the last checkpoint is kept"):
        log.train(0, 1, 1, FIGURES)


# --- stopping ---

STUCK = """
import sys, time
from mobilenetv3_common.run_control import StopRequest
stop = StopRequest().listen()
stop.within = 0.3
if sys.argv[1] == "loop":
    stop.begin_loop()
print("here", flush=True)
import ctypes
ctypes.CDLL(None).pause() if sys.argv[2] == "once" else [ctypes.CDLL(None).pause() for _ in range(9)]
time.sleep(60)
"""


@pytest.mark.parametrize(("where", "said"), [("loop", "in mid-update"), ("setup", "before the first update")])
def test_a_run_that_hangs_in_foreign_code_still_stops(where, said):
    run = subprocess.Popen(
        [sys.executable, "-c", STUCK, where, "often"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout.readline() == "here\n"
    begun = time.monotonic()
    run.send_signal(signal.SIGTERM)
    told = run.communicate(timeout=20)[1]
    assert run.returncode == 128 + signal.SIGTERM and said in told and time.monotonic() - begun < 10
    assert StopRequest.within < 10


BUSY = """
import sys, time
import numpy as np
from mobilenetv3_common.run_control import StopRequest
stop = StopRequest().listen()
stop.begin_loop()
large = np.ones((3000, 3000))
print("here", flush=True)
# A handler waits until a call in C returns; the thread that reads the signal's number does not.
while not stop.signal:
    time.sleep(0.5) if sys.argv[1] == "handler first" else large @ large
print("noted", int(stop.signal), flush=True)
for _ in range(200):  # a signal just before one long sleep begins would wait for its end
    time.sleep(0.1)
print("not ended", flush=True)
"""


@pytest.mark.parametrize("order", ["handler first", "thread first"])
def test_the_first_ctrl_c_is_noted_and_the_second_ends_at_once(order):
    run = subprocess.Popen([sys.executable, "-c", BUSY, order], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "here\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    assert run.stdout.readline() == "noted 2\n"
    run.send_signal(signal.SIGINT)
    told, complaint = run.communicate(timeout=20)
    assert run.returncode != 0 and "not ended" not in told and "KeyboardInterrupt" in complaint


AFTERWARDS = """
import os, signal, threading, time
from mobilenetv3_common.run_control import StopRequest
signal.signal(signal.SIGCHLD, lambda number, frame: print("a child has ended", flush=True))  # as torch's loader has
stop = StopRequest().listen()
stop.begin_loop()
stop.heed()
while threading.active_count() > 1:
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGCHLD)
"""


def test_a_signal_after_the_run_is_no_traceback():
    """The thread that reads signals' numbers has ended, and its socket is closed."""
    done = run_command("-c", AFTERWARDS)
    assert done.stdout == "a child has ended\n" and not done.stderr


def test_the_end_of_the_launcher_is_noticed(tmp_path):
    """A launcher that is killed leaves its rank to another parent."""
    launcher = "import os, subprocess, sys; subprocess.Popen(sys.argv[1:]); input()"
    environment = {**os.environ, "PADDLE_TRAINER_ID": "0"}
    rank = STUCK.replace("ctypes.CDLL(None).pause()", "time.sleep(9)")
    with open(tmp_path / "told", "w+") as told:
        run = subprocess.Popen(
            [sys.executable, "-c", launcher, sys.executable, "-c", rank, "loop", "once"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=told, stderr=told,
        )  # fmt: skip
        wait_for(lambda: "here" in (tmp_path / "told").read_text())
        run.kill()
        run.wait()
        wait_for(lambda: "in mid-update" in (tmp_path / "told").read_text())
    assert f"the launcher (process {run.pid}) has ended: this process stops too" in (tmp_path / "told").read_text()


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[unbound_buffer.cc:80] TIMEOUT self_rank = none"),
        ValueError(
            "(InvalidArgument) TCP receive error. Details: Connection reset by peer.\n  [Hint: Expected byte_received >= 0, but "
            "received byte_received:-1 < 0:0.] (at /paddle/paddle/phi/core/distributed/store/tcp_utils.h:105)"
        ),
    ],
    ids=["collective", "store"],
)
def test_a_lost_rank_is_one_line_that_names_the_setting(error, capsys):
    @exit_on_user_error
    def command():
        with naming_lost_ranks(7.0):
            raise error

    assert command() == 1, "not 2: it may be started again"
    told = capsys.readouterr().err
    assert "--rank-timeout, now 7 s" in told and told.count("\n") == 1
    with pytest.raises(RuntimeError, match="another thing"), naming_lost_ranks(7.0):
        raise RuntimeError("another thing")
    with pytest.raises(ValueError, match="connection reset"), naming_lost_ranks(7.0):
        raise ValueError("a value of the data: connection reset")


def test_ranks_wait_for_one_another_at_the_store_as_long_as_they_are_told(monkeypatch):
    """Paddle's gloo gives up after 30 s; here two ranks are two threads at one store."""
    from mobilenetv3_paddle.train import distributed

    class Store:
        count = 0
        lock = threading.Lock()

        def add(self, key, number):
            with self.lock:
                self.count += number
                return self.count

    store = Store()
    monkeypatch.setattr(distributed.paddle.base.core, "create_or_get_global_tcp_store", lambda: store)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "_meetings", 0)
    monkeypatch.setenv("PADDLE_PG_TIMEOUT", "300")
    threading.Timer(0.1, store.add, ("", 1)).start()
    begun = time.monotonic()
    distributed.meet()
    assert 0.08 < time.monotonic() - begun < 0.3
    with pytest.raises(RankError, match=r"did not come within 0\.3 s.*--rank-timeout"):
        distributed.meet()


# --- pictures ---


@pytest.mark.parametrize("backend", ["pil", "cv2"])
def test_check_data_names_every_bad_picture(lite_folders, capsys, backend):
    bad = [lite_folders / "train" / "cat" / "cat_0.JPEG", lite_folders / "val" / "rocket" / "rocket_1.JPEG"]
    indices = index_splits(lite_folders)
    config = dataclasses.replace(CONFIG_OF, image_backend=backend, workers=2)
    assert check_pictures(indices, config, ours.Ranks()) == 0
    bad[0].write_text("no picture")
    bad[1].write_bytes(bad[1].read_bytes()[:300])
    with pytest.raises(UserError, match="2 of 32 pictures cannot be read"):
        check_pictures(indices, config, ours.Ranks())
    told = capsys.readouterr().err
    assert all(f"bad picture: {path} is" in told for path in bad) and told.count("\n") == 2
    assert check_pictures(indices, dataclasses.replace(config, on_bad_image="skip"), ours.Ranks()) == 2


def test_check_data_comes_before_the_first_update(quiet, lite_copy, tmp_path):
    sorted((lite_copy / "val").rglob("*.JPEG"))[5].write_text("no picture")
    with pytest.raises(UserError, match="1 of 32 pictures cannot be read"):
        run_numpy(tmp_path / "out", data_path=str(lite_copy), check_data=True)
    assert not (tmp_path / "out").exists(), "before anything is written"


@pytest.mark.parametrize("backend", ["pil", "cv2"])
def test_a_pipe_in_a_pictures_place_does_not_hang(tmp_path, backend):
    os.mkfifo(tmp_path / "x.JPEG")
    with pytest.raises(UserError, match=r"x\.JPEG: it is no regular file"):
        decode_image(tmp_path / "x.JPEG", backend)


@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_a_picture_whose_name_is_not_utf8_is_named(lite_folders, framework, capsys, monkeypatch, tmp_path):
    name = os.fsencode(lite_folders / "train" / "cat") + b"/bad\xff.JPEG"
    with open(name, "wb") as file:
        file.write(b"no picture")
    package = ours if framework == "paddle" else theirs
    config = dataclasses.replace(CONFIG_OF, framework=framework, data_path=str(lite_folders), crop_size=32, resize_size=32)
    run = package.build_run(dataclasses.replace(config, width_mult=0.35, lr=1e-4, batch_size=17), package.Ranks())

    @exit_on_user_error
    def command():
        next(package.micro_batches(run))
        return 0

    assert command() == 2
    told = capsys.readouterr().err
    assert "bad\\xff.JPEG is not a picture" in told and told.count("\n") == 1
    shutil.rmtree(lite_folders)
    assert json.dumps({"classes": run.train_index.classes})
