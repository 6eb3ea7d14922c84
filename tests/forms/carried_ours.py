"""Its port: activations are layers or functions behind the normalisation, branches come in another order, blocks are wrapped."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class ConvNorm(nn.Layer):
    def __init__(self, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2D(8, 8, kernel, stride, kernel // 2, bias_attr=False)
        self.bn = nn.BatchNorm2D(8)

    def forward(self, x):
        return self.bn(self.conv(x))


class Block(nn.Layer):
    def __init__(self, stride):
        super().__init__()
        self.relu = nn.ReLU()
        self.skip = nn.BatchNorm2D(8) if stride == 1 else None
        self.dense = ConvNorm(3, stride)
        self.point = ConvNorm(1, stride)

    def forward(self, x):
        skipped = 0 if self.skip is None else self.skip(x)
        return self.relu(self.dense(x) + self.point(x) + skipped)


class Residual(nn.Layer):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, x):
        return x + self.m(x)


class Mixing(nn.Layer):
    def __init__(self, positions):
        super().__init__()
        self.qk = nn.Linear(8, 16)
        self.proj = nn.Linear(8, 8)
        self.biases = self.create_parameter([positions])
        place = paddle.arange(positions)
        self.register_buffer("index", (place.unsqueeze(1) - place).abs())

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        biases = self.biases[self.index.flatten()].reshape(self.index.shape)
        weights = F.softmax(q @ k.transpose([0, 2, 1]) + biases, -1)
        return self.proj(weights @ x)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2D(3, 8, 3, 2, 1, bias_attr=False)
        self.bn0 = nn.BatchNorm2D(8)
        self.features = nn.Sequential(Block(2), Block(1), Block(1))
        self.last = ConvNorm(3, 2)
        self.act = nn.Silu()
        self.blocks = nn.Sequential(Residual(Mixing(4)), Residual(Mixing(4)))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.leaky_relu(self.bn0(self.conv0(x)), 0.1)
        x = self.act(self.last(self.features(x)))
        x = x.flatten(2).transpose([0, 2, 1])
        x = self.blocks(x)
        return self.head(x.mean(1))
