"""``--config``: steps 5 and 6 align the recipe that is given, made small by rules that a page tells."""

from __future__ import annotations

import dataclasses
import math

import pytest

from alignment import cli
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import runs, train
from alignment.comparisons.run.recipe import RECIPE, REPLACED, in_small, recipe, rounded, topics
from alignment.comparisons.update import backward
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.train_config import TrainConfig
from projects.mobilenetv3.faults.training import configured
from projects.mobilenetv3.project import PROJECT
from tests.conftest import ROOT

pytestmark = pytest.mark.slow  # make test-slow

# Whatever a recipe can ask for, in one.
RICH = TrainConfig(
    optimizer="rmsprop", lr=0.064, eps=0.0316, weight_decay=1e-5, norm_weight_decay=0.0, bias_weight_decay=3e-5, batch_size=32,
    lr_schedule="step", lr_unit="epoch", lr_step_epochs=2, lr_gamma=0.973, epochs=6, warmup_epochs=2, accumulate=4, clip_norm=5.0,
    auto_augment="ra", random_erase=0.2, mixup_alpha=0.2, cutmix_alpha=1.0, label_smoothing=0.1, ema_decay=0.9, dropout=0.2,
    bn_momentum=0.1, width_mult=0.5,
)  # fmt: skip
SHORT = train.Plan(iterations=5, draws=2, seeds=1, epochs=2, train_per_class=4, val_per_class=2)
KEPT = ("optimizer", "lr_schedule", "lr_unit", "auto_augment", "freeze_bn", "hflip_prob", "width_mult", "ema_every")


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "configs").glob("*.yaml")))
def test_every_recipe_has_a_small_form(name):
    config = make_config(TrainConfig, ROOT / "configs" / name, {})
    small = in_small(config, config.model, 2)
    assert [getattr(small, field) for field in KEPT] == [getattr(config, field) for field in KEPT]
    assert [getattr(small, field) for field in REPLACED] == [getattr(RECIPE, field) for field in REPLACED]
    assert small.epochs == 2 and bool(small.warmup_epochs) == bool(config.warmup_epochs)
    assert small.weight_decay == pytest.approx(config.weight_decay, rel=0.07)
    lr = small.optimizer_config(small.batch_size * small.accumulate).lr
    whole = config.optimizer_config(config.batch_size * config.accumulate).lr
    larger = small.batch_size * small.accumulate / config.batch_size / config.accumulate
    assert lr == pytest.approx(whole * (larger**0.5 if config.scale_lr_by == "sqrt" else larger), rel=0.07)


def test_numbers_are_rounded_to_four_bits_and_never_to_one():
    values = [0.9, 0.9999, 0.1, 0.064, 3.0, 5e-5, 1.0, 0.0]
    for value, near in zip(values, map(rounded, values), strict=True):
        assert near == pytest.approx(value, rel=0.07) and (near == 1) == (value == 1)
        small = 1 - near if 0.5 < near < 1 else near
        assert not small or float(small / 2.0 ** math.floor(math.log2(small)) * 8).is_integer()


def test_a_recipe_keeps_what_it_asks_for():
    small = in_small(RICH, "mobilenet_v3_small", 2)
    assert (small.lr_step_epochs, small.warmup_epochs, small.accumulate) == (1, 1, 2)
    assert topics(small) == [
        "rmsprop", "step schedule", "warm-up by epoch", "norm weight decay", "bias weight decay", "gradient clipping",
        "accumulation", "moving average", "label smoothing", "dropout", "mixup", "cutmix", "random erasing", "horizontal flip",
        "randaugment",
    ]  # fmt: skip
    assert recipe(Context(PROJECT, recipe=RICH), 2) == small
    assert recipe(Context(PROJECT), 3) == dataclasses.replace(RECIPE, epochs=3)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Step 6 by the rich recipe: the reference's runs, made once."""
    folder = str(write_digits(tmp_path_factory.mktemp("digits"), SHORT.train_per_class, SHORT.val_per_class))
    made = train.RunTrial(Context(PROJECT, recipe=RICH), SHORT, folder)
    return folder, made.measure(made.context, "reference")


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, None),
        ({"mixup_alpha": 0.0}, "batches.images"),
        ({"eps": 0.04}, "curve.float64"),
        ({"warmup_decay": 0.5}, "learning_rates"),
        ({"label_smoothing": 0.0}, "curve.float64"),
    ],
)
def test_step_6_trains_by_the_recipe(changes, row, trial):
    folder, theirs = trial
    project = configured(PROJECT, **changes) if changes else PROJECT
    result = StepResult(6, "train")
    made = train.RunTrial(Context(project, recipe=RICH), SHORT, folder)
    runs.add(result, made, made.measure(made.context, "port"), theirs)
    failed = [quantity.name for quantity in result.quantities if not quantity.passed]
    assert (failed == [] and result.problems == []) if row is None else row in failed


def test_step_5_has_the_recipes_own_rows(context):
    made = dataclasses.replace(context(), recipe=RICH)
    result = StepResult(5, "backward")
    backward.compare_exact_updates(made, result, {name: made.networks.of(name) for name in ("port64", "reference64")})
    assert result.passed and {"schedule.recipe", "optimizer.recipe.groups"} <= {quantity.name for quantity in result.quantities}


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        (None, (), "cannot read config"),
        ("lerning_rate: 1\n", (), "unknown key 'lerning_rate'"),
        ("lr: fast\n", (), "lr must be float"),
        ("epochs: 4\nwarmup_epochs: 4\n", (), "--warmup-epochs must be below --epochs (4), found 4"),
        ("lr: 0.1\n", ("--steps", "1-4"), "steps 5 and 6 train"),
        ("lr: 0.1\n", ("--bench-faults",), "--config does not go with --bench-faults"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_one_line_and_exit_2(text, flags, words, tmp_path, capsys):
    file = tmp_path / "recipe.yaml"
    if text is not None:
        file.write_text(text)
    arguments = ["--config", str(file), *flags, "--result-dir", str(tmp_path / "result")]
    assert cli.run(arguments, ROOT / "projects/mobilenetv3/project.py") == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
