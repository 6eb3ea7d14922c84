"""tools/train.py, eval.py and lr_find.py as a user runs them: log, refusals, guards, skipped pictures."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import numpy as np
import pytest
import yaml
from PIL import Image
from tensorboardX.proto.event_pb2 import Event
from visualdl import LogReader

from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_log import FROM_ZERO, read_json_lines
from tests.conftest import ROOT, run_command
from tests.training import QUICK, curve, train, write_start

LINE = re.compile(
    r"\[Epoch \d+, iter: \d+\] top1: [\d.]+, top5: [\d.]+, lr: [\d.]+, loss: [\d.]+, avg_reader_cost: [\d.]+ sec, "
    r"avg_batch_cost: [\d.]+ sec, avg_samples: [\d.]+, avg_ips: [\d.]+ images/sec, eta: \d+:\d\d:\d\d, memory: \d+ MiB"
)
ONE_EPOCH = ("--crop-size", "32", "--resize-size", "32", "--epochs", "1")


@pytest.fixture(scope="module", params=["paddle", "ref"])
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    run = train(folder, *ONE_EPOCH, "--framework", request.param)
    assert run.returncode == 0, run.stderr
    return folder, run


def test_a_run_with_workers_ends_without_a_word(tmp_path):
    """Paddle's handler takes workers that Python ends at exit for crashed ones."""
    run = train(tmp_path, *ONE_EPOCH, "--workers", "2")
    assert run.returncode == 0 and run.stderr == ""


def test_the_log_is_the_guides(finished):
    folder, run = finished
    lines = [line for line in run.stdout.splitlines() if line.startswith("[Epoch")]
    assert len(lines) == 4 and all(LINE.fullmatch(line) for line in lines), lines[0]
    assert (folder / "train.log").read_text() == run.stdout
    assert FROM_ZERO in run.stdout.splitlines()[0] and lines[0].startswith("[Epoch 0,")
    entries = read_json_lines(folder)
    assert [e["iter"] for e in entries] == [1, 2, 3, 4]
    assert f"loss: {entries[0]['loss']:.5f}" in lines[0] and f"lr: {entries[0]['lr']:.6f}" in lines[0]
    for e in entries:
        assert 0 < e["avg_reader_cost"] < e["avg_batch_cost"]
        assert e["avg_ips"] == pytest.approx(e["avg_samples"] / e["avg_batch_cost"])
    assert entries[0]["lr"] == 0.001 and entries[-1]["lr"] < 0.001, "the rate of the update, not of the one after"
    assert read_json_lines(folder, "eval")[0]["samples"] == 16


