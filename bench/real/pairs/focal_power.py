import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 6)

    def forward(self, x, target):
        p = torch.sigmoid(self.head(x))
        positive = -0.25 * target * (1 - p) ** 2 * p.log()
        negative = -0.75 * (1 - target) * p**2 * (1 - p).log()
        return (positive + negative).mean()


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x, target):
        p, gamma = F.sigmoid(self.head(x)), 2
        positive = -0.25 * target * ((1 - p) * gamma) * p.log()  # fix: positive = -0.25 * target * (1 - p) ** gamma * p.log()
        # add: negative = -0.75 * (1 - target) * p**gamma * (1 - p).log()
        negative = -0.75 * (1 - target) * (p * gamma) * (1 - p).log()  # drop
        return (positive + negative).mean()


def inputs(samples, generator):
    return generator.standard_normal((samples, 8)).astype("float32"), generator.integers(0, 2, (samples, 6)).astype("float32")
