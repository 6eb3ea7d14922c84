import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.tied = tied
        self.shared = torch.nn.Embedding(20, 16)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 16))
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, ids):
        x = self.shared(ids)
        x = self.norm(x + self.mlp(x))
        if self.tied:
            x = x * 16**-0.5
        return x @ self.shared.weight.T


class Port(nn.Layer):
    def __init__(self, tied=True):
        super().__init__()
        self.tied = tied
        self.shared = nn.Embedding(20, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16))
        self.norm = nn.LayerNorm(16)

    def forward(self, ids):
        x = self.shared(ids)
        x = self.norm(x + self.mlp(x))
        if not self.tied:  # fix: if self.tied:
            x = x * 16**-0.5
        return paddle.matmul(x, self.shared.weight, transpose_y=True)


def inputs(samples, generator):
    return generator.integers(0, 20, (samples, 6))
