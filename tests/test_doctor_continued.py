"""tools/doctor.py compare --from and --watch: both frameworks from one checkpoint, and a run that is followed while it goes on."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest

from alignment_doctor.cli import main
from alignment_doctor.compare import continued_checks
from alignment_doctor.compare.continued import STATES, continued
from alignment_doctor.findings import checks_of, examine
from mobilenetv3_common.checkpoint import write_checkpoint
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run import build_run, checkpoint_of
from mobilenetv3_common.train_config import OPTIMIZERS, TrainConfig
from mobilenetv3_common.training import micro_batches, update
from tests.conftest import LITE_DATA, ROOT

FRAMEWORKS = {name: importlib.import_module(f"mobilenetv3_{name}.train.backend") for name in ("ref", "paddle")}
SMALL = {
    "data_path": str(LITE_DATA), "crop_size": 32, "resize_size": 32, "width_mult": 0.5, "workers": 0, "batch_size": 4, "epochs": 2,
    "lr": 0.02, "device": "cpu", "mixup_alpha": 0.2, "clip_norm": 5.0,
}  # fmt: skip
FITTING = {"adamw": 0.002, "adam": 0.002, "rmsprop": 0.002, "lion": 1e-4, "adadelta": 1.0}


@pytest.fixture(scope="module")
def after_two(tmp_path_factory):
    """Writes the checkpoint that a run has after two updates; equal settings are trained once."""
    done = {}

    def make(name="ref", **changes):
        key = json.dumps([name, changes], sort_keys=True)
        if key not in done:
            config = make_config(TrainConfig, None, {**SMALL, "framework": name, **changes})
            framework = FRAMEWORKS[name]
            with framework.started("cpu") as ranks:
                run = build_run(framework, config, ranks)
                run.train_mode()
                for batch, _ in zip(micro_batches(run), range(2), strict=False):
                    update(run, [batch])
                done[key] = tmp_path_factory.mktemp("from") / "update_000000002.safetensors"
                write_checkpoint(done[key], checkpoint_of(run, []))
        return done[key]

    return make


def problems(path, **changed):
    """Check -> places; ``changed``: framework -> a function of its module that gives what is changed in it."""
    held = {
        name: types.SimpleNamespace(**{**vars(module), **(changed[name](module) if name in changed else {})})
        for name, module in FRAMEWORKS.items()
    }
    return {one.check.id: one.outcome.where for one in examine(continued_checks, continued(path, held)) if one.is_problem}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("ref", "sgd"), ("paddle", "adamw"),
        ("paddle", "adam"),  # in its second update a ReLU's input is 0 but for rounding: 0.8 % of all gradients
        *(pytest.param(name, one, marks=[pytest.mark.slow, pytest.mark.weekly]) for name in FRAMEWORKS for one in OPTIMIZERS),
    ],
)  # fmt: skip
def test_both_frameworks_go_on_alike_from_either_ones_checkpoint(after_two, name, optimizer):
    assert set(STATES) == set(OPTIMIZERS)
    assert problems(after_two(name, optimizer=optimizer, lr=FITTING.get(optimizer, 0.02))) == {}


def optimizer_with(**changes):
    return lambda module: {"build_optimizer": lambda model, config: module.build_optimizer(model, replace(config, **changes))}


def loss_with(**changes):
    return lambda module: {"CrossEntropyLoss": lambda _smoothing, **more: module.CrossEntropyLoss(**more, **changes)}


def pictures_with(change):
    def of(module):
        class Changed(module.ImageDataset):
            def train_transform(self, *args):
                return change(super().train_transform(*args))

        return {"ImageDataset": Changed}

    return of


def model_with(change):
    def of(module):
        def build(*args):
            model = module.build_model(*args)
            change(model)
            return model

        return {"build_model": build}

    return of


def slower_statistics(model):
    for layer in model.sublayers():
        if hasattr(layer, "momentum"):
            layer.momentum = 0.02


def doubled_gradient(model):
    """Of one bias, which is a thousandth of all gradients together."""
    model.features[4].block[2].fc1.bias.register_hook(lambda gradient: gradient * 2)


OTHERWISE = {
    "decay": (optimizer_with(weight_decay=0.0), "compare.from_update"),
    "momentum": (optimizer_with(momentum=0.8), "compare.from_update"),
    "smoothing": (loss_with(label_smoothing=0.1), "compare.from_loss"),
    "pixels": (pictures_with(lambda pixels: pixels * 1.01), "compare.from_pictures"),
    "statistics": (model_with(slower_statistics), "compare.from_statistics"),
    "gradient": (model_with(doubled_gradient), "compare.from_gradients"),
    "schedule": (
        lambda module: {"build_schedule": lambda o, config: module.build_schedule(o, replace(config, total=2 * config.total))},
        "compare.from_rate",
    ),
}
QUICK = ("decay", "smoothing", "gradient")


@pytest.mark.parametrize("what", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in OTHERWISE])
def test_what_one_framework_does_otherwise_is_found_where_it_is(after_two, what):
    change, check = OTHERWISE[what]
    found = problems(after_two(), paddle=change)
    assert check in found and found[check][0].startswith("update 3: ")
    alone = {"compare.from_rate": {"compare.from_update"}, "compare.from_loss": {"compare.from_gradients"}}.get(check, set())
    assert set(found) <= {check} | alone


def test_a_checkpoint_that_cannot_be_continued_is_one_clear_line(after_two, tmp_path, capsys):
    path = after_two()
    for flags, said in (
        (["--from", str(tmp_path / "x.safetensors")], "no such checkpoint"),
        (["--from", str(path), "a", "b"], "takes no runs"),
        (["--from", str(path), "--data-path", str(tmp_path)], "holds no"),
        (["only_one"], "give two runs"),
        (["a", "b", "--device", "cpu"], "belong to --from"),
    ):
        assert main(["compare", *flags]) == 2
        error = capsys.readouterr().err
        assert (said in error or "neither" in error) and error.count("\n") == 1
    with pytest.raises(UserError, match="mixed precision"):
        continued(after_two("ref", amp_level="O1", amp_dtype="bfloat16"), FRAMEWORKS)


def test_every_check_says_something_of_itself():
    assert len(checks_of(continued_checks)) == 6
    assert all(one.items and one.fix and one.id.startswith("compare.from_") for one in checks_of(continued_checks))


# --- --watch ------------------------------------------------------------------------------------------------------------------

LIVE = """
import json, sys, time
time.sleep(0.5)
with open(sys.argv[1], "a") as file:
    for update in range(1, int(sys.argv[2]) + 1):
        loss = 3.0 / update * (1.5 if update >= int(sys.argv[3]) else 1.0)
        file.write(json.dumps({"kind": "train", "epoch": 0, "update": update, "loss": loss})[:-3])
        file.flush()
        time.sleep(0.3)  # half a line
        file.write(json.dumps({"kind": "train", "epoch": 0, "update": update, "loss": loss})[-3:] + "\\n")
        file.flush()
