"""Tensors, tables and dropouts that the port holds joined, divided, or in another shape (torch)."""

import torch
import torch.nn.functional as F
from torch import nn


class Conditional(nn.Module):
    """One embedding of both halves."""

    def __init__(self):
        super().__init__()
        self.both, self.fc = nn.Embedding(20, 12), nn.Linear(6, 4)

    def forward(self, tokens):
        scale, shift = self.both(tokens).chunk(2, -1)
        return self.fc(torch.tanh(scale) + shift)


class Additive(nn.Module):
    """Attention with one linear layer on what is joined, step by step."""

    def __init__(self, width=6):
        super().__init__()
        self.embed, self.cell = nn.Embedding(20, width), nn.GRUCell(2 * width, width)
        self.score, self.vector = nn.Linear(2 * width, width), nn.Linear(width, 1, bias=False)
        self.out, self.pre = nn.Linear(width, 3), nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.ReLU())

    def forward(self, tokens):
        words = self.pre(self.embed(tokens).transpose(1, 2)).transpose(1, 2)
        state, states = torch.zeros_like(words[:, 0]), []
        for place in range(words.shape[1]):
            joined = torch.cat([state[:, None].expand_as(words), words], -1)
            weights = self.vector(torch.tanh(self.score(joined))).softmax(1)
            state = self.cell(torch.cat([words[:, place], (weights * words).sum(1)], -1), state)
            states.append(self.out(state))
        return torch.stack(states, 1)


class Highway(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(20, width, padding_idx=0)
        self.layers, self.out = nn.ModuleList([nn.Linear(width, 2 * width) for _ in range(3)]), nn.Linear(width, 3)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            new, gate = layer(x).chunk(2, -1)
            x = gate.sigmoid() * x + (1 - gate.sigmoid()) * new.relu()
        return self.out(x)


class Level(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(width, width, 1), nn.ReLU(), nn.Dropout(0.3), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Dropout(0.3)
        )

    def forward(self, x):
        return x + self.net(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels, self.last = nn.Sequential(Level(4), Level(4)), nn.Conv1d(4, 2, 1)

    def forward(self, x):
        return self.last(self.levels(x))


class Masked(nn.Conv2d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        mask = torch.ones_like(self.weight)
        mask[:, :, self.kernel_size[0] // 2, self.kernel_size[1] // 2 :] = 0
        mask[:, :, self.kernel_size[0] // 2 + 1 :] = 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.mask, self.bias)


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Masked(3, 6, 5, padding=2), Masked(6, 6, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(6, track_running_stats=False), nn.GroupNorm(1, 6)

    def forward(self, x):
        return self.norm2(self.second(F.relu(self.norm1(self.first(x)))))


class Rotary(nn.Module):
    """Two tables of angles, which no file of weights holds."""

    def __init__(self, width=8):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, width), nn.Linear(width, 5)
        angles = torch.outer(torch.arange(12.0), 1 / 10000 ** (torch.arange(0, width, 2) / width))
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, tokens):
        a, b = self.embed(tokens).chunk(2, -1)
        cosines, sines = self.cosines[: tokens.shape[1]], self.sines[: tokens.shape[1]]
        return self.out(torch.cat([a * cosines - b * sines, a * sines + b * cosines], -1))


class Margin(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, width))

    def forward(self, x):
        return F.linear(F.normalize(x), F.normalize(self.weight))


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), Margin(8, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


class Skips(nn.Module):
    """What the last level would give to a next one is not used."""

    def __init__(self, width=6):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(width, 8, 1) for _ in range(2)])
        self.on, self.skip = (nn.ModuleList([nn.Conv1d(8, width, 1) for _ in range(2)]) for _ in range(2))

    def forward(self, x):
        total = 0
        for conv, on, skip in zip(self.convs, self.on, self.skip, strict=True):
            h = torch.tanh(conv(x))
            x, total = x + on(h), total + skip(h)
        return total


class Pooling(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Conv2d(i, o, 1), nn.ReLU())

    def forward(self, x):
        size = x.shape[-2:]
        for layer in self:
            x = layer(x)
        return F.interpolate(x, size=size)


class Context(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), Pooling(3, 4)])
        self.project = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        return self.project(torch.cat([branch(x) for branch in self.branches], 1))
