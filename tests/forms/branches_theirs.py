"""Parallel branches of equal shapes, and a norm of pixels that may all be 0: the references."""

import torch
import torch.nn.functional as F
from torch import nn


def cbr(i, o, k, d=1, s=1):
    return nn.Sequential(
        nn.Conv2d(i, o, k, stride=s, padding=d if k == 3 else 0, dilation=d, bias=False), nn.BatchNorm2d(o), nn.ReLU()
    )


class Pool(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

    def forward(self, x):
        size = x.shape[-2:]
        for layer in self:
            x = layer(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.convs = nn.ModuleList([cbr(i, o, 1), cbr(i, o, 3, 2), cbr(i, o, 3, 4), cbr(i, o, 3, 6), Pool(i, o)])
        self.project = cbr(5 * o, o, 1)

    def forward(self, x):
        return self.project(torch.cat([c(x) for c in self.convs], 1))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = cbr(3, 8, 3, 1, 2)
        self.aspp = ASPP(8, 8)
        self.head = nn.Sequential(cbr(8, 8, 3), nn.Conv2d(8, 4, 1))

    def forward(self, x):
        y = self.head(self.aspp(self.stem(x)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class L2Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.full((n,), 20.0))

    def forward(self, x):
        norm = x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-10
        return self.weight.view(1, -1, 1, 1) * (x / norm)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 2, 3, padding=1)
        self.norm = L2Norm(2)
        self.c2 = nn.Conv2d(2, 4, 3, padding=1)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(self.norm(x)))
        return self.fc(x.mean((2, 3)))


class Bare(nn.Module):
    """No ReLU stands between a norm of exactly 0 and the layer before it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        root = (self.first(x) * 0).sum(-1, keepdim=True).sqrt()
        return self.last(x[:, :3] + root)


class Rootless(nn.Module):
    """A root of exactly 0 behind every parameter."""

    def __init__(self):
        super().__init__()
        self.only = nn.Linear(5, 3)

    def forward(self, x):
        return (self.only(x) * 0).sqrt() + x[:, :3]
