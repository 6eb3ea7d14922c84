"""``tools/resnet50.py``: ResNets converted, evaluated, trained and profiled in MindSpore, Paddle and torch."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mobilenetv3_common.cifar import CLASSES
from mobilenetv3_common.errors import RankError
from mobilenetv3_common.train_log import read_json_lines
from mobilenetv3_common.weights import read_state, write_state
from projects.resnet50.config import MODELS, PACKAGES, ResNetConfig
from tests.conftest import ROOT, relative_l2
from tests.test_cifar import write_batch
from tests.test_train_ranks import free_port
from tests.training import curve
from tests.training import weights as trained
from tools.resnet50 import main

installed = pytest.mark.skipif(
    importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed: make align-mindspore-resnets runs this"
)
SMALL = (
    "--model",
    "resnet18_cifar",
    "--resize-size",
    "8",
    "--crop-size",
    "8",
    "--batch-size",
    "4",
    "--workers",
    "0",
    "--device",
    "cpu",
)
RUN = (*SMALL, "--optimizer", "sgd", "--lr", "0.01", "--lr-schedule", "constant", "--print-every", "1")


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """Ten training and six validation pictures in CIFAR-10's layout."""
    folder, rng = tmp_path_factory.mktemp("cifar"), np.random.default_rng(0)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        count = 6 if name == "test_batch" else 2
        rows = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = [(number * 2 + place) % 10 for place in range(count)]
        names = [f"{CLASSES[label]}_s_{place:06d}.png" for place, label in enumerate(labels)]
        write_batch(folder / name, {"batch_label": name, "labels": labels, "data": rows, "filenames": names})
    write_batch(folder / "batches.meta", {"num_cases_per_batch": 2, "label_names": list(CLASSES), "num_vis": 3072})
    return str(folder)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of torch's ResNet-18 for CIFAR-10, and its arrays."""
    import torch

    from projects.resnet50.models.in_torch import resnet18

    torch.manual_seed(0)
    file, network = tmp_path_factory.mktemp("weights") / "a.pth", resnet18(10, "cifar")
    torch.save(network.state_dict(), file)
    return file, {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}


def same(found, expected):
    assert found.keys() == expected.keys()
    assert all(a.dtype == expected[n].dtype and np.array_equal(a, expected[n]) for n, a in found.items())


def converted(source, target, *more):
    assert main(["convert", str(source), str(target), "--model", "resnet18_cifar", *more]) == 0
    return target


def figures(folder):
    """The figures of a run's last evaluation."""
    return read_json_lines(folder, "eval")[-1]


# --- without MindSpore -----------------------------------------------------------------------------------------------------


def test_weights_go_from_torch_to_paddle_and_back(weights, tmp_path):
    file, state = weights
    over = converted(file, tmp_path / "b.pdparams", "--to", "paddle")
    assert "bn1._mean" in read_state(over) and read_state(over)["fc.weight"].shape == (512, 10)
    same(read_state(converted(over, tmp_path / "c.safetensors", "--to", "ref")), state)


