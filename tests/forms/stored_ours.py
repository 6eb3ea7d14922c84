"""Ports of ``stored_theirs``: each is right, and holds the weights with other axes."""

import math

import paddle
from paddle import nn
from paddle.nn import functional as F


def tensor(layer, *shape, value=None):
    made = None if value is None else nn.initializer.Constant(value)
    return layer.create_parameter(list(shape), default_initializer=made)


def taps(x):
    """The tokens before, here and behind."""
    zeros = paddle.zeros_like(x[:, :1])
    x = paddle.concat([zeros, x, zeros], 1)
    return [x[:, i : i + x.shape[1] - 2] for i in range(3)]


class ByTap(nn.Layer):
    """Two convolutions as products, a tap at a time."""

    def __init__(self):
        super().__init__()
        self.taps, self.tap_bias = tensor(self, 3, 16, 16), tensor(self, 16, value=0.0)
        self.depth, self.depth_bias = tensor(self, 3, 16), tensor(self, 16, value=0.0)

    def forward(self, x):
        h = sum(x @ w for x, w in zip(taps(x), self.taps, strict=True)) + self.tap_bias
        h = F.gelu(h)
        return sum(x * w for x, w in zip(taps(h), self.depth, strict=True)) + self.depth_bias


class ByHead(nn.Layer):
    """A block whose projections lie by head, queries, keys and values in one tensor, and gate and up in one."""

    def __init__(self):
        super().__init__()
        self.scale1, self.shift1 = tensor(self, 16, value=1.0), tensor(self, 16, value=0.0)
        self.qkv, self.qkv_bias = tensor(self, 16, 4, 3, 4), tensor(self, 4, 3, 4, value=0.0)
        self.out, self.out_bias = tensor(self, 4, 4, 16), tensor(self, 16, value=0.0)
        self.scale2, self.shift2 = tensor(self, 16, value=1.0), tensor(self, 16, value=0.0)
        self.wide, self.wide_bias = tensor(self, 16, 2, 24), tensor(self, 2, 24, value=0.0)
        self.narrow, self.narrow_bias = tensor(self, 24, 16), tensor(self, 16, value=0.0)

    def forward(self, x):
        y = F.layer_norm(x, [16], self.scale1, self.shift1)
        z = paddle.einsum("btc,chkd->bkhtd", y, self.qkv) + self.qkv_bias.transpose([1, 0, 2]).unsqueeze(2)
        q, k, v = z[:, 0], z[:, 1], z[:, 2]
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) / math.sqrt(4), -1) @ v
        x = x + paddle.einsum("bhtd,hdc->btc", a, self.out) + self.out_bias
        y = F.layer_norm(x, [16], self.scale2, self.shift2)
        z = paddle.einsum("btc,ckd->bktd", y, self.wide) + self.wide_bias.unsqueeze(1)
        return x + (F.silu(z[:, 0]) * z[:, 1]) @ self.narrow + self.narrow_bias


class Layers(nn.Layer):
    def __init__(self, depth=2):
        super().__init__()
        self.table = tensor(self, 16, 11)
        self.mix = ByTap()
        self.blocks = nn.LayerList([ByHead() for _ in range(depth)])
        self.scale, self.shift = tensor(self, 16, value=1.0), tensor(self, 16, value=0.0)
        self.out = tensor(self, 11, 16)

    def forward(self, x):
        h = F.embedding(x, self.table.t())
        h = h + self.mix(h)
        for block in self.blocks:
            h = block(h)
        return F.layer_norm(h, [16], self.scale, self.shift) @ self.out.t()


