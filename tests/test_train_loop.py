"""The loop that all frameworks share: on a framework in numpy, with another network, and what reading its figures changes."""

import dataclasses

import numpy as np
import paddle
import pytest
import torch

import mobilenetv3_paddle.train as ours
import mobilenetv3_ref.train as theirs
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder, read_checkpoint
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.train_log import Stopwatch, read_json_lines
from mobilenetv3_common.training import begin_interval, figures, save
from mobilenetv3_paddle.models import BatchNorm2D
from tests.conftest import ROOT, run_command
from tests.documents import code
from tests.training import train

CONFIG = TrainConfig(data_path="lite_data", crop_size=32, resize_size=32, batch_size=4, workers=0, epochs=2, width_mult=0.5)

ON_NUMPY = """
import os, signal, sys
sys.modules["torch"] = sys.modules["paddle"] = None
from mobilenetv3_common.checkpoint import LATEST, read_checkpoint
from mobilenetv3_common.lr_range import find_learning_rates, growing_rates
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.training import train
from tests import numpy_backend as backend

step, stop_at = backend.apply_update, 0
def apply_update(*args):
    global stop_at
    step(*args)
    stop_at -= 1
    if stop_at == 0:
        os.kill(os.getpid(), signal.SIGTERM)
backend.apply_update = apply_update

def config(name, **more):
    return TrainConfig("numpy", data_path="lite_data", crop_size=16, resize_size=16, batch_size=4, workers=0, epochs=10, lr=0.01,
                       hflip_prob=0.0, min_crop_scale=1.0, print_every=1, output_dir=f"{sys.argv[1]}/{name}", **more)

assert train(backend, config("whole")) == 0
stop_at = 22
assert train(backend, config("part")) == 128 + signal.SIGTERM
assert read_checkpoint(f"{sys.argv[1]}/part/{LATEST}").meta["iteration"] == 2
assert train(backend, config("part", resume="auto")) == 0
test = find_learning_rates(backend, config("none"), backend.started().__enter__(), growing_rates(1e-4, 1e3, 40))
assert test.losses[0] > 1.5 and test.diverged, test
"""


def test_the_loop_trains_resumes_and_tests_rates_on_a_framework_in_numpy(tmp_path):
    run = run_command("-c", ON_NUMPY, tmp_path, PYTHONPATH=".")
    assert run.returncode == 0, run.stderr
    losses = [entry["loss"] for entry in read_json_lines(tmp_path / "whole")]
    assert losses[0] == pytest.approx(np.log(8)) and losses[-1] < 0.5 * losses[0]
    assert read_json_lines(tmp_path / "whole", "eval")[-1]["samples"] == 16
    assert losses == [entry["loss"] for entry in read_json_lines(tmp_path / "part")]
    whole, part = (read_checkpoint(tmp_path / name / LATEST) for name in ("whole", "part"))
    assert whole.meta["framework"] == "numpy"
    assert all(np.array_equal(array, part.arrays[name]) for name, array in whole.arrays.items())


def small_paddle(num_classes):
    from paddle import nn

    body = (nn.Conv2D(3, 8, 3, 2), BatchNorm2D(8), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Dropout(0.5))
    return nn.Sequential(*body, nn.Linear(8, num_classes))


def small_torch(num_classes):
    from torch import nn

    body = (nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5))
    return nn.Sequential(*body, nn.Linear(8, num_classes))


BUILDERS = [(ours, small_paddle), (theirs, small_torch)]


@pytest.mark.parametrize(("package", "builder"), BUILDERS)
def test_another_network_borrows_the_whole_loop(package, builder, tmp_path):
    config = dataclasses.replace(CONFIG, output_dir=str(tmp_path), bn_momentum=0.25, ema_decay=0.5, lr=0.01)
    run = package.build_run(config, package.Ranks(), builder)
    assert run.model[1].momentum == 0.25 and type(run.model[5]).__name__ == "SharedDropout"
    batches = package.micro_batches(run)
    run.train_mode()
    package.update(run, [next(batches)])
    folder = CheckpointFolder(tmp_path)
    save(run, folder, best=True)
    package.update(run, [next(batches)])
    resumed = package.build_run(dataclasses.replace(config, resume="auto"), package.Ranks(), builder)
    resumed.train_mode()
    package.update(resumed, [next(package.micro_batches(resumed))])
    one, other = (package.model_arrays(r.model) for r in (run, resumed))
    assert len(one) == 8 and all(np.array_equal(one[name], other[name]) for name in one)
    result = package.evaluate_run(run, package.evaluation_loader(run))
    assert result.samples == 16 and result.confusion.shape == (8, 8)
    again, classes = package.evaluate_config(
        dataclasses.replace(config, pretrained=str(tmp_path / LATEST), num_classes=8), package.Ranks(), builder
    )
    assert again.samples == 16 and len(classes) == 8


