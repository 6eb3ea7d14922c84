"""References that draw random numbers by other means than ``nn.Dropout``."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Attention with the dropout of ``scaled_dot_product_attention``."""

    def __init__(self, width=16, heads=2, drop=0.1):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop if self.training else 0.0)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class AttentionNet(nn.Module):
    """A block of attention and a head."""

    def __init__(self):
        super().__init__()
        self.norm, self.attn, self.head = nn.LayerNorm(16), Attention(), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(x + self.attn(self.norm(x)))


class DropPath(nn.Module):
    """Stochastic depth by ``torch.rand``, as in many repositories."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        mask = keep + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device)
        return x.div(keep) * mask.floor_()


class DropPathTimm(nn.Module):
    """Stochastic depth by ``bernoulli_``, as in timm."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0:
            mask.div_(keep)
        return x * mask


class DropPathLess(DropPath):
    """By a comparison, which keeps other values of the same numbers."""

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        return x / keep * (torch.rand((x.shape[0],) + (1,) * (x.ndim - 1)) < keep)


class Block(nn.Module):
    def __init__(self, width, rate, path=DropPath):
        super().__init__()
        self.norm, self.fc1, self.act, self.fc2 = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )
        self.drop_path = path(rate)

    def forward(self, x):
        return x + self.drop_path(self.fc2(self.act(self.fc1(self.norm(x)))))


class Rand(nn.Module):
    """Three blocks with rates that grow."""

    path, rates = DropPath, [0.1, 0.2, 0.3]

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, rate, self.path) for rate in self.rates])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Bernoulli(Rand):
    path = DropPathTimm


class Less(Rand):
    path = DropPathLess


class Linspace(Rand):
    """Rates by torch's float32 linspace."""

    path = DropPathTimm
    rates = tuple(torch.linspace(0, 0.1, 3).tolist())


class LinspaceOfFour(Linspace):
    """One of its rates is the second nearest number that float32 has."""

    rates = tuple(torch.linspace(0, 0.2, 4).tolist())


class Noise(nn.Module):
    """Noise that is added in training mode."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc(x)
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        return self.head(torch.relu(x))


class ByHand(nn.Module):
    """A dropout written by hand."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.fc(x))
        if self.training:
            x = x * (torch.rand(x.shape) < 0.7).to(x.dtype) / 0.7
        return self.head(x)


class Masked(nn.Module):
    """Masks of tokens by ``torch.bernoulli`` of a tensor of probabilities."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc(x)
        if self.training:
            x = x * torch.bernoulli(torch.full(x.shape[:2], 0.75, dtype=x.dtype)).unsqueeze(-1)
        return self.head(torch.relu(x))
