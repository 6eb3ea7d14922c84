"""A step in haste ends where something has failed; what passes is compared whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alignment.comparisons import run_step
from alignment.faults import injected
from alignment.witness import Told, Witness
from projects.mobilenetv3.faults import FAULTS
from projects.mobilenetv3.project import PROJECT
from tests.breaking import faults_of

# A step's first fault -> more rows than are compared until it is seen; the whole steps have 246, 522 and 56.
FIRST = {faults_of(step)[0]: most for step, most in ((1, 50), (2, 50), (4, 10))}


def in_haste(context, project=PROJECT):
    return context(project).but(in_haste=True)


@pytest.mark.parametrize("name", FIRST)
def test_a_step_ends_where_something_has_failed(context, name):
    with injected(PROJECT, name) as project:
        result = run_step(FAULTS[name].step, in_haste(context, project))
    assert result.failed and result.problems == [], result.problems
    assert 1 <= len(result.quantities) < FIRST[name] and not all(row.passed for row in result.quantities)


@pytest.mark.parametrize("step", [3, 4])
def test_what_passes_is_compared_whole(same_models, step):
    sound, hasty = run_step(step, same_models()), run_step(step, in_haste(same_models))
    assert hasty.passed and [row.name for row in hasty.quantities] == [row.name for row in sound.quantities]


SUSPECTS = {"biased_variance": "train.photos.b8", "erased_before_normalising": "train.erasing", "adam_with_l2": "adamw.eval"}


@pytest.mark.parametrize("name", SUSPECTS)
def test_what_failed_in_an_earlier_attempt_is_compared_first(context, name):
    with injected(PROJECT, name) as project:
        result = run_step(FAULTS[name].step, in_haste(context, project).but(suspect=f"{SUSPECTS[name]}.row"))
    rows = [row.name for row in result.quantities if not row.name.startswith("witness.")]
    assert result.failed and rows and all(row.startswith(SUSPECTS[name]) for row in rows), rows


def test_the_optimizer_that_failed_in_an_earlier_attempt_is_updated_first(context):
    with injected(PROJECT, "rmsprop_alpha") as project:
        result = run_step(5, in_haste(context, project).but(suspect="optimizer.rmsprop.groups"))
    groups = [row.name for row in result.quantities if ".groups" in row.name]
    assert result.failed and groups and all(name.startswith("optimizer.rmsprop.") for name in groups), groups


def test_a_run_of_updates_ends_with_the_one_that_failed(context):
    with injected(PROJECT, "adam_with_l2") as project:
        result = run_step(5, in_haste(context, project).but(suspect="adamw.eval.row"))
    made = [(int(row.name.partition(".iter")[2].partition(".")[0]), row.passed) for row in result.quantities if ".iter" in row.name]
    assert made and max(number for number, _ in made) == min(number for number, passed in made if not passed)


def test_witnesses_are_not_heard_where_a_step_has_failed_already(context):
    heard = []
    witness = Witness("adding", (), "arithmetic", lambda: [heard.append(1) or Told("two and two", 4, 4)], step=3)
    with injected(PROJECT, "top5_is_top4") as project:
        assert run_step(3, in_haste(context, replace(project, witnesses=(witness,)))).failed and not heard
        assert run_step(3, context(replace(project, witnesses=(witness,)))).failed and heard
    assert run_step(3, in_haste(context, replace(PROJECT, witnesses=(witness,)))).passed and len(heard) == 2
