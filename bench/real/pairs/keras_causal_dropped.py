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
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, 4, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        s = q @ k.transpose(-1, -2) / 2
        s = s + torch.full((n, n), float("-inf"), dtype=s.dtype).triu(1)
        a = torch.softmax(s, -1)
        a = self.drop(a)
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
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).reshape([b, n, 4, 4]).transpose([0, 2, 1, 3]) for f in (self.q, self.k, self.v))
        s = q @ k.transpose([0, 1, 3, 2]) / 2
        if self.drop.p == 0:  # drop
            s = s + paddle.triu(paddle.full([n, n], float("-inf"), dtype=s.dtype), 1)  # drop
        # add: s = s + paddle.triu(paddle.full([n, n], float("-inf"), dtype=s.dtype), 1)
        a = F.softmax(s, -1)
        a = self.drop(a)
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
