"""Modules at two paths, masks of what is valid, the sequence before the batch: sound ports pass, and what is wrong is named."""

import json

import numpy as np
import pytest

from alignment.cli import main

HEAD = """
import math
import numpy as np
import {framework}
from {framework} import nn
from {framework}.nn import functional as F
"""

# Each norm is an attribute, and a part of a Sequential; scores are far enough apart for log_softmax to saturate in Paddle.
TWICE_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm1d(12)
        self.conv1 = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), self.bn1, nn.LeakyReLU(0.2))
        self.conv2 = nn.Sequential(nn.Conv1d(8, 12, 1, bias=False), self.bn2, nn.LeakyReLU(0.2))
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        x = self.conv1(x).max(-1)[0]
        x = self.conv2(x).max(-1)[0]
        return F.log_softmax(self.fc(x) * 60, -1)
"""
TWICE = """

class Block(nn.Layer):
    def __init__(self, conv, norm):
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.2).max(-1)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = Block(nn.Conv2D(3, 8, 1, bias_attr=False), nn.BatchNorm2D(8))
        self.second = Block(nn.Conv1D(8, 12, 1, bias_attr=False), nn.BatchNorm1D(12))
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return F.log_softmax(self.head(self.second(self.first(x))) * 60)
"""

# The reference computes with the sequence before the batch, and its encoder takes a mask of the padding.
MASKED_REF = """

class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, padding):
        n, b, c = x.shape
        split = lambda y: y.reshape(n, b * self.heads, c // self.heads).transpose(0, 1)
        q, k, v = split(self.q(x) * (c // self.heads) ** -0.5), split(self.k(x)), split(self.v(x))
        scores = torch.bmm(q, k.transpose(1, 2)).view(b, self.heads, n, n)
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf")).view(b * self.heads, n, n)
        return self.out(torch.bmm(scores.softmax(-1), v).transpose(0, 1).reshape(n, b, c))


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attn, self.norm1, self.norm2 = Attention(dim, 2), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x, padding):
        x = self.norm1(x + self.attn(x, padding))
        return self.norm2(x + self.fc2(F.gelu(self.fc1(x))))


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim) for _ in range(2)])

    def forward(self, x, padding):
        x = x.masked_fill(padding.unsqueeze(-1), 0).transpose(0, 1)
        for layer in self.layers:
            x = layer(x, padding)
        return x.transpose(0, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.encoder, self.head = nn.Linear(5, 12), Encoder(12), nn.Linear(12, 3)

    def forward(self, x, lengths):
        padding = torch.arange(x.shape[1])[None, :] >= lengths[:, None]
        return self.head(self.encoder(self.embed(x), padding))
"""
MASKED = """

class Attention(nn.Layer):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, blocked):
        b, n, c = x.shape
        q, k, v = (one(x).reshape([b, n, self.heads, -1]).transpose([0, 2, 1, 3]) for one in (self.q, self.k, self.v))
        scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(c // self.heads)
        scores = paddle.where(blocked[:, None, None, :], paddle.to_tensor(-1e9, dtype=scores.dtype), scores)
        return self.out(paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3]).flatten(2))


class Layer(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.attn, self.norm1, self.norm2 = Attention(dim, 2), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, blocked):
        x = self.norm1(x + self.attn(x, blocked))
        return self.norm2(x + self.mlp(x))


