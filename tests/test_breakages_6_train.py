"""A check that cannot fail is a defect: breakages of what step 6 compares, each of which must fail the step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from paddle import nn

from alignment.digits import write_digits
from alignment.sides import PaddleSide
from alignment.steps import train
from alignment.steps.context import Context, StepResult
from mobilenetv3_paddle.train import build_run, evaluate_run, micro_batches, update

SHORT = train.Plan(iterations=5, draws=2, seeds=1, epochs=1, train_per_class=4, val_per_class=2)


def built(change):
    """A run that is changed after it is built."""

    def build(config, ranks):
        run = build_run(config, ranks)
        change(run)
        return run

    return lambda: PaddleSide(train={"build_run": build})


def configured(**changes):
    return lambda: PaddleSide(train={"build_run": lambda config, ranks: build_run(dataclasses.replace(config, **changes), ranks)})


def no_dropout(run):
    run.model.classifier[2] = nn.Identity()


def float32_only(run):
    """A kernel that rounds to bfloat16: exact mode, in float64, does not have it."""
    if run.model.features[0][0].weight.dtype.name == "FLOAT32":
        run.model.features[0].register_forward_post_hook(lambda layer, inputs, output: output.astype("bfloat16").astype("float32"))


def gradients_kept():
    def step(run, gathered):
        clear = run.optimizer.clear_grad
        run.optimizer.clear_grad = lambda: None
        update(run, gathered)
        run.optimizer.clear_grad = clear

    return PaddleSide(train={"update": step})


def order_of_another_seed():
    def batches(run):
        run.plan.seed += 1
        return micro_batches(run)

    return PaddleSide(train={"micro_batches": batches})


def evaluated_wrong():
    return PaddleSide(train={"evaluate_run": lambda run, loader: dataclasses.replace(evaluate_run(run, loader), top1=0.99)})


BREAKAGES = {
    "learning rate": (configured(lr=2.0**-8), "learning_rates"),
    "schedule by epoch": (configured(lr_unit="epoch"), "learning_rates"),
    "order of another seed": (order_of_another_seed, "batches.images"),
    "crop scale": (configured(min_crop_scale=0.7), "batches.images"),
    "weight decay left out": (configured(weight_decay=0.0), "curve.float64"),
    "label smoothing": (configured(label_smoothing=0.1), "curve.float32"),
    "no clipping": (configured(clip_norm=None), "curve.float64"),
    "no dropout": (built(no_dropout), "curve.float32"),
    "eps of AdamW": (configured(eps=2.0**-11), "curve.float64"),
    "gradients not cleared": (gradients_kept, "curve.float32"),
    "bfloat16 inside": (built(float32_only), "curve.float32"),
    "evaluation": (evaluated_wrong, "final_top1"),
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The reference's runs, made once: every breakage is Paddle's."""
    folder = write_digits(tmp_path_factory.mktemp("digits"), SHORT.train_per_class, SHORT.val_per_class)
    return str(folder), train.Trial(Context(), SHORT, str(folder)).reference()


def judged(reference, side):
    folder, theirs = reference
    result = StepResult(6, "train")
    train.judge(result, SHORT, train.Trial(Context(paddle=side), SHORT, folder).paddle(), theirs)
    return result


def test_step_6_passes(reference):
    result = judged(reference, PaddleSide())
    assert [q.name for q in result.quantities if not q.passed] == []
    # ... except that so short a run learns nothing, and the step says so.
    assert any("loss_fell_to" in p for p in result.problems) and any("accuracy_gained" in p for p in result.problems)


@pytest.mark.parametrize("name", BREAKAGES)
def test_step_6_fails(name, reference):
    side, where = BREAKAGES[name]
    assert where in [q.name for q in judged(reference, side()).quantities if not q.passed]


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda c: c, True),
        (lambda c: c * (1 + 3e-7), True),
        (lambda c: c * (1 + 2e-5), False),
        (lambda c: np.where(np.arange(len(c)) == 50, np.nan, c), False),
        (lambda c: c[:-1], False),
        (lambda c: np.where(np.arange(len(c)) > 80, c * 1.01, c), False),
    ],
)
def test_a_curve_is_held_against_the_references_own_envelope(change, passes):
    rng = np.random.default_rng(0)
    curve = 2.0 - np.linspace(0, 1, 100)
    draws = [curve * (1 + 1e-7 * rng.normal(size=100)) for _ in range(3)]
    result = StepResult(6, "train")
    train.judge_curve(result, "curve", change(curve), curve, draws, exact=False)
    assert result.passed is passes


def test_exact_curves_must_agree_over_the_first_iterations():
    """However chaotic the reference is by itself."""
    curve = np.linspace(2, 1, 100)
    draws = [curve * 1.1]
    result = StepResult(6, "train")
    train.judge_curve(result, "curve", curve * (1 + 1e-7), curve, draws, exact=True)
    assert not result.passed


@pytest.mark.parametrize(("ours", "passes"), [([0.85, 0.88, 0.9], True), ([0.877, 0.877, 0.877], True), ([0.7, 0.71, 0.72], False)])
def test_accuracies_are_held_against_the_seeds_spread(ours, passes):
    result = StepResult(6, "train")
    train._judge_accuracies(result, ours, [0.87, 0.88, 0.88])
    assert result.passed is passes
