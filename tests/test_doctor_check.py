"""tools/doctor.py check: planted mistakes of a run are found before it begins, and sound recipes have none."""

from __future__ import annotations

import importlib
import json
import types
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import mobilenetv3_common.run
from alignment_doctor.check import checks, subject
from alignment_doctor.check.command import config_of_run
from alignment_doctor.check.subject import observe
from alignment_doctor.cli import main
from alignment_doctor.findings import Verdict, checks_of, examine
from alignment_doctor.frameworks import probe_of
from mobilenetv3_common.checkpoint import write_effective
from mobilenetv3_common.config_file import make_config
from mobilenetv3_common.sampling import BatchPlan, epoch_order
from mobilenetv3_common.train_config import TrainConfig
from tests.conftest import LITE_DATA
from tests.training import write_start

SMALL = {
    "data_path": str(LITE_DATA), "crop_size": 32, "resize_size": 36, "width_mult": 0.5, "workers": 0, "batch_size": 8, "epochs": 20,
    "lr": 0.002, "optimizer": "adamw", "device": "cpu",
}  # fmt: skip
BOTH = ["ref", pytest.param("paddle", marks=pytest.mark.slow)]


def outcomes(name, builder=None, changes=None, **settings):
    """Check -> outcome; ``changes`` of the framework stand for mistakes in somebody's training code."""
    module = importlib.import_module(f"mobilenetv3_{name}.train.backend")
    framework = types.SimpleNamespace(**{**vars(module), **(changes(module) if changes else {})})
    config = make_config(TrainConfig, None, {**SMALL, "framework": name, **settings})
    with module.started("cpu") as ranks:
        return {one.check.id: one.outcome for one in examine(checks, observe(framework, config, ranks, builder))}


def problems(*args, **settings):
    return {id: outcome.where for id, outcome in outcomes(*args, **settings).items() if outcome.verdict is Verdict.FOUND}


@pytest.fixture
def few(monkeypatch):
    """Three updates, for what shows at once; a batch is not learnt in them."""
    monkeypatch.setattr(subject, "UPDATES", 3)


# --- sound recipes ------------------------------------------------------------------------------------------------------------

RECIPES = {
    "sgd": {"optimizer": "sgd", "lr": 0.05},
    "rmsprop": {"optimizer": "rmsprop", "lr": 0.002, "eps": 0.0316, "lr_schedule": "step", "lr_unit": "epoch", "lr_step_epochs": 2},
    "mixing": {"mixup_alpha": 0.2, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "accumulating": {"accumulate": 2, "batch_size": 4, "ema_decay": 0.9, "clip_norm": 1.0},
    "augmenting": {"auto_augment": "imagenet", "random_erase": 0.2, "warmup_epochs": 2},
    "repeating": {"repeat_augment": 2, "lr_schedule": "onecycle"},
    "weighing": {"class_weights": "1,2,3,4,5,6,7,8", "mixup_alpha": 0.4, "layer_decay": 0.9},
    "large": {"model": "mobilenet_v3_large", "lr_schedule": "exponential", "lr_gamma": 0.9},
}


@pytest.mark.parametrize("framework", ["ref", "paddle"])
def test_a_sound_recipe_has_no_problem(framework):
    told = outcomes(framework)
    assert [id for id, outcome in told.items() if outcome.verdict is Verdict.FOUND] == []
    not_asked = {id for id, outcome in told.items() if outcome.verdict is Verdict.NOT_APPLICABLE}
    assert not_asked == {"check.pretrained", "check.average", "check.clipping", "check.workers", "check.held_out"}


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "recipe"), [*(("ref", name) for name in RECIPES), ("paddle", "sgd"), ("paddle", "mixing")])
def test_other_sound_recipes_have_no_problem(framework, recipe):
    assert problems(framework, **RECIPES[recipe]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["ref", "paddle"])
def test_fine_tuning_with_frozen_batchnorm_has_no_problem(framework, small_state, tmp_path):
    start = str(write_start(tmp_path, small_state))
    told = outcomes(framework, pretrained=start, freeze_bn=True, lr=0.0005)
    assert [id for id, outcome in told.items() if outcome.verdict is Verdict.FOUND] == []
    assert told["check.pretrained"].verdict is Verdict.NONE
    assert told["check.gradients"].measured.endswith("68 are frozen")


