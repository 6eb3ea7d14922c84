"""Casts to whole numbers: their type, what is computed of them, and gradients that are zero in Paddle and none in PyTorch."""

import json

import numpy as np
import paddle
import pytest
import torch

from alignment.cli import main
from alignment.localize import localize
from alignment.models.weights import copy_weights
from alignment.project import import_file

REFERENCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 3)

    def scaled(self, x):
        return x.div(2 * 3).add(0.5).clamp(0, 1)

    def forward(self, x):
        whole = self.scaled(self.encode(x)).mul_(255).round_().byte()
        return self.decode((whole / 255.0).sub(0.5).mul(2 * 3))
"""
PORT = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(4, 3)

    def scaled(self, x):
        return (x / (2 * 3) + 0.5).clip(0, 1)

    def forward(self, x):
        whole = (self.scaled(self.encode(x)) * 255).round().cast("uint8")
        return self.decode((whole / 255.0 - 0.5) * (2 * 3))
"""
WRONG = {
    "a byte of another sign": ('"uint8"', '"byte"', ["cast to int8, expected uint8"]),
    "a mistake besides": ("x / (2 * 3)", "x / 2 * 3", ["/ 2, expected 6", "* 3 is superfluous"]),
    "no rounding": (".round()", "", ["round is missing before cast"]),
}


@pytest.fixture
def sides(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE)

    def made(port):
        (tmp_path / "port.py").write_text(port)
        return tmp_path / "port.py", tmp_path / "reference.py"

    return made


def test_an_audit_takes_a_gradient_of_zero_for_none(sides, tmp_path, capsys):
    port, reference = sides(PORT)
    command = ["audit", "--port", f"{port}:Net", "--reference", f"{reference}:Net", "--input", "2x6", "--json"]
    assert main([*command, "--report", str(tmp_path / "report")]) == 0, capsys.readouterr()
    told = json.loads(capsys.readouterr().out)
    assert not told["mistakes"] and {one["kind"] for one in told["known_differences"]} == {"initialisation"}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_at_a_cast_is_named(case, sides):
    before, after, words = WRONG[case]
    assert before in PORT
    port, reference = (import_file(file).Net() for file in sides(PORT.replace(before, after)))
    copy_weights(port, reference)
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32) * 3
    first = localize(port, reference, (x,)).first
    assert all(one in first.hint for one in words), first.line()


class Positions(paddle.nn.Layer):
    """Whole numbers with others that are not."""

    def forward(self, x):
        places = paddle.arange(x.shape[1])
        return x * (places / 3 + 0.1 * places + places**0.5 + (places / (places + 1)) - 2 / (places + 3)) + (1.1 - places)


def test_whole_numbers_are_divided_in_float64_in_exact_mode():
    class Right(torch.nn.Module):
        def forward(self, x):
            places = torch.arange(x.shape[1])
            return x * (places / 3 + 0.1 * places + places**0.5 + (places / (places + 1)) - 2 / (places + 3)) + (1.1 - places)

    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    assert localize(Positions(), Right(), (x,), weights=False).first is None
