import paddle.nn.functional as F
import torch
from paddle import nn


class TorchAttention(torch.nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Conv2d(width, width * 3, 1)
        self.proj = torch.nn.Conv2d(width, width, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).view(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        a = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return self.proj((a @ v).transpose(-1, -2).reshape(b, c, h, w))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 3, 2, 1)
        self.attention = TorchAttention()

    def forward(self, x):
        x = self.stem(x)
        return x + self.attention(x)


class Attention(nn.Layer):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.scale = heads**-0.5  # fix: self.scale = (width // heads) ** -0.5
        self.qkv = nn.Conv2D(width, width * 3, 1)
        self.proj = nn.Conv2D(width, width, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).reshape([b, 3, self.heads, c // self.heads, h * w]).unbind(1)
        a = F.softmax(q.transpose([0, 1, 3, 2]) * self.scale @ k, -1)
        return self.proj((v @ a.transpose([0, 1, 3, 2])).reshape([b, c, h, w]))


class Port(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 16, 3, 2, 1)
        self.attention = Attention()

    def forward(self, x):
        x = self.stem(x)
        return x + self.attention(x)


def inputs(samples, generator):
    return generator.standard_normal((samples, 3, 9, 9)).astype("float32")
