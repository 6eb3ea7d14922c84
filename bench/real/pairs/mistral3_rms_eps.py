import paddle
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class TorchRms(torch.nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class TorchProjector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = TorchRms(12, 1e-5)
        self.linear1 = torch.nn.Linear(12, 16)
        self.linear2 = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.linear2(TF.gelu(self.linear1(self.norm(x))))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = torch.nn.Linear(6, 12)
        self.projector = TorchProjector()

    def forward(self, x):
        return self.projector(self.patch(x))


class Rms(nn.Layer):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.eps = eps

    def forward(self, x):
        return x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Projector(nn.Layer):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.norm = Rms(12)  # fix: self.norm = Rms(12, eps)
        self.linear1 = nn.Linear(12, 16)
        self.linear2 = nn.Linear(16, 16)

    def forward(self, x):
        return self.linear2(F.gelu(self.linear1(self.norm(x))))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(6, 12)
        self.projector = Projector()

    def forward(self, x):
        return self.projector(self.patch(x))


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 6)).astype("float32")
