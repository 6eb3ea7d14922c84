"""Parallel branches of equal shapes beside a mistake, and inputs at which the reference has no derivative."""

import json

import pytest

from alignment.cli import main
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
# What is changed in the port's source -> kind, place, words of the only mistake.
MISTAKES = {
    "dilation": ("rates=(2, 4, 6)", "rates=(2, 3, 6)", "dilation", "aspp.convs.2.0", "dilation 3, expected 4"),
    "no ReLU": ("3, rates[1])", "3, rates[1], act=False)", "layer_missing", "aspp.convs.2.2", "ReLU: the port lacks it"),
    "other order": ("[a, b, c, d, g]", "[a, c, b, d, g]", "operand", "aspp", "concat takes other values than in the reference"),
}  # fmt: skip


def audited(network, size, source, folder):
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:{network}", "--reference", f"{FOLDER}/branches_theirs.py:{network}"]
    status = main(["audit", "--eval-only", *sides, "--input", size, "--report", str(folder / "report")])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", MISTAKES)
def test_branches_of_equal_shapes_are_told_apart_beside_a_mistake(case, tmp_path):
    before, after, kind, place, words = MISTAKES[case]
    source = (FOLDER / "branches_ours.py").read_text()
    assert before in source
    status, found = audited("Deep", "2x3x25x31", source.replace(before, after), tmp_path)
    (mistake,) = found["localization"]["every"]
    assert status == 1 and (mistake["kind"], mistake["location"]) == (kind, place) and words in mistake["hint"], mistake


def test_a_point_without_a_derivative_is_no_mistake_of_a_layer(tmp_path):
    """A norm of exactly 0 has none: torch's ReLU before it stops the NaN, Paddle's passes it on."""
    status, found = audited("Normed", "2x3x9x11", (FOLDER / "branches_ours.py").read_text(), tmp_path)
    (one,) = found["localization"]["every"]
    assert status == 1 and (one["kind"], one["location"]) == ("not_finite", "Normed.forward"), one
    assert "gradient in norm is, too: the input hits a point without a derivative" in one["hint"]


def test_gradients_that_neither_side_has_are_left_out_and_named(tmp_path):
    source = (FOLDER / "branches_ours.py").read_text()
    status, found = audited("Bare", "2x5", source, tmp_path)
    assert status == 0 and "gradients of 2 of 4 parameters, first first.weight: the reference's own are NaN" in str(found["steps"])
    before, after = "return self.last(x[:, :3] + root)", "return self.last(x[:, :3] + root) * 1.5"
    status, found = audited("Bare", "2x5", source.replace(before, after), tmp_path)
    (mistake,) = found["localization"]["every"]
    assert status == 1 and mistake["location"] == "Bare.forward", mistake


def test_where_no_gradient_is_left_nothing_passes(tmp_path):
    status, found = audited("Rootless", "2x5", (FOLDER / "branches_ours.py").read_text(), tmp_path)
    assert status == 1 and "there was nothing real to compare" in str(found)
