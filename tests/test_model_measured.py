"""What step 1 measures of layers by themselves: judged and explained from the values alone, each side measured once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from alignment.comparisons.comparison import compare, explained
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.model.embeddings import Paddings
from alignment.comparisons.networks import Networks
from alignment.comparisons.result import StepResult
from alignment.kinds import Kind
from mobilenetv3_paddle.models import mobilenetv3
from projects.mobilenetv3.project import PROJECT


def profile(p, kept=None, mean=1.0, share=None):
    """Of a layer that drops p, as it is measured."""
    return np.array([p, 1 / (1 - p) if kept is None else kept, mean, p if share is None else share], np.float32)


RIGHT = {"layer/a": profile(0.2), "layer/b": profile(0.5), "calls/a": np.array(1), "calls/b": np.array(1)}
DROPOUTS = {
    "rate": ({"layer/b": profile(0.1)}, "b", Kind.DROPOUT_RATE, "dropout rate 0.1, expected 0.5"),
    "share": ({"layer/b": profile(0.5, share=0.3)}, "b", Kind.DROPOUT_RATE, "dropout drops 30% of the values, expected 50%"),
    "scale": ({"layer/b": profile(0.5, kept=1)}, "b", Kind.DROPOUT_SCALE, "dropout multiplies what it keeps by 1 in training"),
    "in evaluation": ({"layer/a": profile(0.2, kept=1, mean=0.8)}, "a", Kind.DROPOUT_SCALE, "dropout scales in evaluation mode"),
    "too many": ({"layer/c": profile(0.3)}, "c", Kind.LAYER_EXTRA, "the port drops values here, the reference does not"),
    "missing": ({"layer/b": None}, "b", Kind.DROPOUT_MISSING, "the port drops no values here, the reference does"),
}


@pytest.mark.parametrize("case", DROPOUTS)
def test_a_dropout_that_is_wrong_is_explained_from_the_values(case):
    change, place, kind, words = DROPOUTS[case]
    port = {name: one for name, one in (RIGHT | change).items() if one is not None}
    found = Dropouts().explain(port, RIGHT)
    assert found is not None
    assert (found.location, found.kind) == (place, kind) and found.hint.startswith(words), found.line()
    assert not all(row.passed for row in Dropouts().judge(port, RIGHT))
    assert "values differ" not in found.measured, found.line()


def test_what_was_measured_of_a_dropout_says_what_it_does():
    for change, words in (("rate", "1.111, the reference by 2"), ("in evaluation", "1, the reference by 1.25")):
        found = Dropouts().explain({**RIGHT, **DROPOUTS[change][0]}, RIGHT)
        assert found is not None and found.measured == f"in training the port multiplies what it keeps by {words}", found.measured


def test_dropouts_that_do_the_same_are_no_difference():
    renamed = {name.replace("/b", "/other"): one for name, one in RIGHT.items()}
    twice = {"layer/a": profile(0.2), "calls/a": np.array(2)}
    two = {"layer/a": profile(0.2), "layer/b": profile(0.2), "calls/a": np.array(1), "calls/b": np.array(1)}
    function = {"layer/a": profile(0.2), "by_function": "yes"}
    for port, reference in ((RIGHT, RIGHT), (renamed, RIGHT), (twice, two), (function, RIGHT)):
        assert Dropouts().explain(port, reference) is None and all(row.passed for row in Dropouts().judge(port, reference))


def embedding(number, kind="embedding", held=(2, 3)):
    return {"number/e": np.array(number), "kind/e": kind, "held/e": np.array(held)}


def test_a_padding_number_that_the_input_does_not_hold_is_explained_from_the_values():
    for own, words in ((1, "padding_idx 1, expected 0"), (-1, "padding_idx None, expected 0")):
        found = Paddings().explain(embedding(own), embedding(0))
        assert found is not None
        assert (found.location, found.kind) == ("e", Kind.PADDING_INDEX) and found.hint.startswith(words), found.line()
        (row,) = Paddings().judge(embedding(own), embedding(0))
        assert row.name == "padding.e" and not row.passed and row.reason.startswith(words)


@pytest.mark.parametrize(
    ("port", "reference"),
    [
        (embedding(0), embedding(0)),
        (embedding(1), embedding(0, held=(0, 3))),  # the gradients tell
        (embedding(3), embedding(0)),
        (embedding(1, kind="linear"), embedding(0)),
        (embedding(-1), embedding(-1, held=(-1,))),
    ],
)
def test_other_embeddings_are_silent(port, reference):
    assert Paddings().judge(port, reference) == [] and Paddings().explain(port, reference) is None


def test_each_side_is_measured_once_also_where_it_fails(context, monkeypatch):
    """After the step no model can be built any more: the place is told by what was measured."""

    def dropping_less(**options):
        return mobilenetv3.mobilenet_v3_small(**{**options, "dropout": 0.1})

    broken = context(PROJECT.with_models(lambda spec: dataclasses.replace(spec, port=dropping_less)))
    assert broken.drops_by_function == frozenset()
    built, build = [], Networks.build

    def counted(self, role, exact=False):
        built.append(role)
        return build(self, role, exact)

    monkeypatch.setattr(Networks, "build", counted)
    result = StepResult(1, "forward")
    compare(broken, result, Dropouts())
    assert sorted(built) == ["port", "reference"] and result.differs
    monkeypatch.setattr(Networks, "build", lambda *args: pytest.fail("a side was run a second time"))
    found = explained(result)
    assert found is not None
    assert (found.location, found.kind) == ("classifier.2", Kind.DROPOUT_RATE), found.line()
