"""A layer that is wrong in a module in which rounding becomes large, as by a mask of -1e9, is found beside those that are alike."""

import json

import numpy as np
import pytest

from alignment.cli import main

THEIRS = """
import torch
from torch import nn

def RMS(eps):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    return Norm()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.v = RMS(1e-6), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, hidden):
        y = self.norm(x)
        scores = self.q(y) @ y.transpose(1, 2) + hidden
        return torch.softmax(scores, -1) @ self.v(y)


class Stack(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.block, self.norm = words, Block(), RMS(1e-6)

    def forward(self, ids):
        x = self.norm(self.words(ids))
        n = x.shape[1]
        return self.block(x, torch.full((n, n), -1e9, dtype=x.dtype).triu(0))  # nothing is left to the first word


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.stack = Stack(self.words)

    def forward(self, ids):
        return self.stack(ids) @ self.words.weight.T
"""
OURS = (
    THEIRS.replace("import torch\nfrom torch import nn", "import paddle\nfrom paddle import nn")
    .replace("nn.Module", "nn.Layer").replace("nn.Parameter(torch.ones(8))", "self.create_parameter([8])")
    .replace("x.pow(2).mean(-1, keepdim=True)", "(x * x).mean(-1, keepdim=True)").replace("torch.rsqrt", "paddle.rsqrt")
    .replace("torch.full((n, n), -1e9, dtype=x.dtype).triu(0)", "paddle.triu(paddle.full([n, n], -1e9, dtype=x.dtype), 0)")
    .replace("y.transpose(1, 2)", "y.transpose([0, 2, 1])")
    .replace("torch.softmax", "nn.functional.softmax")
)  # fmt: skip
assert "torch" not in OURS


@pytest.fixture
def audited(tmp_path, capsys):
    """A function that audits a port with this source: its mistakes, and what was printed."""

    def run(source):
        for name, text in (("ours", source), ("theirs", THEIRS)):
            (tmp_path / f"{name}.py").write_text(text)
        np.savez(tmp_path / "inputs.npz", ids=np.random.default_rng(0).integers(0, 12, (3, 6)))
        sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--eval-only"]
        main(["audit", *sides, "--input", str(tmp_path / "inputs.npz"), "--report", str(tmp_path / "report")])
        return json.loads((tmp_path / "report/alignment.json").read_text())["localization"]["every"], capsys.readouterr().out

    return run


def test_a_right_port_passes(audited):
    found, out = audited(OURS)
    assert not found and "PASS: no mistake found" in out, out


def test_one_mistake_in_all_norms_is_one_finding(audited):
    source = OURS.replace("1e-6", "1.1e-6")
    found, out = audited(source)
    assert len(found) == 1 and found[0]["kind"] == "call_argument" and "Known differences of the frameworks: none" in out, out
    assert {found[0]["location"], *found[0]["also"]} == {"stack.block.norm", "stack.norm"}, out
