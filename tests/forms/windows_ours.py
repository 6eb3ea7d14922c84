"""The port of windows_theirs.py: other names, the keys turned within the product."""

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class WindowAttention(nn.Layer):
    def __init__(self, dim=16, heads=2, window=4):
        super().__init__()
        self.num_heads, self.scale = heads, (dim // heads) ** -0.5
        self.relative_position_bias_table = self.create_parameter([(2 * window - 1) ** 2, heads])
        grid = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
        relative = grid[:, :, None] - grid[:, None] + window - 1
        self.register_buffer("relative_position_index", paddle.to_tensor(relative[0] * (2 * window - 1) + relative[1]))
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape([b, n, 3, self.num_heads, c // self.num_heads]).transpose([2, 0, 3, 1, 4])
        attn = paddle.matmul(qkv[0] * self.scale, qkv[1], transpose_y=True)
        bias = paddle.gather(self.relative_position_bias_table, self.relative_position_index.flatten())
        attn = F.softmax(attn + bias.reshape([n, n, -1]).transpose([2, 0, 1]).unsqueeze(0), axis=-1)
        return self.proj(paddle.matmul(attn, qkv[2]).transpose([0, 2, 1, 3]).reshape([b, n, c]))


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(16), WindowAttention()

    def forward(self, x):
        return x + self.attn(self.norm1(x))


class Windows(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 5, bias_attr=False)

    def forward(self, x):
        x = self.stage(x)
        parts = [x[:, i::4] for i in (0, 2, 1, 3)]
        return self.head(self.norm(paddle.concat(parts, axis=-1)))
