"""Weights under which a part gives the same for every sample hide all that is before it: other ones are drawn, or it is said."""

import json

import numpy as np
import torch
from torch import nn

from alignment.cli import main
from alignment.frameworks import framework
from alignment.models.calibration import indifferent, random_values

CODEC = """
import {0}
from {0} import nn
from {0}.nn import functional as F


class Quantizer(nn.{1}):
    def __init__(self):
        super().__init__()
        self.codebook = nn.Embedding(12, 8)

    def forward(self, z):
        flat, table = F.normalize(z.reshape([-1, 8]), {2}=-1), F.normalize(self.codebook.weight, {2}=-1)
        index = (flat @ table.{3}).argmax(-1)
        return self.codebook(index).reshape(z.shape)


class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        made = [nn.{4}(1, 8, 5), nn.{4}(8, 8, 5)]
        for conv in made:
            {5}
        made = [nn.utils.weight_norm(conv) for conv in made]  # whose gains are as small
        self.encoder, self.quantizer, self.out = nn.Sequential(*made), Quantizer(), nn.Linear(8, 1)

    def forward(self, x):
        z = self.quantizer(self.encoder(x){6})
        return {0}.tanh(self.out(z[:, FIRST:])) * x.std()
"""
SIDES = {
    "torch": ("Module", "dim", "t()", "Conv1d", "nn.init.trunc_normal_(conv.weight, std=0.02)", ".transpose(1, 2)"),
    "paddle": (
        "Layer", "axis", "t()", "Conv1D", "nn.initializer.TruncatedNormal(std=0.02)(conv.weight)", ".transpose([0, 2, 1])",
    ),
}  # fmt: skip


def source(side, first):
    return CODEC.format(side, *SIDES[side]).replace("FIRST", str(first))


def test_what_is_behind_a_code_that_is_always_the_same_is_compared(tmp_path):
    """A look-up that picks one code for all samples and places gives the same wherever its rows are taken."""
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).standard_normal((4, 1, 40)).astype("float32"))
    (tmp_path / "theirs.py").write_text(source("torch", 2))
    sides = ("--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/inputs.npz", "--report", str(tmp_path / "report"))
    for first in (2, 1):
        (tmp_path / "ours.py").write_text(source("paddle", first).replace("z[:, 1:]", "z[:, 1:-1]"))
        assert main(["audit", "--eval-only", "--port", f"{tmp_path}/ours.py:Net", *sides]) == (first == 1)
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert len(found) == 1 and "getitem" in found[0]["hint"] and found[0]["source"].startswith("ours.py:"), found


def test_modules_that_give_the_same_for_every_sample_are_seen():
    network, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double(), np.random.default_rng(0).normal(size=(6, 4))
    assert not indifferent(framework("torch"), network, (x,))
    with torch.no_grad():
        network[0].bias += 60
    assert indifferent(framework("torch"), network, (x,)) == {"1"}  # what is behind is given the same
    assert not indifferent(framework("torch"), network, (np.ones((6, 4)),))


def test_one_number_for_each_channel_stays_positive_whatever_axes_of_one_stand_beside_it():
    drawn = random_values(np.random.default_rng(0), "act.alpha", np.ones((1, 500, 1), np.float32))
    assert (drawn >= 0.5).all() and (drawn <= 1.5).all()
    kernel = random_values(np.random.default_rng(0), "conv.weight", np.ones((20, 5, 5), np.float32))
    assert (kernel < 0).any()


STUCK = """
import {0}
from {0} import nn


class Gate(nn.{1}):
    def forward(self, x):
        return {0}.sigmoid(x * 0 + BIAS)


class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.fc, self.gate, self.head = nn.Linear(6, 6), Gate(), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x * self.gate(self.fc(x)))
"""


def test_what_cannot_be_seen_is_said(tmp_path, capsys):
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).standard_normal((4, 6)).astype("float32"))
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/inputs.npz")
    for bias, said in (("60", True), ("x", False)):
        for name, filled in (("theirs", ("torch", "Module")), ("ours", ("paddle", "Layer"))):
            (tmp_path / f"{name}.py").write_text(STUCK.format(*filled).replace("BIAS", bias))
        assert main(["audit", *sides, "--report", str(tmp_path / "report")]) == 0
        out = capsys.readouterr().out
        assert ("what goes into gate, which gives one number everywhere with these weights and inputs" in out) is said
        assert "Training mode was NOT compared" not in out
