"""Ports of ``formulas_theirs.py``, written otherwise, and with mistakes."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class Rms(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.scale = self.create_parameter([6], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        x = self.inner(x)
        return self.scale * x / paddle.sqrt((x * x).sum(-1, keepdim=True) / 6 + 1e-6)


class RmsVariance(Rms):
    """The mean is removed."""

    def forward(self, x):
        x = self.inner(x)
        return x * paddle.rsqrt(x.var(-1, keepdim=True) + 1e-6) * self.scale


def rotated(x, angle):
    one, two = x.chunk(2, -1)
    return paddle.concat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], -1)


def neighbours(x, angle):
    one, two = x[..., 0::2], x[..., 1::2]
    made = [one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()]
    return paddle.stack(made, -1).flatten(-2)


class Rotary(nn.Layer):
    turned = staticmethod(rotated)

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def places(self, x):
        return paddle.arange(5, dtype=x.dtype).unsqueeze(1)

    def forward(self, x):
        q, k, v = (f(x).reshape([len(x), 5, 2, 4]).transpose([0, 2, 1, 3]) for f in (self.q, self.k, self.v))
        angle = self.places(x) * 100 ** -(paddle.arange(2, dtype=x.dtype) / 2)
        q, k = self.turned(q, angle), self.turned(k, angle)
        a = F.softmax(paddle.matmul(q, k, transpose_y=True) / 2, -1)
        return (a @ v).transpose([0, 2, 1, 3]).flatten(2)


class RotaryNeighbours(Rotary):
    turned = staticmethod(neighbours)


class RotaryBatch(Rotary):
    """The samples are counted, not the positions."""

    def places(self, x):
        return paddle.arange(len(x), dtype=x.dtype).reshape([-1, 1, 1, 1])


class Frozen(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.register_buffer("factor", paddle.ones([6]))
        self.register_buffer("spread", paddle.ones([6]))

    def forward(self, x):
        return self.inner(x) * self.factor / paddle.sqrt(self.spread + 1e-5)


class FrozenEps(Frozen):
    def forward(self, x):
        return self.inner(x) * (self.factor * self.spread.rsqrt())


class Weighted(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.softplus(self.head(x))
        with paddle.no_grad():
            weight = x / (1 + x)
        return (weight * x * x).mean()


class WeightedThrough(Weighted):
    """A gradient flows through the weight."""

    def forward(self, x):
        x = F.softplus(self.head(x))
        weight = x / (1 + x)
        return (weight * x**2).mean()


class WeightedCut(Weighted):
    """None flows through the square either."""

    def forward(self, x):
        x = F.softplus(self.head(x))
        weight = (x / (1 + x)).detach()
        return (weight * (x**2).detach()).mean() + 0 * x.mean()


class Decayed(nn.Layer):
    def forward(self, w, gradients):
        for t in range(3):
            g = gradients[:, t]
            w = w - 0.02 * w
            w = w - 0.1 * g / (g * g + 1e-3).sqrt()
        return w


class DecayedAfter(Decayed):
    def forward(self, w, gradients):
        for t in range(3):
            g = gradients[:, t]
            w = w - 0.1 * g / (g**2 + 1e-3).sqrt()
            w = w - 0.02 * w
        return w
