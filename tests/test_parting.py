"""Where the calls of two forwards part that are written otherwise, what is tried there first names more."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn

from alignment.localize import localize


def found(ours, theirs, *inputs):
    return localize(ours, theirs, inputs, weights=False, backward=False).first


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape)


class Grouped(torch.nn.Module):
    """An attention whose keys are repeated for the heads of a group; where all is hidden, the mask lets the scores through."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.out = torch.nn.Linear(24, 24), torch.nn.Linear(24, 12), torch.nn.Linear(24, 24)

    def forward(self, x, keep):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 6, 4).transpose(1, 2)
        k = self.k(x).view(b, t, 3, 4).transpose(1, 2)
        k = k[:, :, None].expand(b, 3, 2, t, 4).reshape(b, 6, t, 4)
        allowed = (keep[:, None, None, :] > 0) & torch.ones(t, t, dtype=torch.bool).tril()
        scores = q @ k.transpose(2, 3) + torch.zeros(allowed.shape, dtype=q.dtype).masked_fill(~allowed, -1e9)
        return self.out((torch.softmax(scores, -1) @ k).transpose(1, 2).reshape(b, t, 24))


class GroupedOurs(nn.Layer):
    """The same by einsum."""

    def __init__(self, wrong=""):
        super().__init__()
        self.q, self.k, self.out, self.wrong = nn.Linear(24, 24), nn.Linear(24, 12), nn.Linear(24, 24), wrong

    def forward(self, x, keep):
        b, t, _ = x.shape
        k = self.k(x).reshape([b, t, 3, 4])
        shape = [b, 1, 1, t, 1] if self.wrong == "mask" else [b, 1, 1, 1, t]
        seen = (keep > 0).reshape(shape) & paddle.ones([t, t]).tril().astype("bool").reshape([1, 1, 1, t, t])
        if self.wrong == "groups":
            q = self.q(x).reshape([b, t, 2, 3, 4])
            scores = paddle.einsum("btgkd,bskd->bkgts", q, k)
        else:
            q = self.q(x).reshape([b, t, 3, 2, 4])
            scores = paddle.einsum("btkgd,bskd->bkgts", q, k)
        shares = F.softmax(paddle.where(seen, scores, paddle.full_like(scores, -1e9)), -1)
        out = paddle.einsum("bkgts,bskd->btgkd" if self.wrong == "groups" else "bkgts,bskd->btkgd", shares, k)
        return self.out(out.reshape([b, t, 24]))


@pytest.mark.parametrize(("wrong", "words"), [
    ("", ""),
    ("groups", "splits 6 parts as [[0, 1, 2], [3, 4, 5]], expected [[0, 2, 4], [1, 3, 5]], and joined likewise in line"),
    ("mask", "reshape to [2, 1, 1, 5, 1], expected [2, 1, 1, 1, 5]: along axis 4, not 3"),
])  # fmt: skip
def test_parts_that_are_laid_out_along_another_axis_are_named(wrong, words):
    keep = np.ones((2, 5))
    keep[0, 3:] = keep[1, 4:] = 0
    first = found(GroupedOurs(wrong), Grouped(), numbers(2, 5, 24), keep)
    assert (first is None) is (not words) and words in (first.hint if first else ""), first.line()


class Balance(torch.nn.Module):
    """The share of tokens of each expert, times the mean of the experts' weights."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(8, 6)

    def forward(self, x, keep):
        shares, keep = torch.softmax(self.gate(x.reshape(-1, 8)), -1), keep.reshape(-1, 1)
        chosen = torch.nn.functional.one_hot(shares.topk(3, -1)[1], 6).to(x.dtype)
        return 6 * ((chosen * keep[..., None]).sum(0) / keep.sum() * (shares * keep).sum(0)[None] / keep.sum()).sum()


class BalanceOurs(nn.Layer):
    def __init__(self, wrong):
        super().__init__()
        self.gate, self.wrong = nn.Linear(8, 6), wrong

    def forward(self, x, keep):
        shares, count = F.softmax(self.gate(x), -1), keep.sum()
        chosen = F.one_hot(shares.topk(3, -1)[1], 6)
        chosen = chosen.mean(axis=2) if self.wrong else chosen.sum(axis=2)
        load, share = (paddle.einsum("bte,bt->e", one, keep) / count for one in (chosen.astype(x.dtype), shares))
        return 6 * paddle.dot(load, share)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_mean_in_place_of_a_sum_is_named(wrong):
    keep = np.ones((2, 5))
    keep[0, 3:] = 0
    first = found(BalanceOurs(wrong), Balance(), numbers(2, 5, 8), keep)
    assert (first is not None) is wrong and (not wrong or "mean over axis 2, expected sum" in first.hint), first.line()


class Causal(torch.nn.Module):
    """Convolutions of several strides, padded before by reflection, and a recurrence beside which the input goes on."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv1d(4, 4, 2 * step, stride=step) for step in (2, 3)])
        self.rnn = torch.nn.GRU(4, 4)

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(torch.nn.functional.pad(x, (conv.stride[0], 0), mode="reflect")))
        turned = x.permute(2, 0, 1)
        x = (self.rnn(turned)[0] + turned).permute(0, 2, 1)
        one, other = (part.clamp(min=1e-3).square().log10() for part in (x.cos().abs(), x.sin().abs()))
        return (one - other).abs().mean(0).T


