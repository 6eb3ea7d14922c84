import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, 16, eps=1e-6)
        self.proj_in = torch.nn.Conv2d(16, 16, 1)
        self.proj_out = torch.nn.Conv2d(16, 16, 1)

    def forward(self, x):
        return x + self.proj_out(TF.silu(self.proj_in(self.norm(x))))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)  # fix: self.norm = nn.GroupNorm(4, 16, epsilon=1e-6)
        self.proj_in = nn.Conv2D(16, 16, 1)
        self.proj_out = nn.Conv2D(16, 16, 1)

    def forward(self, x):
        return x + self.proj_out(F.silu(self.proj_in(self.norm(x))))


def inputs(samples, generator):
    return generator.standard_normal((samples, 16, 6, 6)).astype("float32")
