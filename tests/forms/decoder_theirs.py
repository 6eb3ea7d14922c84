import math

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Attn(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.h = h
        self.q = nn.Linear(d, d, bias=False)
        self.kv = nn.Linear(d, 2 * d // 2, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        f = 1 / 10000 ** (torch.arange(0, d // h, 2).float() / (d // h))
        e = torch.outer(torch.arange(t).float(), f)
        e = torch.cat([e, e], -1)
        self.register_buffer("cos", e.cos(), persistent=False)
        self.register_buffer("sin", e.sin(), persistent=False)
        self.register_buffer("mask", torch.full((t, t), float("-inf")).triu(1))

    def forward(self, x):
        b, t, d = x.shape
        h = self.h
        q = self.q(x).view(b, t, h, -1).transpose(1, 2)
        k, v = self.kv(x).view(b, t, h // 2, 2, -1).unbind(3)
        k, v = (z.transpose(1, 2).repeat_interleave(2, 1) for z in (k, v))
        q, k = rope(q, self.cos[:t], self.sin[:t]), rope(k, self.cos[:t], self.sin[:t])
        a = F.softmax(q @ k.transpose(-1, -2) / math.sqrt(d // h) + self.mask[:t, :t], -1)
        return self.o((a @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.n1 = RMSNorm(d)
        self.attn = Attn(d, h, t)
        self.n2 = RMSNorm(d)
        self.w1 = nn.Linear(d, 2 * d, bias=False)
        self.w3 = nn.Linear(d, 2 * d, bias=False)
        self.w2 = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        y = self.n2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class GPT(nn.Module):
    def __init__(self, v=40, d=32, h=4, t=16):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.blocks = nn.ModuleList(Block(d, h, t) for _ in range(2))
        self.norm = RMSNorm(d)
        self.head = nn.Linear(d, v, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids) * 32**0.5
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


class MLMHead(nn.Module):
    def __init__(self, d, v):
        super().__init__()
        self.dense = nn.Linear(d, d)
        self.ln = nn.LayerNorm(d, eps=1e-12)
        self.decoder = nn.Linear(d, v)
        self.bias = nn.Parameter(torch.zeros(v))
        self.decoder.bias = self.bias

    def forward(self, x):
        return self.decoder(self.ln(F.gelu(self.dense(x))))


class Bert(nn.Module):
    def __init__(self, v=30, d=16):
        super().__init__()
        self.word = nn.Embedding(v, d, padding_idx=0)
        self.pos = nn.Embedding(16, d)
        self.segment = nn.Embedding(2, d)
        self.ln = nn.LayerNorm(d, eps=1e-12)
        self.drop = nn.Dropout(0.1)
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, 0.1, "gelu", batch_first=True)
        self.head = MLMHead(d, v)
        self.head.decoder.weight = self.word.weight
        self.register_buffer("position_ids", torch.arange(16)[None])

    def forward(self, ids):
        x = self.word(ids) + self.pos(self.position_ids[:, : ids.shape[1]]) + self.segment(torch.zeros_like(ids))
        x = self.drop(self.ln(x))
        x = self.layer(x, src_key_padding_mask=ids == 0)
        return {"logits": self.head(x), "hidden": x}


class Enc(nn.Module):
    def __init__(self, emb):
        super().__init__()
        self.embed_tokens = emb
        self.rnn = nn.LSTM(16, 16, 2, batch_first=True)

    def forward(self, i):
        return self.rnn(self.embed_tokens(i))


class Dec(nn.Module):
    def __init__(self, emb):
        super().__init__()
        self.embed_tokens = emb
        self.rnn = nn.LSTM(16, 16, 2, batch_first=True)

    def forward(self, i, h):
        return self.rnn(self.embed_tokens(i), h)[0]


class Seq(nn.Module):
    def __init__(self, v=30, d=16):
        super().__init__()
        self.shared = nn.Embedding(v, d)
        self.encoder = Enc(self.shared)
        self.decoder = Dec(self.shared)
        self.lm_head = nn.Linear(d, v, bias=False)
        self.lm_head.weight = self.shared.weight

    def forward(self, a):
        y, h = self.encoder(a)
        z = self.decoder(a.flip(1), h)
        w = torch.softmax(z @ y.transpose(1, 2) / 4, -1) @ y
        return self.lm_head(z + w)


def tokens(n, rng):
    return rng.integers(0, 30, (n, 12))