class Encoder(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.LayerList([Layer(dim) for _ in range(2)])

    def forward(self, x, valid):
        x = paddle.where(valid.unsqueeze(-1), x, paddle.zeros_like(x))
        blocked = paddle.logical_not(valid)
        for layer in self.layers:
            x = layer(x, blocked)
        return x


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.encoder, self.head = nn.Linear(5, 12), Encoder(12), nn.Linear(12, 3)

    def forward(self, x, lengths):
        valid = paddle.arange(x.shape[1])[None, :] < lengths[:, None]
        return self.head(self.encoder(self.embed(x), valid))
"""

# A layer for each number in the reference, one table of all in the port; the shortcut is called first in one, last in the other.
GATED_REF = """

class Gated(nn.Module):
    def __init__(self, inputs, width, outputs, context=False):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, width), nn.Linear(width, width)
        self.context = nn.Linear(width, width, bias=False) if context else None
        self.gate, self.norm = nn.Linear(width, 2 * outputs), nn.LayerNorm(outputs)
        self.skip = nn.Linear(inputs, outputs)

    def forward(self, x, context=None):
        kept = self.skip(x)
        h = self.fc1(x)
        if context is not None:
            h = h + self.context(context)
        return self.norm(F.glu(self.gate(self.fc2(F.elu(h)))) + kept)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers = nn.ModuleList([nn.Linear(1, 8) for _ in range(3)])
        self.others = nn.ModuleList([nn.Linear(1, 8) for _ in range(2)])
        self.first, self.second = Gated(24, 8, 8), Gated(16, 8, 4, context=True)

    def forward(self, x, more):
        x = torch.stack([layer(x[:, i:i + 1]) for i, layer in enumerate(self.numbers)], 1)
        more = torch.stack([layer(more[:, i:i + 1]) for i, layer in enumerate(self.others)], 1)
        return self.second(more.flatten(1), self.first(x.flatten(1)))
"""
GATED = """

class Table(nn.Layer):
    def __init__(self, count, width):
        super().__init__()
        self.scale = self.create_parameter([count, width], default_initializer=nn.initializer.Uniform(-1.0, 1.0))
        self.shift = self.create_parameter([count, width], default_initializer=nn.initializer.Uniform(-1.0, 1.0))

    def forward(self, x):
        return x.unsqueeze(-1) * self.scale + self.shift


def dense(inputs, outputs, bias=None):
    bound = nn.initializer.Uniform(-inputs ** -0.5, inputs ** -0.5)
    return nn.Linear(inputs, outputs, bound, bound if bias is None else bias)