def test_each_framework_evaluates_the_same_weights_alike(weights, cifar, tmp_path, capsys):
    """torch's file as it is, and Paddle's that was made from it: equal answers, the same loss."""
    over, found = converted(weights[0], tmp_path / "b.pdparams", "--to", "paddle"), {}
    for framework, file in (("ref", weights[0]), ("paddle", over)):
        written = tmp_path / f"{framework}.json"
        command = ["infer", *SMALL, "--framework", framework, "--data-path", cifar, "--pretrained", str(file)]
        assert main([*command, "--json", str(written)]) == 0
        found[framework] = json.loads(written.read_text())
        assert f"top1: {found[framework]['top1']:.5f}" in capsys.readouterr().out
    assert found["ref"]["confusion"] == found["paddle"]["confusion"] and found["ref"]["samples"] == 6
    assert found["ref"]["loss"] == pytest.approx(found["paddle"]["loss"], rel=1e-5)
    assert found["ref"]["classes"] == list(CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", "ref"])
def test_the_same_settings_train_in_paddle_and_torch(framework, cifar, tmp_path):
    command = [
        "train",
        *RUN,
        "--framework",
        framework,
        "--data-path",
        cifar,
        "--epochs",
        "1",
        "--output-dir",
        str(tmp_path / "run"),
    ]
    assert main(command) == 0
    assert "bn1.running_mean" in read_state(tmp_path / "run" / "latest.safetensors") or framework == "paddle"
    assert "top1" in (tmp_path / "run" / "train_log.jsonl").read_text()


REFUSED = {
    "no data": (["train"], "--data-path is missing"),
    "no weights": (["infer", "--data-path", "lite_data"], "--pretrained is missing"),
    "another level": (["train", "--framework", "ref", "--amp-level", "O3"], "--amp-level O3 is MindSpore's"),
    "a scale in Paddle": (["train", "--framework", "paddle", "--loss-scale", "8"], "--loss-scale is MindSpore's"),
    "a scale below 1": (["train", "--loss-scale", "0.5"], "--loss-scale must"),
    "an unknown framework": (["train", "--framework", "tensorflow"], "--framework"),
    "an unknown flag": (["train", "--width-mult", "2"], "--width-mult"),
    "no file": (["convert", "none.pth", "b.ckpt"], "none.pth"),
    "no folder": (["infer", "--data-path", "lite_data", "--pretrained", "a", "--json", "none/a.json"], "there is no folder none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line(case, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    command, words = REFUSED[case]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and words in told, told


def test_weights_that_do_not_fit_are_refused_and_nothing_is_written(weights, tmp_path, capsys):
    file, state = weights
    target = tmp_path / "b.pdparams"
    command = ["convert", str(tmp_path / "a.safetensors"), str(target), "--model", "resnet18_cifar", "--to", "paddle"]
    for wrong, words in (
        ({name: array for name, array in state.items() if name != "bn1.weight"}, "bn1.weight"),
        (state | {"another": np.zeros(2, np.float32)}, "another"),
        (state | {"conv1.weight": np.zeros((64, 3, 7, 7), np.float32)}, "conv1.weight"),
        ({"conv1.weight": state["conv1.weight"]}, "no fc.weight and fc.bias"),
    ):
        write_state(tmp_path / "a.safetensors", wrong)
        assert main(command) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and words in told and not target.exists()
    assert main(["convert", str(file), str(target), "--model", "resnet18_cifar", "--to", "ref"]) == 2
    assert "holds weights of ref already" in capsys.readouterr().err


def test_the_checklist_is_filled_from_the_recipe(capsys):
    """The six rows of MindSpore's form, with what the guide writes into them."""
    assert main(["plan", "--config", str(ROOT / "projects/resnet50/cifar10.yaml")]) == 0
    rows = dict(line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:])
    assert list(rows) == [
        "data augmentation", "learning rate schedule", "optimizer", "training", "network structure", "training process",
    ]  # fmt: skip
    assert rows["learning rate schedule"] == "constant 0.001" and "adam" in rows["optimizer"] and "1e-05" in rows["optimizer"]
    assert "batch size 32, 90 epochs" in rows["training"] and "Bottleneck" in rows["network structure"]
    assert "random crop with 4 pixels of padding, scaled to 32, horizontal flip" in rows["data augmentation"]
    assert "normalisation by mean 0.4914,0.4822,0.4465 and deviation 0.2023" in rows["data augmentation"]
    assert "horizontal flip" in rows["data augmentation"] and rows["training process"] == "none"
    flags = ["--lr-schedule", "step", "--lr-step-epochs", "3", "--warmup-epochs", "2", "--label-smoothing", "0.1", "--mixup-alpha"]
    assert main(["plan", "--model=resnet18", *flags, "0.2", "--optimizer=sgd", "--ema-decay=0.9", "--accumulate=4"]) == 0
    told = capsys.readouterr().out
    for words in ("every 3 epochs, 2 epochs of warm-up", "label smoothing 0.1, moving average 0.9", "mixup with 0.2", "BasicBlock"):
        assert words in told
    assert "sgd, momentum 0.9" in told and "4 batches an update" in told


def test_convert_lists_names_and_shapes_of_both_sides(weights, tmp_path, capsys):
    file, state = weights
    target = str(tmp_path / "a.pdparams")
    assert main(["convert", str(file), target, "--model", "resnet18_cifar", "--list"]) == 0
    told = capsys.readouterr().out.splitlines()
    shown = [line for line in told if " <-> " in line]
    assert len(shown) == len([name for name in state if not name.endswith("num_batches_tracked")])
    assert any("bn1.running_mean <-> bn1._mean" in line or "bn1._mean <-> bn1.running_mean" in line for line in shown)
    assert any(line.endswith("(64, 3, 3, 3)") for line in shown) and "tensors of the reference (Paddle)" in told[-1]


def test_the_recipe_of_the_guide_is_what_it_says():
    from mobilenetv3_common.config_file import make_config

    config = make_config(ResNetConfig, ROOT / "projects/resnet50/cifar10.yaml", {})
    assert (config.framework, config.model, config.optimizer, config.lr_schedule) == (
        "paddle",
        "resnet50_cifar",
        "adam",
        "constant",
    )
    assert (config.lr, config.weight_decay, config.batch_size, config.epochs) == (0.001, 1e-5, 32, 90)


def test_every_model_is_made_in_every_framework():
    for framework in [name for name in PACKAGES if name != "mindspore" or importlib.util.find_spec("mindspore")]:
        models = importlib.import_module(f"projects.resnet50.models.in_{'torch' if framework == 'ref' else framework}")
        assert all(callable(getattr(models, f"resnet{depth}")) and stem in models.STEMS for depth, stem in MODELS.values())


# --- with it ---------------------------------------------------------------------------------------------------------------


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_weights_go_through_all_three_frameworks_and_come_back(weights, tmp_path):
    """torch -> MindSpore -> Paddle -> MindSpore -> torch: MindSpore loads its file, and the last equals the first."""
    import mindspore

    from projects.resnet50.models.in_mindspore import resnet18

    file, state = weights
    ckpt = converted(file, tmp_path / "b.ckpt")
    assert mindspore.load_param_into_net(resnet18(10, "cifar"), mindspore.load_checkpoint(str(ckpt))) == ([], [])
    paddles = converted(ckpt, tmp_path / "c.pdparams", "--to", "paddle")
    again = converted(paddles, tmp_path / "d.safetensors", "--to", "mindspore")
    same(read_state(again), read_state(ckpt))
    same(read_state(converted(again, tmp_path / "e.pth")), state)


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_a_run_in_mindspore_goes_on_where_it_stopped(cifar, tmp_path, capsys):
    """Two epochs at once, and one that is resumed: equal weights to the last bit; infer gives the run's own figures."""
    train = ["train", *RUN, "--framework", "mindspore", "--data-path", cifar, "--epochs", "2"]
    assert main([*train, "--output-dir", str(tmp_path / "whole")]) == 0
    assert main([*train[:-1], "1", "--output-dir", str(tmp_path / "parts")]) == 0
    assert main([*train, "--output-dir", str(tmp_path / "parts"), "--resume", "auto"]) == 0
    same(*(read_state(tmp_path / run / "latest.safetensors") for run in ("parts", "whole")))
    told = tmp_path / "told.json"
    weights = ["--pretrained", str(tmp_path / "whole" / "latest.safetensors"), "--json", str(told)]
    assert main(["infer", *SMALL, "--framework", "mindspore", "--data-path", cifar, *weights]) == 0
    assert json.loads(told.read_text())["loss"] == pytest.approx(figures(tmp_path / "whole")["loss"], rel=1e-6)


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_a_profile_in_mindspore_names_operators_with_times_shapes_and_shares(cifar, tmp_path):
    told, table, trace = (tmp_path / name for name in ("a.json", "a.csv", "trace.json"))
    command = [
        "profile",
        *RUN,
        "--framework",
        "mindspore",
        "--data-path",
        cifar,
        "--updates",
        "2",
        "--json",
        str(told),
        "--csv",
        str(table),
        "--trace",
        str(trace),
    ]
    assert main(command) in (0, 1)
    facts = json.loads(told.read_text())["facts"]
    assert set(facts["phases"]) == {"data wait", "forward", "backward", "update", "iteration gap"}
    assert all(seconds > 0 for name, seconds in facts["phases"].items() if name in ("forward", "backward", "update"))
    operators = {one["name"]: one for one in reversed(facts["operators"])}
    assert {"Conv2D", "Conv2DBackpropFilter", "BatchNorm", "MatMul"} <= set(operators)
    assert operators["Conv2D"]["shapes"].startswith("4x") and sum(one["share"] for one in facts["operators"]) == pytest.approx(1)
    assert table.read_text().startswith("operator,shapes,calls,seconds,share") and json.loads(trace.read_text())["traceEvents"]
    again = ["profile", *RUN, "--framework", "mindspore", "--data-path", cifar, "--updates", "2", "--before", str(told)]
    assert main(again) in (0, 1)


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_the_three_parts_of_a_profile_in_mindspore_before_and_after(cifar, tmp_path, capsys):
    """As in MindSpore's guide: pictures beside the computation, and float16. The update, the operators and the queue tell it."""
    run = ["profile", *RUN, "--framework", "mindspore", "--data-path", cifar, "--updates", "2"]
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    assert main([*run, "--json-file", str(files[0])]) in (0, 1)
    assert "before -> now" not in capsys.readouterr().out
    faster = ["--workers", "64", "--amp-level", "O2", "--before", str(files[0])]
    assert main([*run, *faster, "--json-file", str(files[1])]) in (0, 1)
    told = capsys.readouterr().out
    before, after = (json.loads(file.read_text())["facts"] for file in files)
    casts = [sum(one["seconds"] for one in facts["operators"] if one["name"] == "Cast") for facts in (before, after)]
    assert casts[1] > casts[0] and before["loader_queue"]["ready"] == [] and min(after["loader_queue"]["ready"]) > 0
    then, now = before["phases"]["iteration gap"], after["phases"]["iteration gap"]
    assert f"iteration gap {then * 1e3:.1f} -> {now * 1e3:.1f}" in told and "operators that changed most" in told
    assert f"batches ready before -> now: no queue -> {np.median(after['loader_queue']['ready']):g} of" in told


def launched(folder, *command):
    """A command on two ranks, as ``msrun`` starts them."""
    folder.mkdir(exist_ok=True)
    launcher = ["--worker_num", "2", "--local_worker_num", "2", "--master_port", str(free_port()), "--join", "True"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # msrun starts "python"
    return subprocess.run(
        [sys.executable, "-m", "mindspore.parallel.cluster.run", *launcher, "--log_dir", str(folder / "log"), *command],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
    )  # fmt: skip


RANKS = """
import sys
from pathlib import Path

import mindspore
import numpy as np

from projects.resnet50.in_mindspore.train.distributed import average_gradients, average_statistics, started

with started() as ranks:
    own = [0.1 * (ranks.rank + 1), 1e300, float("nan"), 2.0**53 + ranks.rank * 2]
    total, one = ranks.sum(own), ranks.sum([[ranks.rank + 1.0]])
    model = mindspore.nn.SequentialCell(mindspore.nn.BatchNorm2d(2), mindspore.nn.Dense(2, 3))
    for number, parameter in enumerate(model.get_parameters()):
        if parameter.requires_grad:
            parameter._grad = mindspore.Tensor(np.full(parameter.shape, number + 4.0 * ranks.rank, np.float32))
    model[0].moving_mean.assign_value(mindspore.Tensor(np.full(2, 1.0 + 2 * ranks.rank, np.float32)))
    average_gradients(model, ranks)
    average_statistics(model, ranks)
    gradients = [parameter._grad.asnumpy() for parameter in model.get_parameters() if parameter.requires_grad]
    found = {"total": total, "one": one, "mean": model[0].moving_mean.asnumpy(), "world": ranks.world_size}
    np.savez(Path(sys.argv[1]) / f"rank{ranks.rank}.npz", **found, **{f"g{n}": g for n, g in enumerate(gradients)})
"""


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_ranks_of_mindspore_add_up_in_float64_and_average_in_float32(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    run = launched(tmp_path, str(tmp_path / "ranks.py"), str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    for rank in (0, 1):
        found = np.load(tmp_path / f"rank{rank}.npz")
        assert found["world"] == 2 and found["one"].tolist() == [[3.0]] and found["mean"].tolist() == [2.0, 2.0]
        np.testing.assert_array_equal(found["total"], [0.1 + 0.2, 2e300, np.nan, 2.0**54 + 2])
        gradients = [found[f"g{n}"] for n in range(4)]
        assert [one.shape for one in gradients] == [(2,), (2,), (3, 2), (3,)]
        assert all(np.ptp(one) == 0 for one in gradients), "each comes back to its own parameter"
        assert [float(one.flat[0]) for one in gradients] == [number + 2.0 for number in (2, 3, 4, 5)]


@installed
def test_ranks_that_cannot_be_joined_are_one_line(monkeypatch):
    """What MindSpore says in many lines where another run has the port."""
    from projects.resnet50.in_mindspore.train import distributed

    def init():
        raise RuntimeError("Failed to register the compute graph node: 0. Repeated registration\n\n- C++ Call Stack:\nx.cc:255")

    monkeypatch.setattr(distributed, "init", init)
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    with pytest.raises(RankError, match=r"use a --master_port that is free: Failed to register.*Repeated") as caught:
        distributed.started().__enter__()
    assert "\n" not in caught.value.line and "C++" not in caught.value.line
    monkeypatch.delenv("MS_ROLE")
    with distributed.started() as ranks:
        assert (ranks.rank, ranks.world_size) == (0, 1) and ranks.sum([0.1, 0.2]).tolist() == [0.1, 0.2]


@installed
@pytest.mark.slow
@pytest.mark.weekly
def test_two_ranks_of_mindspore_are_one_process(cifar, tmp_path):
    """With frozen BatchNorm two batches of two are one of four; with statistics of each rank's own they are not."""
    flags = [*RUN, "--framework", "mindspore", "--data-path", cifar, "--epochs", "2"]
    batches = {"one": "4", "two": "2", "apart": "2"}

    def command(run, *more):
        return ["tools/resnet50.py", "train", *flags, "--batch-size", batches[run], "--output-dir", str(tmp_path / run), *more]

    assert main([*command("one", "--freeze-bn")[1:]]) == 0
    for run in (launched(tmp_path, *command("two", "--freeze-bn")), launched(tmp_path, *command("apart"))):
        assert run.returncode == 0, run.stdout + run.stderr
    for figure in ("loss", "top1", "lr", "avg_samples"):
        alone, together = (curve(tmp_path / run, figure) for run in ("one", "two"))
        assert len(alone) == len(together) == 4 and np.allclose(alone, together, rtol=1e-4), figure
    assert figures(tmp_path / "two")["samples"] == 6
    assert figures(tmp_path / "two")["loss"] == pytest.approx(figures(tmp_path / "one")["loss"], rel=1e-4)
    for name, array in trained(tmp_path / "one").items():
        assert relative_l2(trained(tmp_path / "two")[name], array) < 1e-4, name
    assert not np.allclose(curve(tmp_path / "apart"), curve(tmp_path / "one"), rtol=1e-4)


def test_infer_evaluates_as_trained_and_says_so(cifar, tmp_path, capsys):
    """As docs/three_frameworks.md prints the command: without the sizes, which the checkpoint knows."""
    run = (*RUN, "--framework", "ref", "--data-path", cifar, "--epochs", "1", "--output-dir", str(tmp_path))
    assert main(["train", *run]) == 0
    best = str(tmp_path / "best.safetensors")
    plain = ["infer", "--framework", "ref", "--data-path", cifar, "--pretrained", best, "--device", "cpu", "--workers", "0"]
    capsys.readouterr()
    assert main([*plain, "--json", str(tmp_path / "own.json")]) == 0
    assert "model resnet18_cifar, resize_size 8, crop_size 8 as in training" in capsys.readouterr().err
    own = json.loads((tmp_path / "own.json").read_text())
    assert own["loss"] == pytest.approx(read_json_lines(tmp_path, "eval")[0]["loss"], rel=1e-5)
    assert main([*plain, "--resize-size", "16", "--crop-size", "16", "--json", str(tmp_path / "other.json")]) == 0
    said = capsys.readouterr().err
    assert "--resize-size 16 in place of training's 8" in said and "--crop-size 16 in place of training's 8" in said
    assert json.loads((tmp_path / "other.json").read_text())["loss"] != own["loss"]
