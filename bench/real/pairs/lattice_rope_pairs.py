import paddle
import paddle.nn.functional as F
import torch
from paddle import nn


def torch_rotated(x, angle):
    one, two = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], -1)


class TorchAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q = torch.nn.Linear(16, 16)
        self.k = torch.nn.Linear(16, 16)
        self.v = torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, 16)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, 4, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        angle = torch.arange(n, dtype=x.dtype)[:, None] * 10000 ** -(torch.arange(2, dtype=x.dtype) / 2)
        q, k = torch_rotated(q, angle), torch_rotated(k, angle)
        s = q @ k.transpose(-1, -2) / 2
        a = torch.softmax(s, -1)
        return self.out((a @ v).transpose(1, 2).reshape(b, n, 16))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = TorchAttention()
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.attention(x))


def rotated(x, angle):
    one, two = x[..., 0::2], x[..., 1::2]  # fix: one, two = x.chunk(2, -1)
    first, second = one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()
    return paddle.stack([first, second], -1).flatten(-2)  # fix: return paddle.concat([first, second], -1)


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)
        self.k = nn.Linear(16, 16)
        self.v = nn.Linear(16, 16)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).reshape([b, n, 4, 4]).transpose([0, 2, 1, 3]) for f in (self.q, self.k, self.v))
        angle = paddle.arange(n, dtype=x.dtype).unsqueeze(1) * 10000 ** -(paddle.arange(2, dtype=x.dtype) / 2)
        q, k = rotated(q, angle), rotated(k, angle)
        s = q @ k.transpose([0, 1, 3, 2]) / 2
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
