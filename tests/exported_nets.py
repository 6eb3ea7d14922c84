"""More networks whose exports are audited: pictures with their preprocessing inside, and words."""

from __future__ import annotations

import torch
from torch import nn

from tests.exported_net import Tokens


class Normalise(nn.Module):
    """Pixels of 0 to 1, less a mean, over a deviation."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))

    def forward(self, x):
        return (x - self.mean) / self.std


class Pixels(nn.Module):
    """Preprocessing inside, a padding of its own, nearest upsampling, a map that becomes a row, and a square linear layer."""

    def __init__(self):
        super().__init__()
        self.normalise = Normalise()
        self.margin = nn.ZeroPad2d((1, 2, 3, 0))
        self.conv, self.bend = nn.Conv2d(3, 6, 3, stride=2), nn.ELU()
        self.wide = nn.Upsample(scale_factor=1.5, mode="nearest")
        self.small = nn.MaxPool2d(4, 4)
        self.row = nn.Flatten()
        self.square, self.tanh = nn.Linear(54, 54), nn.Tanh()
        self.last = nn.Linear(54, 5)

    def forward(self, x):
        x = self.small(self.wide(self.bend(self.conv(self.margin(self.normalise(x))))))
        return self.last(self.tanh(self.square(self.row(x))))


def pixels():
    torch.manual_seed(2)
    return Pixels().eval()


class Words(nn.Module):
    """Numbers of words, of which many are above 255, through an embedding and a transformer's block."""

    def __init__(self):
        super().__init__()
        self.table, self.block, self.head = nn.Embedding(5000, 16), Tokens(), nn.Linear(16, 7)

    def forward(self, ids):
        return self.head(self.block(self.table(ids)).mean(1))


def words():
    torch.manual_seed(3)
    return Words().eval()
