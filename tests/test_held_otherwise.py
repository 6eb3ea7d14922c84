"""Correct ports that hold their layers otherwise: one for those of all blocks, a weight that is taken apart, other modules."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as PF
import pytest
import torch
from paddle import nn

from alignment import audit
from alignment.frameworks import framework
from alignment.frameworks._calls import Operation, Trace
from alignment.localize import localize
from alignment.localize.calls import aligned
from mobilenetv3_common.errors import UserError

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
TINY = 1e-3  # of inputs beside which eps counts


def by_hand(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + eps)


@pytest.mark.parametrize(("name", "computed", "axes"), [
    ("layer", lambda x: PF.layer_norm(x, [5]), (2,)),
    ("instance", lambda x: PF.instance_norm(x), (2,)),
    ("groups", lambda x: PF.group_norm(x.transpose([0, 2, 1]), 5).transpose([0, 2, 1]), (1,)),
])  # fmt: skip
def test_a_function_that_normalises_has_eps_as_it_is_given(name, computed, axes):
    """The kernels round it to float32; a layer's is rounded on both sides, or on none, a function's has no such choice."""

    class Port(nn.Layer):
        def forward(self, x):
            return computed(x)

    side, x = framework("paddle"), np.random.default_rng(0).standard_normal((3, 4, 5)) * TINY
    with side.precision("float64"):
        made = side.call(side.make_exact(Port()), (x,), {}).outputs[0]
    assert np.abs(made - by_hand(x, axes, 1e-5)).max() < 1e-13
    assert np.abs(made - by_hand(x, axes, float(np.float32(1e-5)))).max() > 1e-11


@pytest.mark.parametrize("training", [False, True])
def test_the_running_statistics_of_a_function_are_its_own(training):
    side, x = framework("paddle"), np.random.default_rng(0).standard_normal((3, 4, 5))

    class Port(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", paddle.full([4], 0.5))
            self.register_buffer("variance", paddle.full([4], 2.0))

        def forward(self, x):
            return PF.batch_norm(x, self.mean, self.variance, training=training, momentum=0.75)

    with side.precision("float64"):
        port = side.make_exact(Port())
        made = side.call(port, (x,), {}).outputs[0]
    expected = by_hand(x, (0, 2), 1e-5) if training else (x - 0.5) / np.sqrt(2.0 + 1e-5)
    assert np.abs(made - expected).max() < (1e-12 if training else 1e-13)  # the kernel that takes the batch's own rounds eps
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    kept = (0.75 * 0.5 + 0.25 * mean, 0.75 * 2.0 + 0.25 * variance) if training else (np.full(4, 0.5), np.full(4, 2.0))
    for ours, theirs in zip((port.mean, port.variance), kept, strict=True):
        assert np.abs(ours.numpy() - theirs).max() < 1e-13


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Linear(6, 2 * width))
        self.proj = torch.nn.Linear(width, width)

    def forward(self, x, c):
        shift, scale = self.modulation(c)[:, None].chunk(2, -1)
        return x + self.proj(self.norm(x) * (1 + scale) + shift)


class Modulated(torch.nn.Module):
    """Each block computes its own shift and scale from one condition."""

    def __init__(self):
        super().__init__()
        self.cond, self.blocks, self.head = (
            torch.nn.Linear(3, 6), torch.nn.ModuleList([Block(8) for _ in range(3)]), torch.nn.Conv1d(8, 1, 1),
        )  # fmt: skip

    def forward(self, x, c):
        c = self.cond(c)
        for block in self.blocks:
            x = block(x, c)
        return self.head(x.transpose(1, 2))[:, 0]


class AllAtOnce(nn.Layer):
    """One layer computes those of all blocks; the head, a convolution of one channel, is a linear layer."""

    def __init__(self, wrong=False):
        super().__init__()
        self.cond, self.all, self.wrong = nn.Linear(3, 6), nn.Linear(6, 48), wrong
        self.projs, self.head = nn.LayerList([nn.Linear(8, 8) for _ in range(3)]), nn.Linear(8, 1)

    def forward(self, x, c):
        parts = self.all(PF.silu(self.cond(c))).unsqueeze(1).chunk(6, -1)
        for number, proj in enumerate(self.projs):
            shift, scale = parts[2 * number : 2 * number + 2]
            plain = PF.layer_norm(x, [8])
            x = x + proj(plain * (scale if self.wrong else 1 + scale) + shift)
        return self.head(x)[..., 0]


@pytest.mark.parametrize("wrong", [False, True])
def test_one_layer_may_hold_those_of_all_blocks(wrong):
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, 5, 8)), rng.standard_normal((2, 3))
    first = localize(AllAtOnce(wrong), Modulated(), given, weights=False, backward=False).first
    assert (first is not None) is wrong, first
    assert first is None or ("1 +" in first.hint or "+ 1" in first.hint), first.line()


class Gated(torch.nn.Module):
    """Each unit is given its part of what one convolution makes of the speaker; its weight is taken apart into two."""

    def __init__(self):
        super().__init__()
        self.speaker = torch.nn.utils.weight_norm(torch.nn.Conv1d(3, 3 * 8, 1))
        self.units = torch.nn.ModuleList(torch.nn.Conv1d(4, 8, 3, padding=1) for _ in range(3))

    def forward(self, x, g):
        parts = self.speaker(g).chunk(3, 1)
        for unit, part in zip(self.units, parts, strict=True):
            a, b = (unit(x) + part).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return x


class Unit(nn.Layer):
    def __init__(self):
        super().__init__()
        self.speaker, self.conv = nn.utils.weight_norm(nn.Conv1D(3, 8, 1)), nn.Conv1D(4, 8, 3, padding=1)

    def forward(self, x, g):
        a, b = (self.conv(x) + self.speaker(g)).chunk(2, 1)
        return x + paddle.tanh(a) * PF.sigmoid(b)


class OneEach(nn.Layer):
    def __init__(self):
        super().__init__()
        self.units = nn.LayerList([Unit() for _ in range(3)])

    def forward(self, x, g):
        for unit in self.units:
            x = unit(x, g)
        return x


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_each_block_may_hold_its_own_part():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, 4, 5)), rng.standard_normal((2, 3, 1))
    assert localize(OneEach(), Gated(), given, weights=False, backward=False).first is None


class PackedWithBiases(torch.nn.Module):
    """An attention that packs its projections, and holds the biases of queries and values itself; the keys have none."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(6, 18, bias=False), torch.nn.Linear(6, 6)
        self.q_bias, self.v_bias = torch.nn.Parameter(torch.zeros(6)), torch.nn.Parameter(torch.zeros(6))

    def forward(self, x):
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        q, k, v = torch.nn.functional.linear(x, self.qkv.weight, bias).chunk(3, -1)
        return self.out(torch.softmax(q @ k.transpose(1, 2) / 6**0.5, -1) @ v)


