"""Constants that constructors make: loading the reference's weights hides a wrong one from every comparison of outputs."""

from __future__ import annotations

import json

import pytest

from alignment.cli import main
from tests.conftest import mode_of

REFERENCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.register_buffer("anchors", torch.tensor([1.5, 2.5, 4.0]))
        self.register_buffer("index", torch.arange(16).reshape(4, 4) // 3)
        self.register_buffer("mask", torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf")))
        self.register_buffer("noise", torch.randn(4))
        self.place = nn.Parameter(torch.sin(torch.arange(24.0) * 0.37).reshape(4, 6), requires_grad=False)
        self.table = nn.Parameter(torch.randn(6, 4))

    def forward(self, x):
        y = self.norm(self.conv(x))
        a = torch.softmax(self.table[self.index] .mean(-1) + self.mask + self.noise, -1)
        return (a @ (self.place + y.mean([2, 3])[:, None])) * self.anchors.sum()
"""
PORT = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2D(6)
        self.register_buffer("anchors", paddle.to_tensor([1.5, 2.5, 4.0]))
        self.register_buffer("index", paddle.arange(16).reshape([4, 4]) // 3)
        self.register_buffer("mask", paddle.triu(paddle.full([4, 4], float("-inf")), 1))
        self.register_buffer("noise", paddle.randn([4]))
        value = nn.initializer.Assign(paddle.sin(paddle.arange(24.0) * 0.37).reshape([4, 6]))
        self.place = self.create_parameter([4, 6], default_initializer=value)
        self.place.stop_gradient = True
        self.table = self.create_parameter([6, 4], default_initializer=nn.initializer.Normal())

    def forward(self, x):
        y = self.norm(self.conv(x))
        a = nn.functional.softmax(self.table[self.index].mean(-1) + self.mask + self.noise, -1)
        return (a @ (self.place + y.mean([2, 3]).unsqueeze(1))) * self.anchors.sum()
"""
MISTAKES = {
    "anchors": ("[1.5, 2.5, 4.0]", "[4.0, 2.5, 1.5]", "at [0] 4, expected 1.5"),
    "index": ("reshape([4, 4]) // 3", "reshape([4, 4]).t() // 3", "at [0, 1] 1, expected 0"),
    "mask": ('float("-inf")', "-100.0", "at [0, 1] -100, expected -inf"),
    "place": ("* 0.37", "* 0.38", "at [0, 1] 0.370"),
}


def audited(source, folder, *flags):
    (folder / "theirs.py").write_text(REFERENCE)
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:Net", "--reference", f"{folder}/theirs.py:Net"]
    status = main(["audit", *mode_of(flags), *sides, "--input", "2x3x8x8", "--report", str(folder / "report"), *flags])
    return status, json.loads((folder / "report" / "alignment.json").read_text())


@pytest.mark.parametrize("flags", [(), ("--training", "--accept", "initialisation", "--accept", "biased_variance")])
def test_equal_constants_pass(tmp_path, flags):
    status, found = audited(PORT, tmp_path, *flags)
    assert status == 0
    (row,) = [q for q in found["steps"][0]["quantities"] if q["name"].startswith("constants")]
    assert row["passed"]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_constant_is_found_and_named(name, tmp_path):
    before, after, words = MISTAKES[name]
    assert before in PORT
    status, found = audited(PORT.replace(before, after), tmp_path, "--accept", "initialisation")
    (mistake,) = found["localization"]["every"]
    assert status == 1 and (mistake["kind"], mistake["location"]) == ("constant", name) and words in mistake["hint"]


def test_an_accepted_constant_is_reported(tmp_path):
    before, after, _ = MISTAKES["anchors"]
    status, found = audited(PORT.replace(before, after), tmp_path, "--accept", "constant@anchors")
    assert status == 0 and found["localization"]["every"][0]["accepted"]


@pytest.mark.parametrize("wrong", [False, True])
def test_equal_infinities_are_equal(tmp_path, wrong):
    """Outputs that both sides mask with the same infinity agree there; a mask in other places does not."""
    (tmp_path / "theirs.py").write_text(REFERENCE.replace("return (", "return y.mean([2, 3])[:, :4] + self.mask[1], ("))
    mask = "self.mask[2]" if wrong else "self.mask[1]"
    (tmp_path / "ours.py").write_text(PORT.replace("return (", f"return y.mean([2, 3])[:, :4] + {mask}, ("))
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "2x3x8x8"]
    accepted = ["--training", "--accept", "initialisation", "--accept", "biased_variance", "--precision", "bfloat16"]
    status = main(["audit", *sides, *accepted, "--updates", "2", "--report", str(tmp_path / "report")])
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["localization"]["first"]
    assert status == int(wrong) and (found or {}).get("location") == ("Net.forward" if wrong else found and found["location"])


def test_another_mistake_does_not_hide_it(tmp_path):
    source = PORT.replace(*MISTAKES["index"][:2]).replace("padding=1", "padding=0").replace("4.0]", "8.0]")
    status, found = audited(source, tmp_path)
    places = [(one["kind"], place) for one in found["localization"]["every"] for place in [one["location"], *one["also"]]]
    assert status == 1 and {("padding", "conv"), ("constant", "index"), ("constant", "anchors")} <= set(places)
