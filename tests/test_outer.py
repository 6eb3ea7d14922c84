"""Modules that hold more or return less than their counterparts: a mistake in them is found without a false one around them."""

import pytest

from tests.conftest import ROOT
from tests.sound_pairs import PAIRS, audited, audited_with

FOLDER = ROOT / "tests/forms"
# What is changed in the port's source -> network, place, words of the only mistake and of what was measured.
MISTAKES = {
    "no softplus": (
        "Recurrent", "F.softplus(self.step(x))", "self.step(x)", "Recurrent.forward",
        "softplus is missing between mixers.0.step and", "",
    ),
    "no residual": ("Recurrent", "given + self.out(", "self.out(", "Recurrent.forward", "is missing before norms.1", ""),
    "the head": ("Recurrent", "return self.head(self.layers(", "return self.head(2 * self.layers(", "Recurrent.forward", "", ""),
    "scale": ("Relative", "transpose_y=True) + bias", "transpose_y=True) * 0.5 + bias", "blocks.1", "* 0.5 is superfluous", ""),
    "axis": ("Relative", "+ bias, axis=-1)", "+ bias, axis=-2)", "blocks.1", "axis", ""),
}  # fmt: skip


@pytest.mark.parametrize("network", ["Recurrent", "Relative"])
def test_a_sound_port_passes(network):
    found = audited(network, PAIRS[network], 1)
    assert not found.status, found


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_the_only_finding(case, tmp_path):
    network, before, after, place, words, measured = MISTAKES[case]
    found = audited_with(network, before, after, tmp_path)
    (mistake,) = found.findings
    assert found.status == 1 and place in (mistake["location"], *mistake["also"]), mistake
    assert words in mistake["hint"] and measured in mistake["measured"], mistake
