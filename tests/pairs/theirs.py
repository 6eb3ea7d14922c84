"""Their references."""

# ruff: noqa: E731, E741, RUF100, I001
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, h=4):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1) * (C // self.h) ** -0.5).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(B, N, C))


class PerHead(Attention):
    def forward(self, x):
        B, N, C = x.shape
        k, q, v = self.qkv(x).reshape(B, N, self.h, 3, C // self.h).permute(3, 0, 2, 1, 4)
        a = (q @ k.transpose(-2, -1) * (C // self.h) ** -0.5).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(B, N, C))


class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1 = nn.Linear(d, 2 * d)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(2 * d, d)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, d, A):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.attn = A(d)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = Mlp(d)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    A = Attention

    def __init__(self, d=16, depth=2):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, d))
        self.pos_embed = nn.Parameter(torch.randn(1, 17, d))
        self.patch_embed = nn.Conv2d(3, d, 4, 4)
        self.blocks = nn.Sequential(*[Block(d, self.A) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 5)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class ViTHead(ViT):
    A = PerHead


class LSTMNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layers(x))


class EncoderSeq(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.0), 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layers(x.transpose(0, 1)).transpose(0, 1))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        t = lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        self.a = t()
        self.b = t()
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(torch.cat([self.a(x), self.b(x)], 1).mean((2, 3)))


class Basic(nn.Module):
    def __init__(self, i, o, s=1):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, s, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if (i != o or s > 1) else None

    def forward(self, x):
        z = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(z + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Basic(8, 8), Basic(8, 8))
        self.layer2 = nn.Sequential(Basic(8, 16, 2), Basic(16, 16))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))).mean((2, 3)))
