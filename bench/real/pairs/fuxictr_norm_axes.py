import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(20, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(24, 1)

    def forward(self, ids):
        return self.head(self.norm(self.table(ids)).flatten(1))


class Port(nn.Layer):
    def __init__(self, fields=4, width=6):
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.norm = nn.LayerNorm([fields, width])  # fix: self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(fields * width, 1)

    def forward(self, ids):
        return self.head(self.norm(self.table(ids)).flatten(1))


def inputs(samples, generator):
    return generator.integers(0, 20, (samples, 4))
