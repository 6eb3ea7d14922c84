"""A port in the manner of a diffusion network: 1 x 1 convolutions packed into one linear layer, an activation that the caller
applies once for all blocks, and a table of sines that is kept in float32."""

import json

import pytest

from alignment.cli import main

THEIRS = """
import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.GroupNorm(2, n)
        self.q, self.k, self.v, self.out = (nn.Conv2d(n, n, 1) for _ in range(4))

    def forward(self, x):
        b, c, h, w = x.shape
        y = self.norm(x)
        q, k, v = (layer(y).reshape(b, c, h * w) for layer in (self.q, self.k, self.v))
        p = torch.softmax(torch.bmm(q.transpose(1, 2), k) * c**-0.5, -1)
        return x + self.out(torch.bmm(v, p.transpose(1, 2)).reshape(b, c, h, w))


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv, self.emb = nn.Conv2d(n, n, 3, padding=1), nn.Sequential(nn.SiLU(), nn.Linear(n, n))

    def forward(self, x, emb):
        return x + F.silu(self.conv(x) + 0.01 * self.emb(emb)[:, :, None, None])


class Net(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.enter, self.time = nn.Conv2d(3, n, 3, padding=1), nn.Linear(n, n)
        self.blocks, self.attention = nn.ModuleList([Block(n) for _ in range(3)]), Attention(n)

    def forward(self, x):
        t = (x.mean([1, 2, 3]) * 100).long().abs()
        rate = torch.exp(-math.log(1000.0) * torch.arange(4, dtype=torch.float32) / 4)
        angle = t[:, None].float() * rate
        emb, x = self.time(torch.cat([angle.cos(), angle.sin()], -1)), self.enter(x)
        for block in self.blocks:
            x = block(x, emb)
        return self.attention(x)
"""
OURS = """
import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class Attention(nn.Layer):
    def __init__(self, n):
        super().__init__()
        self.norm, self.qkv, self.leave = nn.GroupNorm(2, n), nn.Linear(n, 3 * n), nn.Linear(n, n)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).flatten(2).transpose([0, 2, 1])).split(3, -1)
        p = F.softmax(paddle.matmul(q, k, transpose_y=True) / c**0.5, -1)
        return x + self.leave(paddle.matmul(p, v)).transpose([0, 2, 1]).reshape([b, c, h, w])


class Block(nn.Layer):
    def __init__(self, n):
        super().__init__()
        self.conv, self.shift = nn.Conv2D(n, n, 3, padding=1), nn.Linear(n, n)

    def forward(self, x, emb):
        return x + F.silu(self.conv(x) + 0.01 * self.shift(emb).unsqueeze([-1, -2]))


class Net(nn.Layer):
    def __init__(self, n=8):
        super().__init__()
        self.stem, self.embed = nn.Conv2D(3, n, 3, padding=1), nn.Linear(n, n)
        self.steps, self.mix = nn.LayerList([Block(n) for _ in range(3)]), Attention(n)
        angle = np.arange(1000)[:, None] * 1000.0 ** (-np.arange(4) / 4)[None]
        table = np.concatenate([np.cos(angle), np.sin(angle)], -1).astype("float32")
        self.register_buffer("table", paddle.to_tensor(table), persistable=False)

    def forward(self, x):
        t = (x.mean([1, 2, 3]) * 100).astype("int64").abs()
        emb, x = F.silu(self.embed(paddle.index_select(self.table, t))), self.stem(x)
        for step in self.steps:
            x = step(x, emb)
        return self.mix(x)
"""


@pytest.fixture
def audited(tmp_path, capsys):
    def run(source):
        for name, text in (("ours", source), ("theirs", THEIRS)):
            (tmp_path / f"{name}.py").write_text(text)
        sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--eval-only"]
        status = main(["audit", *sides, "--input", "4x3x6x6", "--report", str(tmp_path / "report")])
        return (
            status,
            json.loads((tmp_path / "report/alignment.json").read_text())["localization"]["every"],
            capsys.readouterr().out,
        )

    return run


def test_a_right_port_that_packs_rounds_and_activates_elsewhere_passes(audited):
    status, found, out = audited(OURS)
    assert status == 0 and {one["kind"] for one in found} <= {"float32_constant", "initialisation"}, out


@pytest.mark.parametrize(("before", "after", "words"), [("/ c**0.5", "/ 2 / c**0.5", ""), ("0.01 *", "0.02 *", "0.02")])
def test_a_mistake_in_it_is_the_only_one(audited, before, after, words):
    assert before in OURS
    line = OURS[: OURS.index(before)].count("\n") + 1
    status, found, out = audited(OURS.replace(before, after))
    mistakes = [one for one in found if one["kind"] not in ("float32_constant", "initialisation")]
    assert status == 1 and len(mistakes) == 1 and f"ours.py:{line}" in mistakes[0]["hint"] and words in mistakes[0]["hint"], out
