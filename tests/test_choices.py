"""A flag, a mode or a number of a class of somebody's own: named where it is wrong, shown where it is decided."""

import json

import numpy as np
import pytest

from alignment.cli import main

REFERENCE = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim, prenorm=True, scale=1.0):
        super().__init__()
        self.prenorm, self.scale = prenorm, scale
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x):
        if self.prenorm:
            return x + self.scale * torch.tanh(self.fc(self.norm(x)))
        return self.norm(x + self.scale * torch.tanh(self.fc(x)))


class Mix(nn.Module):
    def __init__(self, dim, shortcut=True):
        super().__init__()
        self.shortcut = shortcut
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        y = torch.tanh(self.fc(x))
        return x + y if self.shortcut else y


class Pool(nn.Module):
    def __init__(self, mode="mean", normalize=False):
        super().__init__()
        self.mode, self.normalize = mode, normalize

    def forward(self, x):
        if self.mode == "mean":
            x = x.mean(1)
        elif self.mode == "max":
            x = x.amax(1)
        else:
            x = x[:, 0]
        return F.normalize(x, dim=-1) if self.normalize else x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8, prenorm=False), Block(8, scale=0.5)])
        self.mix = Mix(8)
        self.pool = Pool("mean")
        self.head = nn.Linear(8, 3)

    @staticmethod
    def weigh(x, both=True):
        return torch.abs(x) + x if both else torch.abs(x)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        x = self.mix(x)
        return self.head(self.weigh(self.pool(x), both=not self.training and False))
"""
PORT = (
    REFERENCE.replace("import torch\nfrom torch import nn\nfrom torch.nn", "import paddle\nfrom paddle import nn\nfrom paddle.nn")
    .replace("nn.Module)", "nn.Layer)")
    .replace("ModuleList", "LayerList")
    .replace("torch.", "paddle.")
    .replace("dim=-1", "axis=-1")
)
OTHER_NAMES = PORT.replace("prenorm", "first").replace("normalize", "unit").replace("F.unit", "F.normalize")
# By case: the port, what is changed in it, the kind, what the hint says, and what stands in the line that is shown.
TRUE = "prenorm of Block is True, expected False"
CASES = {
    "sound": (PORT, (), "", "", ""),
    "flag": (PORT, ("Block(8, prenorm=False)", "Block(8, prenorm=True)"), "setting", TRUE, "[Block("),
    "flag left out": (PORT, ("Block(8, prenorm=False)", "Block(8)"), "setting", TRUE, "[Block("),
    # The kind of the mistake is what the flag changes, where that is a known one.
    "flag of a residual": (PORT, ("Mix(8)", "Mix(8, shortcut=False)"), "no_residual",
        "the input is not added to the output: shortcut of Mix is False, expected True", "Mix(8, shortcut=False)"),
    "sound flag of a residual": (PORT, ("Mix(8)", "Mix(8, shortcut=True)"), "", "", ""),
    # The reference does not say what the flag should be: the line that asks for it is shown.
    "another name": (OTHER_NAMES, ("Block(8, first=False)", "Block(8, first=True)"), "call_order", "", "return x + self.scale"),
    "mode": (PORT, ('Pool("mean")', 'Pool("max")'), "setting", "mode of Pool is 'max', expected 'mean'", 'Pool("max")'),
    "number": (PORT, ("scale=0.5", "scale=0.25"), "call_argument", "* 0.25, expected 0.5", "scale=0.25"),
    "flag of a method": (PORT, ("both=not self.training and False", "both=True"), "setting",
        "weigh is given both=True, expected False", "self.weigh("),
    "sound flag of a method": (PORT, ("both=not self.training and False", "both=False"), "", "", ""),
    # The flag is right, and the line that asks for it is wrong.
    "condition": (PORT, ("if self.normalize else", "if not self.normalize else"), "call_extra", "normalize", "if not self"),
    "sound of another name": (OTHER_NAMES, (), "", "", ""),
}  # fmt: skip
CORRECTED = {"flag", "mode", "number", "flag of a method", "flag of a residual"}  # the card has the line as it should be


@pytest.mark.parametrize("case", CASES)
def test_an_attribute_that_is_wrong_is_named_and_shown_where_it_is_decided(case, tmp_path, capsys):
    port, change, kind, words, shown = CASES[case]
    changed = port.replace(*change) if change else port
    assert not change or changed != port
    (tmp_path / "theirs.py").write_text(REFERENCE)
    (tmp_path / "ours.py").write_text(changed)
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).standard_normal((3, 6, 5)).astype("float32"))
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/inputs.npz")
    status = main(["audit", *sides, "--eval-only", "--report", str(tmp_path / "report")])
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert (status, [one["kind"] for one in found]) == (int(bool(kind)), [kind] if kind else []), said
    for one in found:
        line = changed.splitlines()[int(one["source"].rpartition(":")[2]) - 1]
        assert words in one["hint"] and shown in line, (one, line)
        assert any(line.startswith("+") for line in one["card"]) is (case in CORRECTED), one["card"]
