"""Optimizers, schedules and what else a recipe may ask for: each resumes to the last bit, is refused where it cannot work, and
trains alike in both frameworks."""

import dataclasses
import signal

import numpy as np
import pytest

import mobilenetv3_ref.train as theirs
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run import train as step6
from alignment.comparisons.run.curves import judge_curve, show_curve
from mobilenetv3_common.checkpoint import LATEST, CheckpointFolder, read_checkpoint
from mobilenetv3_common.digits import write_digits
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.run_control import STOPS
from mobilenetv3_common.train_config import OPTIMIZERS, SCHEDULES, TrainConfig
from mobilenetv3_common.training import save
from projects.mobilenetv3.project import PROJECT
from tests.test_train_loop import BUILDERS, CONFIG

# Numbers that float32 holds; see alignment.comparisons.run.recipe.
RECIPES = {
    **{name: {"optimizer": name} for name in OPTIMIZERS},
    "nesterov": {"optimizer": "sgd", "nesterov": True},
    "l1": {"optimizer": "sgd", "l1_decay": 2.0**-8, "norm_weight_decay": 0.0},
    **{f"{name} schedule": {"lr_schedule": name, "lr_min": 2.0**-12} for name in SCHEDULES},
    "multistep schedule": {"lr_schedule": "multistep", "lr_milestones": "1", "lr_gamma": 0.5},
    "polynomial schedule": {"lr_schedule": "polynomial", "lr_power": 2.0, "lr_min": 2.0**-12},
    "restarts schedule": {"lr_schedule": "restarts", "lr_restart_epochs": 1, "lr_restart_factor": 2, "warmup_epochs": 1},
    "parameter groups": {"param_groups": "*.bias:lr=2,decay=0;0.*:frozen;*:lr=0.5", "layer_decay": 0.75, "optimizer": "adamw"},
    "layer-wise decay": {"layer_decay": 0.75},
    "square-root scaling": {"scale_lr_from": 2, "scale_lr_by": "sqrt"},
}
# The same, several in one.
TOGETHER = {
    "lamb restarts": RECIPES["lamb"] | RECIPES["restarts schedule"],
    "lion onecycle": RECIPES["lion"] | RECIPES["onecycle schedule"],
    "adadelta polynomial": RECIPES["adadelta"] | RECIPES["polynomial schedule"],
    "adam multistep": RECIPES["adam"] | RECIPES["multistep schedule"] | {"warmup_epochs": 0},
    "groups": RECIPES["parameter groups"] | {"lr_schedule": "cosine", "lr_min": 2.0**-12},
    "nesterov l1 sqrt": RECIPES["nesterov"] | RECIPES["l1"] | RECIPES["square-root scaling"],
}


def changed(config, changes):
    return dataclasses.replace(config, **{"optimizer": "sgd", "epochs": 4, **changes})


def updates(package, run, batches, count):
    losses = []
    for _ in range(count):
        package.update(run, [next(batches)])
        losses.append(float(run.meter.loss))
        if run.iteration == run.updates_per_epoch:
            run.epoch, run.iteration = run.epoch + 1, 0
    return losses


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
def test_a_run_resumes_to_the_last_bit(package, builder, name, tmp_path):
    config = dataclasses.replace(changed(CONFIG, TOGETHER[name]), output_dir=str(tmp_path), lr=2.0**-6)
    run = package.build_run(config, package.Ranks(), builder)
    batches = package.micro_batches(run)
    run.train_mode()
    updates(package, run, batches, 5)
    save(run, CheckpointFolder(tmp_path), best=False)
    updates(package, run, batches, 6)
    resumed = package.build_run(dataclasses.replace(config, resume="auto"), package.Ranks(), builder)
    resumed.train_mode()
    updates(package, resumed, package.micro_batches(resumed), 6)
    one, other = (package.model_arrays(r.model) for r in (run, resumed))
    assert all(np.array_equal(one[tensor], other[tensor]) for tensor in one), "the resumed run is another"
    assert run.learning_rate() == resumed.learning_rate()


