"""Attention layers of the two frameworks are called otherwise, and their masks say the contrary: one form that both have."""

import numpy as np
import paddle
import pytest
import torch

from alignment.frameworks._attention import ATTENTION, MASKS, Attention
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.localize import localize
from alignment.models.mending import mend
from alignment.models.tracing import Network
from tests.conftest import relative_l2

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 5, 8))
CAUSAL = np.triu(np.ones((5, 5), bool), 1)  # torch's: true is masked
PADDED = np.array([[False] * 5, [False] * 3 + [True] * 2])


def both(batch_first=True, heads=2):
    """Attention of both frameworks with the same weights, in float64."""
    ours = Paddle().in_float64(paddle.nn.MultiHeadAttention(8, heads))
    theirs = torch.nn.MultiheadAttention(8, heads, batch_first=batch_first).double()
    torch.nn.init.normal_(theirs.in_proj_bias)
    parts = zip(theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for projection, (weight, bias) in zip((ours.q_proj, ours.k_proj, ours.v_proj), parts, strict=True):
        projection.weight.set_value(weight.detach().numpy().T), projection.bias.set_value(bias.detach().numpy())
    ours.out_proj.weight.set_value(theirs.out_proj.weight.detach().numpy().T)
    return ours, theirs


GIVEN = {
    "nothing": {},
    "a mask of truth values": {"attn_mask": CAUSAL},
    "a mask of numbers": {"attn_mask": np.where(CAUSAL, -np.inf, RNG.standard_normal((5, 5)))},
    "a mask for each head": {"attn_mask": np.stack([CAUSAL, CAUSAL.T & ~np.eye(5, dtype=bool)] * 2)},
    "padded keys": {"key_padding_mask": PADDED},
    "both": {"key_padding_mask": PADDED, "attn_mask": CAUSAL},
    "both kinds": {"key_padding_mask": PADDED, "attn_mask": np.where(CAUSAL, -np.inf, 0.5)},
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_call_of_torchs_attention_is_said_to_paddles(given, batch_first):
    ours, theirs = both(batch_first)
    x = X if batch_first else X.swapaxes(0, 1)
    call = Torch().attended(theirs, (x, x, x), {"need_weights": True, **GIVEN[given]})
    expected = Torch().call(theirs, (x, x, x), GIVEN[given]).outputs[0]
    args, kwargs = Paddle().spoken(ours, call)
    made = Paddle().call(ours, args, kwargs).outputs[0]
    assert relative_l2(made if batch_first else made.swapaxes(0, 1), expected) < 1e-14
    again = Torch().call(theirs, *Torch().spoken(theirs, call)).outputs[0]
    assert relative_l2(again, expected) < 1e-14, "and to its own framework's"


def test_paddles_masks_and_what_it_leaves_out_are_understood():
    ours, theirs = both()
    for mask in (~CAUSAL, (~CAUSAL).astype(np.int64), np.where(CAUSAL, -1e9, 0.0)):
        call = Paddle().attended(ours, (X,), {"attn_mask": mask})
        expected = Paddle().call(ours, (X,), {"attn_mask": mask}).outputs[0]
        assert relative_l2(Torch().call(theirs, *Torch().spoken(theirs, call)).outputs[0], expected) < 1e-14


def test_a_cache_or_another_layer_has_no_common_form():
    ours, theirs = both()
    assert Paddle().attended(ours, (X,), {"cache": object()}) is None
    assert Torch().attended(theirs, (X[0], X[0], X[0]), {}) is None, "without a batch"
    assert Torch().attended(torch.nn.Linear(8, 8), (X,), {}) is None
    call = Torch().attended(theirs, (X, X, X), {})
    assert Paddle().spoken(paddle.nn.Linear(8, 8), call) is None
    assert list(MASKS) == list(Torch.convention.arguments) == list(Paddle.convention.arguments)
    assert Torch().attention(theirs) == Attention(ATTENTION, 2, True)


class Port(paddle.nn.Layer):
    def __init__(self, heads=2):
        super().__init__()
        self.attn, self.out = paddle.nn.MultiHeadAttention(8, heads), paddle.nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.attn(x) + x)


class Reference(torch.nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.attn, self.out = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first), torch.nn.Linear(8, 3)

    def forward(self, x):
        y = x if self.attn.batch_first else x.transpose(0, 1)
        y, _ = self.attn(y, y, y)
        return self.out((y if self.attn.batch_first else y.transpose(0, 1)) + x)


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_mended_attention_gives_the_references_numbers_and_gradients(batch_first):
    """The port calls it with the query alone, the reference with three arguments and gets a pair back."""
    mine, right = both(batch_first)
    port, reference = Port(4), Reference(batch_first)
    port.attn, reference.attn = mine, right
    port.attn.num_heads, port.attn.head_dim = 4, 2  # the mistake
    port, reference = Paddle().in_float64(port), reference.double()
    port.out.weight.set_value(reference.out.weight.detach().numpy().T), port.out.bias.set_value(reference.out.bias.detach().numpy())
    sides = Network(Paddle(), port, {"": "", "attn": "attn", "out": "out"}), Network(Torch(), reference)
    ones = [np.ones((2, 5, 3))]
    expected = sides[1].answer("", sides[1].trace((X,), ones)[""], ones)
    before = sides[0].answer("", sides[1].trace((X,), ones)[""], ones)
    assert relative_l2(before.outputs[0], expected.outputs[0]) > 1e-3
    assert mend(*sides, "attn")
    after = sides[0].answer("", sides[1].trace((X,), ones)[""], ones)
    assert relative_l2(after.outputs[0], expected.outputs[0]) < 1e-14
    assert relative_l2(after.input_gradients[0], expected.input_gradients[0]) < 1e-13


def test_torchs_fast_path_is_off_while_it_is_compared_and_on_again():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    calls = Torch().call(model, (X.astype(np.float32),), {"src_key_padding_mask": PADDED})
    assert not (calls.outputs[0][1, 3:] == 0).all() and torch.backends.mha.get_fastpath_enabled()


def test_after_a_wrong_number_of_heads_nothing_else_is_found():
    first = localize(Port(4), Reference(), X.astype(np.float32), weights=False).first
    assert first is not None and first.location == "attn" and "wrong num_heads 4, expected 2" in first.hint
