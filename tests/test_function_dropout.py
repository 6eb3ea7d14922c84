"""Dropout that is called as a function: it shares its masks with the other side's, whichever form that has."""

import gc
import importlib
import json
import weakref

import pytest

from alignment.cli import main
from alignment.comparisons.context import Context
from alignment.comparisons.model.dropouts import dropout_profile_of
from alignment.frameworks import framework
from alignment.project import load_project
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
FUNCTION = "0.125, training=self.training"
# What is changed in the port's source -> words of the first finding; "" for a port that is right.
MISTAKES = {
    "sound": ("", "", ""),
    "other p": (FUNCTION, "0.25, training=self.training", "dropout p 0.25, expected 0.125"),
    "always on": (FUNCTION, "0.125", "dropout is on in evaluation mode, expected training=self.training"),
    "one more": (f"x, {FUNCTION}", f"F.dropout(x, {FUNCTION}), 0.25", "dropout(axis=None) is superfluous"),
    "missing": ("F.dropout(x, 0.125, training=self.training)", "x", "dropout is missing"),
    "other p of a layer": ("Dropout(0.5)", "Dropout(0.375)", "p = 0.375, expected 0.5"),
    "channels as values": ("self.channels(F.relu(self.conv(x)))", "F.dropout(F.relu(self.conv(x)), .25)", "dropout"),
    "activation missing": ("F.relu(self.hidden(x))", "self.hidden(x)", "ReLU: the port lacks it"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_masks_are_shared_and_mistakes_are_found(name, tmp_path):
    before, after, words = MISTAKES[name]
    source = (FOLDER / "dropout_ours.py").read_text()
    assert before in source
    (tmp_path / "ours.py").write_text(source.replace(before, after) if before else source)
    sides = ["--port", f"{tmp_path}/ours.py:Head", "--reference", f"{FOLDER}/dropout_theirs.py:Head"]
    flags = ["--input", "4x3x8x8", "--training", "--accept", "initialisation", "--report", str(tmp_path / "report")]
    status = main(["audit", *sides, *flags])
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())
    assert not any("cannot be shared" in (step["not_run"] or "") for step in found["steps"])
    first = found["localization"]["first"]
    assert (status, words) == (0, "") or (status == 1 and words and words in first["hint"]), first
    corrected = f"+        return self.out(F.dropout(x, {FUNCTION}))" in (tmp_path / "report" / "report.md").read_text()
    assert corrected is (name == "always on"), "the correction of a dropout that is on in evaluation mode"


def test_without_training_mode_another_form_is_no_finding(tmp_path):
    sides = ["--port", f"{FOLDER}/dropout_ours.py:Head", "--reference", f"{FOLDER}/dropout_theirs.py:Head"]
    assert main(["audit", "--eval-only", *sides, "--input", "4x3x8x8", "--report", str(tmp_path / "report")]) == 0


@pytest.mark.parametrize("name", ["port32", "reference32", "ulp64"])
def test_a_lane_that_nobody_needs_is_freed(name):
    project = load_project(ROOT / "projects" / "mobilenetv3" / "project.py")
    lane = Context(project, options={"width_mult": 0.25}).networks.of(name)
    assert lane.dropouts
    network = weakref.ref(lane.model)
    del lane
    gc.collect()
    assert network() is None, "what shares the masks holds the model"


@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_dropouts_of_every_number_of_axes_are_probed_by_themselves(name):
    """torch's for one axis refuses four axes, and Paddle's for three takes five alone."""
    side = framework(name)
    own = side.module_type.__module__.partition(".")[0]
    nn = importlib.import_module(f"{own}.nn")
    layers = [getattr(nn, one) for one in ("Dropout1d", "Dropout2d", "Dropout3d", "Dropout2D", "Dropout3D") if hasattr(nn, one)]
    profile = dropout_profile_of(side, nn.Sequential(*[layer(0.25) for layer in layers], nn.Dropout(0.25)))
    assert len(profile) == len(layers) + 1
    for p, kept, always, share in profile.values():
        assert (p, always) == (0.25, 1) and abs(kept - 4 / 3) < 1e-6 and abs(share - 0.25) < 0.03
