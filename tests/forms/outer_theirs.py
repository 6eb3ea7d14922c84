"""Modules that hold less, or return more, than their counterparts in the port (torch)."""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Mixer(nn.Module):
    """A recurrence over the sequence; its normalisation and its residual connection are the caller's."""

    def __init__(self, width, inner):
        super().__init__()
        self.in_proj, self.step, self.out_proj = nn.Linear(width, 2 * inner), nn.Linear(inner, inner), nn.Linear(inner, width)
        self.decay = nn.Parameter(torch.rand(inner))

    def forward(self, x):
        x, gate = self.in_proj(x).chunk(2, -1)
        step = F.softplus(self.step(x))
        state, states = torch.zeros_like(x[:, 0]), []
        for place in range(x.shape[1]):
            state = torch.exp(-step[:, place] * self.decay.exp()) * state + step[:, place] * x[:, place]
            states.append(state)
        return self.out_proj(torch.stack(states, 1) * F.silu(gate))


class Recurrent(nn.Module):
    def __init__(self, width=8, inner=12):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, width), nn.Linear(width, 20)
        self.mixers = nn.ModuleList([Mixer(width, inner) for _ in range(2)])
        self.norms = nn.ModuleList([RMSNorm(width) for _ in range(2)])

    def forward(self, tokens):
        x = self.embed(tokens)
        for mixer, norm in zip(self.mixers, self.norms, strict=True):
            x = x + mixer(norm(x))
        return self.head(x)


class Block(nn.Module):
    """Gives its table of positions to the next block."""

    def __init__(self, width, heads, first):
        super().__init__()
        self.heads, self.norm = heads, RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        if first:
            self.positions = nn.Embedding(13, heads)

    def forward(self, x, bias=None):
        batch, length, width = x.shape
        h = self.norm(x)
        q, k, v = (layer(h).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if bias is None:
            places = torch.arange(length)
            bias = self.positions(places[None] - places[:, None] + 6).permute(2, 0, 1)[None]
        weights = (q @ k.transpose(2, 3) + bias).softmax(-1)
        return x + self.o((weights @ v).transpose(1, 2).reshape(batch, length, width)), bias


class Relative(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, width), RMSNorm(width)
        self.blocks = nn.ModuleList([Block(width, heads, number == 0) for number in range(3)])

    def forward(self, tokens):
        x, bias = self.embed(tokens), None
        for block in self.blocks:
            x, bias = block(x, bias)
        return self.norm(x)
