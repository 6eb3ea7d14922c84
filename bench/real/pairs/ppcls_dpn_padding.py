import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.pool(torch.relu(self.norm(self.conv1(x)))).mean((2, 3)))


class Port(nn.Layer):
    def __init__(self, kernel=7, padding=3):
        super().__init__()
        # add: self.conv1 = nn.Conv2D(3, 8, kernel, 2, padding, bias_attr=False)
        self.conv1 = nn.Conv2D(3, 8, kernel, 2, 1, bias_attr=False)  # drop
        self.norm = nn.BatchNorm2D(8)
        self.pool = nn.MaxPool2D(3, 2, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.pool(F.relu(self.norm(self.conv1(x)))).mean([2, 3]))


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 21, 21)).astype("float32")
