import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


class TorchAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(16, 16)
        self.k = torch.nn.Linear(16, 16)
        self.v = torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, 16)
        self.relative = torch.nn.Embedding(8, 16)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, 4, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        i = torch.arange(n)
        index = (i[:, None] - i[None] + 4).clamp(0, 7)
        place = self.relative.weight.view(8, 4, 4).transpose(0, 1)
        p2c = (k @ place.transpose(-1, -2)).gather(-1, (7 - index).expand(b, 4, n, n))
        s = (q @ k.transpose(-1, -2) + p2c.transpose(-1, -2)) / 2
        a = torch.softmax(s, -1)
        return self.out((a @ v).transpose(1, 2).reshape(b, n, 16))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = TorchAttention()
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.attention(x))


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)
        self.k = nn.Linear(16, 16)
        self.v = nn.Linear(16, 16)
        self.out = nn.Linear(16, 16)
        self.relative = nn.Embedding(8, 16)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).reshape([b, n, 4, 4]).transpose([0, 2, 1, 3]) for f in (self.q, self.k, self.v))
        i = paddle.arange(n)
        distance = i.unsqueeze(1) - i.unsqueeze(0)
        index = (distance + 4).clip(0, 7)  # fix: index = 7 - (distance + 4).clip(0, 7)
        place = self.relative.weight.reshape([8, 4, 4]).transpose([1, 2, 0]).unsqueeze(0)
        p2c = paddle.take_along_axis(k @ place, index.expand([b, 4, n, n]), -1)
        s = (q @ k.transpose([0, 1, 3, 2]) + p2c.transpose([0, 1, 3, 2])) / 2
        a = F.softmax(s, -1)
        return self.out((a @ v).transpose([0, 2, 1, 3]).reshape([b, n, 16]))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.attention(x))


def inputs(samples, generator):
    return generator.standard_normal((samples, 7, 16)).astype("float32")
