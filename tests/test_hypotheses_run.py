"""Every hypothesis about a training run names its mistake, on plain arrays."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from alignment.comparisons.result import StepResult
from alignment.comparisons.run.averages import DECAY, expected_average
from alignment.comparisons.run.mistakes import (
    AVERAGE,
    EVALUATED,
    FIRST_UPDATES,
    TRAINED_RIGHT,
    Averaged,
    Counted,
    Recipe,
    counted_figures,
    evaluation_hint,
)
from alignment.comparisons.run.recipe import RECIPE
from alignment.comparisons.run.run_options import Option
from alignment.comparisons.run.runs import add
from alignment.comparisons.run.runs import measured as measured_or_refused
from alignment.kinds import Kind
from alignment.localize.hypotheses.hypothesis import Observed, confirmed
from mobilenetv3_common.errors import UserError

# --- moving average --------------------------------------------------------------------------------------------------------

NAMES = ("0.weight", "1.running_mean")


def given():
    rng = np.random.default_rng(0)
    return [{name: rng.standard_normal(20).astype(np.float32) for name in NAMES} for _ in range(4)]


def mixed(states, shares, names=NAMES):
    """The right average, of some tensors another mixture of the states."""
    other = {n: sum(np.float32(share) * state[n] for share, state in zip(shares, states, strict=True)) for n in names}
    return {**expected_average(states), **other}


AVERAGES = {
    "statistics_left_out": ([0, 0, 0, 1], NAMES[1:], Kind.AVERAGE_WITHOUT_STATISTICS),
    "nothing_averaged": ([0, 0, 0, 1], NAMES, Kind.MOVING_AVERAGE),
    "never_updated": ([1, 0, 0, 0], NAMES, Kind.MOVING_AVERAGE),
    "decay_inverted": ([0.25**3, 0.75 * 0.25**2, 0.75 * 0.25, 0.75], NAMES, Kind.AVERAGE_DECAY_INVERTED),
    "begun_at_zero": ([0.25 * 0.75**3, 0.25 * 0.75**2, 0.25 * 0.75, 0.25], NAMES, Kind.AVERAGE_START),
    "first_left_out": ([0, 0.25 * 0.75**2, 0.25 * 0.75, 0.25], NAMES, Kind.AVERAGE_START),
    "another_decay": ([0.5**3, 0.5**3, 0.5**2, 0.5], NAMES, Kind.AVERAGE_DECAY),
    "other_shares": ([0.1, 0.2, 0.3, 0.4], NAMES, Kind.MOVING_AVERAGE),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_is_named(name):
    shares, wrong, kind = AVERAGES[name]
    states = given()
    found = list(AVERAGE.confirmed(Averaged(states, DECAY, mixed(states, shares, wrong), expected_average(states), wrong)))
    assert AVERAGES.keys() == AVERAGE.makers.keys() and found[0].kind is kind
    # ... by its own hypothesis, not by another that the same numbers fulfil.
    own = list(AVERAGE.makers[name](Averaged(states, DECAY, mixed(states, shares, wrong), expected_average(states), wrong)))
    assert found[0].words == own[0].words


def test_an_average_of_something_else_and_a_right_one_have_no_name():
    states, right = given(), expected_average(given())
    noise = {name: array + np.float32(0.01) * np.arange(20, dtype=np.float32) for name, array in right.items()}
    for ours, wrong in ((noise, NAMES), (right, ()), ({}, NAMES)):
        assert AVERAGE.hint(Averaged(states, DECAY, ours, right, wrong)) == (Kind.UNKNOWN, "")


# --- evaluation and right answers ------------------------------------------------------------------------------------------


def measured():
    """Outputs of ten pictures in three batches; some labels are the largest, some among the five largest, some neither."""
    rng = np.random.default_rng(1)
    outputs = rng.standard_normal((10, 12))
    order = np.argsort(-outputs, axis=1)
    labels = order[np.arange(10), [0, 2, 7, 0, 4, 1, 5, 0, 3, 9]]
    others = {name: outputs + rng.standard_normal((10, 12)) for name in ("own_outputs", "training_outputs")}
    return {"outputs": outputs, **others, "labels": labels, "batches": np.array([4, 4, 2])}


def counted(merged=False):
    port = measured()
    return Counted(port, 2, counted_figures(port["outputs"], port["labels"], (2,)), merged)


@pytest.mark.parametrize("words", EVALUATED.makers)
def test_a_mistake_of_an_evaluation_is_named(words):
    ranks = "one rank" in words
    case = counted(merged=ranks)
    hypothesis = next(iter(EVALUATED.makers[words](case, {})))
    found = {name: hypothesis.predict(name) for name in case.right}
    assert any(not np.array_equal(found[name], case.right[name]) for name in found)
    assert evaluation_hint(case, found, "") == hypothesis.hint
    if ranks:  # of one process, there is nothing to merge
        assert list(EVALUATED.makers[words](counted(), found)) == []


def test_figures_that_no_mistake_gives_are_told_as_they_are():
    case = counted()
    assert evaluation_hint(case, {**case.right, "top1": 0.99}, "top1 0.99") == (
        Kind.EVALUATION, "evaluation of the same weights differs: top1 0.99",
    )  # fmt: skip
    assert evaluation_hint(case, case.right, "") == (Kind.EVALUATION, "evaluation of the same weights differs: ")


@pytest.mark.parametrize(("column", "words"), enumerate(reversed(TRAINED_RIGHT.makers)))
def test_right_answers_of_training_are_named(column, words):
    right = np.array([[1.0, 3.0], [0.0, 2.0], [2.0, 2.0]])
    # Column 1 twice: top-1 counts five; column 0 twice: top-5 counts one.
    ours = right[:, [1 - column] * 2]
    assert TRAINED_RIGHT.hint(ours, right) == (Kind.TOP_K, words)
    assert TRAINED_RIGHT.hint(ours + 1, right) == TRAINED_RIGHT.hint(right, right) == (Kind.UNKNOWN, "")


# --- first updates ---------------------------------------------------------------------------------------------------------


def updates(asked, changes=None, keep_gradients=False, unscaled=False):
    """Three losses, another for each thing that is changed."""
    asked.append((changes, keep_gradients, unscaled))
    text = repr((sorted((changes or {}).items(), key=str), keep_gradients, unscaled))
    seed = sum(ord(letter) * place for place, letter in enumerate(text))
    return {"losses": np.random.default_rng(seed).random(3)}


def losses(made):
    return made["losses"]


def masks(seed):
    return [np.random.default_rng(seed).random((8, 64)) < 0.25]


def recipe(asked=None, theirs=0):
    return Recipe(RECIPE, functools.partial(updates, [] if asked is None else asked), (masks(0), masks(theirs)))


CHANGES = [
    ({"changes": {"dropout": 0.0}}, Kind.DROPOUT_MISSING),
    ({"changes": {"label_smoothing": 0.0}}, Kind.SMOOTHING_MISSING),
    ({"changes": {"label_smoothing": 0.1}}, Kind.SMOOTHING),
    ({"changes": {"clip_norm": None}}, Kind.CLIPPING_MISSING),
    ({"changes": {"weight_decay": 0.0}}, Kind.WEIGHT_DECAY_MISSING),
    ({"changes": {"norm_weight_decay": 0.0}}, Kind.NORM_WEIGHT_DECAY),
    ({"changes": {"bias_weight_decay": 0.0}}, Kind.BIAS_WEIGHT_DECAY),
    ({"changes": {"eps": 1e-8}}, Kind.OPTIMIZER_EPS),
    ({"changes": {"beta1": 0.9, "beta2": 0.999}}, Kind.BETAS),
    ({"changes": {"lr": 2 * RECIPE.lr}}, Kind.LR_SCALED),
    ({"changes": {"lr": RECIPE.lr / 2}}, Kind.LR_SCALED),
    ({"changes": {"freeze_bn": True}}, Kind.STATISTICS_FROZEN),
    ({"changes": {"freeze_bn": True, "dropout": 0.0}}, Kind.EVALUATION_MODE),
    ({"changes": {"bn_momentum": None}}, Kind.MOMENTUM),
    ({"changes": {"dropout": 0.2}}, Kind.DROPOUT_RATE),
    ({"unscaled": True}, Kind.DROPOUT_SCALE),
    ({"keep_gradients": True}, Kind.GRADIENT_NOT_CLEARED),
]


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_a_mistake_of_the_first_updates_is_named_in_every_case(change, kind):
    ours, right, subject = updates([], **change), updates([]), recipe()
    twice = [Observed(losses, ours["losses"], right["losses"]), Observed(losses, ours["losses"], right["losses"])]
    assert next(confirmed(FIRST_UPDATES.hypotheses(subject), twice)).kind is kind
    other = Observed(losses, ours["losses"] * 1.01, right["losses"])
    assert list(confirmed(FIRST_UPDATES.hypotheses(subject), [twice[0], other])) == []


def test_a_dropout_that_draws_otherwise_is_a_fact_of_its_own():
    ours, right = updates([], changes={"seed": 5}), updates([])
    cases = [Observed(losses, ours["losses"], right["losses"])]
    found = [one.kind for one in confirmed(FIRST_UPDATES.hypotheses(recipe(theirs=1)), cases)]
    assert found == [Kind.ORDER]


def test_a_mistake_that_the_recipe_has_anyhow_is_not_trained():
    asked = []
    list(confirmed(FIRST_UPDATES.hypotheses(recipe(asked)), [Observed(losses, np.ones(3), np.zeros(3))]))
    assert len(asked) == len(CHANGES) and all(asked.count(one) == 1 for one in asked)
    assert RECIPE.freeze_bn is False and {"freeze_bn": False} not in [changes for changes, _, _ in asked]


# --- options that a side refuses -------------------------------------------------------------------------------------------


class Refused(Option):
    """An option that some sides refuse."""

    name, place = "gradient checkpointing", "recompute_blocks"

    def __init__(self, *roles):
        super().__init__(ground=None)
        object.__setattr__(self, "roles", roles)

    def measure(self, context, role):
        if role in self.roles:
            raise UserError(f"{role}: not here")
        return {}

    def wrong(self, port, reference):
        return ""


def refused(*roles, without=()):
    """What a step says of an option that these roles refuse: the rows, the finding and what is covered; None where left out."""
    context, option = SimpleNamespace(project=SimpleNamespace(without=without)), Refused(*roles)
    port, reference = (measured_or_refused(context, option, role) for role in ("port", "reference"))
    if port is None or reference is None:
        return None
    result = StepResult(6, "training")
    add(result, option, port, reference)
    return result.quantities, option.explain(port, reference), result.covers


def test_a_refusal_of_the_port_alone_is_a_mistake():
    (row,), finding, covered = refused("port")
    assert not row.passed and "the port refuses it: port: not here" in row.reason
    assert (finding.location, finding.kind) == ("recompute_blocks", Kind.RAISES) and covered == []


def test_a_refusal_that_the_project_says_and_one_of_the_reference_are_left_out():
    assert refused("port", without=("gradient checkpointing",)) is None
    assert refused("reference") is None and refused("port", "reference") is None
    (row,), finding, covered = refused("port", without=("distillation",))
    assert not row.passed and finding is not None and covered == [], "another option's refusal is not known"
    (row,), finding, covered = refused(without=("gradient checkpointing",))
    assert row.passed and finding is None and covered == ["gradient checkpointing"], "what is said is not taken for granted"


def test_a_refusal_of_what_is_no_option_is_the_users_matter():
    class NoOption:
        def measure(self, context, role):
            raise UserError("no pictures")

    with pytest.raises(UserError, match="no pictures"):
        measured_or_refused(SimpleNamespace(project=SimpleNamespace(without=())), NoOption(), "port")
