"""Mistakes of an attention, of a norm and of what is returned that are named by the calls between two values of both sides."""

from pathlib import Path

import numpy as np
import paddle
import pytest
import torch
from paddle.nn import functional as PF
from torch import nn
from torch.nn import functional as F

from alignment.localize import localize

RNG = np.random.default_rng(0)
ANGLES = RNG.uniform(0.1, 1.4, (8, 4))
GIVEN = [RNG.standard_normal(shape) for shape in ((2, 4, 5, 8), (2, 2, 3, 8), (2, 2, 5, 8), (2, 2, 8, 8))]
ATTENTION = *GIVEN, np.cos(ANGLES), np.sin(ANGLES)


class Attention(nn.Module):
    """Five queries behind three keys of a cache, two heads of keys for four of queries, rotary positions."""

    def turned(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, q, past, k, v, cos, sin):
        q, k = self.turned(q, cos[3:], sin[3:]), torch.cat([past, self.turned(k, cos[3:], sin[3:])], 2)
        cache = torch.stack([k, v], 1)
        k, v = (x[:, :, None].expand(2, 2, 2, 8, 8).reshape(2, 4, 8, 8) for x in (k, v))
        mask = torch.ones(5, 8, dtype=torch.bool).tril(diagonal=3)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), cache


class OwnAttention(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.wrong = wrong

    def turned(self, x, cos, sin):
        a, b = (x[..., 0::2], x[..., 1::2]) if self.wrong == "alternate" else paddle.chunk(x, 2, axis=-1)
        return paddle.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def forward(self, q, past, k, v, cos, sin):
        plain = paddle.concat([past, k], axis=2)
        q, k = self.turned(q, cos[3:], sin[3:]), paddle.concat([past, self.turned(k, cos[3:], sin[3:])], axis=2)
        cache = paddle.stack([plain if self.wrong == "cache" else k, v], axis=1)
        if self.wrong == "tile":
            k = paddle.tile(k, [1, 2, 1, 1])
            v = paddle.tile(v, [1, 2, 1, 1])
        else:
            k = paddle.repeat_interleave(k, 2, axis=1)
            v = paddle.repeat_interleave(v, 2, axis=1)
        scores = paddle.matmul(q, k, transpose_y=True) * (32 if self.wrong == "scale" else 8) ** -0.5
        later = paddle.triu(paddle.full([5, 8], -1e9, dtype=q.dtype), diagonal=1 if self.wrong == "diagonal" else 4)
        return paddle.matmul(PF.softmax(scores + later, axis=-1), v), cache


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 36)

    def forward(self, x):
        q, k, v = self.fc(x).reshape(*x.shape[:3], 3, 4, 3).permute(3, 0, 1, 4, 2, 5)
        return F.scaled_dot_product_attention(q, k, v).transpose(2, 3).flatten(3)


