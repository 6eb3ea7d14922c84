"""Cells, packed sequences, weight norm by hand, tables of half the size, casts: sound ports pass, and what is wrong is named."""

import json

import numpy as np
import pytest
import torch

from alignment.cli import main
from alignment.frameworks.base import leaves, mapped
from alignment.models.calibration import random_values

HEAD = """
import math
import numpy as np
import {framework}
from {framework} import nn
from {framework}.nn import functional as F
"""

CELLS_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bridge = nn.ModuleList([nn.Linear(4, 5), nn.Linear(4, 5)])
        self.cell, self.second = nn.LSTMCell(4, 5), nn.GRUCell(5, 5)

    def forward(self, x):
        state = tuple(F.relu(layer(x[:, 0])) for layer in self.bridge)
        outs, other = [], torch.zeros_like(state[0])
        for x_t in x.unbind(1):
            state = self.cell(x_t, state)
            other = self.second(state[0], other)
            outs.append(other)
        return torch.stack(outs, 1)
"""
CELLS = """

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.h, self.c = nn.Linear(4, 5), nn.Linear(4, 5)
        self.cell, self.second = nn.LSTMCell(4, 5), nn.GRUCell(5, 5)

    def forward(self, x):
        h = F.relu(self.h(x[:, 0]))
        c = F.relu(self.c(x[:, 0]))
        outs, other = [], paddle.zeros_like(h)
        for x_t in x.unbind(1):
            _, (h, c) = self.cell(x_t, (h, c))
            _, other = self.second(h, other)
            outs.append(other)
        return paddle.stack(outs, 1)
"""
PACKED_REF = """from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.norm = nn.LayerNorm(5, eps=1e-3)

    def forward(self, x):
        lengths = torch.arange(x.shape[0]) % 9 + 1
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return self.norm(pad_packed_sequence(out, batch_first=True, total_length=x.size(1))[0])
"""
PACKED = """

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 5)
        self.norm = nn.LayerNorm(5, epsilon=1e-3)

    def forward(self, x):
        return self.norm(self.rnn(x, sequence_length=paddle.arange(x.shape[0]) % 9 + 1)[0])
"""
NORM_REF = """