class Gated(nn.Layer):
    def __init__(self, inputs, width, outputs, context=False):
        super().__init__()
        self.inp, self.mid = dense(inputs, width), nn.Sequential(nn.ELU(), dense(width, width))
        self.ctx = dense(width, width, False) if context else None
        self.value, self.gate, self.ln = dense(width, outputs), dense(width, outputs), nn.LayerNorm(outputs)
        self.res = dense(inputs, outputs)

    def forward(self, x, context=None):
        h = self.inp(x)
        if context is not None:
            h = h + self.ctx(context)
        h = self.mid(h)
        return self.ln(self.value(h) * F.sigmoid(self.gate(h)) + self.res(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.table, self.more = Table(3, 8), Table(2, 8)
        self.one, self.two = Gated(24, 8, 8), Gated(16, 8, 4, context=True)

    def forward(self, x, more):
        return self.two(self.more(more).flatten(1), self.one(self.table(x).flatten(1)))
"""

# The convolution of all streams in one layer of the reference, and one of its own for each in the port; the mixes in one tensor.
STREAMS_REF = """

class Mix(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix_k, self.mix_r = (nn.Parameter(torch.rand(1, 1, dim)) for _ in range(2))
        self.key, self.receptance = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        past = F.pad(x, (0, 0, 1, -1))
        k, r = (x * mix + past * (1 - mix) for mix in (self.mix_k, self.mix_r))
        return torch.sigmoid(self.receptance(r)) * torch.relu(self.key(k)) ** 2


class Streams(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.inner = nn.Linear(dim, dim + 8, bias=False)
        self.conv = nn.Conv1d(dim + 8, dim + 8, 4, groups=dim + 8, padding=3)

    def forward(self, x):
        dim, length = x.shape[2], x.shape[1]
        made = F.silu(self.conv(self.inner(x).transpose(1, 2))[..., :length]).transpose(1, 2)
        y, b, c = made.split([dim, 4, 4], -1)
        return y * (b * c).sum(-1, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.ModuleList([Streams(8), Mix(8)]) for _ in range(2)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for streams, mix in self.blocks:
            x = x + streams(x)
            x = x + mix(x)
        return self.head(x)
"""
STREAMS = """

class Causal(nn.Layer):
    def __init__(self, channels, width=4):
        super().__init__()
        bound = nn.initializer.Uniform(-width ** -0.5, width ** -0.5)
        self.taps = self.create_parameter([width, channels], default_initializer=bound)
        self.offset = self.create_parameter([channels], default_initializer=bound)

    def forward(self, x):
        padded = F.pad(x, [self.taps.shape[0] - 1, 0], data_format="NLC")
        y = self.offset
        for place in range(self.taps.shape[0]):
            y = y + padded[:, place:place + x.shape[1]] * self.taps[place]
        return y


class Streams(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        bound = nn.initializer.Uniform(-dim ** -0.5, dim ** -0.5)
        self.to_y, self.to_b, self.to_c = (nn.Linear(dim, n, bound, bias_attr=False) for n in (dim, 4, 4))
        self.conv_y, self.conv_b, self.conv_c = Causal(dim), Causal(4), Causal(4)

    def forward(self, x):
        y = F.silu(self.conv_y(self.to_y(x)))
        b = F.silu(self.conv_b(self.to_b(x)))
        c = F.silu(self.conv_c(self.to_c(x)))
        return y * (b * c).sum(-1, keepdim=True)


class Mix(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.mix = self.create_parameter([2, dim], default_initializer=nn.initializer.Uniform(0.0, 1.0))
        bound = nn.initializer.Uniform(-dim ** -0.5, dim ** -0.5)
        self.up, self.gate = (nn.Linear(dim, dim, bound, bias_attr=False) for _ in range(2))

    def forward(self, x):
        past = F.pad(x[:, :-1], [1, 0], data_format="NLC")
        up, gate = (past + (x - past) * mix for mix in self.mix.unbind(0))
        return F.sigmoid(self.gate(gate)) * F.relu(self.up(up)) ** 2


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[part(8) for _ in range(2) for part in (Streams, Mix)])
        bound = nn.initializer.Uniform(-8 ** -0.5, 8 ** -0.5)
        self.head = nn.Linear(8, 3, bound, bound)

    def forward(self, x):
        for part in self.body:
            x = x + part(x)
        return self.head(x)
"""
# A branch behind a gate of zeros is given the array that the attention was given; names end as those of a weight norm do.
GATES_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix_v, self.mix_g, self.mix_x = (nn.Parameter(torch.linspace(*ends, 8).view(1, 1, 8)) for ends in ENDS)
        self.qkv, self.out, self.up, self.down = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 24), nn.Linear(24, 8)
        self.gate = nn.Parameter(torch.zeros(8))
        self.q_norm, self.k_norm = nn.LayerNorm(4), nn.LayerNorm(4)

    def forward(self, x):
        x = x * self.mix_x
        x = torch.stack([x + self.mix_v, x + self.mix_g]).prod(0)
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = self.q_norm(q) @ self.k_norm(k).transpose(-1, -2) / 2
        x = x + self.gate * self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))
""".replace("ENDS", "((0.1, 1), (0.2, 0.8), (1, 2))")
GATES = """

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        assign = nn.initializer.Assign
        line = lambda ends: np.linspace(*ends, 8).astype("float32")
        self.entry = self.create_parameter([8], default_initializer=assign(line((1, 2))))
        self.both = self.create_parameter([2, 8], default_initializer=assign(np.stack([line((0.1, 1)), line((0.2, 0.8))])))
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.proj, self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8, 24), nn.Linear(24, 8)
        self.rate = self.create_parameter([8], default_initializer=nn.initializer.Constant(0.0))
        self.ln_q, self.ln_k = nn.LayerNorm(4), nn.LayerNorm(4)

    def heads(self, y):
        return y.reshape([*y.shape[:2], 2, 4]).transpose([0, 2, 1, 3])

    def forward(self, x):
        x = x * self.entry
        x = (x + self.both[0]) * (x + self.both[1])
        q, k = self.ln_q(self.heads(self.q(x))), self.ln_k(self.heads(self.k(x)))
        weights = F.softmax(q @ k.transpose([0, 1, 3, 2]) / 2)
        x = x + self.rate * self.proj((weights @ self.heads(self.v(x))).transpose([0, 2, 1, 3]).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(x)))
"""

PAIRS = {
    "streams": (STREAMS_REF, STREAMS),
    "gated": (GATED_REF, GATED),
    "twice": (TWICE_REF, TWICE),
    "masked": (MASKED_REF, MASKED),
    "gates": (GATES_REF, GATES),
}
CASES = {
    "twice, sound": ((), []),
    "twice, momentum": (("BatchNorm2D(8)", "BatchNorm2D(8, momentum=0.1)"), [("momentum_inverted", "bn1", "")]),
    "twice, slope": (("0.2).max", "0.1).max"), [(None, None, "expected 0.2")]),
    "masked, sound": ((), []),
    "masked, gelu": (
        ("nn.GELU()", "nn.GELU(approximate=True)"),
        [("call_argument", None, "approximate True, expected False")],
    ),
    "gated, sound": ((), []),
    "gated, relu": (("nn.ELU()", "nn.ReLU()"), [(None, None, "expected elu")]),
    "gated, halves": (
        ("self.value(h) * F.sigmoid(self.gate(h))", "self.gate(h) * F.sigmoid(self.value(h)) * 2"),
        [(None, None, "")],
    ),
    "streams, sound": ((), []),
    "streams, tanh": (("F.silu(self.conv_b(", "F.tanh(self.conv_b("), [(None, "blocks.0.0", "ours.py:33")]),
    "streams, no past": (("F.pad(x[:, :-1], [1, 0]", "F.pad(x[:, 1:], [0, 1]"), [(None, None, "expected")]),
    "gates, sound": ((), []),
    "gates, scale": (("[0, 1, 3, 2]) / 2", "[0, 1, 3, 2]) / 8 ** 0.5"), [(None, None, "")]),
    "masked, all frames": (("paddle.where(valid.unsqueeze(-1), x, paddle.zeros_like(x))", "x * 1"), [(None, "encoder", "")]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_a_port_in_another_layout(case, tmp_path, capsys):
    change, wanted = CASES[case]
    reference, right = PAIRS[case.partition(",")[0]]
    port = right.replace(*change) if change else right
    assert change == () or port != right
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    rng = np.random.default_rng(0)
    given = {"twice": {"x": rng.standard_normal((4, 3, 9, 6)).astype("float32")}}
    given["gated"] = {"x": rng.standard_normal((4, 3)).astype("float32"), "more": rng.standard_normal((4, 2)).astype("float32")}
    given["gates"] = {"x": rng.standard_normal((2, 5, 8)).astype("float32")}
    given["streams"] = {"x": rng.standard_normal((2, 9, 8)).astype("float32")}
    given["masked"] = {"x": rng.standard_normal((3, 7, 5)).astype("float32"), "lengths": np.array([7, 5, 4])}
    np.savez(tmp_path / "inputs.npz", **given[case.partition(",")[0]])
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/inputs.npz")
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())
    said = capsys.readouterr().out
    assert (status, len(found["mistakes"])) == (int(bool(wanted)), len(wanted)), said
    for one, (kind, place, words) in zip(found["mistakes"], wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and place in (None, one["location"]) and words in one["hint"], one
    assert "still fails" not in said, said
    assert wanted or "0         <= 1e-05" not in said, "the reference is not compared with itself"