def test_a_terminal_gets_a_progress_bar(tmp_path):
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "tools/train.py", *QUICK, *ONE_EPOCH, "--output-dir", str(tmp_path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        shown += part
        if not part:
            break
    assert run.wait(timeout=60) == 0
    os.close(main)
    assert "4/4" in shown.decode() and "update/s" in shown.decode()


def test_scalars_are_written_for_visualdl_and_tensorboard(finished):
    folder = finished[0]
    losses = curve(folder)
    reader = LogReader(file_path=str(next((folder / "visualdl").iterdir())))
    assert np.allclose([record.value for record in reader.get_data("scalar", "train/loss")], losses)
    data, found = next((folder / "tensorboardx").iterdir()).read_bytes(), []
    while data:  # TFRecord: length, its checksum, the event, its checksum
        length = int.from_bytes(data[:8], "little")
        found += [v.simple_value for v in Event.FromString(data[12 : 12 + length]).summary.value if v.tag == "train/loss"]
        data = data[16 + length :]
    assert np.allclose(found, losses)


def test_the_effective_config_repeats_the_run(finished, tmp_path):
    folder = finished[0]
    assert yaml.safe_load((folder / "config.yaml").read_text())["width_mult"] == 0.5
    run = run_command("tools/train.py", "--config", folder / "config.yaml", "--output-dir", tmp_path)
    assert run.returncode == 0, run.stderr
    assert np.array_equal(curve(tmp_path), curve(folder))


def test_eval_counts_every_picture_once_and_draws(finished, tmp_path):
    folder = finished[0]
    command = ["tools/eval.py", "--config", folder / "config.yaml", "--pretrained", folder / LATEST]
    run = run_command(*command, "--batch-size", "3", "--json", tmp_path / "e.json", "--confusion", tmp_path / "c.png")
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "e.json").read_text())
    confusion = np.array(result["confusion"])
    assert result["samples"] == 16 == confusion.sum() and confusion.shape == (8, 8)
    assert result["top1"] == confusion.trace() / 16
    assert result["loss"] == pytest.approx(read_json_lines(folder, "eval")[0]["loss"], rel=1e-5), "as the run itself said"
    assert Image.open(tmp_path / "c.png").size[0] > 400


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--batch-size", "0"), "--batch-size must be from 1 to 65,536, found 0"),
        (("--accumulate", "0"), "--accumulate must be from 1 to 65,536, found 0"),
        (("--epochs", "0"), "--epochs must be from 1 to 1,000,000, found 0"),
        (("--lr", "-1"), "--lr must be above 0, found -1"),
        (("--lr", "fast"), "invalid float value: 'fast'"),
        (("--amp-level", "O2"), "--amp-level O2 needs a GPU"),
        (("--amp-level", "O1", "--amp-dtype", "bfloat16"), "--amp-level O1 needs a GPU"),
        (("--framework", "ref", "--amp-level", "O1"), "with float16 needs a GPU: use --amp-dtype bfloat16"),
        (("--framework", "ref", "--sync-bn"), "torch's SyncBatchNorm needs a GPU"),
        (("--sync-bn", "--freeze-bn"), "--sync-bn and --freeze-bn exclude each other"),
        (("--device", "gpu"), "finds no GPU"),
        (("--accumulate", "17", "--batch-size", "2"), "do not fill one update of 17 x 2 pictures"),
        (("--batch-size", "32", "--mix-group", "32"), "do not fill one batch of 32"),
        (("--num-classes", "3"), "train_list.txt:7: train/flower/flower_0.JPEG has label 3, but the model has 3 classes"),
        (("--data-path", "nowhere"), "data path nowhere is not a folder"),
        (("--pretrained", "nowhere.pth"), "no such weights file: nowhere.pth"),
        (("--resume", "nowhere"), "--resume nowhere: no such file or folder"),
        (("--learning-rate", "1"), "unrecognized arguments: --learning-rate 1"),
        (("--auto-augment", "imagnet"), "--auto-augment must be one of imagenet, ra, ta_wide, found imagnet"),
        (("--mix-group", "3"), "--mix-group must divide --batch-size (4)"),
        (("--warmup-epochs", "2"), "--warmup-epochs must be below --epochs (2)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_flags_give_one_line_and_leave_no_run(flags, said, tmp_path):
    run = train(tmp_path / "out", *flags)
    assert run.returncode == 2 and said in run.stderr, run.stderr
    assert run.stderr.count("\n") == 1 and "Traceback" not in run.stderr
    assert not list((tmp_path / "out").glob("*.safetensors")) if (tmp_path / "out").exists() else True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch: 3\n", "unknown key 'epoch'; did you mean 'epochs'?"),
        ("epochs: many\n", "epochs must be int, found 'many'"),
        ("epochs: 2.5\n", "epochs must be int, found 2.5"),
        ("sync_bn: 1\n", "sync_bn must be bool, found 1"),
        ("lr: [1]\n", "lr must be float, found [1]"),
        ("optimizer: adamax\n", "unknown optimizer 'adamax'"),
        ("framework: torch\n", "--framework must be one of paddle, ref"),
        ("- a\n", "must hold 'key: value' lines"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_bad_recipes_are_refused(text, said, tmp_path):
    (tmp_path / "r.yaml").write_text(text)
    run = train(tmp_path / "out", "--config", str(tmp_path / "r.yaml"))
    assert run.returncode == 2 and said in run.stderr and run.stderr.count("\n") == 1, run.stderr


def test_every_recipe_in_configs_is_valid_and_says_how_it_was_run():
    from mobilenetv3_common.config_file import make_config
    from mobilenetv3_common.train_config import TrainConfig

    recipes = sorted((ROOT / "configs").glob("*.yaml"))
    assert len(recipes) >= 4
    for path in recipes:
        make_config(TrainConfig, path, {"data_path": "x"})
        header = [line for line in path.read_text().splitlines() if line.startswith("#")]
        text = " ".join(header)
        assert "tools/train.py --config" in text and ("run here" in text.lower() or "not run" in text.lower()), path


@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_a_diverging_run_stops_names_the_place_and_keeps_its_checkpoint(framework, small_state, tmp_path):
    """The pitfall: 209 of 210 tensors were NaN, the loss read ln 1000, and the exit status was 0."""
    begin = str(write_start(tmp_path, small_state))
    flags = (*ONE_EPOCH, "--framework", framework, "--pretrained", begin, "--save-every", "1")
    run = train(tmp_path / "out", *flags, "--lr", "1e30", "--lr-schedule", "constant")
    assert run.returncode == 2, run.stdout
    assert re.search(r"training diverged (in epoch 1 of \d+, update \d of it|before update \d)", run.stderr), run.stderr
    assert re.search(r"first in (weight|output of layer|gradient of) |is not finite", run.stderr) and run.stderr.count("\n") == 1
    for path in (tmp_path / "out").glob("*.safetensors"):
        assert all(np.isfinite(array).all() for array in read_checkpoint(path).arrays.values())


@pytest.mark.parametrize("framework", ["paddle", pytest.param("ref", marks=pytest.mark.slow)])
def test_a_damaged_picture_stops_the_run_or_is_skipped_and_counted(framework, lite_copy, tmp_path):
    victims = [sorted((lite_copy / split).rglob("*.JPEG"))[3] for split in ("train", "val")]
    for victim in victims:
        victim.write_bytes(victim.read_bytes()[:400])
    flags = (*ONE_EPOCH, "--framework", framework, "--data-path", str(lite_copy), "--workers", "1")
    run = train(tmp_path / "stop", *flags)
    assert run.returncode == 2 and victims[0].name in run.stderr and "Traceback" not in run.stderr
    run = train(tmp_path / "skip", *flags, "--on-bad-image", "skip", "--epochs", "3")
    assert run.returncode == 0, run.stderr
    assert run.stderr.count(f"warning: skipped: {victims[0]}") == 1, "a file, not each time that it was asked for"
    assert "1 damaged training picture skipped" in run.stdout
    page = (tmp_path / "skip" / "report.html").read_text()
    assert "<td>damaged training pictures</td><td>1 skipped</td>" in page
    assert "<td>damaged pictures skipped in the evaluation</td><td>1</td>" in page
    result = read_json_lines(tmp_path / "skip", "eval")[0]
    assert (result["samples"], result["skipped"]) == (15, 1), "a stand-in does not count"


@pytest.mark.slow
def test_lr_find_suggests_an_interval(tmp_path):
    folder = write_digits(tmp_path / "digits", train_per_class=40, val_per_class=1)
    command = ["tools/lr_find.py", "--framework", "ref", "--config", "configs/digits.yaml", "--data-path", folder, "--workers", "0"]
    run = run_command(*command, "--updates", "80", "--seeds", "2", "--plot", tmp_path / "lr.png", "--json", tmp_path / "lr.json")
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "lr.json").read_text())
    low, high = result["interval"]
    assert 1e-5 < low < result["suggested"] <= high < 0.1 and f"suggested learning rate: {result['suggested']:.2g}" in run.stdout
    assert np.allclose(np.diff(np.log(result["lr"])), np.log(1e5) / 79)
    assert Image.open(tmp_path / "lr.png").size[0] > 400
    run = run_command(*command, "--from", "1", "--to", "0.1")
    assert run.returncode == 2 and "--from must be above 0 and below --to" in run.stderr
    assert QUICK[0] == "--data-path"
