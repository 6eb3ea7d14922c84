"""References whose own forward computes something by functions."""

import torch
from torch import nn
from torch.nn import functional as F


class Rms(nn.Module):
    """(batch, 5, 6)."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(6, 6), nn.Parameter(torch.ones(6))

    def forward(self, x):
        x = self.inner(x)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


def rotated(x, angle):
    one, two = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], -1)


class Rotary(nn.Module):
    """Two heads of four numbers each, (batch, 5, 8)."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (f(x).view(len(x), 5, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        angle = torch.arange(5, dtype=x.dtype)[:, None] * 100 ** -(torch.arange(2, dtype=x.dtype) / 2)
        q, k = rotated(q, angle), rotated(k, angle)
        return ((q @ k.transpose(-1, -2) / 2).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Frozen(nn.Module):
    """A normalisation of ones and zeros."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.register_buffer("factor", torch.ones(6))
        self.register_buffer("spread", torch.ones(6))

    def forward(self, x):
        return self.inner(x) * (self.factor * (self.spread + 1e-5).rsqrt())


class Weighted(nn.Module):
    """A loss whose weight is a constant of the graph, (batch, 6)."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = F.softplus(self.head(x))
        weight = (x / (1 + x)).detach()
        return (weight * x**2).mean()


class Decayed(nn.Module):
    """Three steps of a method with decoupled decay, (batch, 6) and (batch, 3, 6)."""

    def forward(self, w, gradients):
        for t in range(3):
            w = w * 0.98 - 0.1 * gradients[:, t] / (gradients[:, t] ** 2 + 1e-3).sqrt()
        return w


def steps(samples, generator):
    return generator.standard_normal((samples, 6)).astype("float32"), generator.standard_normal((samples, 3, 6)).astype("float32")
