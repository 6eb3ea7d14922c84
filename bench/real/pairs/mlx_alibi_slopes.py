import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


def powers(heads):
    return [2 ** (-8 * (i + 1) / heads) for i in range(heads)]


class TorchAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(12, 36)
        self.out = torch.nn.Linear(12, 12)
        self.slopes = powers(4) + powers(8)[0::2][:2]

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 6, 2).permute(2, 0, 3, 1, 4)
        i = torch.arange(n, dtype=x.dtype)
        bias = -(i[:, None] - i[None]).abs() * torch.tensor(self.slopes, dtype=x.dtype)[:, None, None]
        a = (q @ k.transpose(-1, -2) * 0.5**0.5 + bias).softmax(-1)
        return self.out((a @ v).transpose(1, 2).reshape(b, n, 12))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = TorchAttention()
        self.norm = torch.nn.LayerNorm(12)

    def forward(self, x):
        return self.norm(x + self.attention(x))


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(12, 36)
        self.out = nn.Linear(12, 12)
        self.slopes = powers(6)  # fix: self.slopes = powers(4) + powers(8)[0::2][:2]

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, 6, 2]).transpose([2, 0, 3, 1, 4]).unbind(0)
        i = paddle.arange(n, dtype=x.dtype)
        bias = -(i.unsqueeze(1) - i.unsqueeze(0)).abs() * paddle.to_tensor(self.slopes, dtype=x.dtype).reshape([6, 1, 1])
        a = F.softmax(q @ k.transpose([0, 1, 3, 2]) * 0.5**0.5 + bias, -1)
        return self.out((a @ v).transpose([0, 2, 1, 3]).reshape([b, n, 12]))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm = nn.LayerNorm(12)

    def forward(self, x):
        return self.norm(x + self.attention(x))


def inputs(samples, generator):
    return generator.standard_normal((samples, 7, 12)).astype("float32")
