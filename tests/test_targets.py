"""Gradients that nobody needs, or that a framework does not have, are no mistakes of the port; those that are cut are."""

import pytest

from alignment import audit
from tests.kinds import targets_ours, targets_theirs

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
INPUTS = {"Distance": "student", "Soft": "shares"}
SOUND = ("Divergence", "DivergenceInside", "Distance", "Weighted", "WeightedInside", "Soft")
# Port -> reference, kind of the first mistake, words.
WRONG = {
    "DivergenceDetached": ("Divergence", "detached", "no gradient flows back"),
    "DivergenceFrozen": ("Divergence", "", ""),
    "DivergenceInsideStopped": ("DivergenceInside", "detached", "no gradient flows back"),
    "WeightedQuarter": ("Weighted", "call_argument", "* 0.25, expected 0.75"),
    "SoftTwice": ("Soft", "call_extra", "softmax(axis=-1) is superfluous"),
}
FAST = ("Divergence", "WeightedInside", "DivergenceDetached")


def cases(names):
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


def audited(name, reference):
    inputs = f"{targets_theirs.__name__}:{INPUTS.get(reference, 'logits')}"
    return audit(getattr(targets_ours, name), getattr(targets_theirs, reference), inputs=inputs)


@pytest.mark.parametrize("name", cases(SOUND))
def test_what_needs_no_gradient_is_no_mistake(name):
    found = audited(name, name)
    assert found.passed, str(found)


@pytest.mark.parametrize("name", cases(WRONG))
def test_what_is_cut_or_wrong_is_found(name):
    reference, kind, words = WRONG[name]
    first, *_ = audited(name, reference).mistakes
    assert kind in first.kind and words in first.words and "cannot run" not in first.words, first
