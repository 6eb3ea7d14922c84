import math

import paddle
import paddle.nn.functional as F
from paddle import nn


class RMS(nn.Layer):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.scale = self.create_parameter([d], default_initializer=nn.initializer.Constant(1.0))
        self.eps = eps

    def forward(self, x):
        return x / paddle.sqrt(paddle.mean(paddle.square(x), -1, keepdim=True) + self.eps) * self.scale


def rotate(x, cos, sin):
    h = x.shape[-1] // 2
    return x * cos + paddle.concat([-x[..., h:], x[..., :h]], -1) * sin


class SelfAttention(nn.Layer):
    def __init__(self, d, h, t):
        super().__init__()
        self.h = h
        self.q_proj = nn.Linear(d, d, bias_attr=False)
        self.kv_proj = nn.Linear(d, d, bias_attr=False)
        self.o_proj = nn.Linear(d, d, bias_attr=False)
        f = 1 / 10000 ** (paddle.arange(0, d // h, 2).astype("float32") / (d // h))
        e = paddle.outer(paddle.arange(t).astype("float32"), f)
        e = paddle.concat([e, e], -1)
        self.register_buffer("cos", e.cos(), persistable=False)
        self.register_buffer("sin", e.sin(), persistable=False)
        self.register_buffer("mask", paddle.triu(paddle.full([t, t], float("-inf")), 1))

    def forward(self, x):
        b, t, d = x.shape
        h = self.h
        q = self.q_proj(x).reshape([b, t, h, -1]).transpose([0, 2, 1, 3])
        kv = self.kv_proj(x).reshape([b, t, h // 2, 2, -1])
        k, v = kv[:, :, :, 0], kv[:, :, :, 1]
        k, v = [paddle.repeat_interleave(z.transpose([0, 2, 1, 3]), 2, 1) for z in (k, v)]
        q, k = rotate(q, self.cos[:t], self.sin[:t]), rotate(k, self.cos[:t], self.sin[:t])
        a = F.softmax(paddle.matmul(q, k, transpose_y=True) / math.sqrt(d // h) + self.mask[:t, :t], -1)
        return self.o_proj(paddle.matmul(a, v).transpose([0, 2, 1, 3]).reshape([b, t, d]))


class Block(nn.Layer):
    def __init__(self, d, h, t):
        super().__init__()
        self.norm1 = RMS(d)
        self.attn = SelfAttention(d, h, t)
        self.norm2 = RMS(d)
        self.gate = nn.Linear(d, 2 * d, bias_attr=False)
        self.up = nn.Linear(d, 2 * d, bias_attr=False)
        self.down = nn.Linear(2 * d, d, bias_attr=False)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GPT(nn.Layer):
    def __init__(self, v=40, d=32, h=4, t=16):
        super().__init__()
        self.tok = nn.Embedding(v, d)
        self.layers = nn.LayerList([Block(d, h, t) for _ in range(2)])
        self.norm = RMS(d)

    def forward(self, ids):
        x = self.tok(ids) * 32**0.5
        for b in self.layers:
            x = b(x)
        return paddle.matmul(self.norm(x), self.tok.weight, transpose_y=True)


class Bert(nn.Layer):
    def __init__(self, v=30, d=16):
        super().__init__()
        self.word = nn.Embedding(v, d, padding_idx=0)
        self.pos = nn.Embedding(16, d)
        self.segment = nn.Embedding(2, d)
        self.ln = nn.LayerNorm(d, epsilon=1e-12)
        self.drop = nn.Dropout(0.1)
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, 0.1, "gelu")
        self.transform = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d, epsilon=1e-12)
        self.bias = self.create_parameter([v], is_bias=True)

    def forward(self, ids):
        x = self.word(ids) + self.pos(paddle.arange(ids.shape[1]).unsqueeze(0)) + self.segment(paddle.zeros_like(ids))
        x = self.drop(self.ln(x))
        x = self.layer(x, (ids != 0).unsqueeze([1, 2]))
        y = self.norm(F.gelu(self.transform(x)))
        return {"logits": paddle.matmul(y, self.word.weight, transpose_y=True) + self.bias, "hidden": x}


class Seq(nn.Layer):
    def __init__(self, v=30, d=16):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.enc = nn.LSTM(d, d, 2)
        self.dec = nn.LSTM(d, d, 2)

    def forward(self, a):
        y, h = self.enc(self.emb(a))
        z, _ = self.dec(self.emb(paddle.flip(a, [1])), h)
        w = paddle.matmul(F.softmax(paddle.matmul(z, y, transpose_y=True) / 4, -1), y)
        return paddle.matmul(z + w, self.emb.weight, transpose_y=True)