class OwnHeads(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.fc, self.heads = paddle.nn.Linear(12, 36), 3 if wrong == "heads" else 4

    def split(self, x):
        return x.reshape([*x.shape[:3], self.heads, 12 // self.heads]).transpose([0, 1, 3, 2, 4])

    def forward(self, x):
        q, k, v = (self.split(one) for one in paddle.split(self.fc(x), 3, axis=-1))
        weights = PF.softmax(paddle.matmul(q, k, transpose_y=True) * (12 // self.heads) ** -0.5, axis=-1)
        return (weights @ v).transpose([0, 1, 3, 2, 4]).flatten(3)


class Shares(nn.Module):
    """The two largest shares of each row, made to add up to 1, and the numbers that they stand for."""

    def forward(self, x, table):
        most, place = torch.topk(torch.softmax(F.softplus(x), -1), 2, dim=-1)
        most = most / most.sum(-1, keepdim=True)
        return (table[place] * most[..., None]).sum(-2)


class OwnShares(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.wrong = wrong

    def forward(self, x, table):
        soft = PF.softplus(x, beta=2) if self.wrong == "beta" else PF.softplus(x)
        most, place = paddle.topk(PF.softmax(soft, axis=-1), 2, axis=-1)
        if self.wrong != "shares":
            most = most / most.sum(axis=-1, keepdim=True)
        chosen = paddle.gather(table, place.flatten()).reshape([*place.shape, table.shape[-1]])
        return paddle.einsum("...k,...kd->...d", most, chosen)


class Response(nn.Module):
    """A gate that is the norm of each channel over the mean of all."""

    def forward(self, x):
        norm = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        return x * (norm / (norm.mean(-1, keepdim=True) + 1e-6))


class OwnResponse(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.axes = {"exchanged": (-1, [1, 2]), "batch": ([0, 1, 2], -1)}.get(wrong, ([1, 2], -1))

    def forward(self, x):
        norm = paddle.sqrt(paddle.sum(x * x, axis=self.axes[0], keepdim=True))
        return x * (norm / (norm.mean(axis=self.axes[1], keepdim=True) + 1e-6))


class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        x = torch.tanh(self.block(self.stem(x)))
        return self.norm(x.permute(0, 3, 1, 2).mean([-2, -1])), x


class OwnMaps(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.stem, self.block, self.norm = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 6), paddle.nn.LayerNorm(6)
        self.wrong = wrong

    def forward(self, x):
        x = early = self.stem(x)
        x = paddle.tanh(self.block(x))
        pooled = self.norm(x).mean(axis=[1, 2]) if self.wrong == "pooled" else self.norm(x.mean(axis=[1, 2]))
        return pooled, early if self.wrong == "early" else x


class Frames(nn.Module):
    """The channels before the bands, every fourth frame; the frames times 2, and the mask of those that are kept."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x, mask):
        x = 2 * self.fc(x.permute(0, 2, 1, 3).flatten(2))
        return x[:, :-2:2][:, :-2:2], mask[:, None][:, :, :-2:2][:, :, :-2:2].clone()


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = Frames()

    def forward(self, x, mask):
        x, mask = self.frames(x, mask)
        there = torch.arange(0, x.shape[1], dtype=x.dtype)
        waves = torch.cat([torch.sin(there).flip(0), torch.sin(-there)[1:]])
        return (x * mask.transpose(1, 2)).mean(1)[:, None] * waves[:, None]


class OwnFrames(paddle.nn.Layer):
    def __init__(self, wrong):
        super().__init__()
        self.fc, self.wrong = paddle.nn.Linear(12, 12), wrong

    def forward(self, x, mask):
        wrong = self.wrong == "slice"
        mask = mask[:, 2::2] if wrong else mask[:, :-2:2]
        mask = mask[:, 2::2] if wrong else mask[:, :-2:2]
        return self.fc(x.transpose([0, 2, 1, 3]).flatten(2))[:, :-2:2][:, :-2:2], mask


class OwnSpeech(paddle.nn.Layer):
    def __init__(self, wrong=""):
        super().__init__()
        self.frames, self.wrong = OwnFrames(wrong), wrong

    def forward(self, x, mask):
        x, mask = self.frames(x, mask)
        count, late = x.shape[1], int(self.wrong == "position")
        waves = paddle.sin(paddle.arange(count - 1 + late, late - count, -1).astype(x.dtype))
        return (2 * x * mask.unsqueeze(-1)).mean(axis=1).unsqueeze(1) * waves.unsqueeze(-1)


PICTURES = (RNG.standard_normal((2, 3, 4, 6)),)
WIDE = (RNG.standard_normal((2, 3, 5, 12)),)
TABLE = RNG.standard_normal((4, 6)), RNG.standard_normal((6, 3))
PAIRS = {
    OwnShares: (Shares, TABLE),
    OwnAttention: (Attention, ATTENTION),
    OwnHeads: (Heads, WIDE),
    OwnResponse: (Response, PICTURES),
    OwnMaps: (Maps, PICTURES),
    OwnSpeech: (Speech, (RNG.standard_normal((3, 3, 23, 4)), RNG.standard_normal((3, 23)))),
}
# Port, what is wrong in it -> kind, words, and what stands in the line.
MISTAKES = {
    (OwnAttention, "tile"): ("other_function", "repeated in turn (0, 1, 0, 1), expected each beside itself (0, 0, 1, 1)", "tile(k"),
    (OwnAttention, "alternate"): ("operand", "the parts along axis 3 are every other value, expected halves", "0::2"),
    (OwnAttention, "diagonal"): ("call_argument", "triu diagonal 1, expected 4, for 5 rows and 8 columns", "triu"),
    (OwnAttention, "scale"): ("attention_scale", "* 0.176777, expected 0.353553, of the root of 8", "scores ="),
    (OwnAttention, "cache"): ("operand", "stack takes concat in line", "stack"),
    (OwnShares, "beta"): ("call_argument", "softplus beta 2, expected 1", "beta=2"),
    (OwnShares, "shares"): ("call_missing", "sum(axis=-1), / (part 1/2 of topk in line", "topk"),
    (OwnHeads, "heads"): ("heads", "reshape makes 3 heads of 4 values, expected 4 of 3", "x.reshape"),
    (OwnResponse, "exchanged"): ("call_argument", "sum over axis 3 and mean over [1, 2], expected the other way round", "sum("),
    (OwnResponse, "batch"): ("call_argument", "sum axis [0, 1, 2], expected [1, 2]", "sum("),
    (OwnMaps, "early"): ("operand", "output 2 is stem in line", "block(x)"),
    (OwnSpeech, "slice"): ("call_argument", "getitem [:, 2::2], expected getitem [:, 0:-2:2]", "[:, 2::2]"),
    (OwnSpeech, "position"): ("call_argument", "the values of arange(start=5, end=-4, step=-1) are 1 too large", "paddle.arange"),
    (OwnMaps, "pooled"): ("call_order", "the layer norm and mean(axis=[1, 2]) in this order, expected mean(", "norm(x).mean"),
}  # fmt: skip
SOURCE = Path(__file__).read_text().splitlines()


def found(port, reference, given):
    return localize(port, reference, given, weights=False, backward=False).first


@pytest.mark.parametrize("port", PAIRS, ids=lambda port: port.__name__)
def test_the_sound_port_is_silent(port):
    reference, given = PAIRS[port]
    assert found(port(), reference(), given) is None


@pytest.mark.parametrize(("port", "wrong"), MISTAKES, ids=[wrong for _, wrong in MISTAKES])
def test_a_mistake_is_named_and_placed(port, wrong):
    (reference, given), (kind, words, line) = PAIRS[port], MISTAKES[port, wrong]
    first = found(port(wrong), reference(), given)
    assert first is not None and first.kind == kind and words in first.hint, first
    assert line in SOURCE[int(first.source.rpartition("-")[2].rpartition(":")[2]) - 1], first
