import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.branch1 = torch.nn.Conv2d(4, 6, 1)
        self.branch2 = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1), torch.nn.Conv2d(4, 8, 3, padding=1))
        self.branch3 = torch.nn.Sequential(torch.nn.Conv2d(4, 2, 1), torch.nn.Conv2d(2, 4, 5, padding=2))
        self.branch4 = torch.nn.Sequential(torch.nn.MaxPool2d(3, 1, 1), torch.nn.Conv2d(4, 4, 1))

    def forward(self, x):
        return torch.relu(torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.branch1 = nn.Conv2D(4, 6, 1)
        self.branch2 = nn.Sequential(nn.Conv2D(4, 4, 1), nn.Conv2D(4, 8, 3, padding=1))
        last = nn.Conv2D(2, 4, 3, padding=1)  # fix: last = nn.Conv2D(2, 4, 5, padding=2)
        self.branch3 = nn.Sequential(nn.Conv2D(4, 2, 1), last)
        self.branch4 = nn.Sequential(nn.MaxPool2D(3, 1, 1), nn.Conv2D(4, 4, 1))

    def forward(self, x):
        return F.relu(paddle.concat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1))


def inputs(samples, generator):
    return generator.standard_normal((samples, 4, 9, 9)).astype("float32")
