"""Layers that alone are left over when all others are paired, and values of another shape beside rounding."""

import paddle
import pytest
import torch

from alignment.compare import Quantity
from alignment.comparisons.model.forward import of_another_form
from alignment.frameworks import framework_of
from alignment.models.counterparts import Matching
from alignment.models.matching import _pair_alone

WHERE = {"stem": "stem"}


def _left(ours, theirs):
    """What is paired of layers beside a stem that is paired, and the links."""
    port = paddle.nn.Sequential(("stem", paddle.nn.Conv2D(3, 6, 3)), *ours.items())
    reference = torch.nn.Sequential()
    for name, layer in {"stem": torch.nn.Conv2d(3, 6, 3), **theirs}.items():
        reference.add_module(name, layer)
    matching, links = Matching({"": "", **WHERE}), []
    found = _pair_alone((port, reference), (framework_of(port), framework_of(reference)), matching, links)
    return found, {other: own for other, own in matching.paths.items() if own not in ("", "stem")}, links


def test_a_linear_layer_and_a_convolution_by_1_x_1_are_paired_where_they_alone_are_left():
    found, paired, links = _left({"inp": paddle.nn.Linear(6, 8)}, {"project": torch.nn.Conv2d(6, 8, 1)})
    assert found and paired == {"project": "inp"}
    assert [(link.port, link.reference) for link in links] == [(("inp.weight",), ("project.weight",))]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"inp": paddle.nn.Linear(6, 8)}, {"project": torch.nn.Conv2d(6, 9, 1)}),
        ({"inp": paddle.nn.Linear(6, 8)}, {"project": torch.nn.Conv2d(6, 8, 1, bias=False)}),
        ({"inp": paddle.nn.Linear(6, 8)}, {"project": torch.nn.Linear(6, 8)}),
        ({"norm": paddle.nn.LayerNorm(6)}, {"scale": torch.nn.GroupNorm(1, 6)}),
        (
            {"a": paddle.nn.Linear(6, 8), "b": paddle.nn.Linear(6, 8)},
            {"c": torch.nn.Conv2d(6, 8, 1), "d": torch.nn.Conv2d(6, 8, 1)},
        ),
    ],
    ids=["another width", "no bias", "two linear layers", "other normalisations", "two of each"],
)
def test_other_layers_that_are_left_stay_apart(ours, theirs):
    assert _left(ours, theirs) == (False, {}, [])


def _rows(far, reason="exact mode differs by 5e-10 (bound 1e-12)", error=1e-7):
    logits = Quantity("eval.logits", [1, 8], passed=far == 0, float64_diff=far, reference_error=error, reason=reason if far else "")
    shape = Quantity("eval.inp", [1, 8, 6], passed=False, reason="float32: shape (1, 6, 8) in the port, (1, 8, 6) in the reference")
    near = Quantity("eval.one", [1, 8], passed=False, float64_diff=4e-10, reference_error=error, reason=reason)
    return {"logits": logits, "inp": shape, "one": near}


def test_values_of_another_shape_are_no_mistake_where_the_outputs_differ_by_rounding_alone():
    assert of_another_form(_rows(5e-10), ["inp", "one"]) == {"inp"}
    assert of_another_form(_rows(0.0), ["inp", "one"]) == {"inp", "one"}
    assert of_another_form(_rows(5e-6), ["inp", "one"]) == set(), "larger than the reference's own float32 error"