"""


@pytest.mark.parametrize(("updates", "strays", "status", "said"), [
    (6, 4, 1, "followed to update 4, where a problem showed"),
    (6, 99, 0, "followed to update 6, the last one of"),
    (3, 99, 0, "followed to update 3; no new line came for 2 s"),
])  # fmt: skip
def test_a_live_run_is_followed_until_it_strays_or_ends(tmp_path, capsys, updates, strays, status, said):
    def trusted(name, factor):
        lines = [{"kind": "train", "epoch": 0, "update": n, "loss": 3.0 / n * factor} for n in range(1, 7)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(tmp_path / name)

    live = tmp_path / "live.jsonl"
    flags = [
        trusted("a.jsonl", 1.0),
        str(live),
        "--repeats",
        trusted("r.jsonl", 1.001),
        "--watch",
        "--interval",
        "0.1",
        "--patience",
        "2",
    ]
    writer = subprocess.Popen([sys.executable, "-c", LIVE, str(live), str(updates), str(strays)], cwd=ROOT, env=os.environ)
    assert main(["compare", *flags]) == status
    assert said in capsys.readouterr().out
    writer.wait(20)


def test_a_run_that_never_begins_is_one_line(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("step,loss\n1,2\n")
    assert main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b"), "--watch", "--interval", "0.1", "--patience", "0.3"]) == 2
    assert "no such run or log" in capsys.readouterr().err
