import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        rows = [(3, 8, 2), (8, 8, 2), (8, 12, 2), (12, 12, 1)]
        self.stages = torch.nn.ModuleList([torch.nn.Conv2d(i, o, 3, s, 1) for i, o, s in rows])
        self.head = torch.nn.Linear(12, 5)

    def forward(self, x):
        for stage in self.stages:
            x = torch.relu(stage(x))
        return self.head(x.mean((2, 3)))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        rows = [(3, 8, 1), (8, 8, 2), (8, 12, 2), (12, 12, 2)]  # fix: rows = [(3, 8, 2), (8, 8, 2), (8, 12, 2), (12, 12, 1)]
        self.stages = nn.LayerList([nn.Conv2D(i, o, 3, s, 1) for i, o, s in rows])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        for stage in self.stages:
            x = F.relu(stage(x))
        return self.head(x.mean([2, 3]))


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 32, 32)).astype("float32")
