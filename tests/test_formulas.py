"""Mistakes between functions: several calls for others, gradients that are cut, and what the calls are for."""

import pytest

from alignment import audit
from tests.kinds import formulas_ours, formulas_theirs

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
INPUTS = {"Rms": "4x5x6", "Rotary": "4x5x8", "Frozen": "4x6", "Weighted": "4x6", "Decayed": f"{formulas_theirs.__name__}:steps"}
# Port -> reference, kind of the first mistake, all that is said.
WRONG = {
    "RmsVariance": ("Rms", "other_function", ["var(axis=-1), expected", "** 2 and mean(axis=-1)"]),
    "RotaryNeighbours": (
        "Rotary",
        "operand",
        ["halves (what is rotated by sine and cosine: neighbouring values or halves"],
    ),
    "RotaryBatch": ("Rotary", "other_function", ["arange", "the angles of sine and cosine"]),
    "FrozenEps": ("Frozen", "", ["+ 1e-05 is missing before rsqrt (eps under the root)"]),
    "WeightedThrough": ("Weighted", "call_missing", ["detach is missing behind /: a gradient flows back through it"]),
    "WeightedCut": ("Weighted", "detached", ["detach: no gradient flows back through it, which the reference lets through"]),
    "DecayedAfter": ("Decayed", "other_function", ["expected * 0.98", "weight decay"]),
}
FAST = ("Frozen", "RmsVariance", "WeightedThrough")


def cases(names):
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


def audited(name, reference):
    return audit(getattr(formulas_ours, name), getattr(formulas_theirs, reference), inputs=INPUTS[reference])


@pytest.mark.parametrize("name", cases(INPUTS))
def test_what_is_written_otherwise_passes(name):
    found = audited(name, name)
    assert found.passed, str(found)


@pytest.mark.parametrize("name", cases(WRONG))
def test_calls_for_others_are_said_with_what_they_are_for(name):
    reference, kind, words = WRONG[name]
    (mistake,) = audited(name, reference).mistakes
    assert kind in mistake.kind and all(one in mistake.words for one in words), mistake
    assert mistake.source.partition(":")[0].endswith("formulas_ours.py"), mistake
