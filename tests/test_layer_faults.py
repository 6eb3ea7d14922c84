"""A sample of ``bench --layer-faults``: single layers of Paddle and torch, sound and with a wrong setting."""

import pytest

from alignment.bench.layer_faults import PLACE, finding, pairs_of
from alignment.cli import main
from tests.conftest import ROOT

PAIRS = pairs_of(ROOT / "projects/layers/pairs.py")
ATTENTION = [
    "MultiHeadAttention", "MultiHeadAttention, mask of truth values", "TransformerEncoderLayer, norm first", "SimpleRNN",
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
