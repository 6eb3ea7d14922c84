import paddle
import torch
from paddle import nn


class TorchDropPath(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training:
            return x
        keep = torch.rand(len(x), 1, 1, dtype=x.dtype) >= self.rate
        return x * keep / (1 - self.rate)


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
        self.drop_path = TorchDropPath(0.3)

    def forward(self, x):
        return x + self.drop_path(self.mlp(self.norm(x)))


class DropPath(nn.Layer):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training:
            return x
        keep = (paddle.rand([x.shape[0], 1, 1], dtype=x.dtype) >= self.rate).astype(x.dtype)
        return x * keep / (1 - self.rate)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        # add: self.drop_path = DropPath(0.3)

    def forward(self, x):
        return x + self.mlp(self.norm(x))  # fix: return x + self.drop_path(self.mlp(self.norm(x)))


def inputs(samples, generator):
    return generator.standard_normal((samples, 6, 8)).astype("float32")
