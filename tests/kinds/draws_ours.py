"""Ports of ``draws_theirs.py``."""

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F


class Attention(nn.Layer):
    def __init__(self, width=16, heads=2, drop=0.1):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, self.heads, c // self.heads]).unbind(2)
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop, training=self.training)
        return self.proj(x.reshape([b, n, c]))


class Written(Attention):
    """With the scores written out, and a dropout layer."""

    def __init__(self, width=16, heads=2, drop=0.1):
        super().__init__(width, heads, drop)
        self.attn_drop = nn.Dropout(drop)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, self.heads, c // self.heads]).transpose([2, 0, 3, 1, 4]).unbind(0)
        weights = F.softmax(q @ k.transpose([0, 1, 3, 2]) * (c // self.heads) ** -0.5, axis=-1)
        return self.proj((self.attn_drop(weights) @ v).transpose([0, 2, 1, 3]).reshape([b, n, c]))


class AttentionNet(nn.Layer):
    attention, drop = Attention, 0.1

    def __init__(self):
        super().__init__()
        self.norm, self.attn, self.head = nn.LayerNorm(16), self.attention(drop=self.drop), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(x + self.attn(self.norm(x)))


class AttentionRate(AttentionNet):
    drop = 0.4


class AttentionNone(AttentionNet):
    drop = 0.0


class AttentionWritten(AttentionNet):
    attention = Written


class AttentionWrittenRate(AttentionNet):
    attention, drop = Written, 0.4


class DropPath(nn.Layer):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        mask = paddle.floor(keep + paddle.rand([x.shape[0]] + [1] * (x.ndim - 1), dtype=x.dtype))
        return x / keep * mask


class DropPathUnscaled(DropPath):
    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        return x * paddle.floor(1 - self.rate + paddle.rand([x.shape[0]] + [1] * (x.ndim - 1), dtype=x.dtype))


class DropPathBernoulli(DropPath):
    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        return x * paddle.bernoulli(paddle.full([x.shape[0]] + [1] * (x.ndim - 1), keep, dtype=x.dtype)) / keep


class DropPathLess(DropPath):
    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        return x / keep * (paddle.rand([x.shape[0]] + [1] * (x.ndim - 1)) < keep).astype(x.dtype)


def drop_path(x, rate, training):
    if rate == 0.0 or not training:
        return x
    return x * (paddle.rand([x.shape[0]] + [1] * (x.ndim - 1)) > rate).astype(x.dtype) / (1 - rate)


class DropPathGreater(DropPath):
    def forward(self, x):
        return drop_path(x, self.rate, self.training)


class Block(nn.Layer):
    def __init__(self, width, rate, path=DropPath):
        super().__init__()
        self.norm, self.fc1, self.act, self.fc2 = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )
        self.drop_path = path(rate)

    def forward(self, x):
        return x + self.drop_path(self.fc2(self.act(self.fc1(self.norm(x)))))


class Rand(nn.Layer):
    path, rates, block = DropPath, [0.1, 0.2, 0.3], Block

    def __init__(self):
        super().__init__()
        self.blocks = nn.LayerList([self.block(8, rate, self.path) for rate in self.rates])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class RandRate(Rand):
    rates = (0.4, 0.4, 0.4)


class RandOneRate(Rand):
    rates = (0.1, 0.2, 0.2)


class RandNone(Rand):
    rates = (0.0, 0.0, 0.0)


class RandUnscaled(Rand):
    path = DropPathUnscaled


class Bernoulli(Rand):
    path = DropPathBernoulli


class BernoulliRate(Bernoulli):
    rates = (0.4, 0.4, 0.4)


class BernoulliByRand(Rand):
    """The other way to draw the same."""


class RandLess(Rand):
    path = DropPathLess


class RandLessRate(RandLess):
    rates = (0.4, 0.4, 0.4)


class RandGreater(Rand):
    path = DropPathGreater


class Linspace(Rand):
    """Rates by numpy's float64 linspace."""

    path = DropPathBernoulli
    rates = tuple(np.linspace(0, 0.1, 3).tolist())


class InlineBlock(Block):
    """It drops its branch by itself."""

    def __init__(self, width, rate, path=DropPath):
        super().__init__(width, rate, path)
        self.rate = rate
        del self.drop_path

    def forward(self, x):
        y = self.fc2(self.act(self.fc1(self.norm(x))))
        if self.training and self.rate:
            keep = 1 - self.rate
            y = y * (paddle.rand([y.shape[0]] + [1] * (y.ndim - 1), dtype=y.dtype) < keep).astype(y.dtype) / keep
        return x + y


class LinspaceInline(Linspace):
    block, rates = InlineBlock, tuple(np.linspace(0, 0.2, 4).tolist())


class ReluBlock(InlineBlock):
    def __init__(self, width, rate, path=DropPath):
        super().__init__(width, rate, path)
        self.act = nn.ReLU()


class LinspaceInlineRelu(LinspaceInline):
    block = ReluBlock


class TurnedBlock(InlineBlock):
    """It keeps what it should drop."""

    def forward(self, x):
        y = self.fc2(self.act(self.fc1(self.norm(x))))
        if self.training and self.rate:
            keep = 1 - self.rate
            y = y * (paddle.rand([y.shape[0]] + [1] * (y.ndim - 1), dtype=y.dtype) > keep).astype(y.dtype) / keep
        return x + y


class LinspaceInlineTurned(LinspaceInline):
    block = TurnedBlock


class DropPathOfBatch(DropPath):
    """It draws one number for all samples."""

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        return x / (1 - self.rate) * paddle.floor(1 - self.rate + paddle.rand([1] * x.ndim, dtype=x.dtype))


class RandOfBatch(Rand):
    path = DropPathOfBatch


class LinspaceInlineWrong(LinspaceInline):
    rates = tuple(np.linspace(0, 0.21, 4).tolist())


class LinspaceWrong(Linspace):
    rates = tuple(np.linspace(0, 0.2, 3).tolist())


class Noise(nn.Layer):
    size = 0.1

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc(x)
        if self.training and self.size:
            x = x + self.size * paddle.randn(x.shape, dtype=x.dtype)
        return self.head(F.relu(x))


class NoiseLarge(Noise):
    size = 0.3


class NoiseMinus(Noise):
    """A normal number is as likely as its negative."""

    size = -0.1


class NoiseMinusLarge(Noise):
    size = -0.2


class NoiseNone(Noise):
    size = 0.0


class Masked(nn.Layer):
    keep = 0.75

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc(x)
        if self.training:
            x = x * paddle.bernoulli(paddle.full(x.shape[:2], self.keep, dtype=x.dtype)).unsqueeze(-1)
        return self.head(F.relu(x))


class MaskedMore(Masked):
    keep = 0.25


class ByHand(nn.Layer):
    p = 0.3

    def __init__(self):
        super().__init__()
        self.fc, self.head, self.drop = nn.Linear(6, 8), nn.Linear(8, 3), nn.Dropout(self.p)

    def forward(self, x):
        return self.head(self.drop(F.relu(self.fc(x))))


class ByHandRate(ByHand):
    p = 0.7
