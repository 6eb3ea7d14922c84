import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(TF.gelu(self.bn(self.conv(x))).mean((2, 3)))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3, 2, 1, bias_attr=False)
        self.bn = nn.BatchNorm2D(8, use_global_stats=False)  # fix: self.bn = nn.BatchNorm2D(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(F.gelu(self.bn(self.conv(x))).mean([2, 3]))


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 9, 9)).astype("float32")
