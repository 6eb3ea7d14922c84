"""A check that cannot fail is a defect: faults of what step 5 compares, each of which must fail the step and be found."""

from __future__ import annotations

import dataclasses

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

from alignment.comparisons.context import Context
from alignment.comparisons.update import backward, tensors
from alignment.models.observe import share_dropout, traced_kinks
from projects.mobilenetv3.faults.base import with_model
from projects.mobilenetv3.faults.models import bfloat16_inside, biased_variance, dropout_missing
from projects.mobilenetv3.faults.updates import optimizer_with, schedule_with
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of, found_where_it_is

FIRST_RUNS = {run.name: dataclasses.replace(run, iterations=4, float32_iterations=2) for run in backward.RUNS}
CLIPPED = "sgd.train.accumulate2.clip"
RUN = {
    "eps_inside_the_root": "rmsprop.train",
    "rmsprop_alpha": "rmsprop.eval",
    "adam_with_l2": "adamw.eval",
    "adamw_eps": "adamw.train",
    "no_weight_decay_on_norm_layers": "sgd.train",
    "clipping_missing": CLIPPED,
    "micro_batches_summed": CLIPPED,
}
# Of what step 1 finds, and other settings.
OTHERS = {
    "schedule's period": ("sgd.eval", lambda: schedule_with(PROJECT, step_size=2)),
    "biased variance": ("sgd.train", lambda: with_model(PROJECT, biased_variance)),
    "dropout missing": ("sgd.train", lambda: with_model(PROJECT, dropout_missing)),
    "bfloat16 inside": ("sgd.eval", lambda: with_model(PROJECT, bfloat16_inside)),
    "bias decay": ("sgd.eval", lambda: optimizer_with(PROJECT, bias_weight_decay=0.0)),
}


@pytest.fixture(scope="module")
def context(same_models):
    return same_models


@pytest.mark.parametrize("run", ["sgd.train", "rmsprop.eval", "sgd.train.accumulate2.clip"])
def test_step_5_passes(context, run):
    assert backward.run(context(), (FIRST_RUNS[run],)).passed


# Each localises a wrong optimizer, up to a quarter of a minute; others of that kind stay in the suite. Of the slow ones one of
# each optimizer, of clipping, of accumulation and of the graph runs on every change.
SLOW = {"adam_with_l2", "clipping_missing", "eps_inside_the_root", "gradient_not_cleared", "graph_detached"}
WEEKLY = {
    "adamw_eps", "micro_batches_summed", "momentum_missing", "nesterov", "never_updated", "rmsprop_alpha", "schedule_factor",
    "schedule_never_stepped", "weight_decay_missing",
}  # fmt: skip


def marked(name):
    slow, weekly = [pytest.mark.slow] * (name in SLOW | WEEKLY), [pytest.mark.weekly] * (name in WEEKLY)
    return pytest.param(name, marks=slow + weekly)


@pytest.mark.parametrize("name", map(marked, faults_of(5)))
def test_step_5_fails(context, name):
    found_where_it_is(name, context, lambda broken: backward.run(broken, (FIRST_RUNS[RUN.get(name, "sgd.eval")],)))


@pytest.mark.parametrize("name", OTHERS)
def test_step_5_fails_too(context, name):
    run, make = OTHERS[name]
    assert backward.run(context(make()), (FIRST_RUNS[run],)).failed


def test_step_5_refuses_a_constant_learning_rate(context):
    """A comparison of two schedules that never move compares two constants."""
    constant = dataclasses.replace(FIRST_RUNS["sgd.eval"].schedule, name="constant")
    result = backward.run(context(), (dataclasses.replace(FIRST_RUNS["sgd.eval"], schedule=constant),))
    assert not result.passed and "learning_rate_values" in result.problems[0]


def test_an_input_exactly_at_a_kink_is_on_a_side_of_its_own():
    """There the two frameworks' derivatives may differ, as they do across the kink."""
    framework = PROJECT.port.framework
    kinks = {}
    network = nn.Sequential(nn.ReLU())
    with traced_kinks(framework, network, kinks):
        network(paddle.to_tensor([-1e-30, 0.0, 1e-30]))
        network(paddle.to_tensor([2.0]))
    assert kinks["0"].tolist() == [0, 1, 2] and kinks["0#2"].tolist() == [2]


@pytest.mark.parametrize("role", ["port", "reference"])
def test_exact_mode_has_the_kinks_of_float32(role, context):
    """Or their flips would go unseen; the project's own gates count, too."""
    made: Context = context()
    framework = made.sides[role].framework
    counts = []
    for exact in (False, True):
        network = made.networks.build(role, exact=exact)
        counts.append(sum(bool(framework.kinks(module)) for module in framework.modules(network).values()))
    assert counts[0] == counts[1] > 30


def test_a_dropout_that_works_in_place_shares_its_masks():
    """torchvision's does: the mask is for what the layer was given, not for what it made of it."""
    framework = PROJECT.reference.framework
    network = torch.nn.Sequential(torch.nn.Dropout(0.5, inplace=True))
    share_dropout(framework, network, lambda shape: np.linspace(0, 0.99, 8).reshape(shape))
    made = framework.call(network, (np.ones((2, 4)),)).outputs[0]
    assert made.ravel().tolist() == [0, 0, 0, 0, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("difference", "floor", "passes"),
    [
        (9e-14, 1e-16, True), (2e-13, 1e-16, False), (2e-13, 3e-14, True),
        (2.2e-13, 9.6e-15, True), (4e-13, 9.6e-15, False), (2e-12, 1e-13, False),
    ],
)  # fmt: skip
def test_all_tensors_together_are_held_to_the_order_of_summation_or_the_one_ulp_floor(difference, floor, passes):
    draws = [{"weight": tensors.Change(floor, 1.0)}]
    assert tensors.judge_together("x", difference, draws, "gradients", tensors.History()).passed == passes


@pytest.mark.parametrize(("error", "passes"), [(9e-4, True), (2e-3, False)])
def test_the_float32_floor_of_all_tensors_is_also_what_one_ulp_changes_do(error, passes):
    """The reference happens to be right to 1e-6; one-ulp changes move it by 1e-4."""

    def lane(value):
        return backward.Iteration(np.zeros(()), 0.0, {"weight": np.array([value])}, {}, {})

    now = {"reference64": lane(1.0), "reference32": lane(1.0 + 1e-6), "ulp32": lane(1.0 + 1e-4), "port32": lane(1.0 + error)}
    quantity = tensors.Quantity("x", [1])
    tensors.judge_together_in_float32(quantity, now, "gradients", 0)
    assert quantity.passed == passes