class WNConv(nn.Conv1d):
    def __init__(self, i, o, k):
        super().__init__(i, o, k, padding=k // 2)
        self.g = nn.Parameter(self.weight.detach().flatten(1).norm(dim=1).view(-1, 1, 1))

    def forward(self, x):
        norm = self.weight.flatten(1).norm(dim=1).view(-1, 1, 1)
        return F.conv1d(x, self.g * self.weight / norm, self.bias, 1, self.padding)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList([WNConv(8, 8, 3) for _ in range(4)]), WNConv(8, 1, 7)

    def forward(self, x):
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
        return self.head(x)
"""
NORM = """

class WNConv(nn.Conv1D):
    def __init__(self, i, o, k):
        start = nn.initializer.Uniform(-((i * k) ** -0.5), (i * k) ** -0.5)
        super().__init__(i, o, k, padding=k // 2, weight_attr=start, bias_attr=start)
        self.g = self.create_parameter([o, 1, 1])
        self.g.set_value(self.weight.flatten(1).norm(axis=1).reshape([-1, 1, 1]))

    def forward(self, x):
        norm = self.weight.flatten(1).norm(axis=1).reshape([-1, 1, 1])
        return F.conv1d(x, self.g * self.weight / norm, self.bias, 1, self._padding)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LayerList([WNConv(8, 8, 3) for _ in range(4)]), WNConv(8, 1, 7)

    def forward(self, x):
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
        return self.head(x)
"""
DECODER_REF = """

def rotated(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.max_position_embeddings = 16
        self.embed, self.qkv, self.out = nn.Embedding(40, 24), nn.Linear(24, 72), nn.Linear(24, 40)
        freq = 1.0 / (1e4 ** (torch.arange(0, 6, 2).float() / 6))
        angle = torch.arange(64).float()[:, None] * freq
        angle = torch.cat([angle, angle], -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        b, t = input_ids.shape
        past = past_key_values[0].shape[2] if past_key_values is not None else 0
        x = self.embed(input_ids)
        q, k, v = (y.reshape(b, t, 4, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        cos, sin = self.cos[past : past + t], self.sin[past : past + t]
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        if past_key_values is not None:
            k, v = torch.cat([past_key_values[0], k], 2), torch.cat([past_key_values[1], v], 2)
        hidden = torch.ones(t, past + t).triu(past + 1).bool()
        s = (q @ k.transpose(2, 3) / math.sqrt(6)).masked_fill(hidden, float("-inf"))
        p = F.softmax(s, dim=-1, dtype=torch.float32).to(q.dtype)
        logits = self.out(x + (p @ v).transpose(1, 2).reshape(b, t, -1))
        return (logits, (k, v)) if use_cache else logits
"""
DECODER = """

def rope(x, cos, sin):
    a, b = paddle.chunk(x, 2, -1)
    return paddle.concat([a * cos - b * sin, b * cos + a * sin], -1)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.max_position_embeddings = 16
        self.embed, self.qkv, self.out = nn.Embedding(40, 24), nn.Linear(24, 72), nn.Linear(24, 40)
        angle = np.arange(64)[:, None] * 1e4 ** (-np.arange(0, 6, 2) / 6)
        self.register_buffer("cos", paddle.to_tensor(np.cos(angle).astype("float32")), persistable=False)
        self.register_buffer("sin", paddle.to_tensor(np.sin(angle).astype("float32")), persistable=False)

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        b, t = input_ids.shape
        past = past_key_values[0].shape[2] if past_key_values is not None else 0
        x = self.embed(input_ids)
        q, k, v = (y.reshape([b, t, 4, -1]).transpose([0, 2, 1, 3]) for y in self.qkv(x).chunk(3, -1))
        first = past
        cos, sin = self.cos[first : first + t], self.sin[first : first + t]
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        if past_key_values is not None:
            k, v = paddle.concat([past_key_values[0], k], 2), paddle.concat([past_key_values[1], v], 2)
        hidden = paddle.triu(paddle.ones([t, past + t]), past + 1).astype("bool").expand([b, 4, t, past + t])
        s = paddle.where(hidden, paddle.full([b, 4, t, past + t], float("-inf")), q @ k.transpose([0, 1, 3, 2]) / math.sqrt(6))
        p = F.softmax(s, axis=-1, dtype="float32").astype(q.dtype)
        logits = self.out(x + (p @ v).transpose([0, 2, 1, 3]).reshape([b, t, -1]))
        return (logits, (k, v)) if use_cache else logits
"""
SUM_REF = """

class Block(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.a = nn.Conv1d(6, 6, k, padding=k // 2)

    def forward(self, x):
        return self.a(F.leaky_relu(x, 0.1)) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.blocks, self.post = nn.Conv1d(4, 6, 1), nn.ModuleList([Block(k) for k in (3, 5)]), nn.Conv1d(6, 2, 1)

    def forward(self, x):
        x, xs = self.pre(x), None
        for block in self.blocks:
            xs = block(x) if xs is None else xs + block(x)
        return self.post(torch.tanh(xs / 2))
"""
SUM = """

class Block(nn.Layer):
    def __init__(self, k):
        super().__init__()
        self.a = nn.Conv1D(6, 6, k, padding=k // 2)

    def forward(self, x):
        y = self.a(F.leaky_relu(x, 0.1))
        x = y + x
        return x


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.pre, self.blocks, self.post = nn.Conv1D(4, 6, 1), nn.LayerList([Block(k) for k in (3, 5)]), nn.Conv1D(6, 2, 1)

    def forward(self, x):
        x, xs = self.pre(x), 0.0
        for block in self.blocks:
            xs = xs + block(x)
        return self.post(paddle.tanh(xs / 2))
"""
GIVEN_REF = """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return x + self.b(torch.tanh(self.a(x))) * torch.linspace(0.5, 1, 6, dtype=x.dtype)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.blocks, self.post = nn.Linear(4, 6), nn.ModuleList([Block() for _ in range(2)]), nn.Linear(6, 3)

    def forward(self, x):
        x = self.pre(x)
        for block in self.blocks:
            x = block(x)
        return self.post(x)
"""
GIVEN = """

class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, gain):
        return x + self.b(paddle.tanh(self.a(x))) * gain


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.pre, self.blocks, self.post = nn.Linear(4, 6), nn.LayerList([Block() for _ in range(2)]), nn.Linear(6, 3)

    def forward(self, x):
        x, gain = self.pre(x), paddle.linspace(0.5, 1, 6, dtype=x.dtype)
        for block in self.blocks:
            x = block(x, gain)
        return self.post(x)
"""
TABLE_REF = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.post = nn.Linear(4, 8), nn.Linear(8, 3)
        angle = torch.arange(5).float()[:, None] * 10.0 ** -torch.arange(4).float()
        self.pos_embed = nn.Parameter(torch.cat([angle.sin(), angle.cos()], 1)[None], requires_grad=False)

    def forward(self, x):
        return self.post(torch.tanh(self.pre(x) + self.pos_embed))
"""
TABLE = """

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.pre, self.post = nn.Linear(4, 8), nn.Linear(8, 3)
        angle = np.arange(5)[:, None] * 10.0 ** -np.arange(4)
        self.places = paddle.to_tensor(np.concatenate([np.sin(angle), np.cos(angle)], 1).astype("float32")[None])

    def forward(self, x):
        return self.post(paddle.tanh(self.pre(x) + self.places))
"""
EXCHANGED = "the constructor makes other constants: places has its halves exchanged along axis 1"
LOWEST_REF = """

class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.value = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return torch.tanh(self.gate(x)) * self.value(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias, self.mlp = nn.Parameter(torch.zeros(5, 5)), Gated()

    def forward(self, x, bias):
        if bias is None:
            lowest = torch.finfo(x.dtype).min
            bias = self.bias + torch.triu(torch.full((5, 5), lowest, dtype=x.dtype), 1)
        x = x + torch.softmax(x @ x.transpose(1, 2) + bias, -1) @ x
        return x + self.mlp(x), bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(6, 3)

    def forward(self, x):
        bias = None
        for block in self.blocks:
            x, bias = block(x, bias)
        return self.head(x)
"""
LOWEST = (
    LOWEST_REF.replace("nn.Module)", "nn.Layer)")
    .replace("nn.ModuleList", "nn.LayerList")
    .replace("nn.Parameter(torch.zeros(5, 5))", "self.create_parameter([5, 5], default_initializer=nn.initializer.Constant(0.0))")
    .replace("transpose(1, 2)", "transpose([0, 2, 1])")
    .replace("torch.softmax", "F.softmax")
    .replace("torch.finfo(x.dtype).min", "float(np.finfo('float32').min)")
    .replace("torch.full((5, 5), lowest, dtype=x.dtype)", "paddle.full([5, 5], lowest, x.dtype)")
    .replace("torch.", "paddle.")
)
LISTS_REF = """

class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.silu(self.conv1(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList()
        for level in range(2):
            stage = nn.Module()
            stage.block = nn.ModuleList([Block()])
            stage.up = Up() if level == 0 else nn.Identity()
            self.levels.append(stage)
        self.stem, self.head = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.levels:
            x = stage.up(stage.block[0](x))
        return self.head(x)
"""
LISTS = """

class Up(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2D(6, 6, 3, padding=1),
        )


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2D(6, 6, 3, padding=1), nn.Silu(), nn.Conv2D(6, 6, 3, padding=1))

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2D(3, 6, 1), Block(), Up(), Block(), nn.Conv2D(6, 2, 1))

    def forward(self, x):
        return self.layers(x)
"""

CODES_REF = """

class Quantizer(nn.Module):
    def __init__(self, n, d, beta):
        super().__init__()
        self.d, self.beta = d, beta
        self.embedding = nn.Embedding(n, d)

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, self.d)
        w = self.embedding.weight
        d = torch.sum(flat**2, dim=1, keepdim=True) + torch.sum(w**2, dim=1) - 2 * torch.matmul(flat, w.t())
        index = torch.argmin(d, dim=1)
        z_q = self.embedding(index).view(z.shape)
        loss = self.beta * torch.mean((z_q.detach() - z) ** 2) + torch.mean((z_q - z.detach()) ** 2)
        z_q = z + (z_q - z).detach()
        return z_q.permute(0, 3, 1, 2).contiguous(), loss


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.quantize = Quantizer(16, 4, 0.25)
        self.head = nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, x):
        z, loss = self.quantize(self.stem(x))
        return self.head(z), loss
"""
CODES = """

class Quantizer(nn.Layer):
    def __init__(self, n, d, beta):
        super().__init__()
        self.d, self.beta = d, beta
        self.embedding = nn.Embedding(n, d)

    def forward(self, z):
        z = z.transpose([0, 2, 3, 1])
        flat = z.reshape([-1, self.d])
        w = self.embedding.weight
        d = paddle.sum(flat**2, axis=1, keepdim=True) + paddle.sum(w**2, axis=1) - 2 * paddle.matmul(flat, w.t())
        index = paddle.argmin(d, axis=1)
        z_q = self.embedding(index).reshape(z.shape)
        loss = self.beta * paddle.mean((z_q.detach() - z) ** 2) + paddle.mean((z_q - z.detach()) ** 2)
        z_q = z + (z_q - z).detach()
        return z_q.transpose([0, 3, 1, 2]), loss


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 4, 1)
        self.quantize = Quantizer(16, 4, 0.25)
        self.head = nn.Conv2D(4, 3, 3, padding=1)

    def forward(self, x):
        z, loss = self.quantize(self.stem(x))
        return self.head(z), loss
"""
PIXELS_REF = """

class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.size, self.norm1, self.norm2 = size, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.depthwise, self.mlp = nn.Conv2d(dim, dim, 3, padding=1, groups=dim), Mlp(dim)

    def forward(self, x):
        n, _, c = x.shape
        shortcut = x
        x = self.norm1(x).transpose(1, 2).reshape(n, c, *self.size)
        x = self.depthwise(x).flatten(2).transpose(1, 2)
        x = shortcut + x / math.sqrt(2)
        return x + self.mlp(self.norm2(x)) / math.sqrt(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)
        self.blocks, self.head = nn.ModuleList([Block(8, (6, 5)) for _ in range(2)]), nn.Linear(8, 4)

    def forward(self, x):
        x = self.norm(self.stem(x).flatten(2).transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))
"""
PIXELS = """

def smaller(x):
    return x / math.sqrt(2)


class Block(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.depthwise = nn.Conv2D(dim, dim, 3, padding=1, groups=dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim),
            nn.GELU(),
            nn.Linear(2 * dim, dim),
        )

    def forward(self, x):
        y = self.norm1(x)
        y = self.depthwise(y.transpose([0, 3, 1, 2])).transpose([0, 2, 3, 1])
        x = x + smaller(y)
        return x + smaller(self.mlp(self.norm2(x)))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2D(3, 8, 4, 4), nn.LayerNorm(8)
        self.blocks, self.head = nn.Sequential(*[Block(8) for _ in range(2)]), nn.Linear(8, 4)

    def forward(self, x):
        x = self.norm(self.stem(x).transpose([0, 2, 3, 1]))
        return self.head(self.blocks(x).mean([1, 2]))
"""

PAIRS = {
    "table": (TABLE_REF, TABLE, "4x5x4"),
    "given": (GIVEN_REF, GIVEN, "4x4"),
    "sum": (SUM_REF, SUM, "4x4x12"),
    "cells": (CELLS_REF, CELLS, "4x3x4"),
    "packed": (PACKED_REF, PACKED, "4x9x6"),
    "weight norm": (NORM_REF, NORM, "4x8x20"),
    "decoder": (DECODER_REF, DECODER, "ids.npz"),
    "pixels": (PIXELS_REF, PIXELS, "4x3x24x20"),
    "lowest": (LOWEST_REF, LOWEST, "4x5x6"),
    "lists": (LISTS_REF, LISTS, "2x3x8x6"),
    "codes": (CODES_REF, CODES, "4x3x8x8"),
}
CASES = {
    "pixels, sound": ((), []),
    "pixels, gelu": (
        ("nn.GELU()", "nn.GELU(approximate=True)"),
        [("call_argument", None, "ours.py:20: gelu approximate True, expected False")],
    ),
    "pixels, residual": (
        ("        y = self.norm1(x)\n", "        x = y = self.norm1(x)\n"),
        [("operand", None, "+ takes blocks.0.norm1 in line 25, expected norm in line 38")],
    ),
    "pixels, divisor": (
        ("return x / math.sqrt(2)", "return x"),
        [("call_missing", None, "/ 1.41421 is missing")],
    ),
    "lowest, sound": ((), []),
    "lowest, gate": (
        ("paddle.tanh(self.gate(x)) * self.value(x)", "paddle.tanh(self.value(x)) * self.gate(x)"),
        [("operand", "blocks.0.mlp", "tanh and *: the same calls as in the reference, but on other values")],
    ),
    "codes, sound": ((), []),
    "codes, not detached": (
        ("z_q.detach() - z", "z_q - z"),
        [("detached", "quantize", "takes from reshape to [4, 8, 8, 4] should be")],
    ),
    "codes, the other operand": (
        ("z + (z_q - z).detach()", "z.detach() + (z_q - z)"),
        [("detached", "quantize", "what + in line 23 takes from - should be detached, not what is detached in line 23")],
    ),
    "codes, the other term": (
        (
            "self.beta * paddle.mean((z_q.detach() - z) ** 2) + paddle.mean(",
            "paddle.mean((z_q.detach() - z) ** 2) + self.beta * paddle.mean(",
        ),
        [("detached", "quantize", "should be detached, not what is detached in line 22")],
    ),
    "lists, sound": ((), []),
    "lists, mode": (
        ('mode="nearest"', 'mode="bilinear"'),
        [("call_argument", "levels.0.up", "ours.py:12: interpolate mode bilinear, expected nearest")],
    ),
    "lists, half": (("x + self.body", "x + 0.5 * self.body"), [("call_extra", "levels.0.block.0", "* 0.5 is superfluous")]),
    "given, sound": ((), []),
    "given, detached": (("self.a(x)", "self.a(x.detach())"), [("detached", "Net.forward", "detach: no gradient flows back")]),
    "table, sound": ((), []),
    "table, order": (
        ("[np.sin(angle), np.cos(angle)]", "[np.cos(angle), np.sin(angle)]"),
        [("constant", "Net.forward", EXCHANGED)],
    ),
    "sum, sound": ((), []),
    "sum, residual": (("        return x\n", "        return y\n"), [("no_residual", "blocks.0", "residual missing")]),
    "cells, sound": ((), []),
    "cells, another activation before": (
        ("c = F.relu(", "c = F.tanh("),
        [("other_function", "Net.forward", "tanh, expected relu")],
    ),
    "packed, sound": ((), []),
    "packed, eps": (("epsilon=1e-3", "epsilon=1e-5"), [("norm_eps", "norm", "wrong eps 1e-05, expected 0.001")]),
    "weight norm, sound": ((), []),
    "weight norm, slope": (("(layer(x), 0.1)", "(layer(x), 0.01)"), [("call_argument", "Net.forward", "slope 0.01, expected 0.1")]),
    "decoder, sound": ((), []),
    "decoder, positions": (
        ("first = past", "first = 0"),
        [("", "Net.forward", "")],
    ),
    "decoder, scale": (("math.sqrt(6)", "math.sqrt(24)"), [(None, "Net.forward", "/ 4.89898, expected 2.44949")]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_layers_of_another_kind(case, tmp_path, capsys):
    change, wanted = CASES[case]
    reference, right, inputs = PAIRS[case.partition(",")[0]]
    port = right.replace(*change) if change else right
    assert change == () or port != right
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    np.savez(tmp_path / "ids.npz", input_ids=np.random.default_rng(0).integers(0, 40, (4, 9)))
    inputs = f"{tmp_path}/ids.npz" if inputs == "ids.npz" else inputs
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", inputs)
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())
    said = capsys.readouterr().out
    assert (status, len(found["mistakes"])) == (int(bool(wanted)), len(wanted)), said
    for one, (kind, place, words) in zip(found["mistakes"], wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and place in (None, one["location"]) and words in one["hint"], one
    assert "still fails" not in said and "float32_constant" not in said, said
    if case == "decoder, sound":
        assert "1 decoding" in said


def test_a_packed_sequence_is_taken_apart_and_put_together():
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 4), torch.tensor([3, 1]), batch_first=True)
    arrays = mapped(packed, torch.Tensor, lambda tensor: tensor.numpy())
    again = mapped(arrays, np.ndarray, torch.from_numpy)
    assert type(again) is type(packed) and [one.tolist() for one in leaves(again, torch.Tensor)] == [
        one.tolist() for one in leaves(packed, torch.Tensor)
    ]


@pytest.mark.parametrize(
    ("name", "array", "kept"),
    [
        ("conv.g", np.linspace(0.3, 0.9, 8).reshape(8, 1, 1), True),
        ("head.g", np.full((1, 1, 1), 0.6), True),
        ("scale", np.linspace(0.3, 0.9, 8), True),
        ("conv.weight", np.linspace(0.3, 0.9, 8).reshape(8, 1, 1), False),
        ("gamma", np.full((8, 1, 1), 1e-6), False),
        ("shift", np.linspace(-0.3, 0.9, 8), False),
    ],
)
def test_a_gain_for_each_channel_stays_positive(name, array, kept):
    made = random_values(np.random.default_rng(0), name, array.astype(np.float32)) / array
    assert bool(((made > 0.49) & (made < 1.51)).all()) is kept


BOTH = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.mix, self.head = nn.Embedding(40, 8), nn.Linear(8, 8), nn.Linear(8, 40)

    def forward(self, input_ids, decoder_input_ids, past_key_values=None):
        seen = self.embedding(input_ids).mean(1)
        x = self.embedding(decoder_input_ids).cumsum(1) + seen[:, None]
        return self.head(F.silu(self.mix(x)))
"""


@pytest.mark.parametrize("cached", [True, False])
def test_a_cache_that_no_call_is_given_is_said(cached, tmp_path, capsys):
    reference = BOTH if cached else BOTH.replace(", past_key_values=None", "")
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + reference.replace("nn.Module", "nn.Layer"))
    rng = np.random.default_rng(0)
    ids = {name: rng.integers(0, 40, (4, 6)) for name in ("input_ids", "decoder_input_ids")}
    np.savez(tmp_path / "ids.npz", **ids)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/ids.npz")
    assert main(["audit", *sides, "--report", str(tmp_path / "report")]) == 0, capsys.readouterr().out
    said = [one["what"] for one in json.loads((tmp_path / "report" / "alignment.json").read_text())["not_checked"]]
    assert any("call by call with past_key_values" in one for one in said) is cached, said
