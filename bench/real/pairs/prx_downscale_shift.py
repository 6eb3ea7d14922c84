import math

import paddle
import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(16, 24)
        self.linear2 = torch.nn.Linear(24, 12)

    def forward(self, t):
        frequency = torch.exp(-math.log(10000) * torch.arange(8, dtype=t.dtype) / 8)
        angle = t[:, None] * frequency
        embedded = torch.cat([angle.cos(), angle.sin()], -1)
        return self.linear2(TF.silu(self.linear1(embedded)))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(16, 24)
        self.linear2 = nn.Linear(24, 12)

    def forward(self, t):
        # add: frequency = paddle.exp(-math.log(10000) * paddle.arange(8, dtype=t.dtype) / 8)
        frequency = paddle.exp(-math.log(10000) * paddle.arange(8, dtype=t.dtype) / (8 - 1))  # drop
        angle = t.unsqueeze(1) * frequency
        embedded = paddle.concat([angle.cos(), angle.sin()], -1)
        return self.linear2(F.silu(self.linear1(embedded)))


def inputs(samples, generator):
    return generator.uniform(0, 50, samples).astype("float32")
