"""Layers of somebody's own whose weights lie otherwise: sound ports are silent, and a mistake beside them is the only finding."""

import numpy as np
import pytest

from alignment.models.observe import MaskDraws
from tests.conftest import ROOT
from tests.sound_pairs import PAIRS, audited, audited_with

FOLDER = ROOT / "tests/forms"
NETWORKS = ("Text", "Faint", "Wave", "Points", "Places", "Grid", "Style")
# What is changed in the port's source -> network, kind, place, words of the only mistake.
MISTAKES = {
    "scale": ("Text", "/ (d // self.heads) ** 0.5", "/ d ** 0.5", "other_function", "blocks.0.attn", "/ 2.82843, expected * 0.5"),
    "activation": ("Text", "F.gelu(", "F.relu(", "other_function", "blocks.0", "relu, expected gelu"),
    "gates": (
        "Wave", "paddle.tanh(f) * F.sigmoid(g)", "F.sigmoid(f) * paddle.tanh(g)", "other_function", "units.0",
        "sigmoid, tanh and *, expected",
    ),
    "slope": ("Points", "F.relu(", "F.leaky_relu(", "other_function", "Points.forward", "leaky_relu(slope=0.01)"),
    # The port's reshape to another shape is no mistake, so that it is not called one beside a mistake.
    "rows for columns": ("Grid", "F.sigmoid(y[..., 1]) + rows", "F.sigmoid(y[..., 1]) + columns", "", "Grid.forward", ""),
    "axis": ("Places", "axis=-1)\n        return x +", "axis=1)\n        return x +", "softmax_axis", "attn", "axis 1, expected 2"),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_a_sound_port_passes(network):
    """In training mode, too, where the port's dropout has the channels last."""
    found = audited(network, PAIRS[network], 1)
    assert not found.status, found


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_the_only_finding(case, tmp_path):
    network, before, after, kind, place, words = MISTAKES[case]
    found = audited_with(network, before, after, tmp_path)
    (mistake,) = found.findings
    assert found.status == 1 and place == mistake["location"] and words in mistake["hint"], mistake
    assert mistake["kind"] == kind, mistake


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_masks_are_the_same_whatever_axis_is_first(order):
    shape = (3, 8, 5)
    drawn = MaskDraws(0)(shape)
    assert np.array_equal(MaskDraws(0)(tuple(shape[axis] for axis in order)), drawn.transpose(order))
    assert drawn.std() > 0.2 and not np.array_equal(MaskDraws(1)(shape), drawn)
