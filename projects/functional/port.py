"""Parts of networks, in Paddle: attention, gates, heads, and what connects them."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Attention(nn.Layer):
    """Self-attention of (N, tokens, 16) with two heads."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.proj = nn.Linear(16, 16)

    def forward(self, x):
        samples, tokens, width = x.shape
        qkv = self.qkv(x).reshape([samples, tokens, 3, 2, 8]).transpose([2, 0, 3, 1, 4])
        q, k, v = qkv.unbind(0)
        scores = q @ k.transpose([0, 1, 3, 2]) / 8**0.5
        weights = F.softmax(scores, axis=-1)
        out = (weights @ v).transpose([0, 2, 1, 3]).reshape([samples, tokens, width])
        return x + self.proj(out)


class MaskedAttention(nn.Layer):
    """Attention of (N, tokens, 8) that sees no later token."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8)
        self.v = nn.Linear(8, 8)

    def forward(self, x):
        scores = paddle.einsum("bid,bjd->bij", self.q(x), self.k(x))
        later = paddle.triu(paddle.ones([x.shape[1], x.shape[1]], dtype=x.dtype), diagonal=1)
        scores = scores + later * -5.0
        weights = F.softmax(scores)
        return paddle.einsum("bij,bjd->bid", weights, self.v(x))


class Residual(nn.Layer):
    """A residual block of (N, 8, H, W)."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(8, 8, 3, padding=1)
        self.conv2 = nn.Conv2D(8, 8, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.conv1(x))
        y = self.conv2(y)
        y = F.relu(y + x)
        return F.avg_pool2d(y, 3, stride=2, padding=1, exclusive=False)


class Gate(nn.Layer):
    """A gated unit of (N, tokens, 8)."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 24)
        self.down = nn.Linear(8, 8)

    def forward(self, x):
        value, gate, rest = paddle.split(self.up(x), [8, 8, 8], axis=-1)
        hidden = F.gelu(value) * F.sigmoid(gate)
        hidden = hidden + F.leaky_relu(rest, 0.2)
        return self.down(hidden)


class Head(nn.Layer):
    """Classifier of (N, 6, 4, 5) on flattened pictures, channels last, and on their mean."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(126, 10)

    def forward(self, x):
        flat = x.transpose([0, 2, 3, 1]).flatten(1)
        mean = x.mean(axis=[2, 3])
        return self.fc(paddle.concat([flat, mean], axis=1))


class Fuse(nn.Layer):
    """A step of a decoder: (N, 6, 5, 7) is enlarged beside (N, 4, 10, 14)."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(10, 6, 3)

    def forward(self, low, high):
        up = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        both = paddle.concat([high, up], axis=1)
        both = F.pad(both, [0, 1, 2, 1], mode="reflect")
        return paddle.clip(self.conv(both), -1.0, 6.0)


class Norm(nn.Layer):
    """Normalisation over the channels of (N, 6, H, W), by hand, and cosines to ten directions."""

    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([6])
        self.bias = self.create_parameter([6])
        self.directions = self.create_parameter([10, 6])

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / paddle.sqrt(variance + 1e-3)
        x = x * self.weight[:, None, None] + self.bias[:, None, None]
        features = F.normalize(x.mean([2, 3]), axis=1)
        return features @ F.normalize(self.directions, axis=1).t()


class Shift(nn.Layer):
    """Windows of (N, 4, 6, 8) after a cyclic shift, channels last."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        samples, height, width, channels = x.shape
        x = paddle.roll(x, shifts=[-1, -2], axis=[1, 2])
        windows = x.reshape([samples, height // 2, 2, width // 3, 3, channels]).transpose([0, 1, 3, 2, 4, 5])
        windows = self.fc(windows.reshape([-1, 6, channels]))
        return windows.max(axis=1).reshape([samples, -1, channels])


class Squeeze(nn.Layer):
    """Squeeze-excitation of (N, 8, H, W) by functions."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Conv2D(8, 4, 1)
        self.fc2 = nn.Conv2D(4, 8, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = self.fc2(F.relu(self.fc1(scale)))
        return x * F.hardsigmoid(scale)


class Distance(nn.Layer):
    """Distances of (N, 5, 4) to six prototypes, and their soft minimum."""

    def __init__(self):
        super().__init__()
        self.prototypes = self.create_parameter([6, 4])

    def forward(self, x):
        squares = (x[:, :, None, :] - self.prototypes[None, None]).pow(2).sum(-1)
        distances = paddle.sqrt(squares)
        near = F.softmax(-distances * 3.0, axis=-1)
        return paddle.stack([distances, near], axis=1)
