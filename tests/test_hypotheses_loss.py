"""Every hypothesis about a loss names its mistake, on plain arrays."""

from dataclasses import replace

import numpy as np
import pytest

from alignment.comparisons.loss.cases import ALPHA, TEMPERATURE, cases, in_precision, weighted_cases
from alignment.comparisons.loss.losses import value_hint
from alignment.comparisons.loss.mistakes import (
    DISTILLATIONS,
    GRADIENTS,
    WEIGHTINGS,
    Tried,
    other_distillations,
    other_gradients,
    other_losses,
    other_weightings,
    targets,
)
from alignment.formulas import cross_entropy, log_softmax
from alignment.kinds import Kind

RNG = np.random.default_rng(1)
LOGITS, LABELS = RNG.standard_normal((6, 11)).astype(np.float32), RNG.integers(0, 11, 6)


def loss_cases():
    return [in_precision(case, "port64") for case in cases(LOGITS, LABELS, 0)]


def tried(change):
    """Every case, with a port's value made of the case and the right value."""
    zero, made = np.zeros(1), []
    for case in loss_cases():
        soft = case.labels.ndim == 2
        each = cross_entropy(case.logits, case.labels, case.smoothing, None if soft else case.ignore_index)
        value = each.sum() / (len(each) if soft else int((case.labels != case.ignore_index).sum()))
        made.append(Tried(case, (np.array(change(case, value)), zero), (np.array(value), zero)))
    return made


def claimed(made):
    wrong = [one for one in made if one.wrong(1e-9)]
    return value_hint(made, wrong, 1e-6)


LOSSES = list(dict.fromkeys(hint for case in loss_cases() for hint, _ in other_losses(case)))


@pytest.mark.parametrize("hint", LOSSES, ids=lambda hint: hint[1])
def test_every_mistake_of_the_loss_is_named(hint):
    def change(case, value):
        return dict(other_losses(case)).get(hint, value)

    made = tried(change)
    if not any(one.wrong(1e-9) for one in made):
        pytest.skip("it changes no case")
    kind, words = claimed(made)
    if all(np.isfinite(one.ours[0]) for one in made):
        assert kind == hint[0], words
    else:
        assert kind in (Kind.EXP_OVERFLOWS, Kind.NOT_FINITE, hint[0], Kind.UNKNOWN), words


@pytest.mark.parametrize(
    "change",
    [
        lambda case, value: value,
        lambda case, value: value + 0.01,
        lambda case, value: value * (1 + 0.1 * np.sin(len(case.name))),
        lambda case, value: value + 1e-8,
    ],
)
def test_no_mistake_of_the_loss_is_claimed_of_another_one(change):
    assert claimed(tried(change)) == (Kind.UNKNOWN, "")


@pytest.mark.parametrize("kind", [Kind.SUM_FOR_MEAN, Kind.SOFTMAX_TWICE, Kind.SIGN])
def test_a_mistake_in_one_case_of_several_is_not_claimed_of_the_loss(kind):
    hint = next(hint for hint in LOSSES if hint[0] is kind)
    assert claimed(tried(lambda case, value: dict(other_losses(case)).get(hint, value)))[0] is kind
    alone = tried(lambda case, value: dict(other_losses(case)).get(hint, value) if case.name == "hard" else value)
    assert claimed(alone) == (Kind.UNKNOWN, "")


@pytest.mark.parametrize(
    ("kind", "words", "within"),
    [
        (Kind.SATURATED, "the loss saturates at 64", lambda case: case.hard and not case.smoothing),
        (Kind.SUM_FOR_MEAN, "reduced by sum instead of mean, for soft labels", lambda case: not case.hard),
        (Kind.SMOOTHING_OVER_OTHERS, "label smoothing spreads over the other classes", lambda case: case.hard),
        (Kind.SOFTMAX_TWICE, "softmax is applied twice, with smoothing", lambda case: case.smoothing > 0),
    ],
)
def test_a_mistake_in_one_branch_of_the_loss_is_named_with_its_branch_and_holds_in_all_of_it(kind, words, within):
    hint = next(hint for hint in LOSSES if hint[0] is kind)

    def change(case, value):
        return dict(other_losses(case)).get(hint, value) if within(case) else value

    found, said = claimed(tried(change))
    assert found is kind and said.startswith(words)
    spared = max(one.case.name for one in tried(change) if one.wrong(1e-9))  # one case of the branch is right after all
    alone = [one.case.name for one in tried(change) if one.wrong(1e-9)] == [spared]
    assert alone or claimed(tried(lambda case, value: value if case.name == spared else change(case, value)))[0] is not kind


