"""Correct ports that write layers of the reference out, and which of several equal calls a finding is about."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as PF

from alignment import audit
from alignment.models.links import solved
from mobilenetv3_common.weights import Entry

pytestmark = pytest.mark.usefixtures("own_temporary")  # reports that are given no folder
X = np.random.default_rng(0).standard_normal((3, 5, 6)).astype("float32")


class Direction(nn.Layer):
    """One direction of an LSTM by hand: one bias where torch holds two."""

    def __init__(self, width, hidden, reverse, swapped):
        super().__init__()
        self.hidden, self.reverse, self.swapped = hidden, reverse, swapped
        self.wx, self.wh = nn.Linear(width, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias_attr=False)

    def forward(self, x):
        given, made = self.wx(x), [None] * x.shape[1]
        h = c = paddle.zeros([x.shape[0], self.hidden], dtype=x.dtype)
        for step in range(x.shape[1] - 1, -1, -1) if self.reverse else range(x.shape[1]):
            i, f, g, o = (given[:, step] + self.wh(h)).chunk(4, axis=-1)
            i, f = (f, i) if self.swapped else (i, f)
            c = PF.sigmoid(f) * c + PF.sigmoid(i) * paddle.tanh(g)
            h = PF.sigmoid(o) * paddle.tanh(c)
            made[step] = h
        return paddle.stack(made, axis=1)


class ByHand(nn.Layer):
    def __init__(self, hidden=6, swapped=False):
        super().__init__()
        self.there, self.back = Direction(6, hidden, False, swapped), Direction(6, hidden, True, swapped)
        self.head = nn.Linear(2 * hidden, 3)

    def forward(self, x):
        return self.head(paddle.concat([self.there(x), self.back(x)], axis=-1))


class Recurrent(torch.nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.rnn = torch.nn.LSTM(6, hidden, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(2 * hidden, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


@pytest.mark.parametrize("hidden", [4, 6])
def test_both_directions_of_a_recurrent_layer_may_be_written_out_with_one_bias_each(hidden):
    assert audit(lambda: ByHand(hidden), lambda: Recurrent(hidden), inputs=X).passed
    assert not audit(lambda: ByHand(hidden, swapped=True), lambda: Recurrent(hidden), inputs=X, budget=20).passed


def test_vectors_are_added_up_in_pairs_of_one_length_alone():
    entry = lambda name, *shape: Entry(name, name, shape, False)  # noqa: E731
    two = [entry("a", 8), entry("b", 8)]
    assert solved(two, [entry("c", 8)]) == [(("a", "b"), ("c",), True)]
    assert solved([*two, entry("d", 4), entry("e", 4)], [entry("c", 8), entry("f", 4)]) == [
        (("a", "b"), ("c",), True), (("d", "e"), ("f",), True)
    ]  # fmt: skip
    assert solved([entry("c", 8)], two) == [(("c",), ("a", "b"), True)]
    assert solved([*two, entry("d", 8)], [entry("c", 8)]) is None
    assert solved([*two, entry("d", 4)], [entry("c", 8), entry("f", 2)]) is None


class Normalised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.out, self.last = (
            torch.nn.Linear(6, 8),
            torch.nn.LayerNorm(8),
            torch.nn.Linear(8, 8),
            torch.nn.BatchNorm1d(8),
        )

    def forward(self, x):
        return self.last(self.out(self.norm(self.fc(x))).mean(1))


class Norm(nn.Layer):
    def __init__(self, width, eps):
        super().__init__()
        self.gain = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.shift, self.eps = self.create_parameter([width], is_bias=True), eps

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / paddle.sqrt((centred * centred).mean(-1, keepdim=True) + self.eps) * self.gain + self.shift


class NormalisedByHand(nn.Layer):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.fc, self.norms, self.out, self.last = nn.Linear(6, 8), nn.LayerList([Norm(8, eps)]), nn.Linear(8, 8), nn.BatchNorm1D(8)

    def forward(self, x):
        return self.last(self.out(self.norms[0](self.fc(x))).mean(1))


def test_eps_of_a_layer_that_is_written_out_is_chosen_beside_a_batch_normalisation(monkeypatch):
    """The pass in training mode moves the statistics of one side, and must not hide which rounding of eps fits."""
    from alignment.models import rounding

    chosen = []
    choose = rounding.choose
    monkeypatch.setattr(rounding, "choose", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    assert audit(NormalisedByHand, Normalised, inputs=X).passed
    assert any(choice.get("norm") == {False: False, True: False} for _, choice in chosen)
    assert not audit(lambda: NormalisedByHand(1e-3), Normalised, inputs=X, budget=20).passed


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.packed = torch.nn.Linear(6, 6), torch.nn.Linear(6, 18, bias=False)

    def forward(self, x):
        x = self.embed(x)
        a, b, c = self.packed(torch.tanh(x)).chunk(3, -1)
        return x + torch.stack([torch.tanh(a[:, step]) * b[:, step] + c[:, step].exp() for step in range(5)], 1)


class Port(nn.Layer):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.block = nn.Linear(6, 6), kind()

    def forward(self, x):
        x = self.embed(x)
        return self.block(x)


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(6, 6, bias_attr=False) for _ in range(3))

    def forward(self, x):
        y = PF.tanh(x)
        a, b, c = self.a(y), self.b(y), self.c(y)
        made = []
        for step in range(5):
            made.append(paddle.tanh(a[:, step]) * b[:, step] + paddle.exp(self.of(b, c)[:, step]))
        return self.beside(x, y) + paddle.stack(made, 1)

    def of(self, b, c):
        return c

    def beside(self, x, y):
        return x


class Other(Block):
    def of(self, b, c):
        return b


class Residual(Block):
    def beside(self, x, y):
        return y


def test_two_values_that_one_line_makes_in_one_way_are_told_apart():
    assert audit(lambda: Port(Block), Gated, inputs=X).passed
    found = audit(lambda: Port(Other), Gated, inputs=X, budget=30, training=False).mistakes
    assert any("(call 2 of 3 there), expected linear" in one.words and "(call 3 of 3 there)" in one.words for one in found)


def test_what_is_made_in_a_call_is_not_handed_over_to_it():
    found = audit(lambda: Port(Residual), Gated, inputs=X, budget=30, training=False).mistakes
    first, last = (method.__code__.co_firstlineno for method in (Block.forward, Block.of))
    assert [first < int(one.source.rpartition(":")[2].partition("-")[0]) < last for one in found] == [True]
