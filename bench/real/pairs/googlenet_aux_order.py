import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.low = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.high = torch.nn.Conv2d(8, 8, 3, 2, 1)
        self.aux1 = torch.nn.Linear(8, 5)
        self.aux2 = torch.nn.Linear(8, 5)
        self.fc = torch.nn.Linear(8, 5)

    def forward(self, x):
        low = torch.relu(self.low(x))
        high = torch.relu(self.high(low))
        aux1, aux2 = self.aux1(low.mean((2, 3))), self.aux2(high.mean((2, 3)))
        return self.fc(torch.tanh(high.mean((2, 3)))), aux1, aux2


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.low = nn.Conv2D(3, 8, 3, 2, 1)
        self.high = nn.Conv2D(8, 8, 3, 2, 1)
        self.aux1 = nn.Linear(8, 5)
        self.aux2 = nn.Linear(8, 5)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        low = F.relu(self.low(x))
        high = F.relu(self.high(low))
        aux1, aux2 = self.aux1(low.mean([2, 3])), self.aux2(high.mean([2, 3]))
        # add: return self.fc(paddle.tanh(high.mean([2, 3]))), aux1, aux2
        return self.fc(paddle.tanh(high.mean([2, 3]))), aux2, aux1  # drop


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 15, 15)).astype("float32")