def test_a_checkpoint_from_before_a_setting_goes_on_with_its_default(tmp_path):
    package, builder = theirs, BUILDERS[1][1]
    config = dataclasses.replace(CONFIG, output_dir=str(tmp_path))
    run = package.build_run(config, package.Ranks(), builder)
    run.train_mode()
    updates(package, run, package.micro_batches(run), 1)
    folder = CheckpointFolder(tmp_path)

    def older(checkpoint, best, top1):
        checkpoint.meta["config"] = {k: v for k, v in checkpoint.meta["config"].items() if k not in ("nesterov", "l1_decay")}
        return CheckpointFolder.save(folder, checkpoint, best, top1)

    folder.save = older
    save(run, folder, best=False)
    package.build_run(dataclasses.replace(config, resume="auto"), package.Ranks(), builder)
    with pytest.raises(UserError, match=r"--l1-decay 0\.0 there, 0\.5 here"):
        package.build_run(dataclasses.replace(config, resume="auto", l1_decay=0.5), package.Ranks(), builder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nesterov": True, "optimizer": "adam"}, "--nesterov needs --optimizer sgd"),
        ({"nesterov": True, "momentum": 0.0}, "--nesterov needs --optimizer sgd and --momentum above 0"),
        ({"l1_decay": float("nan")}, "--l1-decay must be from 0 to 1"),
        ({"lr_schedule": "multistep"}, "--lr-milestones 30,60,80"),
        ({"lr_schedule": "multistep", "lr_milestones": "3,x"}, "--lr-milestones must be whole numbers"),
        ({"lr_schedule": "multistep", "lr_milestones": "3,2"}, "milestones that rise"),
        ({"lr_schedule": "multistep", "lr_milestones": "2", "warmup_epochs": 2}, "after the warm-up"),
        ({"lr_schedule": "onecycle", "warmup_epochs": 1}, "leave --warmup-epochs out"),
        ({"lr_schedule": "onecycle", "lr_unit": "epoch", "epochs": 3}, "a onecycle schedule of 3 step"),
        ({"lr_rise": 1.0}, "--lr-rise must be above 0 to below 1"),
        ({"lr_restart_factor": 0}, "--lr-restart-factor must be from 1 to 100"),
        ({"param_groups": "features"}, "--param-groups must be PATTERN:lr=FACTOR"),
        ({"param_groups": "a:lr=2;b:speed=3"}, "found 'b:speed=3'"),
        ({"param_groups": "a:lr=0"}, "lr of 'a' must be above 0"),
        ({"param_groups": "a:decay=nan"}, "decay of 'a' must be from 0 to 1"),
        ({"mix_off_epochs": 2}, "--mix-off-epochs needs mixup or cutmix"),
        ({"mix_off_epochs": 10, "mixup_alpha": 0.2}, "must be below --epochs (10), found 10"),
        ({"eval_raw": True}, "--eval-raw needs a moving average"),
        ({"early_stop": -1}, "--early-stop must be from 0"),
        ({"keep_best": 0}, "--keep-best must be from 1"),
        ({"layer_decay": 0.0}, "--layer-decay must be above 0 to 1"),
        ({"lr_power": 0.0}, "--lr-power must be above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(changes, words):
    with pytest.raises(UserError) as refused:
        TrainConfig(**changes)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
def test_groups_by_name_move_as_they_say_and_frozen_parameters_stay(package, builder):
    config = changed(CONFIG, {"param_groups": "0.weight:frozen;6.*:lr=0.25", "momentum": 0.0, "weight_decay": 0.0, "lr": 2.0**-6})
    moves = {}
    for groups in (config, dataclasses.replace(config, param_groups="0.weight:frozen")):
        run = package.build_run(groups, package.Ranks(), builder)
        before = package.model_arrays(run.model)
        run.train_mode()
        updates(package, run, package.micro_batches(run), 1)
        moves[groups] = {name: array - before[name] for name, array in package.model_arrays(run.model).items()}
    slow, whole = moves.values()
    assert not slow["0.weight"].any() and slow["1.bias"].any()  # the bias in front of it has no gradient but rounding
    assert np.allclose(slow["6.weight"], whole["6.weight"] / 4, rtol=1e-3, atol=1e-7) and slow["6.weight"].any()
    assert np.array_equal(slow["0.bias"], whole["0.bias"]), "others are as they were"
    for rules, words in (("7.*:lr=2", "fits no parameter"), ("*:frozen", "freezes every parameter")):
        with pytest.raises(UserError, match=words):
            package.build_run(dataclasses.replace(config, param_groups=rules), package.Ranks(), builder)


@pytest.mark.parametrize(("package", "builder"), BUILDERS, ids=["paddle", "ref"])
def test_the_last_epochs_are_not_mixed(package, builder):
    config = changed(CONFIG, {"mixup_alpha": 0.2, "mix_off_epochs": 1, "epochs": 2})
    run = package.build_run(config, package.Ranks(), builder)
    labels = [labels.ndim for (_, labels), _ in package.micro_batches(run)]
    assert labels == [2] * run.updates_per_epoch + [1] * run.updates_per_epoch
    updates(package, run, package.micro_batches(run), 2 * run.updates_per_epoch)


@pytest.fixture
def own_signals():
    """What a run in this process does to its signals is undone."""
    before = {number: signal.getsignal(number) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)


def test_a_run_ends_early_keeps_its_best_and_resumes_as_if_it_had_not_stopped(own_signals, tmp_path):
    """The learning rate is so small that no evaluation after the first is better."""
    package, builder = theirs, BUILDERS[1][1]
    changes = {"epochs": 6, "early_stop": 2, "keep_best": 2, "ema_decay": 0.5, "eval_raw": True}
    changes |= {"lr": 1e-9, "lr_schedule": "constant"}
    config = dataclasses.replace(changed(CONFIG, changes), output_dir=str(tmp_path / "whole"))
    assert package.train(config, builder) == 0
    folder = CheckpointFolder(tmp_path / "whole")
    assert read_checkpoint(tmp_path / "whole" / LATEST).meta["stale"] == 2
    assert "ended early after 3 epochs: 2 evaluations" in (tmp_path / "whole" / "train.log").read_text()
    assert [path.name.split("_update_")[1] for path in folder.top()] == ["000000004.safetensors", "000000008.safetensors"]
    tables = {name: (tmp_path / "whole" / name).read_text().splitlines() for name in ("train.csv", "eval.csv", "eval_raw.csv")}
    assert [line.split(",")[0] for line in tables["eval.csv"]] == ["update", "4", "8", "12"]
    assert tables["eval_raw.csv"][0] == tables["eval.csv"][0] == "update,epoch,iter,top1,top5,loss,samples,skipped"
    assert package.train(dataclasses.replace(config, resume="auto"), builder) == 0, "it stays ended"
    assert read_checkpoint(tmp_path / "whole" / LATEST).meta["epoch"] == 3
    part = dataclasses.replace(config, output_dir=str(tmp_path / "part"))
    assert package.train(dataclasses.replace(part, epochs=2), builder) == 0
    assert package.train(dataclasses.replace(part, resume="auto"), builder) == 0
    assert read_checkpoint(tmp_path / "part" / LATEST).meta["stale"] == 2
    for name in ("eval.csv", "eval_raw.csv"):
        assert (tmp_path / "part" / name).read_text().splitlines() == tables[name], "every evaluation once"


# The same of both packages' losses, batches and layers: compared over fifty updates below, resumed in the tests beside this file.
MORE = {
    "class weights": {"class_weights": ",".join(str(2.0 ** (label % 4 - 1)) for label in range(10))},
    "repeated augmentation": {"repeat_augment": 3},
    "kept last batch": {"drop_last": False},
    "gradient checkpointing": {"grad_checkpointing": True},
    "mixing off at the end": {"mixup_alpha": 0.25, "mix_off_epochs": 1},
    "frozen BatchNorm": {"freeze_bn": True},
    "distillation": {"teacher": "of this run", "distill_temperature": 2.0},
}
LEAST_FALL = {"frozen BatchNorm": 0.01}  # of the statistics of fresh weights, with which little is learnt


def write_teacher(folder, config):
    """A checkpoint of fresh weights of another seed."""
    config = dataclasses.replace(config, framework="ref", output_dir=str(folder), seed=3, workers=0, crop_size=32, resize_size=32)
    save(theirs.build_run(config, theirs.Ranks()), CheckpointFolder(folder), best=False)
    return str(folder / LATEST)


# Fifty updates of both frameworks, and of the reference from weights moved by one ulp: step 6's own check, in small.
PLAN = step6.Plan(iterations=50, draws=3, seeds=1, epochs=4, train_per_class=12, val_per_class=1, lag=5)


# Names of its parameters, and a penalty under which it learns something in fifty updates.
OF_MOBILENET = {
    "parameter groups": {"param_groups": "*.bias:lr=2,decay=0;features.0.*:frozen;*:lr=0.5"},
    "l1": {"l1_decay": 2.0**-13, "momentum": 0.875},
}


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("name", [*RECIPES, *MORE])
def test_fifty_updates_stay_inside_the_references_own_envelope(name, tmp_path):
    changes = {"optimizer": "adamw", **(RECIPES | MORE)[name], **OF_MOBILENET.get(name, {})}
    rates = {"sgd": 2.0**-5, "lion": 2.0**-12, "adadelta": 2.0**-3}  # adadelta's own rate of 1 is chaotic from the second update
    base = {"batch_size": 8, "width_mult": 0.5, "eps": 2.0**-10, "beta1": 0.875, "beta2": 0.96875}
    per_class = PLAN.train_per_class + (name == "kept last batch")  # 16 batches of 8 pictures, and two pictures
    digits = write_digits(tmp_path / "digits", per_class, PLAN.val_per_class)
    if "teacher" in changes:
        changes["teacher"] = write_teacher(tmp_path / "teacher", TrainConfig(data_path=str(digits), **base))
    recipe = TrainConfig(epochs=4, lr=rates.get(changes["optimizer"], 2.0**-8), **base, **changes)
    context = Context(PROJECT, recipe=recipe)
    trial = step6.RunTrial(context, PLAN, str(digits))
    result = StepResult(6, "train")
    start = trial.start[0]
    # Lion takes the sign of each gradient: in float32 other kernels round more signs away than a change of one ulp does.
    for bits in ("64",) if changes["optimizer"] == "lion" else ("32", "64"):
        moved = [context.material.ulp_changed(start, f"float{bits}", n) for n in range(PLAN.draws)]
        of = (("port", start), ("reference", start), *(("reference", weights) for weights in moved))
        ours, other, *draws = (trial._curve(context, role, weights, bits)[f"curve.{bits}"] for role, weights in of)
        assert len(other) == 50 and np.ptp(other) > LEAST_FALL.get(name, 0.05)
        if bits == "64":
            assert (np.abs(ours - other) <= 1e-12 * np.abs(other))[:2].all(), "the first update, which the second loss tells"
        given = f"curve.float{bits}", ours, other, draws, bits == "64", PLAN.lag
        result.quantities.append(judge_curve(*given))
        show_curve(result, *given)
    assert result.passed, [quantity.reason for quantity in result.quantities] + result.problems
