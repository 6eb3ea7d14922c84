"""The same decoder in Paddle, which makes a mistake that is asked for, or is written in another way that is none."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F


class Norm(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        return self.weight * x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotated(x, positions, dtype="float32"):
    width = x.shape[-1]
    rates = 100.0 ** (-paddle.arange(0, width, 2).astype(dtype) / width)
    angles = positions.unsqueeze([1, 3]).astype(dtype) * rates
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos().astype(x.dtype), angles.sin().astype(x.dtype)
    return paddle.concat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Layer):
    def __init__(self, width, heads, groups, rotary, mistake=""):
        super().__init__()
        self.heads, self.groups, self.width, self.rotary, self.mistake = heads, groups, width // heads, rotary, mistake
        self.q_proj = nn.Linear(width, width, bias_attr=False)
        self.k_proj = nn.Linear(width, groups * self.width, bias_attr=False)
        self.v_proj = nn.Linear(width, groups * self.width, bias_attr=False)
        self.o_proj = nn.Linear(width, width, bias_attr=False)

    def joined(self, past, k, v):
        past, axis = past[::-1] if self.mistake == "exchanged" else past, 1 if self.mistake == "cache axis" else 2
        keys = [k, past[0]] if self.mistake == "new keys first" else [past[0], k]
        return paddle.concat(keys, axis), paddle.concat([past[1], v], axis)

    def forward(self, x, positions, seen, past=None):
        batch, length, _ = x.shape
        q = self.q_proj(x).reshape([batch, length, self.heads, self.width]).transpose([0, 2, 1, 3])
        k = self.k_proj(x).reshape([batch, length, self.groups, self.width]).transpose([0, 2, 1, 3])
        v = self.v_proj(x).reshape([batch, length, self.groups, self.width]).transpose([0, 2, 1, 3])
        if self.rotary:
            dtype = q.dtype if self.mistake == "angles" else "float32"
            q, k = rotated(q, positions, dtype), rotated(k, positions, dtype)
        if past is not None:
            k, v = self.joined([one.transpose([0, 2, 1, 3]) for one in past] if self.mistake == "time first" else past, k, v)
        kept = [one.transpose([0, 2, 1, 3]) for one in (k, v)] if self.mistake == "time first" else (k, v)
        if self.mistake in ("float16", "bfloat16"):
            kept = tuple(one.astype(self.mistake).astype(one.dtype) for one in kept)
        if self.mistake == "stale" and past is not None:
            kept = past
        k, v = (one.repeat_interleave(self.heads // self.groups, 1) for one in (k, v))
        scores = q @ k.transpose([0, 1, 3, 2])
        if past is None or self.mistake != "scale":
            scores = scores / self.width**0.5
        if self.mistake in ("weak mask", "large number"):
            before = paddle.arange(k.shape[2]) <= paddle.arange(k.shape[2] - length, k.shape[2]).unsqueeze(1)
            low = -12.0 if self.mistake == "weak mask" else -1e9
            scores, seen = scores.masked_fill(~seen & before, low), seen | before
        least = paddle.finfo(paddle.float32 if self.mistake == "least" else scores.dtype).min
        scores = scores.masked_fill(~seen, least)
        y = (F.softmax(scores, -1) @ v).transpose([0, 2, 1, 3]).reshape([batch, length, -1])
        return self.o_proj(y), kept


class Block(nn.Layer):
    def __init__(self, width, heads, groups, rotary, mistake=""):
        super().__init__()
        self.norm1, self.attention, self.norm2 = Norm(width), Attention(width, heads, groups, rotary, mistake), Norm(width)
        self.gate, self.up = nn.Linear(width, 64, bias_attr=False), nn.Linear(width, 64, bias_attr=False)
        self.down = nn.Linear(64, width, bias_attr=False)

    def forward(self, x, positions, seen, past=None):
        y, kept = self.attention(self.norm1(x), positions, seen, past)
        x = x + y
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), kept


class Decoder(nn.Layer):
    def __init__(self, rotary=True, vocabulary=50, width=32, layers=2, heads=4, groups=2, trained=24, mistake=""):
        super().__init__()
        self.max_position_embeddings, self.mistake = trained, mistake
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = None if rotary else nn.Embedding(trained, width)
        self.blocks = nn.LayerList([Block(width, heads, groups, rotary, mistake) for _ in range(layers)])
        self.norm = Norm(width)

    def positions(self, past, length, mask):
        places = paddle.arange(past, past + length)
        if self.mistake == "restart":
            places = paddle.arange(length)
        if self.mistake == "off by one" and past:
            places = places + 1
        if self.mistake == "modulo":
            places = places % self.max_position_embeddings
        if self.mistake == "left padding" and mask is not None:
            return (mask.cumsum(1) - 1).clip(0)[:, past:]
        if self.mistake == "left padding with a cache" and mask is not None and past:
            return (mask.cumsum(1) - 1).clip(0)[:, past:]
        return places

    def seen(self, past, length, mask, batch):
        off = 1 if self.mistake == "diagonal" and past else 0
        seen = paddle.arange(past + length) <= paddle.arange(past, past + length).unsqueeze(1) + off
        seen = seen.expand([batch, 1, length, past + length])
        if mask is None or self.mistake == "mask ignored" or (self.mistake == "mask ignored with a cache" and past):
            return seen
        return seen & mask.unsqueeze([1, 2]).astype("bool")

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False):
        batch, length = input_ids.shape
        past = past_key_values[0][0].shape[1 if self.mistake == "time first" else 2] if past_key_values is not None else 0
        if position_ids is None:
            position_ids = self.positions(past, length, attention_mask).expand([batch, length])
        seen = self.seen(past, length, attention_mask, batch)
        x = self.tokens(input_ids)
        if self.places is not None:
            x = x + self.places(position_ids)
        kept = []
        for number, block in enumerate(self.blocks):
            x, one = block(x, position_ids, seen, past_key_values[number] if past_key_values is not None else None)
            kept.append(one)
        logits = self.norm(x) @ self.tokens.weight.T
        return (logits, kept) if use_cache else logits


def learned(mistake=""):
    return Decoder(rotary=False, mistake=mistake)