def test_the_pages_own_network_trains(tmp_path):
    (snippet,) = code(ROOT / "docs" / "recipes.md", "python")
    run = run_command("-c", snippet.replace("output/two_layers", str(tmp_path)))
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("two_layers (paddle), 8 classes, 16 training and 16 validation pictures")
    checkpoint = read_checkpoint(tmp_path / LATEST)
    assert checkpoint.meta["update"] == 4 and checkpoint.arrays["model/1.weight"].shape == (16, 8)


@pytest.mark.parametrize(("package", "builder"), BUILDERS)
def test_freezing_and_synchronising_reach_another_networks_batch_norm(package, builder):
    frozen = package.build_run(dataclasses.replace(CONFIG, freeze_bn=True), package.Ranks(), builder)
    before = package.model_arrays(frozen.model)
    frozen.train_mode()
    package.update(frozen, [next(package.micro_batches(frozen))])
    after = package.model_arrays(frozen.model)
    assert {name for name in before if np.array_equal(before[name], after[name])} == {name for name in before if name[0] == "1"}
    model = package.build_model(dataclasses.replace(CONFIG, sync_bn=True), 8, builder)
    assert model[1].synchronized if package is ours else isinstance(model[1], torch.nn.SyncBatchNorm)
    norms = paddle.nn.BatchNorm2D if package is ours else torch.nn.BatchNorm2d
    plain = package.build_model(CONFIG, 8, builder)
    assert isinstance(plain[1], norms) and plain[1].momentum == 0.1, "the builder's own, where the config says nothing"


@pytest.mark.parametrize(("package", "builder"), BUILDERS)
def test_a_diverging_update_is_named_in_whichever_micro_batch(package, builder):
    run = package.build_run(dataclasses.replace(CONFIG, accumulate=2), package.Ranks(), builder)
    batches = package.micro_batches(run)
    first, ((images, labels), skipped) = next(batches), next(batches)
    run.train_mode()
    with pytest.raises(UserError, match="first in input of layer 0"):
        package.update(run, [first, ((images * float("inf"), labels), skipped)])


def test_an_overflow_is_looked_for_inside_autocast():
    """The layer overflows in half precision alone: outside autocast nothing would be found."""
    config = dataclasses.replace(CONFIG, framework="ref", amp_level="O1", amp_dtype="bfloat16", accumulate=2)
    run = theirs.build_run(config, theirs.Ranks(), small_torch)
    seen = []

    def overflow(layer, inputs, output):
        seen.append(output.dtype)
        return output * (float("inf") if output.dtype == torch.bfloat16 and len(seen) % 2 == 0 else 1.0)

    run.model[0].register_forward_hook(overflow)
    batches = theirs.micro_batches(run)
    run.train_mode()
    with pytest.raises(UserError, match=r"first in output of layer 0 \(Conv2d\)"):
        theirs.update(run, [next(batches), next(batches)])
    assert seen == [torch.bfloat16] * 4, "two micro-batches, and both again"


@pytest.mark.parametrize("package", [ours, theirs])
def test_reading_the_figures_changes_nothing(package):
    run = package.build_run(CONFIG, package.Ranks())
    watch = Stopwatch(reader=1.0, batch=4.0, updates=2)
    batches = package.micro_batches(run)
    run.train_mode()
    for _ in range(2):
        package.update(run, [next(batches)])
    first = figures(run, watch)
    assert first == figures(run, watch) and run.meter.updates == 2
    assert (first["avg_reader_cost"], first["avg_batch_cost"], first["avg_samples"], first["avg_ips"]) == (0.5, 2.0, 4.0, 2.0)
    begin_interval(run, watch)
    assert (run.meter.updates, run.meter.samples, watch.updates) == (0, 0, 0)
    package.update(run, [next(batches)])
    watch.updates, watch.batch = 1, 1.0
    assert figures(run, watch)["loss"] != first["loss"] and run.meter.samples == 4


@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_a_resumed_run_remembers_pictures_skipped_since_the_last_log_line(framework, lite_copy, tmp_path):
    victim = sorted((lite_copy / "train").rglob("*.JPEG"))[0]
    victim.write_bytes(victim.read_bytes()[:300])
    flags = ("--framework", framework, "--data-path", str(lite_copy), "--crop-size", "32", "--resize-size", "32", "--epochs", "1")
    run = train(tmp_path, *flags, "--print-every", "100", "--save-every", "1", "--keep", "9", "--on-bad-image", "skip")
    assert run.returncode == 0 and "1 damaged training picture skipped" in run.stdout, run.stderr
    counts = [read_checkpoint(path).meta["skipped"] for path in CheckpointFolder(tmp_path, keep=9).numbered()]
    assert len(counts) == 4 and counts[-2:] == [1, 1], "in the checkpoint before the log line too"
