"""An encoder with a bias by distance, whose port calls no layer of its packed projections and rounds the number of its mask."""

import numpy as np
import pytest

from alignment.cli import main
from alignment.frameworks import framework_of
from alignment.models.units import units_of, use_of
from alignment.project import import_file
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
FIRST, SECOND = "place.unsqueeze(0)", "place.unsqueeze(1)"


@pytest.fixture
def audited(tmp_path, capsys):
    """A function that audits the port with a text of its source exchanged: exit status and what was printed."""
    rng = np.random.default_rng(0)
    mask = (np.arange(7)[None, :] < np.array([7, 5, 6, 3])[:, None]).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", x=rng.standard_normal((4, 7, 8)).astype(np.float32), mask=mask)

    def run(before="", after=""):
        source = (FOLDER / "relative_ours.py").read_text()
        assert before in source
        (tmp_path / "ours.py").write_text(source.replace(before, after))
        sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{FOLDER}/relative_theirs.py:Net", "--eval-only"]
        status = main(["audit", *sides, "--input", str(tmp_path / "inputs.npz"), "--report", str(tmp_path / "report")])
        return status, capsys.readouterr().out

    return run


def test_the_port_is_right(audited):
    status, out = audited()
    assert status == 0 and "PASS: no mistake found" in out, out


def test_layers_that_are_not_called_stand_before_those_defined_behind_them():
    """Behind all of their module they would be paired with the next module's."""
    net = import_file(FOLDER / "relative_ours.py").Net()
    side = framework_of(net)
    inputs = (np.zeros((2, 7, 8), np.float32), np.ones((2, 7), np.float32))
    order = [unit.path for unit in units_of(side, net, use_of(side, net, inputs)) if unit.entries]
    assert order == ["position", *(f"encoder.{block}.{name}" for block in range(3) for name in ("qkv", "out"))]


def test_a_change_that_changes_nothing_is_not_the_mistake(audited):
    """-3.4e38 in place of float32's least number hides what it hides as well, and no rounding of the mask is rounding."""
    status, out = audited(f"{FIRST} - {SECOND}", f"{SECOND} - {FIRST}")
    assert status == 1 and "e+38" not in out.partition("Your mistakes")[2].partition("Not checked")[0], out
    assert "1 mistake:" in out and "- takes other values than in the reference, or in another order" in out, out
    assert "move by" not in out, "gradients are compared: the ones of a mask are exact"
