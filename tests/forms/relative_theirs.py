"""An encoder whose attention has a learnt bias by distance, and a mask of the least number of float32."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, bias):
        n, t, c = x.shape
        q, k, v = (one(x).view(n, t, self.heads, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        mixed = (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v
        return x + self.o(mixed.transpose(1, 2).reshape(n, t, c))


class Net(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.table = nn.Embedding(9, heads)
        self.layers = nn.ModuleList([Attention(width, heads) for _ in range(3)])

    def forward(self, x, mask):
        place = torch.arange(x.shape[1])
        distance = (place[None, :] - place[:, None]).clamp(-4, 4) + 4
        bias = self.table(distance).permute(2, 0, 1)[None]
        bias = bias + (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias)
        return x