def test_a_scaled_loss_is_one_that_is_scaled_in_every_case():
    assert claimed(tried(lambda case, value: 1.1 * value)) == (Kind.SCALED, "the loss is 1.1 times the reference's")
    assert claimed(tried(lambda case, value: 1.1 * value if case.name != "hard" else value))[0] is Kind.UNKNOWN


def test_an_infinite_loss_is_not_taken_for_a_mistake_that_is_infinite_too():
    kind, _ = claimed(tried(lambda case, value: np.inf if case.name == "gap10000" else value))
    assert kind is Kind.EXP_OVERFLOWS
    kind, _ = claimed(tried(lambda case, value: np.nan if case.name == "hard" else value))
    assert kind is Kind.NOT_FINITE
    kind, _ = claimed(tried(lambda case, value: {"hard": np.inf, "soft": value + 1}.get(case.name, value)))
    assert kind is Kind.UNKNOWN


# --- class weights, distillation, gradients --------------------------------------------------------------------------------


def weighed(case):
    """The loss with class weights: a mean over the weights of the labels, or over the samples of soft ones."""
    target, kept = targets(replace(case, weight=None))
    hard = case.labels.dtype.kind != "f"
    own = case.weight[np.where(kept, case.labels, 0)] if hard else np.ones(len(kept))
    return float(-(target * case.weight * log_softmax(case.logits)).sum(1)[kept].sum() / own[kept].sum())


def distilled(case):
    """The loss beside a teacher's: the divergence of the softened student from the softened teacher."""
    target, kept = targets(case)
    hard = -(target * log_softmax(case.logits)).sum(1)[kept].mean()
    ours, theirs = (log_softmax(x / TEMPERATURE) for x in (case.logits, case.teacher))
    return float(hard * (1 - ALPHA) + (np.exp(theirs) * (theirs - ours)).sum(1).mean() * ALPHA * TEMPERATURE**2)


PLAIN = {case.name: case for case in loss_cases()}
WEIGHTED = [in_precision(case, "port64") for case in weighted_cases(LOGITS, LABELS, 0)]
DISTILLED = [replace(PLAIN[name], teacher=np.roll(PLAIN[name].logits, 1, axis=1)) for name in ("hard", "soft_smoothed", "levels")]
OPTIONS = [
    *((WEIGHTINGS, WEIGHTED, weighed, other_weightings, words) for (_, words), _ in other_weightings(WEIGHTED[0])),
    *((DISTILLATIONS, DISTILLED, distilled, other_distillations, words) for (_, words), _ in other_distillations(DISTILLED[0])),
]


@pytest.mark.parametrize(("family", "chosen", "right", "others", "words"), OPTIONS, ids=[option[-1] for option in OPTIONS])
def test_every_mistake_of_weights_and_distillation_is_named(family, chosen, right, others, words):
    zero, made = np.zeros(1), []
    for case in chosen:
        mistaken = {hint[1]: value for hint, value in others(case)}[words]
        made.append(Tried(case, (np.array(mistaken), zero), (np.array(right(case)), zero)))
    wrong = [one for one in made if one.wrong(1e-9)]
    assert wrong and value_hint(made, wrong, 1e-6, family)[1] == words
    other = [replace(one, ours=(one.right[0] * (1 + 0.1 * np.sin(n + 1)), zero)) for n, one in enumerate(made)]
    assert value_hint(other, other, 1e-6, family) == (Kind.UNKNOWN, "")


@pytest.mark.parametrize("words", [words for (_, words), _ in other_gradients(PLAIN["hard"])])
def test_a_part_of_the_loss_that_lets_no_gradient_through_is_named(words):
    value, tried = np.zeros(()), []
    for case in (PLAIN["hard"], PLAIN["smoothed"], PLAIN["ignored"]):
        parts = {hint[1]: gradient for hint, gradient in other_gradients(case)}
        tried.append(Tried(case, (value, parts[words]), (value, sum(parts.values()))))
    assert GRADIENTS.hint(tried, 1e-6) == (Kind.DETACHED, words)
    noisy = [replace(one, ours=(value, one.right[1] + 1e-3)) for one in tried]
    assert GRADIENTS.hint(noisy, 1e-6) == (Kind.UNKNOWN, "")