def test_recipes_that_weigh_classes_repeat_pictures_or_have_a_teacher_have_no_problem(few, small_state, tmp_path):
    """Three updates: whether a batch is learnt is not asked."""
    weighed = {"class_weights": "1,2,3,4,5,6,7,8", "repeat_augment": 2}
    for more in ({}, {"label_smoothing": 0.1}, {"mixup_alpha": 0.4}):
        assert set(problems("ref", **weighed, **more)) <= {"check.overfit"}
    told = outcomes("ref", teacher=str(write_start(tmp_path, small_state)))
    assert [id for id, outcome in told.items() if outcome.verdict is Verdict.FOUND] == []
    assert told["check.loss_formula"].measured == "a teacher has a share in the loss"
    assert "check.loss_formula" in problems("ref", changes=wrong_loss, **weighed)


# --- planted mistakes: the model ------------------------------------------------------------------------------------------------


def hooked(framework, change, layer=lambda model: model):
    """Makes a network in which a layer's output is changed."""
    models = importlib.import_module(f"mobilenetv3_{framework}.models")

    def build(num_classes):
        model = models.MODELS["mobilenet_v3_small"](num_classes, width_mult=0.5)
        one = layer(model)
        register = getattr(one, "register_forward_hook", None) or one.register_forward_post_hook
        register(lambda _module, _inputs, output: change(output))
        return model

    return build


@pytest.mark.parametrize("framework", BOTH)
def test_a_cut_gradient_is_found(few, framework):
    builder = hooked(framework, lambda output: output.detach(), lambda model: model.features[3])
    where = problems(framework, builder)["check.gradients"]
    assert "features.0.0.weight: none" in where and not any(place.startswith("classifier") for place in where)


def set_weight(framework, tensor, change):
    changed = change(np.array(tensor.detach().numpy()))
    tensor.data.copy_(tensor.data.new_tensor(changed)) if framework == "ref" else tensor.set_value(changed)


@pytest.mark.parametrize("framework", BOTH)
def test_activations_that_sleep_at_the_start_are_no_cut_gradient(few, framework):
    """A squeeze-and-excitation whose ReLU gives zero for all pictures, as fresh weights of few channels now and then do."""
    models = importlib.import_module(f"mobilenetv3_{framework}.models")

    def build(num_classes):
        model = models.MODELS["mobilenet_v3_small"](num_classes, width_mult=0.5)
        set_weight(framework, dict(model.named_parameters())["features.1.block.1.fc1.weight"], lambda weight: -np.abs(weight))
        return model

    said = outcomes(framework, build, batch_size=2)["check.gradients"]
    assert said.verdict is Verdict.NONE
    assert (
        said.measured
        == "142 parameters have one; 3 of them not in the first batch, where an activation gives zero alone; 0 are frozen"
    )


@pytest.mark.parametrize("framework", BOTH)
def test_a_gradient_of_zero_in_one_batch_alone_is_no_problem_and_in_all_of_them_is_one(few, framework, monkeypatch):
    monkeypatch.setattr(subject, "find_range", lambda *_: None)  # it has the first batch again, which is counted here
    monkeypatch.setattr(subject, "FACTORS", ())  # likewise
    firsts: list[float] = []

    def build(always):
        def of(num_classes):
            shut = hooked(framework, lambda made: made * (0.0 if always or asleep[-1] else 1.0), lambda model: model.features[3])
            model = shut(num_classes)
            model.register_forward_pre_hook(lambda _, given: asleep.append(model.training and seen(float(given[0].sum()))))
            return model

        return of

    def seen(size):
        firsts.append(size)
        return size == firsts[0]

    asleep: list[bool] = []
    assert "check.gradients" not in problems(framework, build(False), batch_size=2)
    assert asleep.count(True) == 3 and not asleep[-1]
    found = problems(framework, build(True), batch_size=2)["check.gradients"]
    assert "features.0.0.weight: 0 everywhere, in 5 batches" in found


def test_a_layer_that_no_setting_freezes_is_found_and_a_frozen_one_is_not(few):
    def build(num_classes):
        model = importlib.import_module("mobilenetv3_ref.models").MODELS["mobilenet_v3_small"](num_classes, width_mult=0.5)
        model.features[0].requires_grad_(False)
        return model

    assert problems("ref", build)["check.gradients"] == tuple(
        f"features.0.{n}: frozen by no setting" for n in ("0.weight", "1.weight", "1.bias")
    )
    assert "check.gradients" not in problems("ref", build, param_groups="features.0.*:frozen")


