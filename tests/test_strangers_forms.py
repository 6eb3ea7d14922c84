"""Forms that strangers' sound ports have: a head that is called once on all, keys and values in one layer, layers whose weights
a function is given, stacked experts, an attention that is written out, a table in float32.

Each is silent; a mistake beside it is not.
"""

import inspect

import numpy as np
import paddle
import pytest
import torch
from paddle.nn import functional as PF
from torch import nn
from torch.nn import functional as F

from alignment import audit
from alignment.kinds import Kind
from alignment.localize import localize

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 8)).astype("float32")
PADDING = np.arange(5)[None] >= np.array([5, 3, 4])[:, None]
PICTURES = RNG.standard_normal((2, 4, 9, 9)).astype("float32")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x, pos, padding):
        return self.norm(x + self.attn(x + pos, x + pos, x, key_padding_mask=padding, need_weights=False)[0])


class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Linear(8, 3)

    def forward(self, x, padding):
        table = torch.linspace(0.1, 1, 8)
        made = []
        for layer in self.layers:
            x = layer(x, torch.sin(x * table), padding != 0)
            made.append(self.head(x))
        return torch.stack(made)


class WrittenOut(paddle.nn.Layer):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (paddle.nn.Linear(8, 8) for _ in range(4))

    def split(self, x):
        return x.reshape([x.shape[0], x.shape[1], self.heads, -1]).transpose([0, 2, 1, 3])

    def forward(self, query, key, value, keep):
        q, k, v = self.split(self.q_proj(query)), self.split(self.k_proj(key)), self.split(self.v_proj(value))
        scores = q @ k.transpose([0, 1, 3, 2]) * (8 / self.heads) ** -0.5
        scores = scores + (1.0 - keep.astype(scores.dtype)).unsqueeze([1, 2]) * -1e9
        return self.out_proj((PF.softmax(scores, axis=-1) @ v).transpose([0, 2, 1, 3]).flatten(2))


class OwnLayer(paddle.nn.Layer):
    def __init__(self, wrong, heads):
        super().__init__()
        self.attn, self.norm, self.wrong = WrittenOut(heads), paddle.nn.LayerNorm(8), wrong

    def forward(self, x, keys, keep):
        return self.norm(x + self.attn(keys, keys, keys if self.wrong == "value" else x, keep))


class OwnQueries(paddle.nn.Layer):
    """Its layers are given what theirs compute inside, and a mask of the other sense; its table is in float32."""

    def __init__(self, wrong=""):
        super().__init__()
        self.layers = paddle.nn.LayerList([OwnLayer(wrong, 2) for _ in range(2)])
        self.head, self.wrong = paddle.nn.Linear(8, 3), wrong

    def forward(self, x, padding):
        table = paddle.to_tensor(np.linspace(0.1, 1, 8).astype("float32"))
        made = []
        for layer in self.layers:
            x = layer(x, x + paddle.sin(x * table), padding == 0)
            made.append(x)
        return self.head(paddle.stack(made[::-1] if self.wrong == "order" else made))


def test_a_float32_table_beside_blocks_of_another_form_and_a_head_called_once_is_rounding_alone():
    found = localize(OwnQueries(), Queries(), (X, PADDING.astype("int64")), weights=False).first
    assert found is not None and found.kind is Kind.FLOAT32_CONSTANT, found


def test_a_mistake_beside_them_is_more_than_rounding():
    found = localize(OwnQueries("order"), Queries(), (X, PADDING.astype("int64")), weights=False).first
    assert found is not None and found.kind is not Kind.FLOAT32_CONSTANT, found


class Faint(nn.Module):
    """What its block gives has a tiny gain."""

    def __init__(self):
        super().__init__()
        self.block, self.fc = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x) + 2e-5 * self.block(x)


class OwnBlock(paddle.nn.Sequential):
    def __init__(self, gain):
        super().__init__(paddle.nn.Linear(8, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 8))
        self.gain = gain

    def forward(self, x):
        return self.gain * super().forward(x)


class OwnFaint(paddle.nn.Layer):
    def __init__(self, gain):
        super().__init__()
        self.block, self.fc = OwnBlock(gain), paddle.nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x) + 2e-5 * self.block(x)


