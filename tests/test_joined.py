"""What a side holds joined, divided or in another shape: sound ports are silent, and a mistake beside them is the only finding."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.models.links import Link, forms_of
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry
from tests.conftest import ROOT
from tests.sound_pairs import PAIRS, audited, audited_with

FOLDER = ROOT / "tests/forms"
NETWORKS = ("Conditional", "Additive", "Highway", "Rotary", "Twice", "Pixels", "Angles", "Skips", "Context")
# What is changed in the port's source -> network, place, words of the only mistake.
MISTAKES = {
    "activation": ("Conditional", "tanh(self.scale(", "sin(self.scale(", "Conditional.forward", "sin, expected tanh"),
    # Neither a layer that is called once for all places of a sequence, nor a pooling behind its activation, is a mistake.
    "axis of the attention": (
        "Additive", "+ keys)), axis=1)", "+ keys)), axis=-1)", "Additive.forward", "softmax(axis=-1), expected softmax(axis=1)",
    ),
    "gate": ("Highway", "carry * (x - new)", "carry * (x + new)", "Highway.forward", ""),
    "base of the angles": ("Rotary", "1 / 10000 **", "1 / 1000 **", "Rotary.forward", ""),
    "dropout": ("Twice", "self.drop(F.relu(self.a(x)))", "F.relu(self.a(x))", "levels.0.net.2", "the port lacks it"),
    "mask": ("Pixels", "kernel * kernel // 2] = 1", "kernel * kernel // 2 + 1] = 1", "first", ""),
    "order of parts": ("Context", "[self.local(x), whole]", "[whole, self.local(x)]", "Context.forward", "in this order, expected"),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_a_sound_port_passes(network):
    found = audited(network, PAIRS[network], 1)
    assert not found.status, found


@pytest.mark.slow
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_the_only_finding(case, tmp_path):
    network, before, after, place, words = MISTAKES[case]
    found = audited_with(network, before, after, tmp_path)
    (mistake,) = found.findings
    assert found.status == 1 and place == mistake["location"], mistake
    assert words in mistake["hint"], mistake


@pytest.mark.parametrize("network", ["Conditional", "Angles", "Pixels"])
def test_the_map_that_an_audit_writes_can_be_given_back(network, tmp_path):
    """Tensors of whole layers, too, which lie in a module of the other side."""
    sides = ["--port", f"{FOLDER}/joined_ours.py:{network}", "--reference", f"{FOLDER}/joined_theirs.py:{network}"]
    np.savez(tmp_path / "tokens.npz", tokens=np.random.default_rng(0).integers(0, 20, (3, 7)))
    given = {"Conditional": str(tmp_path / "tokens.npz"), "Angles": "4x6", "Pixels": "2x3x9x7"}[network]
    flags = ["--input", given, "--report", str(tmp_path), "--accept", "initialisation"]
    assert main(["audit", "--eval-only", *sides, *flags]) == 0
    assert main(["audit", "--eval-only", *sides, *flags, "--names", str(tmp_path / "map.yaml")]) == 0
    assert json.loads((tmp_path / "alignment.json").read_text())["passed"]


@pytest.mark.parametrize("port_is_packed", [True, False])
def test_columns_are_read_and_written(port_is_packed):
    whole, parts = (
        (Entry("w", "w", (3, 7), True, "parameter"),),
        [Entry(n, n, (3, k), True, "parameter") for n, k in zip("abc", (1, 4, 2), strict=True)],
    )
    names = ("w",), tuple("abc")
    link = Link(*(names if port_is_packed else names[::-1]), columns=True)
    forms = forms_of([link], *((whole, parts) if port_is_packed else (parts, whole)))
    pieces = forms[0 if port_is_packed else 1]["w"]
    values = np.random.default_rng(0).standard_normal((3, 7))
    own = None
    for piece, value in zip(pieces, np.split(values, [1, 5], axis=1), strict=True):
        own = piece.into(value, own)
        assert np.array_equal(piece.to_canonical(own), value)
    assert np.array_equal(own, values.T)  # as a linear layer of Paddle's holds it


@pytest.mark.parametrize(("shape", "more"), [((4, 7), {}), ((3, 8), {}), ((3, 7), {"transposed": True}), ((3, 7), {"groups": 3})])
def test_columns_that_do_not_fit_are_refused(shape, more):
    parts = [Entry(name, name, (3, width), False, "parameter") for name, width in (("a", 3), ("b", 4))]
    with pytest.raises(UserError, match="do not lie side by side"):
        forms_of([Link(("w",), ("a", "b"), columns=True, **more)], [Entry("w", "w", shape, False, "parameter")], parts)