@pytest.mark.parametrize("framework", BOTH)
def test_a_model_that_mixes_its_batch_is_found(few, framework):
    builder = hooked(framework, lambda output: output - output.mean(0))
    assert "check.batch_independence" in problems(framework, builder)


@pytest.mark.parametrize("framework", BOTH)
def test_a_first_loss_far_from_guessing_is_found(few, framework):
    builder = hooked(framework, lambda output: output * 20000.0)
    assert "check.first_loss" in problems(framework, builder)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["ref", pytest.param("paddle", marks=pytest.mark.weekly)])
def test_a_second_softmax_is_found_since_one_batch_is_not_learnt(framework):
    softmax = importlib.import_module("torch" if framework == "ref" else "paddle").nn.functional.softmax
    found = problems(framework, hooked(framework, lambda output: softmax(output, -1)))
    assert {"check.overfit", "check.probabilities"} <= set(found)


@pytest.mark.parametrize("framework", BOTH)
def test_weights_of_zeros_are_found(few, framework):
    models = importlib.import_module(f"mobilenetv3_{framework}.models")

    def build(num_classes):
        model = models.MODELS["mobilenet_v3_small"](num_classes, width_mult=0.5)
        weight = model.classifier[0].weight
        weight.data.zero_() if framework == "ref" else weight.set_value(np.zeros(weight.shape, np.float32))
        return model

    assert problems(framework, build)["check.initial_weights"] == ("classifier.0.weight: every value is 0",)


def unseeded(framework):
    """Makes a network one of whose weights is drawn from a generator of the machine's own."""
    models = importlib.import_module(f"mobilenetv3_{framework}.models")

    def build(num_classes):
        model = models.MODELS["mobilenet_v3_small"](num_classes, width_mult=0.5)
        name = "classifier.0.weight"
        draw = lambda weight: np.random.default_rng().normal(0, 0.01, weight.shape).astype(np.float32)  # noqa: E731
        set_weight(framework, dict(model.named_parameters())[name], draw)
        return model

    return build


@pytest.mark.parametrize("framework", BOTH)
def test_weights_that_no_seed_sets_are_found(few, framework):
    assert problems(framework, unseeded(framework))["check.same_seed"] == ("classifier.0.weight",)


