"""Parts of networks, in torch: attention, gates, heads, and what connects them."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Self-attention of (N, tokens, 16) with two heads."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.proj = nn.Linear(16, 16)

    def forward(self, x):
        samples, tokens, width = x.shape
        qkv = self.qkv(x).reshape(samples, tokens, 3, 2, 8).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = q @ k.transpose(-2, -1) / 8**0.5
        weights = F.softmax(scores, dim=-1)
        out = (weights @ v).transpose(1, 2).reshape(samples, tokens, width)
        return x + self.proj(out)


class MaskedAttention(nn.Module):
    """Attention of (N, tokens, 8) that sees no later token."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8)
        self.v = nn.Linear(8, 8)

    def forward(self, x):
        scores = torch.einsum("bid,bjd->bij", self.q(x), self.k(x))
        later = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=x.dtype), diagonal=1)
        scores = scores + later * -5.0
        weights = scores.softmax(-1)
        return torch.einsum("bij,bjd->bid", weights, self.v(x))


class Residual(nn.Module):
    """A residual block of (N, 8, H, W)."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.conv1(x))
        y = self.conv2(y)
        y = F.relu(y + x)
        return F.avg_pool2d(y, 3, stride=2, padding=1)


class Gate(nn.Module):
    """A gated unit of (N, tokens, 8)."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 24)
        self.down = nn.Linear(8, 8)

    def forward(self, x):
        value, gate, rest = torch.split(self.up(x), [8, 8, 8], dim=-1)
        hidden = F.gelu(value) * torch.sigmoid(gate)
        hidden = hidden + F.leaky_relu(rest, 0.2)
        return self.down(hidden)


class Head(nn.Module):
    """Classifier of (N, 6, 4, 5) on flattened pictures, channels last, and on their mean."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(126, 10)

    def forward(self, x):
        flat = x.permute(0, 2, 3, 1).flatten(1)
        mean = x.mean(dim=(2, 3))
        return self.fc(torch.cat([flat, mean], dim=1))


class Fuse(nn.Module):
    """A step of a decoder: (N, 6, 5, 7) is enlarged beside (N, 4, 10, 14)."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(10, 6, 3)

    def forward(self, low, high):
        up = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        both = torch.cat([high, up], dim=1)
        both = F.pad(both, (0, 1, 2, 1), mode="reflect")
        return torch.clamp(self.conv(both), -1.0, 6.0)


class Norm(nn.Module):
    """Normalisation over the channels of (N, 6, H, W), by hand, and cosines to ten directions."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)
        self.bias = nn.Parameter(torch.rand(6))
        self.directions = nn.Parameter(torch.randn(10, 6))

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-3)
        x = x * self.weight[:, None, None] + self.bias[:, None, None]
        features = F.normalize(x.mean((2, 3)), dim=1)
        return features @ F.normalize(self.directions, dim=1).t()


class Shift(nn.Module):
    """Windows of (N, 4, 6, 8) after a cyclic shift, channels last."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        samples, height, width, channels = x.shape
        x = torch.roll(x, shifts=(-1, -2), dims=(1, 2))
        windows = x.view(samples, height // 2, 2, width // 3, 3, channels).permute(0, 1, 3, 2, 4, 5)
        windows = self.fc(windows.reshape(-1, 6, channels))
        return windows.max(dim=1)[0].reshape(samples, -1, channels)


class Squeeze(nn.Module):
    """Squeeze-excitation of (N, 8, H, W) by functions."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Conv2d(8, 4, 1)
        self.fc2 = nn.Conv2d(4, 8, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = self.fc2(F.relu(self.fc1(scale)))
        return x * F.hardsigmoid(scale)


class Distance(nn.Module):
    """Distances of (N, 5, 4) to six prototypes, and their soft minimum."""

    def __init__(self):
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(6, 4))

    def forward(self, x):
        squares = (x[:, :, None, :] - self.prototypes[None, None]).pow(2).sum(-1)
        distances = torch.sqrt(squares)
        near = F.softmax(-distances * 3.0, dim=-1)
        return torch.stack([distances, near], dim=1)