class Apart(nn.Layer):
    def __init__(self, factor=1.0):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(6, 6), nn.Linear(6, 6, bias_attr=False), nn.Linear(6, 6), nn.Linear(6, 6)
        self.factor = factor

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose([0, 2, 1]) * (self.factor / 6**0.5)
        return self.out(PF.softmax(scores, -1) @ self.v(x))


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_module_may_hold_the_biases_of_its_packed_layer(factor):
    x = np.random.default_rng(0).standard_normal((2, 5, 6))
    first = localize(Apart(factor), PackedWithBiases(), (x,), weights=False, backward=False).first
    assert (first is None) is (factor == 1.0)
    assert first is None or "scale of the attention scores" in first.hint, first.line()


STEPS = 1500  # more calls than Python lets a function call itself


@pytest.mark.parametrize("agrees", [False, True])
def test_a_long_chain_of_calls_is_walked(agrees):
    """A loop over time by hand: that all is the reference's again behind it is found however long it is."""
    x = np.random.default_rng(0).standard_normal(3)
    ours = [x, *(x + 1 + number for number in range(STEPS))]
    chain = [Operation(number, "+", "+", [number], [number + 1], file="ours.py", line=1) for number in range(STEPS)]
    calls = [Operation(0, "-", "-", [0], [1]), Operation(1, "+", "+", [1], [2])]
    theirs = Trace([x, *(ours[-2:] if agrees else (x - 5, x - 7))], calls, [0], [2])
    pair = aligned(Trace(ours, chain, [0], [STEPS]), theirs)
    assert pair._heals(chain[0], {}, whatever=True) is agrees


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = torch.nn.Linear(6, 5), torch.nn.Linear(6, 7), torch.nn.Linear(12, 3)

    def forward(self, x):
        return self.out(torch.cat([torch.relu(self.one(x)), torch.tanh(self.two(x))], -1))


