"""A check that cannot fail is a defect: faults of what step 1 compares, each of which must fail the step and be found."""

from __future__ import annotations

import dataclasses

import pytest

from alignment.comparisons import run_step
from alignment.comparisons.context import Context
from alignment.comparisons.explain import locate
from alignment.comparisons.model import forward
from projects.mobilenetv3.faults.base import with_model
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of, found_where_it_is


def forward_cases(context: Context) -> list[forward.PassCase]:
    photos, _ = context.material.photographs(8, 96)
    return [
        forward.PassCase("eval.photos.b4", (photos[:4],), False),
        forward.PassCase("train.photos.b4", (photos[4:],), True),
    ]


def test_step_1_passes(context):
    sound = context()
    assert forward.run(sound, forward_cases(sound)).passed


@pytest.mark.parametrize("name", faults_of(1))
def test_step_1_fails(context, name):
    found_where_it_is(name, context, lambda broken: forward.run(broken, forward_cases(broken)))


def test_step_1_fails_on_a_port_that_breaks_down(context):
    """An exception of the port is a failed step with a place, not a traceback."""

    def without_classifier(model):
        del model.classifier

    broken = context(with_model(PROJECT, without_classifier))
    result = run_step(1, broken)
    assert not result.passed and "UserError" in result.problems[0]
    first = locate(broken, [result]).first
    assert (first.stage, first.location, first.kind) == ("structure", "classifier", "layer_missing")


def test_step_1_refuses_vacuous_weights(context, small_state):
    """Logits of 1e-10 agree whatever is wrong; the evidence says so."""
    tiny = {k: v * 1e-8 if k.startswith("classifier.3") else v for k, v in small_state.items()}
    vacuous = dataclasses.replace(context(), given_state=tiny)
    result = forward.run(vacuous, forward_cases(vacuous))
    assert not result.passed and "logits_std" in result.problems[0]