@pytest.mark.parametrize("framework", BOTH)
def test_what_the_optimizer_does_with_each_parameter_is_listed(few, framework, tmp_path):
    given = {
        "framework": framework, "norm_weight_decay": 0.0, "weight_decay": 0.01, "optimizer": "sgd", "lr": 0.05,
        "param_groups": "features.0.*:frozen;classifier.*:lr=0.1",
    }  # fmt: skip
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**SMALL, **given}.items()]
    main(["check", *flags, "--json", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html")])
    told = {one.pop("name"): one for one in json.loads((tmp_path / "c.json").read_text())["facts"]["tensors"]}
    assert told["features.0.0.weight"] == {"shape": [8, 3, 3, 3], "frozen": True, "lr": None, "weight_decay": None}
    kept = {name: (pytest.approx(told[name]["lr"]), told[name]["weight_decay"]) for name in told if not told[name]["frozen"]}
    assert kept["features.1.block.0.0.weight"] == (0.05, 0.01) and kept["features.1.block.0.1.weight"] == (0.05, 0.0)
    assert kept["classifier.0.weight"] == (0.005, 0.01)
    assert "<td>frozen</td>" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adadelta", "lamb", "lion"])
def test_the_weight_decay_of_every_optimizer_is_known_in_both_frameworks(optimizer):
    layers = {"ref": importlib.import_module("torch").nn, "paddle": importlib.import_module("paddle").nn}
    made = {"ref": layers["ref"].Linear(3, 4), "paddle": layers["paddle"].Linear(3, 4)}
    config = make_config(TrainConfig, None, {"optimizer": optimizer, "weight_decay": 0.01, "param_groups": "bias:lr=0.1,decay=0"})
    for name, model in made.items():
        framework = importlib.import_module(f"mobilenetv3_{name}.train.backend")
        treated = probe_of(model)[1].treated(framework.build_optimizer(model, config.optimizer_config(8)))
        weight, bias = treated[id(model.weight)], treated[id(model.bias)]
        assert (weight.factor, weight.decay, bias.factor, bias.decay) == (1.0, 0.01, 0.1, 0.0), name


# --- planted mistakes: the training code ----------------------------------------------------------------------------------------


def wrong_loss(module):
    def criterion(*args, **kwargs):
        right = module.CrossEntropyLoss(*args, **kwargs)
        return lambda logits, labels: right(logits, labels) / len(labels)

    return {"CrossEntropyLoss": criterion}


def left_out(module):
    def optimizer(model, config):
        frozen = [p for name, p in model.named_parameters() if name == "classifier.0.weight"]
        switch = "requires_grad" if module.NAME == "ref" else "stop_gradient"
        for parameter in frozen:
            setattr(parameter, switch, switch == "stop_gradient")
        made = module.build_optimizer(model, config)
        for parameter in frozen:
            setattr(parameter, switch, switch != "stop_gradient")
        return made

    return {"build_optimizer": optimizer}


def trains_in_evaluation(module):
    return {"train_mode": lambda model, freeze_bn: model.eval()}


def ignores_freezing(module):
    return {"train_mode": lambda model, freeze_bn: model.train()}


def forgets_the_weights(module):
    def build(config, classes, builder):
        return module.build_model(replace(config, pretrained=None), classes, builder)

    return {"build_model": build}


def too_long_a_schedule(module):
    return {"build_schedule": lambda optimizer, config: module.build_schedule(optimizer, replace(config, total=10 * config.total))}


def pictures(change=None, evaluation=None, item=None):
    def of(module):
        class Changed(module.ImageDataset):
            def train_transform(self, *args):
                made = super().train_transform(*args)
                return change(made) if change else made

            def eval_transform(self, *args):
                made = super().eval_transform(*args)
                return evaluation(made) if evaluation else made

            def __getitem__(self, key):
                return item(super().__getitem__, key) if item else super().__getitem__(key)

        return {"ImageDataset": Changed}

    return of


def flipped(pixels):
    return pixels[::-1].copy() if isinstance(pixels, np.ndarray) else pixels.flip(0)


CODE = {
    "wrong_loss": (wrong_loss, "check.loss_formula", "the training loss", {}),
    "left_out": (left_out, "check.moved", "classifier.0.weight: has a gradient and does not move", {}),
    "trains_in_evaluation": (trains_in_evaluation, "check.modes", "(model): in evaluation mode while training", {}),
    "ignores_freezing": (ignores_freezing, "check.moved", "BatchNorm is frozen and this moves", {"freeze_bn": True}),
    "too_long_a_schedule": (too_long_a_schedule, "check.schedule", "the cosine ends at", {}),
    "not_divided": (pictures(lambda pixels: pixels * 255), "check.input", "images", {}),
    "normalised_twice": (pictures(lambda pixels: (pixels - 0.45) / 0.225), "check.input", "images", {}),
    "not_normalised": (pictures(lambda pixels: pixels * 0.225 + 0.48), "check.input", "images", {}),
    "bgr": (pictures(evaluation=flipped), "check.evaluation_pictures", "blue and red are exchanged", {}),
    "label_from_one": (
        pictures(item=lambda get, key: (lambda s: (s[0], s[1] + 1, s[2]))(get(key))), "check.labels", "label 8", {"batch_size": 16},
    ),
    "repeating": (pictures(item=lambda get, key: get(key._replace(epoch=0))), "check.augmentation", "training pictures", {}),
}  # fmt: skip


OF_THE_FRAMEWORK = ("left_out", "trains_in_evaluation", "ignores_freezing", "too_long_a_schedule")


@pytest.mark.parametrize(
    ("framework", "mistake"),
    [*(("ref", name) for name in CODE), *(pytest.param("paddle", name, marks=pytest.mark.slow) for name in OF_THE_FRAMEWORK)],
)
def test_a_mistake_in_the_training_code_is_found(few, framework, mistake):
    changes, id, said, settings = CODE[mistake]
    found = problems(framework, changes=changes, **settings)
    assert any(said in place for place in found[id]), found
    assert set(found) <= {id, "check.overfit", "check.modes", "check.moved", "check.first_loss"}


@pytest.mark.parametrize("framework", BOTH)
def test_weights_that_were_not_loaded_are_found(few, framework, small_state, tmp_path):
    start = str(write_start(tmp_path, small_state))
    assert "features.0.0.weight" in problems(framework, changes=forgets_the_weights, pretrained=start)["check.pretrained"]


def test_an_order_that_never_changes_is_found(few, monkeypatch):
    def plan(size, batch_size, seed, shuffle, *rest, **more):
        return BatchPlan(size, batch_size, seed, False, *rest, **more)

    monkeypatch.setattr(mobilenetv3_common.run, "BatchPlan", plan)
    assert problems("ref")["check.order"] == ("epochs 0 and 1",)


def test_an_order_that_few_pictures_repeat_by_chance_is_no_problem(few, tmp_path, monkeypatch):
    """Four pictures have the same order in two epochs once in 24 seeds."""
    lines = [f"train/{kind}/{kind}_{number}.JPEG {label}" for label, kind in enumerate(("cat", "coffee")) for number in (0, 1)]
    (tmp_path / "train").symlink_to(LITE_DATA / "train")
    for split in ("train", "val"):
        (tmp_path / f"{split}_list.txt").write_text("\n".join(lines) + "\n")
    settings = {"data_path": str(tmp_path), "batch_size": 2}
    order = lambda seed, epoch: epoch_order(4, seed, epoch).tolist()  # noqa: E731
    seed = next(seed for seed in range(100) if order(seed, 0) == order(seed, 1))
    assert "check.order" not in problems("ref", seed=seed, **settings)
    monkeypatch.setattr(BatchPlan, "set_epoch", lambda plan, epoch: None)
    assert problems("ref", **settings)["check.order"] == ("epochs 0 and 4",)


def test_one_picture_many_times_has_no_order(few, tmp_path):
    (tmp_path / "train").mkdir()
    for number in range(4):
        (tmp_path / "train" / f"{number}.JPEG").symlink_to(LITE_DATA / "train" / "cat" / f"cat_{number % 2}.JPEG")
    for split in ("train", "val"):
        (tmp_path / f"{split}_list.txt").write_text("".join(f"train/{number}.JPEG {number}\n" for number in range(4)))
    settings = {"data_path": str(tmp_path), "batch_size": 4, "repeat_augment": 4}
    assert outcomes("ref", **settings)["check.order"].verdict is Verdict.NOT_APPLICABLE


def test_further_views_in_evaluation_are_no_problem(few):
    assert outcomes("ref", tta="flip")["check.evaluation_pictures"].verdict is Verdict.NONE


def test_a_learning_rate_far_off_is_found():
    assert problems("ref", lr=1e-9)["check.overfit"] == ("the first batch",)


FAR = {  # settings -> what is said of them
    "sgd, 100 times too high": (
        {"optimizer": "sgd", "lr": 5.0},
        "at 5 the loss rises; at 0.05, 100 times lower, the batch is learnt",
    ),
    "sgd, 1000 times too high": ({"optimizer": "sgd", "lr": 50.0}, "at 50 the loss rises; at 0.05, 1000 times lower"),
    "adamw, 1000 times too low": (
        {"lr": 2e-6},
        "at 2e-06 the batch is not learnt; at 0.0002, 100 times higher, the batch is learnt",
    ),
    "rmsprop, 1000 times too low": (
        {"optimizer": "rmsprop", "lr": 2e-6},
        "at 2e-06 the batch is not learnt; at 2e-05, 10 times higher",
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_the_rate_at_which_the_batch_is_learnt_is_named(name, monkeypatch):
    """A failed batch alone told nothing of its cause."""
    settings, said = FAR[name]
    outcome = outcomes("ref", **settings)["check.overfit"]
    assert outcome.verdict is Verdict.FOUND and outcome.where == ("learning rate",) and said in outcome.measured
    monkeypatch.setattr(subject, "FACTORS", ())
    assert said not in outcomes("ref", **settings)["check.overfit"].measured


def test_no_other_rate_is_named_where_the_gradient_is_cut_or_the_batch_is_learnt():
    cut = outcomes("ref", hooked("ref", lambda output: output.detach() + 0 * output))["check.overfit"]
    assert cut.where == ("the first batch",)
    assert outcomes("ref", optimizer="sgd", lr=0.05)["check.overfit"].verdict is Verdict.NONE


PLANS = {  # settings -> check, what it says
    "average_of_the_start": ({"ema_decay": 0.9999}, "check.average", "the moving average"),
    "clipped_to_nothing": ({"clip_norm": 1e-6}, "check.clipping", "clip_norm"),
    "half_never_seen": ({"batch_size": 9}, "check.unseen", "each epoch"),
    "never_lowered": ({"lr_schedule": "step", "lr_step_epochs": 30}, "check.schedule", "the step schedule never lowers the rate"),
    "momentum_of_the_other": ({"bn_momentum": 0.99}, "check.statistics", "features.0.1: 0.99"),
}


@pytest.mark.parametrize(
    ("framework", "plan"),
    [*(("ref", plan) for plan in PLANS), pytest.param("paddle", "momentum_of_the_other", marks=pytest.mark.slow)],
)
def test_settings_that_defeat_the_run_are_found(few, framework, plan):
    settings, id, said = PLANS[plan]
    found = problems(framework, **settings)
    assert any(said in place for place in found[id])
    assert set(found) <= {id, "check.overfit"}


# --- the command ----------------------------------------------------------------------------------------------------------------


def test_the_command_examines_a_recipe_and_writes_nothing_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    assert main(["check", *flags, "--framework", "ref", "--html", "check.html"]) == 0
    assert "No problem found in mobilenet_v3_small (ref)" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["check.html"]
    assert (tmp_path / "check.html").read_text().count("<svg") == 3


def test_the_bundle_repeats_what_was_found(tmp_path, capsys, few):
    """Of a run with a batch that is not learnt; who unpacks it finds the same with its config on its pictures."""
    run, zipped = tmp_path / "run", tmp_path / "help.zip"
    run.mkdir()
    write_effective(run, make_config(TrainConfig, None, {**SMALL, "framework": "ref", "batch_size": 3, "lr": 1e-9}))
    (run / "train_log.jsonl").write_text("{}\n")
    assert main(["check", "--run", str(run), "--bundle", str(zipped), "--json", str(tmp_path / "c.json")]) == 1
    said = capsys.readouterr().out
    assert "3 training and 16 validation pictures, list files and classes; Every problem that was found shows on these" in said
    with zipfile.ZipFile(zipped) as file:
        file.extractall(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"README.txt", "config.yaml", "data", "environment.json", "logs", "report.html", "report.json", "report.txt"}
    assert {path.name for path in (tmp_path / "out" / "logs").iterdir()} == {"config.yaml", "train_log.jsonl"}
    assert "torch" in json.loads((tmp_path / "out" / "environment.json").read_text())["versions"]
    found = json.loads((tmp_path / "c.json").read_text())["checks"]
    config = make_config(TrainConfig, tmp_path / "out" / "config.yaml", {"data_path": str(tmp_path / "out" / "data")})
    again = problems("ref", **{name: value for name, value in vars(config).items() if name != "framework"})
    assert set(again) == {one["id"] for one in found if one["verdict"] == "problem found"} >= {"check.overfit"}
    assert main(["check", "--run", str(run), "--bundle", str(tmp_path / "no" / "x.zip")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_every_check_says_something_of_itself():
    assert len(checks_of(checks)) == 25
    for one in checks_of(checks):
        assert one.items and one.measures and one.fix and one.id.startswith("check.")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--data-path is missing"),
        (["--data-path", "nowhere"], "data path nowhere is not a folder"),
        (["--data-path", "lite_data", "--config", "nowhere.yaml"], "cannot read config nowhere.yaml"),
        (
            ["--data-path", "lite_data", "--framework", "ref", "--batch-size", "4", "--pretrained", "nowhere.pth"],
            "no such weights file",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(flags, said, capsys, monkeypatch):
    monkeypatch.chdir(LITE_DATA.parent)
    assert main(["check", *flags]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_a_runs_own_config_is_examined(tmp_path, capsys):
    assert main(["check", "--run", str(tmp_path)]) == 2
    assert f"--run {tmp_path}: there is no config.yaml" in capsys.readouterr().err
    config = make_config(TrainConfig, None, {**SMALL, "framework": "ref", "batch_size": 3, "label_smoothing": 0.3})
    write_effective(tmp_path, config)
    assert config_of_run(str(tmp_path), None) == str(tmp_path / "config.yaml")
    assert main(["check", "--run", str(tmp_path), "--config", "x.yaml"]) == 2
    assert "--run and --config exclude each other" in capsys.readouterr().err
    assert main(["check", "--run", str(tmp_path), "--lr", "1e-9"]) == 1  # nothing is learnt at this rate
    assert "check.overfit" in capsys.readouterr().out
