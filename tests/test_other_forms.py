"""Ports whose modules have another form than the reference's: containers that cannot be called, blocks with other arguments,
activations inside a normalisation or behind it, parallel branches in another order, blocks that are wrapped once more.

The form is never called a mistake, in the sound port nor beside one; mistakes inside and around such modules are located.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.frameworks import framework, framework_of
from alignment.localize import localize
from alignment.models.matching import matched
from alignment.project import import_file
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
# What is changed in the port's source -> kind, first place, all of the words that name it.
MISTAKES = {
    "an activation in each block": ("nn.ReLU6()", "nn.Hardswish()", "activation", "blocks.0.act", "computes Hardswish"),
    "a shortcut": ("(False, True, True)", "(False, True, False)", "no_residual", "blocks.2", "is missing after blocks.2.out"),
    "inside a block's forward": ("return x + y", "return x + 0.5 * y", "call_extra", "blocks.1", "ours.py:16: * 0.5"),
}


def audited(source: str, folder, capsys) -> tuple[int, dict, str]:
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:Net", "--reference", f"{FOLDER}/theirs.py:Net"]
    status = main(["audit", "--eval-only", *sides, "--input", "2x3x32x32", "--report", str(folder / "report")])
    return status, json.loads((folder / "report" / "alignment.json").read_text()), capsys.readouterr().out


def test_a_sound_port_of_another_form_passes(tmp_path, capsys):
    """Its last bias has a gradient that is a sum of 512 equal numbers, which Paddle's kernel adds up one after another."""
    status, found, out = audited((FOLDER / "ours.py").read_text(), tmp_path, capsys)
    assert status == 0, out
    rows = [row for step in found["steps"] for row in step["quantities"] if "order of summation" in row["reason"]]
    assert all(len(row["shape"]) == 1 for row in rows)


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_found_and_the_form_is_not_blamed(case, tmp_path, capsys):
    before, after, kind, place, words = MISTAKES[case]
    source = (FOLDER / "ours.py").read_text()
    assert before in source
    status, found, out = audited(source.replace(before, after), tmp_path, capsys)
    (mistake,) = found["localization"]["every"]
    assert status == 1 and (mistake["kind"], mistake["location"]) == (kind, place) and words in mistake["hint"], out
    assert "raises" not in out


def test_dumps_of_both_sides_say_the_same(tmp_path):
    """What the port's module can be called with is known only where the port runs, so its dump says it."""
    before, after, kind, place, _ = MISTAKES["an activation in each block"]
    (tmp_path / "ours.py").write_text((FOLDER / "ours.py").read_text().replace(before, after))
    shape, reference = ["--input", "2x3x32x32"], f"{tmp_path}/reference"
    assert main(["dump", f"{FOLDER}/theirs.py:Net", "--framework", "torch", *shape, "--out", reference]) == 0
    for name, status, first in ((f"{FOLDER}/ours.py", 0, None), (f"{tmp_path}/ours.py", 1, (kind, place))):
        port = f"{tmp_path}/port{status}"
        assert main(["dump", f"{name}:Net", "--reference-dump", reference, "--out", port]) == 0
        audit = ["audit", "--port-dump", port, "--reference-dump", reference, "--report", f"{port}/report"]
        assert main(audit) == status
        found = json.loads((tmp_path / f"port{status}/report/alignment.json").read_text())["localization"]["first"]
        assert (found and (found["kind"], found["location"])) == first


UPSAMPLED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x):
        a = self.conv(x)
        b = self.up(a)
        return torch.cumsum(b * torch.flip(b, [2]), 3) + torch.cumsum(b, 2)
"""
CALLS_A_FUNCTION = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3, padding=1)

    def forward(self, x):
        a = self.conv(x)
        b = nn.functional.interpolate(a, scale_factor=2, mode="nearest")
        return paddle.cumsum(b * paddle.flip(b, [2]), 3) + paddle.cumsum(b, 2)
"""


@pytest.mark.parametrize("lacks", [False, True])
def test_a_function_in_place_of_a_layer_is_no_missing_layer(lacks, tmp_path, capsys):
    """What is not understood is not put down to a layer whose numbers the port has; what is too much before it is named."""
    (tmp_path / "theirs.py").write_text(UPSAMPLED)
    before, after = ("a, scale_factor=2", "a.abs().cumsum(1), scale_factor=2") if lacks else ("flip(b, [2])", "erf(b).roll(1, 2)")
    (tmp_path / "ours.py").write_text(CALLS_A_FUNCTION.replace(before, after))
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net"]
    assert main(["audit", "--eval-only", *sides, "--input", "2x3x8x8", "--report", str(tmp_path / "report")]) == 1
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["localization"]["first"]
    assert "does it call the function" not in found["hint"]
    assert found["location"] == "Net.forward" and ("abs, cumsum(axis=1) and" in found["hint"]) == lacks, capsys.readouterr().out


# --- normalisations that carry their activation, branches in another order, wrapped blocks ------------------------------------