class Stacked(nn.Layer):
    """The blocks' tensors are stacked, one block behind another, as a scan over layers holds them."""

    def __init__(self, depth=2):
        super().__init__()
        self.depth = depth
        self.embed, self.conv, self.dw = (
            nn.Embedding(11, 16),
            nn.Conv1D(16, 16, 3, padding=1),
            nn.Conv1D(16, 16, 3, padding=1, groups=16),
        )
        self.q, self.k, self.v, self.o = (tensor(self, depth, 16, 16) for _ in range(4))
        self.qb, self.kb, self.vb, self.ob = (tensor(self, depth, 16, value=0.0) for _ in range(4))
        self.g1, self.s1 = tensor(self, depth, 16, value=1.0), tensor(self, depth, 16, value=0.0)
        self.g2, self.s2 = tensor(self, depth, 16, value=1.0), tensor(self, depth, 16, value=0.0)
        self.gate, self.up, self.down = tensor(self, depth, 16, 24), tensor(self, depth, 16, 24), tensor(self, depth, 24, 16)
        self.gb, self.ub, self.db = (tensor(self, depth, n, value=0.0) for n in (24, 24, 16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11, bias_attr=False)

    def forward(self, x):
        h = self.embed(x)
        h = h + self.dw(F.gelu(self.conv(h.transpose([0, 2, 1])))).transpose([0, 2, 1])
        for i in range(self.depth):
            y = F.layer_norm(h, [16], self.g1[i], self.s1[i])
            q, k, v = (
                (y @ w[i] + b[i]).reshape([*y.shape[:2], 4, 4]).transpose([0, 2, 1, 3])
                for w, b in ((self.q, self.qb), (self.k, self.kb), (self.v, self.vb))
            )
            a = F.softmax(q @ k.transpose([0, 1, 3, 2]) * 0.5, -1) @ v
            h = h + a.transpose([0, 2, 1, 3]).flatten(2) @ self.o[i] + self.ob[i]
            y = F.layer_norm(h, [16], self.g2[i], self.s2[i])
            h = h + (F.silu(y @ self.gate[i] + self.gb[i]) * (y @ self.up[i] + self.ub[i])) @ self.down[i] + self.db[i]
        return self.head(self.norm(h))


class Own(nn.Layer):
    """Layers, where the reference has tensors of its own."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 16, 4, 4)
        self.norm = nn.LayerNorm(16)
        self.q, self.k, self.v = (nn.Linear(16, 16, bias_attr=False) for _ in range(3))
        self.o, self.fc = nn.Linear(16, 16, bias_attr=False), nn.Linear(16, 5, bias_attr=False)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose([0, 2, 1])
        y = self.norm(x)
        q, k, v = (one(y).reshape([*y.shape[:2], 2, 8]).transpose([0, 2, 1, 3]) for one in (self.q, self.k, self.v))
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) / math.sqrt(8), -1) @ v
        return self.fc((x + self.o(a.transpose([0, 2, 1, 3]).flatten(2))).mean(1))


def rms(x, gain):
    return x / paddle.sqrt(paddle.mean(x * x, -1, keepdim=True) + 1e-6) * gain


class Piece(nn.Layer):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (tensor(self, 16, 16) for _ in range(4))

    def forward(self, h):
        q, k, v = ((h @ w).reshape([*h.shape[:2], 4, 4]).transpose([0, 2, 1, 3]) for w in (self.wq, self.wk, self.wv))
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) / 2, -1) @ v
        return a.transpose([0, 2, 1, 3]).flatten(2) @ self.wo


class Split(nn.Layer):
    """Queries, keys and values apart, every gain by itself: nothing is a layer of the framework."""

    def __init__(self):
        super().__init__()
        self.table, self.last = tensor(self, 11, 16), tensor(self, 16, value=1.0)
        self.pieces = nn.LayerList([Piece() for _ in range(2)])
        self.g1 = nn.ParameterList([tensor(self, 16, value=1.0) for _ in range(2)])
        self.g2 = nn.ParameterList([tensor(self, 16, value=1.0) for _ in range(2)])
        self.gamma = nn.ParameterList([tensor(self, 16, value=0.5) for _ in range(2)])
        self.mix = nn.ParameterList([tensor(self, 16) for _ in range(2)])
        self.w1 = nn.ParameterList([tensor(self, 16, 40) for _ in range(2)])
        self.w2 = nn.ParameterList([tensor(self, 40, 16) for _ in range(2)])

    def forward(self, x):
        h = self.table[x]
        for i, piece in enumerate(self.pieces):
            h = h + piece(rms(h, self.g1[i]))
            y = rms(h, self.g2[i])
            before = paddle.roll(y, 1, 1)
            h = h + self.gamma[i] * (F.relu((before + (y - before) * self.mix[i]) @ self.w1[i]) ** 2 @ self.w2[i])
        return rms(h, self.last) @ self.table.T
