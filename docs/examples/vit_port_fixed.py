"""The port of docs/port_your_own.md
with its three mistakes corrected."""

import paddle.nn.functional as F
from paddle import nn


class Attention(nn.Layer):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, self.num_heads, c // self.num_heads]).transpose([2, 0, 3, 1, 4])
        weights = F.softmax(q @ k.transpose([0, 1, 3, 2]) * (c // self.num_heads) ** -0.5, axis=-1)
        return self.out((weights @ v).transpose([0, 2, 1, 3]).reshape([b, n, c]))


class Block(nn.Layer):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=1e-6)
        self.attn = Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, epsilon=1e-6)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class ViT(nn.Layer):
    def __init__(self, num_classes=10, dim=32, num_heads=4, depth=2):
        super().__init__()
        self.patch_embed = nn.Conv2D(3, dim, kernel_size=8, stride=8)
        self.pos_embed = self.create_parameter([1, 16, dim], default_initializer=nn.initializer.Normal(std=0.02))
        self.layers = nn.LayerList([Block(dim, num_heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, epsilon=1e-6)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose([0, 2, 1]) + self.pos_embed
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))
