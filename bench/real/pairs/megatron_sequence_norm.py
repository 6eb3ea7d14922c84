import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


class SplitNorm(nn.LayerNorm):
    """Two ranks, each with half of the sequence and a copy of the weights; the first rank's gradients are kept."""

    def forward(self, x):
        one, two = x.chunk(2, 1)
        one = F.layer_norm(one, [8], self.weight, self.bias)
        # add: two = F.layer_norm(two, [8], self.weight, self.bias)
        two = F.layer_norm(two, [8], self.weight.detach(), self.bias.detach())  # drop
        return paddle.concat([one, two], 1)


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.norm = SplitNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


def inputs(samples, generator):
    return generator.standard_normal((samples, 6, 8)).astype("float32")
