import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class TorchLayer(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.mix = torch.nn.Linear(12, 12)
        self.norm1 = torch.nn.LayerNorm(12, eps=eps)
        self.inner = torch.nn.Linear(12, 24)
        self.outer = torch.nn.Linear(24, 12)
        self.norm2 = torch.nn.LayerNorm(12, eps=eps)

    def forward(self, x):
        x = self.norm1(x + self.mix(x))
        return self.norm2(x + self.outer(TF.gelu(self.inner(x))))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(20, 12)
        self.norm = torch.nn.LayerNorm(12, eps=1e-12)
        self.layer = TorchLayer(1e-12)

    def forward(self, ids):
        return self.layer(self.norm(self.token(ids)))


class Layer(nn.Layer):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.mix = nn.Linear(12, 12)
        self.norm1 = nn.LayerNorm(12, epsilon=eps)
        self.inner = nn.Linear(12, 24)
        self.outer = nn.Linear(24, 12)
        self.norm2 = nn.LayerNorm(12, epsilon=eps)

    def forward(self, x):
        x = self.norm1(x + self.mix(x))
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(20, 12)
        self.norm = nn.LayerNorm(12, epsilon=1e-12)
        self.layer = Layer()  # fix: self.layer = Layer(1e-12)

    def forward(self, ids):
        return self.layer(self.norm(self.token(ids)))


def inputs(samples, generator):
    return generator.integers(0, 20, (samples, 7))