# What is changed in the port's source -> the words that name it.
CARRIED = {
    "the slope of a function": (
        "(self.conv0(x)), 0.1)",
        "(self.conv0(x)), 0.01)",
        "Net.forward: ours.py:68: leaky_relu slope 0.01, expected",
    ),
    "no activation": (
        "F.leaky_relu(self.bn0(self.conv0(x)), 0.1)",
        "self.bn0(self.conv0(x))",
        "norm.act: LeakyReLU: the port lacks it",
    ),
    "another layer": (
        "nn.Silu()",
        "nn.Hardswish()",
        "down.bn.act: activation swapped: it computes Hardswish, expected SiLU",
    ),
    "eps before a function": (
        "bn0 = nn.BatchNorm2D(8)",
        "bn0 = nn.BatchNorm2D(8, epsilon=1e-3)",
        "norm: wrong eps: 0.001",
    ),
    "eps in a branch": (
        "skip = nn.BatchNorm2D(8)",
        "skip = nn.BatchNorm2D(8, epsilon=1e-3)",
        "stages.1.identity: wrong eps: 0.001",
    ),
    "inside a wrapped block": (
        "self.proj(weights @ x)",
        "self.proj(0.5 * (weights @ x))",
        "mix1: ours.py:53: * 0.5 is superfluous",
    ),
    "around a wrapped block": (
        "return x + self.m(x)",
        "return 0.5 * x + self.m(x)",
        "Net.forward: ours.py:37: * 0.5 is superfluous",
    ),
    "elsewhere": (
        "x.mean(1)",
        "x.max(1)",
        "Net.forward: ours.py:72: max(axis=1), expected mean",
    ),
}


def carried(source: str, folder):
    """The two models, and an input of theirs."""
    (folder / "ours.py").write_text(source)
    ours, theirs = import_file(folder / "ours.py"), import_file(FOLDER / "carried_theirs.py")
    framework("paddle").seed(0), framework("torch").seed(0)
    return ours.Net(), theirs.Net(), np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)


def test_carried_activations_branches_and_wrapped_blocks_are_paired(tmp_path):
    """By data where shapes leave it open; a table of indices that the port alone keeps is no weight."""
    ours, theirs, images = carried((FOLDER / "carried_ours.py").read_text(), tmp_path)
    found = matched(ours, theirs, {}, (framework_of(ours), framework_of(theirs)), lambda: (images,))
    assert not any(other.parameters for other in found.matching.unmatched)
    wanted = {"blocks.0.m": "mix1", "features.1.skip": "stages.1.identity", "features.2.point": "stages.2.conv_1x1", "bn0": "norm"}
    assert wanted.items() <= found.paired.items() and "blocks.0" not in found.paired
    assert not any("still differ" in note for note in found.matching.notes)


@pytest.mark.parametrize("case", [None, *CARRIED])
def test_a_mistake_beside_them_is_found_and_the_form_is_not_blamed(case, tmp_path):
    source = (FOLDER / "carried_ours.py").read_text()
    before, after, said = CARRIED[case] if case else ("", "", "")
    assert before in source
    first = localize(*carried(source.replace(before, after), tmp_path), weights=False).first
    assert (first is None) == (case is None) and (first is None or said in first.line()), first and first.line()


@pytest.mark.slow  # make test-slow
def test_one_mistake_before_a_carried_activation_is_one_finding(tmp_path, capsys):
    """What is put in the place of the normalisation does not activate once more."""
    before, after, _ = CARRIED["eps before a function"]
    (tmp_path / "ours.py").write_text((FOLDER / "carried_ours.py").read_text().replace(before, after))
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{FOLDER}/carried_theirs.py:Net"]
    assert main(["audit", "--eval-only", *sides, "--input", "2x3x16x16", "--report", str(tmp_path / "report")]) == 1
    (mistake,) = json.loads((tmp_path / "report" / "alignment.json").read_text())["localization"]["every"]
    assert (mistake["kind"], mistake["location"]) == ("batch_norm_eps", "norm")


def test_a_port_that_can_be_built_but_once_is_a_finding(tmp_path, capsys):
    (tmp_path / "ours.py").write_text(
        "from paddle import nn\nMADE = []\ndef Net():\n    if MADE:\n        raise ValueError('built before')\n"
        "    MADE.append(1)\n    return nn.Sequential(nn.Linear(4, 3))\n"
    )
    (tmp_path / "theirs.py").write_text("from torch import nn\n\ndef Net():\n    return nn.Sequential(nn.Linear(4, 3))\n")
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net"]
    assert main(["audit", "--eval-only", *sides, "--input", "2x4", "--report", str(tmp_path / "report")]) == 1
    assert "the model cannot be built (ValueError: built before)" in capsys.readouterr().out
    assert (tmp_path / "report" / "report.md").is_file() and not (tmp_path / "report" / "map.yaml").exists()


STOPPED = """
import {framework}
from {framework} import nn


class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8{padding})
        self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, tokens):
        x = self.words(tokens)
        {stop}
        return self.last(self.norm(x))
"""


@pytest.mark.parametrize(("stopped", "kinds"), [(True, {"norm_eps"}), (False, {"norm_eps", "padding_index"})])
def test_a_row_of_padding_whose_gradient_stops_outside_the_embedding_is_none_of_its_mistakes(stopped, kinds, tmp_path, capsys):
    """Paddle's own ``padding_idx`` gives zeros, so a port stops that gradient by itself; beside it there is a mistake."""
    stop = "x = paddle.where((tokens == 0).unsqueeze(-1), x.detach(), x)" if stopped else "pass"
    ours = STOPPED.format(framework="paddle", base="Layer", padding="", stop=stop)
    (tmp_path / "ours.py").write_text(ours.replace("LayerNorm(8)", "LayerNorm(8, epsilon=1e-3)"))
    (tmp_path / "theirs.py").write_text(STOPPED.format(framework="torch", base="Module", padding=", padding_idx=0", stop="pass"))
    np.savez(tmp_path / "in.npz", tokens=np.array([[3, 4, 0], [5, 0, 0], [7, 8, 9], [0, 1, 3]]))
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/in.npz"]
    assert main(["audit", "--eval-only", *sides, "--report", str(tmp_path / "report")]) == 1
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert {one["kind"] for one in mistakes} == kinds, capsys.readouterr().out
