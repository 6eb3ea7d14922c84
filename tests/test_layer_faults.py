"""A sample of ``bench --layer-faults``: single layers of Paddle and torch, sound and with a wrong setting."""

import pytest

from alignment.cli import main
from bench.layer_faults import PLACE, finding, pairs_of, plain
from bench.padiff import place
from tests.conftest import ROOT

PAIRS = pairs_of(ROOT / "projects/layers/pairs.py")
ATTENTION = [
    "TransformerEncoderLayer, norm first", "SimpleRNN",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("TransformerDecoder", "GRU, two layers, both directions")),
]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["LayerNorm", "Embedding", "Conv1DTranspose", "Upsample, trilinear", "LogSoftmax", "LSTM", *ATTENTION]
)
def test_a_sound_layer_is_silent_and_a_wrong_setting_is_named(name):
    pair = PAIRS[name]
    assert finding(pair, pair.port, 1) is None
    for fault, (port, kinds) in pair.faults.items():
        found = finding(pair, port, 1)
        assert found is not None and found.location.startswith(PLACE) and found.kind in kinds, (fault, found)


def test_the_list_is_long_enough_and_another_file_is_refused(tmp_path, capsys):
    assert len(PAIRS) >= 45 and sum(len(pair.faults) for pair in PAIRS.values()) >= 120
    (tmp_path / "own.py").write_text("PAIRS = 3\n")
    assert main(["bench", str(tmp_path / "own.py"), "--layer-faults", "--result-dir", str(tmp_path)]) == 2
    assert "expected a file that defines PAIRS" in capsys.readouterr().err


def test_a_plain_comparison_of_outputs_stands_beside():
    """It sees what changes the output, and no mistake that shows in gradients alone."""
    for name in ("Conv1D", "Embedding"):
        assert plain(PAIRS[name], PAIRS[name].port) == ""
    port = {name: make for name, (make, _) in PAIRS["Conv1D"].faults.items()}
    assert [plain(PAIRS["Conv1D"], port[name]) for name in ("mode", "padding", "no_bias")] == ["output", "shape", "UserError"]
    assert plain(PAIRS["Embedding"], PAIRS["Embedding"].faults["no_padding"][0]) == ""


TREE = """Torch Model
=========================
    (net) Reference
     |--- (net) Conv2d
     |     +--- (api) torch.nn.functional.conv2d
     |--- (net) Conv2d
     |     +--- (api) torch.nn.functional.conv2d
     +--- (api) torch.tanh


Paddle Stacks:
"""
MARK = "    <---  *** HERE ***"


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (2, "at Reference.forward"), (3, "at stem"), (5, "at layer"), (6, "at layer"),
        (7, "at Reference.forward, call of torch.tanh"),
        (None, "fails, and names no place"),
    ],
)  # fmt: skip
def test_the_place_that_padiff_names_is_read_off_its_tree(line, where, tmp_path, monkeypatch):
    """Its own marks: on a module, or on a function that a module calls."""
    monkeypatch.chdir(tmp_path)
    lines = TREE.splitlines()
    if line is not None:
        lines[line] += MARK
    assert place("\n".join(lines), PAIRS["Conv2D"].reference()) == where
