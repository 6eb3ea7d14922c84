"""Parts that differ in form alone, of sound pairs and beside mistakes: paddings, layouts, bare weights, patches, unequal parts."""

import json

import pytest

from alignment.cli import main
from tests.conftest import ROOT, mode_of

FOLDER = ROOT / "tests/forms"
SIZES = {"Reader": "2x1x6x9", "Patches": "2x3x4x12", "Styles": "2x8", "Tables": "2x5x8"}
# What is changed in the port's source -> network, kind, place, words of the only mistake.
MISTAKES = {
    "eps": ("Reader", "2D(6)", "2D(6, epsilon=1e-3)", "batch_norm_eps", "cnn.2", "0.001"),
    "a function": ("Reader", "F.relu(self.bn(", "F.elu(self.bn(", "other_function", "Reader.forward", "elu"),
    "the padding": ("Reader", '"reflect"', '"zeros"', "call_missing", "Reader.forward", "pad is missing before cnn.1"),
    "causal": ("Patches", "[2, 0]", "[1, 1]", "", "blocks.0", ""),
    "inside": ("Patches", "F.sigmoid(gate)", "F.tanh(gate)", "other_function", "blocks.0", "tanh, expected sigmoid"),
    "bare weights": ("Patches", "F.gelu(", "F.relu(", "other_function", "Patches.forward", "relu, expected gelu"),
    "patches": ("Patches", "h, 2, w, 3]", "h, 2, 3, w]", "", "Patches.forward", ""),
    "beside a cell": ("Tables", "* 0.5 + self", "* 0.4 + self", "other_function", "layers.0.0", "* 0.4, expected / 2"),
    "a slope": ("Styles", "fc0(z), 0.2", "fc0(z), 0.1", "call_argument", "Styles.forward", "slope 0.1, expected 0.2"),
}  # fmt: skip


def audited(network, source, folder, *flags):
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:{network}", "--reference", f"{FOLDER}/form_theirs.py:{network}"]
    status = main(["audit", *mode_of(flags), *sides, "--input", SIZES[network], "--report", str(folder / "report"), *flags])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


@pytest.mark.parametrize("network", SIZES)
def test_another_form_passes(network, tmp_path):
    """In training mode too, where Paddle's variance differs and the search runs."""
    flags = ["--training", "--accept", "initialisation", "--accept", "biased_variance"]
    status, found = audited(network, (FOLDER / "form_ours.py").read_text(), tmp_path, *flags)
    every = {one["kind"] for one in found["localization"]["every"]}
    assert status == 0 and every <= {"initialisation", "biased_variance"}, every


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_beside_other_forms_is_the_only_finding(case, tmp_path):
    network, before, after, kind, place, words = MISTAKES[case]
    source = (FOLDER / "form_ours.py").read_text()
    assert before in source
    status, found = audited(network, source.replace(before, after), tmp_path)
    (mistake,) = found["localization"]["every"]
    assert status == 1 and mistake["location"] == place and words in mistake["hint"], mistake
    assert not kind or mistake["kind"] == kind


def test_weight_normalisation_is_compared_where_both_sides_have_it(tmp_path):
    sides = ["--port", f"{FOLDER}/form_ours.py:Normed", "--reference", f"{FOLDER}/form_theirs.py:Normed"]
    flags = ["--eval-only", "--accept", "initialisation"]
    assert main(["audit", *flags, *sides, "--input", "2x3x8", "--report", str(tmp_path)]) == 0


def test_spectral_normalisation_is_refused_with_one_line(tmp_path, capsys):
    (tmp_path / "theirs.py").write_text((FOLDER / "form_theirs.py").read_text().replace(".weight_norm(", ".spectral_norm("))
    sides = ["--port", f"{FOLDER}/form_ours.py:Normed", "--reference", f"{tmp_path}/theirs.py:Normed"]
    assert main(["audit", "--eval-only", *sides, "--input", "2x3x8", "--report", str(tmp_path)]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "error" in one]
    assert "not compared" in line and "conv." in line and "remove_weight_norm" in line


def test_a_missing_layer_is_no_weight_normalisation(tmp_path, capsys):
    """Names such as pos_bias_u and scale_g alone say nothing."""
    sides = ["--port", f"{FOLDER}/form_ours.py:Biased", "--reference", f"{FOLDER}/form_theirs.py:Biased"]
    assert main(["audit", "--eval-only", *sides, "--input", "2x8", "--report", str(tmp_path)]) == 1
    assert "gate" in capsys.readouterr().out
