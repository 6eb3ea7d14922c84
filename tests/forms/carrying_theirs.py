"""A normalisation whose class adds its activation behind, as PyTorch Image Models has it, and the same written apart."""

import torch
from torch import nn
from torch.nn import functional as F


class BatchNormAct2d(nn.BatchNorm2d):
    def forward(self, x):
        return F.gelu(super().forward(x))


def gelu(x):
    return x


class Block(nn.Module):
    def __init__(self, inside, outside, norm, act):
        super().__init__()
        self.act = act
        self.pre = norm(inside)
        self.conv = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
        self.norm = norm(outside)
        self.out = nn.Conv2d(outside, outside, 1)

    def forward(self, x):
        return self.out(self.act(self.norm(self.conv(self.act(self.pre(x))))))


class Net(nn.Module):
    norm, act = BatchNormAct2d, staticmethod(gelu)

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn = self.norm(8)
        self.blocks = nn.Sequential(Block(8, 12, self.norm, self.act), Block(12, 12, self.norm, self.act))
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.act(self.bn(self.stem(x)))).mean((2, 3)))


class Apart(Net):
    norm, act = nn.BatchNorm2d, staticmethod(F.gelu)
