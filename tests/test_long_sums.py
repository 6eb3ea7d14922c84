"""Sums of many values in float32, which one framework adds up in order and the other pairwise: rounding, and no mistake."""

import json

import pytest

from alignment.cli import main
from tests.conftest import mode_of

SOURCE = """
import {framework}
from {framework} import nn

F = nn.functional


class Layers(nn.Sequential):
    def __init__(self):
        super().__init__(nn.{conv}(3, 4, 3), nn.ReLU(), nn.{pool}(1), nn.Flatten(), nn.Linear(4, 3))


class Places(nn.{base}):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.{conv}(3, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.last({rounded}(F.relu(self.first(x))).mean({axis}=[2, 3]))


class Time(nn.{base}):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(F.relu(self.first(x)).mean(1))


class Sums(nn.{base}):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last({framework}.cumsum(F.relu(self.first(x)), 1) / 1000)


class Fused(nn.{base}):
    # Two maps nearly agree, and their weights are divided by their own sum: the terms of the weights' gradient nearly cancel.
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.{conv}(3, 4, 3), nn.{conv}(4, 3, 3)
        self.weights = {parameter}

    def forward(self, x):
        y = self.first(x)
        weights = {framework}.exp(self.weights) / {framework}.exp(self.weights).sum()
        return self.last({rounded}(weights[0] * F.relu(y) + weights[1] * F.relu(y + 1e-4)))
"""
OURS = {
    "framework": "paddle",
    "base": "Layer",
    "conv": "Conv2D",
    "pool": "AdaptiveAvgPool2D",
    "axis": "axis",
    "parameter": "self.create_parameter([2])",
}
THEIRS = {
    "framework": "torch",
    "base": "Module",
    "conv": "Conv2d",
    "pool": "AdaptiveAvgPool2d",
    "axis": "dim",
    "parameter": "nn.Parameter(torch.randn(2))",
}
ROUNDED = "(lambda y: y.astype('bfloat16').astype('float32') if y.dtype == paddle.float32 else y)"


def audit(folder, name, shape, rounded=""):
    """Exit status and alignment.json."""
    (folder / "ours.py").write_text(SOURCE.format(**OURS, rounded=rounded))
    (folder / "theirs.py").write_text(SOURCE.format(**THEIRS, rounded=""))
    sides = ("--port", f"{folder}/ours.py:{name}", "--reference", f"{folder}/theirs.py:{name}", "--input", shape)
    flags = ("--accept", "initialisation", "--report", str(folder / "report"))
    status = main(["audit", *mode_of(("--input", shape)), *sides, *flags])
    return status, json.loads((folder / "report/alignment.json").read_text())


@pytest.mark.parametrize(
    ("name", "shape"), [("Layers", "2x3x224x224"), ("Time", "2x16000x3"), ("Sums", "2x10000x3"), ("Fused", "2x3x96x96")]
)
def test_the_order_of_long_sums_is_no_mistake(name, shape, tmp_path, capsys):
    assert audit(tmp_path, name, shape)[0] == 0, capsys.readouterr().out


def test_numbers_that_are_coarse_behind_a_long_sum_are_found(tmp_path):
    assert audit(tmp_path, "Places", "2x3x224x224", ROUNDED)[1]["localization"]["every"][0]["kind"] == "half_precision"


def test_numbers_that_are_coarse_are_found_beside_a_gradient_whose_terms_nearly_cancel(tmp_path):
    status, found = audit(tmp_path, "Fused", "2x3x96x96", ROUNDED)
    assert status == 1 and "float32 alone" in found["localization"]["every"][0]["measured"]