def test_a_wrong_block_whose_caller_hardly_shows_it_is_no_other_form():
    """The caller differs by less than float32 rounds, and is right once the block is."""
    found = localize(OwnFaint(1.02), Faint(), X, weights=False).first
    assert found is not None and (found.kind, found.location) == (Kind.SCALED, "block"), found
    assert localize(OwnFaint(1.0), Faint(), X, weights=False).first is None


class SameLayer(OwnLayer):
    def forward(self, x, pos, padding):
        keys = x + pos
        return self.norm(x + self.attn(keys, keys, keys if self.wrong == "value" else x, ~padding))


@pytest.mark.parametrize("wrong", ["", "value"])
def test_an_attention_that_is_written_out_is_held_to_torchs_call_by_call(wrong):
    inputs = (X, np.cos(X), PADDING)
    found = localize(SameLayer(wrong, 2), Layer(), inputs, weights=False).first
    if wrong:
        lines, start = inspect.getsourcelines(WrittenOut.forward)
        line = start + next(n for n, text in enumerate(lines) if "self.v_proj(value)" in text)
        assert found is not None and found.kind is Kind.OPERAND and f":{line}: linear takes" in found.line(), found
    else:
        assert found is None, found


class Kept(nn.Module):
    """The layers are called one after another."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2)
        self.last = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.last(torch.relu(self.down(torch.relu(self.first(x)))))


class Given(paddle.nn.Layer):
    """A function is given the weights of the second layer."""

    def __init__(self, wrong=False):
        super().__init__()
        self.first, self.down = paddle.nn.Conv2D(4, 4, 3, padding=1), paddle.nn.Conv2D(4, 4, 3, stride=2)
        self.final, self.stride = paddle.nn.Conv2D(4, 4, 3, padding=1), 1 if wrong else 2

    def forward(self, x):
        x = PF.relu(self.first(x))
        return self.final(PF.relu(PF.conv2d(x, self.down.weight, self.down.bias, stride=self.stride)))


def test_a_layer_whose_weights_a_function_is_given_is_paired_where_that_is():
    assert localize(Given(), Kept(), PICTURES, weights=False).first is None
    found = localize(Given(True), Kept(), PICTURES, weights=False).first
    assert found is not None and "called 0 times" not in found.hint and found.kind is not Kind.LAYER_NOT_CALLED, found


class Apart(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = self.to_q(x), self.to_k(x), self.to_v(x)
        return self.to_out(F.scaled_dot_product_attention(q, k, v))


class Packed(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = (paddle.nn.Linear(8, n, bias_attr=False) for n in (8, 16, 8))

    def forward(self, x):
        k, v = self.kv(x).chunk(2, axis=-1)
        return self.o(PF.softmax(self.q(x) @ k.transpose([0, 2, 1]) * 8**-0.5, axis=-1) @ v)


def test_keys_and_values_in_one_layer_before_the_queries():
    assert localize(Packed(), Apart(), X, weights=False).first is None


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(8, 6, bias=False), nn.Linear(6, 8, bias=False), nn.Linear(8, 6, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([Expert() for _ in range(4)])

    def forward(self, x):
        return sum((n + 1) * expert(x) for n, expert in enumerate(self.experts))


class OwnExpert(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.up, self.down = paddle.nn.Linear(8, 12, bias_attr=False), paddle.nn.Linear(6, 8, bias_attr=False)


class Stacked(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.experts = paddle.nn.LayerList([OwnExpert() for _ in range(4)])

    def forward(self, x):
        up = paddle.stack([one.up.weight for one in self.experts])
        down = paddle.stack([one.down.weight for one in self.experts])
        gate, value = paddle.einsum("ntd,edh->nteh", x, up).chunk(2, axis=-1)
        shares = paddle.arange(1, 5).astype(x.dtype)
        return paddle.einsum("nteh,ehd,e->ntd", PF.silu(gate) * value, down, shares)


def test_stacked_experts_stay_together():
    assert localize(Stacked(), Experts(), X, weights=False).first is None


class Interleaved(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        angle = x[..., None] / 10 ** (2 * torch.div(torch.arange(8.0), 2, rounding_mode="floor") / 8)
        return self.fc(torch.stack((angle[..., 0::2].sin(), angle[..., 1::2].cos()), dim=-1).flatten(3).sum(2))


class Joined(paddle.nn.Layer):
    def __init__(self, axis):
        super().__init__()
        self.fc, self.axis = paddle.nn.Linear(8, 8), axis

    def forward(self, x):
        angle = x.unsqueeze(-1) / 10 ** (2 * paddle.floor(paddle.arange(8, dtype="float32") / 2) / 8)
        made = paddle.stack([paddle.sin(angle[..., 0::2]), paddle.cos(angle[..., 1::2])], axis=self.axis)
        return self.fc(made.flatten(3).sum(axis=2))


def test_of_several_changes_the_fewest_that_mend_the_module_are_said():
    assert localize(Joined(-1), Interleaved(), X, weights=False).first is None
    found = localize(Joined(-2), Interleaved(), X, weights=False).first
    assert found is not None and "stack axis" in found.hint and "too much" not in found.hint, found


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x, out):
        return self.fc(x).masked_fill(out[..., None], 0.0)


class Masks(nn.Module):
    def __init__(self):
        super().__init__()
        self.masked, self.head = Masked(), nn.Linear(8, 3)

    def forward(self, x, padding):
        return self.head(self.masked(x, padding != 0))


class OwnMasked(paddle.nn.Layer):
    def __init__(self, gain, added):
        super().__init__()
        self.fc, self.gain, self.added = paddle.nn.Linear(8, 8), gain, added

    def forward(self, x, out):
        out = out / -1e4 if self.added else out
        return self.gain * self.fc(x) * (1 - out.unsqueeze(-1))


class CastMasked(OwnMasked):
    """It takes truth values and numbers."""

    def forward(self, x, out):
        return super().forward(x, out.astype(x.dtype))


class OwnMasks(paddle.nn.Layer):
    """Its masks are numbers: zeros and ones, or what is added to scores."""

    def __init__(self, gain=1.0, shift=0.0, added=False, masked=OwnMasked):
        super().__init__()
        self.masked, self.head, self.shift, self.added = masked(gain, added), paddle.nn.Linear(8, 3), shift, added

    def forward(self, x, padding):
        out = (padding != 0).astype(x.dtype)
        return self.head(self.masked(x, out * -1e4 if self.added else out)) + self.shift


def masked_samples(count, rng):
    return rng.standard_normal((count, 5, 8)).astype("float32"), rng.integers(0, 2, (count, 5))


@pytest.mark.parametrize("wrong", [{}, {"gain": 2.0}, {"gain": 2.0, "shift": 1.0}])
def test_a_mask_of_numbers_is_no_mistake_where_theirs_are_truth_values(wrong):
    """The port's module cannot take the reference's mask, and is never given it: what that raises says nothing."""
    found = audit(lambda: OwnMasks(**wrong), Masks, inputs="tests.test_strangers_forms:masked_samples")
    words = [words for words, there in (("* 2 is superfluous", "gain" in wrong), ("+ 1 is superfluous", "shift" in wrong)) if there]
    assert len(found.mistakes) == bool(wrong) and all(one in str(found) for one in words) and "raises" not in str(found), str(found)


@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_a_stand_in_that_cannot_take_the_ports_mask_is_no_mistake(gain):
    found = audit(lambda: OwnMasks(gain, added=True), Masks, inputs="tests.test_strangers_forms:masked_samples")
    assert [one.place for one in found.mistakes] == (["masked"] if gain != 1 else []), str(found)


@pytest.mark.parametrize("wrong", [{}, {"gain": 2.0, "shift": 1.0}])
def test_a_stand_in_is_given_the_ports_mask_of_numbers_as_truth_values(wrong):
    """The reference's module takes nothing else: without, nothing could be said of what surrounds the port's."""
    found = audit(lambda: OwnMasks(masked=CastMasked, **wrong), Masks, inputs="tests.test_strangers_forms:masked_samples")
    assert [one.place for one in found.mistakes] == (["masked", "OwnMasks.forward"] if wrong else []), str(found)


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 6)

    def forward(self, x):
        y = self.fc(x)
        return torch.tanh(y) @ y.transpose(1, 2)


class OwnProduct(paddle.nn.Layer):
    def __init__(self, turned):
        super().__init__()
        self.fc, self.turned = paddle.nn.Linear(8, 6), turned

    def forward(self, x):
        y = self.fc(x)
        return paddle.matmul(paddle.tanh(y), y, transpose_y=self.turned)


def test_a_product_that_raises_is_the_ports_mistake():
    assert localize(OwnProduct(True), Product(), X, weights=False).first is None
    found = localize(OwnProduct(False), Product(), X, weights=False).first
    assert found is not None and "transpose" in found.hint, found
