"""Mixtures of experts: one layer for each expert, or their weights in one tensor (torch)."""

import torch
import torch.nn.functional as F
from torch import nn


class Mixture(nn.Module):
    """Every expert is computed, and a softmax weighs them."""

    def __init__(self, width, hidden, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(experts)]
        )

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        return sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Soft(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.inp, self.out = nn.Linear(8, 16), nn.Linear(16, 3)
        self.first, self.norm, self.second = Mixture(16, hidden, 4), nn.LayerNorm(16), Mixture(16, hidden, 4)

    def forward(self, x):
        x = self.inp(x)
        x = self.norm(x + self.first(x))
        return self.out(x + self.second(x))


class Square(Soft):
    """Matrices that may lie either way: random weights tell."""

    def __init__(self):
        super().__init__(hidden=16)


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1, self.w2 = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Sparse(nn.Module):
    """Of six experts the two with the largest weights, for each token."""

    def __init__(self, width=16, hidden=20, experts=6):
        super().__init__()
        self.embed, self.gate = nn.Embedding(20, width), nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(experts)])
        self.head = nn.Linear(width, 20)

    def forward(self, tokens):
        x = self.embed(tokens).flatten(0, 1)
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            y[rows] = y[rows] + expert(x[rows]) * weights[rows, places, None]
        return self.head(x + y).unflatten(0, tokens.shape)


class Bank(nn.Module):
    """As in the port of ``Soft``, but the reference holds one tensor and the port a layer for each."""

    def __init__(self, width=8, hidden=12, experts=3):
        super().__init__()
        self.up, self.up_bias = nn.Parameter(torch.randn(experts, width, hidden) / 3), nn.Parameter(torch.randn(experts, hidden))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / 3)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        hidden = torch.tanh(torch.einsum("bd,edf->bef", x, self.up) + self.up_bias)
        return self.head(torch.einsum("bef,efd->bd", hidden, self.down))
