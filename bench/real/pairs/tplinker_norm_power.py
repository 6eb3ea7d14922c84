import paddle
import torch
from paddle import nn


class TorchNorm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(width))
        self.beta = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        std = (x.pow(2).mean(-1, keepdim=True) + 1e-12) ** 0.5
        return x / std * self.gamma + self.beta


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 12)
        self.norm = TorchNorm(12)
        self.head = torch.nn.Linear(12, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.inner(x))))


class Norm(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.gamma = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.beta = self.create_parameter([width], is_bias=True)

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        std = (x.pow(2).mean(-1, keepdim=True) + 1e-12) ** 2  # fix: std = (x.pow(2).mean(-1, keepdim=True) + 1e-12) ** 0.5
        return x / std * self.gamma + self.beta


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 12)
        self.norm = Norm(12)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(paddle.tanh(self.norm(self.inner(x))))


def inputs(samples, generator):
    return generator.standard_normal((samples, 6, 8)).astype("float32")
