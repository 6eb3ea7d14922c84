"""Hypotheses about attention (``alignment.localize.hypotheses.attention``), on layers of the two frameworks."""

import paddle
import pytest

from alignment.kinds import Kind
from bench.layer_faults import PLACE, finding, pairs_of
from tests.conftest import ROOT

PAIRS = pairs_of(ROOT / "projects/layers/pairs.py")


@pytest.mark.parametrize("name", ["MultiHeadAttention", "MultiHeadAttention, mask of truth values"])
def test_a_sound_attention_is_silent_and_a_wrong_setting_is_named(name):
    pair = PAIRS[name]
    assert finding(pair, pair.port, 1) is None
    for fault, (port, kinds) in pair.faults.items():
        found = finding(pair, port, 1)
        assert found is not None and found.location.startswith(PLACE) and found.kind in kinds, (fault, found)


class Deaf(paddle.nn.MultiHeadAttention):
    """It ignores its mask, which it is given as the reference is."""

    def forward(self, query, key=None, value=None, attn_mask=None, cache=None):
        return super().forward(query, key, value, None, cache)


def test_an_attention_that_ignores_its_mask_is_named():
    pair = PAIRS["MultiHeadAttention, mask of truth values"]

    def port():
        made = pair.port()
        for layer in made.sublayers():
            if type(layer) is paddle.nn.MultiHeadAttention:
                layer.__class__ = Deaf
        return made

    found = finding(pair, port, 1)
    assert found.kind is Kind.MASK and found.hint.startswith("it ignores the mask"), found.line()
