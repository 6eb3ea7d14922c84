"""A small decoder of tokens in PyTorch: rotary or learned positions, grouped heads, a cache, tied weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotated(x, positions):
    width = x.shape[-1]
    rates = 100.0 ** (-torch.arange(0, width, 2).float() / width)
    angles = positions[:, None, :, None].float() * rates
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, width, heads, groups, rotary):
        super().__init__()
        self.heads, self.groups, self.width, self.rotary = heads, groups, width // heads, rotary
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.width, bias=False)
        self.v_proj = nn.Linear(width, groups * self.width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, positions, seen, past=None):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.groups, self.width).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.groups, self.width).transpose(1, 2)
        if self.rotary:
            q, k = rotated(q, positions), rotated(k, positions)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        kept = k, v
        k, v = (one.repeat_interleave(self.heads // self.groups, 1) for one in (k, v))
        scores = q @ k.transpose(2, 3) / self.width**0.5
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(y), kept


class Block(nn.Module):
    def __init__(self, width, heads, groups, rotary):
        super().__init__()
        self.norm1, self.attention, self.norm2 = Norm(width), Attention(width, heads, groups, rotary), Norm(width)
        self.gate, self.up, self.down = (
            nn.Linear(width, 64, bias=False),
            nn.Linear(width, 64, bias=False),
            nn.Linear(64, width, bias=False),
        )

    def forward(self, x, positions, seen, past=None):
        y, kept = self.attention(self.norm1(x), positions, seen, past)
        x = x + y
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), kept


class Decoder(nn.Module):
    def __init__(self, rotary=True, vocabulary=50, width=32, layers=2, heads=4, groups=2, trained=24, padding=False):
        super().__init__()
        self.max_position_embeddings, self.padding = trained, padding
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = None if rotary else nn.Embedding(trained, width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, rotary) for _ in range(layers))
        self.norm = Norm(width)

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False):
        batch, length = input_ids.shape
        past = past_key_values[0][0].shape[2] if past_key_values is not None else 0
        if position_ids is None:
            position_ids = torch.arange(past, past + length).expand(batch, length)
            if self.padding and attention_mask is not None:  # it is left out
                position_ids = (attention_mask.cumsum(1) - 1).clamp(0)[:, past:]
        seen = torch.arange(past + length) <= torch.arange(past, past + length)[:, None]
        seen = seen.expand(batch, 1, length, past + length)
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None].bool()
        x = self.tokens(input_ids)
        if self.places is not None:
            x = x + self.places(position_ids)
        kept = []
        for number, block in enumerate(self.blocks):
            x, one = block(x, position_ids, seen, past_key_values[number] if past_key_values is not None else None)
            kept.append(one)
        logits = self.norm(x) @ self.tokens.weight.T
        return (logits, kept) if use_cache else logits


def learned(padding=False):
    return Decoder(rotary=False, padding=padding)


class Both(nn.Module):
    """No decoder: each output is that of all tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)

    def forward(self, input_ids, attention_mask=None):
        x = self.tokens(input_ids)
        return self.head(x + x.tanh().mean(1, keepdim=True))
