"""A check that cannot fail is a defect: faults of what step 5 compares, each of which must fail the step and be found."""

from __future__ import annotations

import dataclasses

import paddle
import pytest
from paddle import nn

from alignment.faults.models import bfloat16_inside, biased_variance, broken_model, dropout_missing
from alignment.faults.updates import optimizer_with, schedule_with
from alignment.sides import PaddleSide, RefSide
from alignment.steps import backward
from tests.breaking import faults_of, found_where_it_is
from tests.conftest import SMALL

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
    "schedule's period": ("sgd.eval", lambda: schedule_with(step_size=2)),
    "biased variance": ("sgd.train", lambda: broken_model(biased_variance)),
    "dropout missing": ("sgd.train", lambda: broken_model(dropout_missing)),
    "bfloat16 inside": ("sgd.eval", lambda: broken_model(bfloat16_inside)),
    "bias decay": ("sgd.eval", lambda: optimizer_with(bias_weight_decay=0.0)),
}


@pytest.mark.parametrize("run", ["sgd.train", "rmsprop.eval", "sgd.train.accumulate2.clip"])
def test_step_5_passes(context, run):
    assert backward.run(context(), (FIRST_RUNS[run],)).passed


@pytest.mark.parametrize("name", faults_of(5))
def test_step_5_fails(context, name):
    found_where_it_is(name, context, lambda broken: backward.run(broken, (FIRST_RUNS[RUN.get(name, "sgd.eval")],)))


@pytest.mark.parametrize("name", OTHERS)
def test_step_5_fails_too(context, name):
    run, side = OTHERS[name]
    assert not backward.run(context(side()), (FIRST_RUNS[run],)).passed


def test_step_5_refuses_a_constant_learning_rate(context):
    """A comparison of two schedules that never move compares two constants."""
    constant = dataclasses.replace(FIRST_RUNS["sgd.eval"].schedule, name="constant")
    result = backward.run(context(), (dataclasses.replace(FIRST_RUNS["sgd.eval"], schedule=constant),))
    assert not result.passed and "learning_rate_values" in result.problems[0]


def test_an_input_exactly_at_a_kink_is_on_a_side_of_its_own():
    """There the two frameworks' derivatives may differ, as they do across the kink."""
    side = PaddleSide()
    kinks = {}
    network = nn.Sequential(nn.ReLU())
    with side.traced_kinks(network, kinks):
        network(paddle.to_tensor([-1e-30, 0.0, 1e-30]))
        network(paddle.to_tensor([2.0]))
    assert kinks["0"].tolist() == [0, 1, 2] and kinks["0#2"].tolist() == [2]


@pytest.mark.parametrize("side", [PaddleSide, RefSide])
def test_exact_mode_has_the_kinks_of_float32(side, small_state):
    """Replaced gates still count, or their flips would go unseen."""
    side = side()
    counts = []
    for exact in (False, True):
        network = side.build(SMALL, small_state, exact=exact, width_mult=0.5)
        counts.append(sum(type(module) in side.kinks for module in side.named_modules(network).values()))
    assert counts[0] == counts[1] > 30
