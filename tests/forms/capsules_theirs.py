"""A small capsule network as it is published: capsules of 1x1 kernels in a list, routing by agreement."""

import torch
import torch.nn.functional as F
from torch import nn


def squash(x, dim=-1):
    square = (x**2).sum(dim, keepdim=True)
    return square / (1 + square) * x / torch.sqrt(square + 1e-8)


class PrimaryCaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.capsules = nn.ModuleList(nn.Conv2d(8, 4, 3, stride=2) for _ in range(4))

    def forward(self, x):
        u = torch.stack([capsule(x) for capsule in self.capsules], dim=1)
        return squash(u.view(x.shape[0], 4, -1).transpose(1, 2))


class DigitCaps(nn.Module):
    def __init__(self, routes, classes=3, given=4, made=5):
        super().__init__()
        self.classes, self.W = classes, nn.Parameter(0.3 * torch.randn(1, routes, classes, made, given))

    def forward(self, x):
        x = torch.stack([x] * self.classes, dim=2).unsqueeze(4)
        u_hat = torch.matmul(self.W, x)
        b = torch.zeros(1, x.shape[1], self.classes, 1, dtype=x.dtype)
        for number in range(3):
            c = F.softmax(b, dim=2).unsqueeze(-1)
            v = squash((c * u_hat).sum(1, keepdim=True), dim=-2)
            if number < 2:
                b = b + (u_hat * v).sum(-2).mean(0, keepdim=True)
        return v.squeeze(1)


class Capsules(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.primary, self.digit = nn.Conv2d(1, 8, 3), PrimaryCaps(), DigitCaps(64)
        self.decoder = nn.Sequential(nn.Linear(15, 12), nn.ReLU(), nn.Linear(12, 20), nn.Sigmoid())

    def forward(self, x):
        v = self.digit(self.primary(F.relu(self.conv(x)))).squeeze(-1)
        classes = F.softmax((v**2).sum(-1) ** 0.5, dim=-1)
        kept = F.one_hot(classes.max(1)[1], 3).to(x.dtype)
        return classes, self.decoder((v * kept[:, :, None]).view(x.shape[0], -1))