class Reflected(nn.Layer):
    def __init__(self, step, edge):
        super().__init__()
        self.conv, self.step, self.edge = nn.Conv1D(4, 4, 2 * step, stride=step), step, edge

    def forward(self, x):
        first = 0 if self.edge else 1
        head = paddle.flip(x[:, :, first : self.step + first], axis=[2])
        return F.relu(self.conv(paddle.concat([head, x], axis=2)))


class Recurrent(nn.Layer):
    def __init__(self, wrong):
        super().__init__()
        self.rnn, self.wrong = nn.GRU(4, 4), wrong

    def forward(self, x):
        out = paddle.transpose(self.rnn(paddle.transpose(x, [0, 2, 1]))[0], [0, 2, 1])
        return out if self.wrong else out + x


class CausalOurs(nn.Layer):
    def __init__(self, wrong):
        super().__init__()
        self.convs = nn.LayerList([Reflected(step, wrong == "edge") for step in (2, 3)])
        self.rnn, self.wrong = Recurrent(wrong == "skip"), wrong

    def forward(self, x):
        for conv in self.convs:
            x = conv(x)
        x = self.rnn(x)
        one, other = paddle.abs(paddle.cos(x)), paddle.abs(paddle.sin(x))
        one, other = paddle.log10(paddle.clip(one, min=1e-3)), paddle.log10(paddle.clip(other, min=1e-3))
        apart = paddle.abs(one - other).mean(axis=-1)
        return apart if self.wrong == "factor" else 2 * apart


@pytest.mark.parametrize(("wrong", "words"), [
    ("", ""),
    ("edge", "getitem [:, :, 0:2], expected getitem [:, :, 1:3]"),
    ("skip", "+ relu in line 132 is missing behind rnn"),
    ("factor", "square is missing behind clip, and likewise in the line's other calls"),
])  # fmt: skip
def test_a_head_of_another_sample_a_shortcut_and_a_factor_are_named(wrong, words):
    first = found(CausalOurs(wrong), Causal(), numbers(2, 4, 36))
    assert (first is None) is (not words) and words in (first.hint if first else ""), first.line()


class InGroups(torch.nn.Module):
    """A norm of gated values within two groups of channels."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))

    def forward(self, x, z):
        x = (x * torch.nn.functional.silu(z)).view(*x.shape[:-1], 2, -1)
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)).reshape(z.shape) * self.weight


class InGroupsOurs(nn.Layer):
    def __init__(self, groups):
        super().__init__()
        self.weight, self.groups = self.create_parameter([8], default_initializer=nn.initializer.Constant(1.0)), groups

    def forward(self, x, z):
        x = x * F.silu(z)
        if self.groups:
            parts = x.reshape([*x.shape[:-1], 2, 4])
            x = (parts * paddle.rsqrt(parts.pow(2).mean(axis=-1, keepdim=True) + 1e-5)).flatten(-2)
        else:
            x = x * paddle.rsqrt(x.pow(2).mean(axis=-1, keepdim=True) + 1e-5)
        return x * self.weight


@pytest.mark.parametrize("groups", [True, False])
def test_a_mean_over_more_values_says_so(groups):
    first = found(InGroupsOurs(groups), InGroups(), numbers(3, 5, 8), numbers(5, 3, 8).swapaxes(0, 1))
    assert (first is None) is groups and (groups or "mean over 8 values, expected over 4" in first.hint), first.line()


class Hierarchy(torch.nn.Module):
    """Parts of the channels, each through a layer of its own, the last one pooled."""

    def __init__(self):
        super().__init__()
        self.wide, self.layers = (
            torch.nn.Conv2d(6, 16, 1),
            torch.nn.ModuleList(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)),
        )
        self.pool, self.narrow = torch.nn.AvgPool2d(3, 1, 1), torch.nn.Conv2d(16, 6, 1)

    def forward(self, x):
        parts = torch.split(self.wide(x), 4, 1)
        made = [torch.relu(layer(part)) for layer, part in zip(self.layers, parts, strict=False)]
        return self.narrow(torch.cat([*made, self.pool(parts[-1])], 1)) + x


class HierarchyOurs(nn.Layer):
    def __init__(self, adds=True):
        super().__init__()
        self.wide, self.layers = nn.Conv2D(6, 16, 1), nn.LayerList([nn.Conv2D(4, 4, 3, padding=1) for _ in range(3)])
        self.narrow, self.adds = nn.Conv2D(16, 6, 1), adds

    def forward(self, x):
        parts, made = paddle.split(self.wide(x), 4, 1), []
        for layer, part in zip(self.layers, parts, strict=False):
            given = paddle.add(part, made[-1]) if self.adds and made else part
            made.append(F.relu(layer(given)))
        last = parts[-1] if self.adds else F.avg_pool2d(parts[-1], 3, 1, 1, exclusive=False)
        return self.narrow(paddle.concat([*made, last], 1)) + x


@pytest.mark.parametrize("adds", [True, False])
def test_three_mistakes_of_one_forward_are_found_beside_each_other(adds):
    """The orders in which four parts can be taken leave time for them: those that are taken rightly keep their places."""
    first = found(HierarchyOurs(adds), Hierarchy(), numbers(2, 6, 9, 9))
    assert (first is not None) is adds, first
    for words in ("+ is superfluous: expected part 2/4", "avg_pool2d is missing between split and concat") if adds else ():
        assert words in first.hint, first.line()
