"""References for ports that hold the weights with other axes: of layers, and of tensors of their own."""

import torch
from torch import nn
from torch.nn import functional as F


class Layers(nn.Module):
    """A convolution over a sequence of tokens, two blocks of attention and a gated unit, and a head: layers."""

    def __init__(self, depth=2):
        super().__init__()
        self.emb = nn.Embedding(11, 16)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.dw = nn.Conv1d(16, 16, 3, padding=1, groups=16)
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 11, bias=False)

    def forward(self, x):
        h = self.emb(x)
        h = h + self.dw(F.gelu(self.conv(h.transpose(1, 2)))).transpose(1, 2)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, h):
        y = self.norm1(h)
        q, k, v = (one(y).unflatten(-1, (4, 4)).transpose(1, 2) for one in (self.q, self.k, self.v))
        h = h + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm2(h)
        return h + self.down(F.silu(self.gate(y)) * self.up(y))


class Own(nn.Module):
    """Patches of a picture, an attention by einsum, and a head: tensors of its own."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Parameter(torch.randn(48, 16) * 0.1)
        self.start = nn.Parameter(torch.zeros(16))
        self.scale, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        self.qkv = nn.Parameter(torch.randn(3, 16, 2, 8) * 0.1)
        self.out = nn.Parameter(torch.randn(2, 8, 16) * 0.1)
        self.head = nn.Parameter(torch.randn(16, 5) * 0.1)

    def forward(self, x):
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(n, -1, 48) @ self.patch + self.start
        y = F.layer_norm(x, (16,), self.scale, self.shift)
        q, k, v = torch.einsum("ntc,pchd->pnhtd", y, self.qkv)
        a = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v
        x = x + torch.einsum("nhtd,hdc->ntc", a, self.out)
        return x.mean(1) @ self.head


class Gain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Mixing(nn.Module):
    """A block of a packed projection, and of gains that it holds itself."""

    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.qkv, self.out = Gain(16), Gain(16), nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        self.mix = nn.Parameter(torch.rand(16))
        self.scale = nn.Parameter(torch.full((16,), 0.5))
        self.key, self.value = nn.Linear(16, 40, bias=False), nn.Linear(40, 16, bias=False)

    def forward(self, h):
        q, k, v = (one.unflatten(-1, (4, 4)).transpose(1, 2) for one in self.qkv(self.n1(h)).chunk(3, -1))
        h = h + self.out(((q @ k.transpose(-1, -2) / 2).softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = self.n2(h)
        y = y * self.mix + y.roll(1, 1) * (1 - self.mix)
        return h + self.scale * self.value(F.relu(self.key(y)) ** 2)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.blocks, self.norm = nn.Embedding(11, 16), nn.ModuleList([Mixing() for _ in range(2)]), Gain(16)

    def forward(self, x):
        h = self.emb(x)
        for block in self.blocks:
            h = block(h)
        return self.norm(h) @ self.emb.weight.T