class Flat(nn.Layer):
    """One vector holds the numbers of two layers."""

    def __init__(self, wrong=False):
        super().__init__()
        self.flat = self.create_parameter([6 * 12 + (0 if wrong else 12)], default_initializer=nn.initializer.Normal(0, 0.3))
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        a, b = self.flat[:30].reshape([6, 5]), self.flat[30:72].reshape([6, 7])
        bias = self.flat[72:] if self.flat.shape[0] > 72 else paddle.zeros([12])
        return self.out(paddle.concat([PF.relu(x @ a + bias[:5]), paddle.tanh(x @ b + bias[5:])], -1))


def test_as_many_numbers_in_unknown_places_are_not_compared():
    with pytest.raises(
        UserError, match=r"both sides hold 123 parameters, but in other layers.*of the port: flat \(84,\)"
    ) as raised:
        audit(Flat, Experts, inputs="2x6")
    assert "\n" not in str(raised.value) and "names" in str(raised.value) and "one.weight (5, 6)" in str(raised.value)


def test_fewer_numbers_are_a_mistake():
    result = audit(lambda: Flat(wrong=True), Experts, inputs="2x6")
    assert not result.passed and any(one.kind in ("layer_missing", "layer_replaced", "layer_extra") for one in result.mistakes)


def test_a_plain_convolution_for_a_transposed_one_is_a_mistake():
    """Both hold as many numbers, which no other way to hold them explains."""
    ours = lambda: nn.Sequential(nn.Conv2D(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2D(4, 4, 3, padding=1))  # noqa: E731
    up = lambda: torch.nn.ConvTranspose2d(4, 4, 3, padding=1)  # noqa: E731
    result = audit(ours, lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), up()), inputs="2x3x8x8")
    assert not result.passed


def test_a_single_layer_in_the_place_of_another_is_a_mistake():
    """Two normalisations hold as many numbers, and are no other way to hold them."""
    ours = lambda: nn.Sequential(nn.Conv2D(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())  # noqa: E731
    theirs = lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.GroupNorm(4, 4), torch.nn.ReLU())  # noqa: E731
    assert not audit(ours, theirs, inputs="2x3x8x8").passed


class Tied(Experts):
    def __init__(self):
        super().__init__()
        self.two = self.one = torch.nn.Linear(6, 6)


class FlatTied(nn.Layer):
    def __init__(self):
        super().__init__()
        self.flat, self.out = self.create_parameter([42], default_initializer=nn.initializer.Normal(0, 0.3)), nn.Linear(12, 3)

    def forward(self, x):
        made = x @ self.flat[:36].reshape([6, 6]) + self.flat[36:]
        return self.out(paddle.concat([PF.relu(made), paddle.tanh(made)], -1))


def test_a_tensor_of_two_names_counts_once():
    with pytest.raises(UserError, match="both sides hold 81 parameters"):
        audit(FlatTied, Tied, inputs="2x6")


class Twofold(torch.nn.Module):
    """The second output alone depends on the embedding."""

    def __init__(self):
        super().__init__()
        self.fc, self.places = torch.nn.Linear(6, 6), torch.nn.Embedding(7, 6)

    def forward(self, x):
        made = self.fc(x)
        return made, torch.softmax(made / 2 + self.places(torch.arange(x.shape[1])), -1)


class OfItsWeight(nn.Layer):
    def __init__(self, by=2.0):
        super().__init__()
        self.fc, self.places, self.by = nn.Linear(6, 6), nn.Embedding(7, 6), by

    def forward(self, x):
        made = self.fc(x)
        return made, PF.softmax(made / self.by + self.places.weight[: x.shape[1]], -1)


@pytest.mark.parametrize("by", [2.0, 3.0])
def test_a_layer_whose_weight_is_used_is_not_called_less_often(by):
    first = localize(OfItsWeight(by), Twofold(), (np.random.default_rng(0).standard_normal((2, 5, 6)),), weights=False).first
    assert (first is None) is (by == 2.0), first
    assert first is None or ("called" not in first.hint and "/ 3, expected 2" in first.hint), first.line()
