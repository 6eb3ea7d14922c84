"""Layers of somebody's own that hold their weights otherwise than the port's: transposed, packed, under other names."""

import torch
from torch import nn
from torch.nn import functional as F


class Dense(nn.Module):
    """Its weight is (inputs, outputs), as in GPT-2's Conv1D; square ones may lie either way."""

    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(i, o) * 0.02), nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)


class Conv1D(Dense):
    """A name that is that of a convolution."""


class Attention(nn.Module):
    def __init__(self, d, heads=2):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = Conv1D(d, 3 * d), Conv1D(d, d), heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).split(d, 2))
        y = torch.softmax(q @ k.transpose(2, 3) * (d // self.heads) ** -0.5, 3) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, t, d))


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.attn, self.mlp = RMSNorm(d), Attention(d), nn.Sequential(Conv1D(d, d), nn.GELU(), Conv1D(d, d))
        self.norm2 = RMSNorm(d)

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(self.norm2(x))


class Text(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(d), Block(d)]), nn.Linear(d, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Faint(nn.Module):
    """A square matrix of an own layer, whose influence on the output is less than float32's rounding of it."""

    def __init__(self):
        super().__init__()
        self.style, self.main = Dense(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.main(x) * (1 + 1e-7 * self.style(x)[:, :4])


class Unit(nn.Module):
    def __init__(self, c, aux):
        super().__init__()
        self.conv, self.cond = nn.Conv1d(c, 2 * c, 3, padding=1), nn.Conv1d(aux, 2 * c, 1, bias=False)

    def forward(self, x, h):
        a, b = (self.conv(x) + self.cond(h)).chunk(2, 1)
        return x + torch.tanh(a) * torch.sigmoid(b)


class Wave(nn.Module):
    """Packed convolutions, and packed conditions that are all given one array."""

    def __init__(self, c=6, aux=4):
        super().__init__()
        self.up = nn.Conv1d(c, aux, 1)
        self.units = nn.ModuleList([Unit(c, aux) for _ in range(3)])

    def forward(self, x):
        h = self.up(x)
        for unit in self.units:
            x = unit(x, h)
        return x


class Points(nn.Module):
    """Convolutions by 1 for the port's linear layers of the same names, and dropout in between."""

    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Conv1d(3, 6, 1), nn.Dropout(0.3), nn.Conv1d(6, 4, 1)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.a(x)))).transpose(1, 2)


class Spatial(nn.Module):
    """Attention over the places of a picture, of three convolutions that the port packs into one."""

    def __init__(self, c=6):
        super().__init__()
        self.q, self.k, self.v = (nn.Conv2d(c, c, 1) for _ in range(3))

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (layer(x).flatten(2) for layer in (self.q, self.k, self.v))
        weights = torch.softmax(torch.bmm(q.transpose(1, 2), k) * c**-0.5, 2)
        return x + torch.bmm(v, weights.transpose(1, 2)).reshape(b, c, h, w)


class Places(nn.Module):
    def __init__(self, c=6):
        super().__init__()
        self.stem, self.attn, self.head = nn.Conv2d(3, c, 3, padding=1), Spatial(c), nn.Conv2d(c, 2, 1)

    def forward(self, x):
        return self.head(self.attn(self.stem(x)))


class Grid(nn.Module):
    """Numbers of a head by anchor and place, which the port lays out otherwise on the way."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 8, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        y = self.head(x).view(b, 2, 4, h, w).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        place = torch.stack([columns, rows], -1)
        return torch.cat([y[..., :2].sigmoid() + place, y[..., 2:]], -1).reshape(b, -1, 4)


class Noise(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("noise", torch.randn(1, 1, size, size))

    def forward(self, x):
        return x + self.weight * self.noise


class Modulated(nn.Module):
    """A kernel that a style scales: of (1, outputs, inputs, 3, 3)."""

    def __init__(self, i, o, style):
        super().__init__()
        self.weight, self.modulation = nn.Parameter(torch.randn(1, o, i, 3, 3)), nn.Linear(style, i)

    def forward(self, x, style):
        x = x * self.modulation(style)[:, :, None, None]
        return F.conv2d(x, self.weight[0], padding=1)


class Styled(nn.Module):
    def __init__(self, i, o, style, size):
        super().__init__()
        self.conv, self.noise = Modulated(i, o, style), Noise(size)
        self.bias = nn.Parameter(torch.zeros(1, o, 1, 1))
        kernel = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("kernel", kernel[None] * kernel[:, None] / 16)

    def forward(self, x, style):
        x = self.noise(self.conv(x, style)) + self.bias
        kernel = self.kernel[None, None].repeat(x.shape[1], 1, 1, 1)
        return F.leaky_relu(F.conv2d(x, kernel, padding=1, groups=x.shape[1]), 0.2)


class Style(nn.Module):
    """Single numbers and biases of neighbours, which only the layers around them tell apart; and buffers of another shape."""

    def __init__(self, style=7):
        super().__init__()
        self.input = nn.Parameter(torch.randn(1, 5, 4, 4))
        self.conv1, self.conv2, self.conv3 = (Styled(5, 5, style, 4) for _ in range(3))

    def forward(self, style):
        x = self.input.repeat(style.shape[0], 1, 1, 1)
        for conv in (self.conv1, self.conv2, self.conv3):
            x = conv(x, style)
        return x
