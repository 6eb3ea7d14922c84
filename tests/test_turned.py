"""Modules that a port calls otherwise: the batch first, a list for a dictionary; layers used in another order; kept functions."""

import json
import threading

import numpy as np
import pytest

from alignment.audit.inputs import chosen_inputs
from alignment.cli import main
from alignment.frameworks import framework
from alignment.frameworks.base import Call
from alignment.models.tracing import Network
from tests.conftest import ROOT

FOLDER = ROOT / "tests/forms"
# What is changed in the port's source -> kind, place and words of the only mistake.
MISTAKES = {
    "an activation": ("F.relu(self.linear1(y))", "F.gelu(self.linear1(y))",
                      "other_function", "blocks.0", "ours.py:33: gelu(approximate=none), expected relu"),
    "a position": ("self.norm(x + pos)", "self.norm(x)", "call_missing", "blocks.0", "is missing"),
}  # fmt: skip


def audited(source, folder):
    (folder / "ours.py").write_text(source)
    sides = ["--port", f"{folder}/ours.py:Net", "--reference", f"{FOLDER}/turned_theirs.py:Net"]
    status = main(["audit", "--eval-only", *sides, "--input", "2x3x20x12", "--report", str(folder / "report")])
    return status, json.loads((folder / "report" / "alignment.json").read_text())["localization"]


def test_a_sound_port_passes(tmp_path, capsys):
    assert audited((FOLDER / "turned_ours.py").read_text(), tmp_path)[0] == 0, capsys.readouterr().out


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_the_only_finding(case, tmp_path):
    before, after, kind, place, words = MISTAKES[case]
    source = (FOLDER / "turned_ours.py").read_text()
    assert before in source
    status, found = audited(source.replace(before, after), tmp_path)
    (mistake,) = found["every"]
    assert status == 1 and (mistake["kind"], mistake["location"]) == (kind, place) and words in mistake["hint"], mistake


THEIRS = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return nn.functional.layer_norm(x, (6,), self.weight, self.bias, 1e-6)


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.norm, self.act = nn.Embedding(9, 6), Norm(), NewGELU()

    def forward(self, x):
        return self.act(self.norm(x + self.places(torch.arange(x.shape[1]))))
"""
OURS = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(9, 6)
        self.norm = nn.LayerNorm(6, epsilon=1e-6)
        self.act = nn.GELU(approximate=True)

    def forward(self, x):
        return self.act(self.norm(x + self.places(paddle.arange(x.shape[1]))))
"""
WRONG = {
    "nothing": ((), []),
    "three": (
        ((", epsilon=1e-6", ""), ("approximate=True", ""), ("arange(x.shape[1])", "arange(1, x.shape[1] + 1)")),
        [("norm", "wrong eps 1e-05, expected 1e-06"), ("act", "it computes GELU, expected GELU (tanh)"),
         ("Net.forward", "ours.py:14: arange from 1 to 5, expected from 0 to 4")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_stock_layers_in_place_of_classes_of_a_user_s_own(case, tmp_path):
    edits, expected = WRONG[case]
    ours = OURS
    for before, after in edits:
        assert before in ours
        ours = ours.replace(before, after)
    (tmp_path / "ours.py").write_text(ours)
    (tmp_path / "theirs.py").write_text(THEIRS)
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "2x5x6"]
    assert main(["audit", "--eval-only", *sides, "--report", str(tmp_path / "report")]) == bool(expected)
    found = json.loads((tmp_path / "report" / "alignment.json").read_text())["localization"]["every"] if expected else []
    assert len(found) == len(expected), found
    for place, words in expected:
        assert any(one["location"] == place and words in one["hint"] for one in found), (place, found)


def test_a_copy_calls_its_own_modules_in_the_functions_that_it_keeps():
    """``copy.deepcopy`` shares functions, and with them the modules of the original."""
    import torch
    from torch import nn

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"fc": nn.Linear(3, 2)})
            m = self.parts
            self.run = lambda x, times=2: times * m.fc(x)

        def forward(self, x):
            return self.run(x)

    original = Kept()
    made = framework("torch").copy(original)
    made(torch.ones(1, 3)).sum().backward()
    assert made.parts.fc.weight.grad is not None and original.parts.fc.weight.grad is None
    assert torch.equal(made(torch.ones(1, 3)), original(torch.ones(1, 3)))


@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_a_copy_shares_the_modules_of_python_that_a_layer_keeps(name):
    """``copy.deepcopy`` refuses them."""
    side = framework(name)

    class Keeping(side.module_type):
        def __init__(self):
            super().__init__()
            self.numpy, self.parts = np, [np.zeros(2)]

    original = Keeping()
    made = side.copy(original)
    assert made.numpy is np and made.parts[0] is not original.parts[0]


@pytest.mark.parametrize("lock", [False, True], ids=["plain", "with a lock"])
def test_a_layer_that_cannot_be_copied_has_no_other_settings(lock):
    from torch import nn

    layer = nn.LayerNorm(4)
    if lock:
        layer.lock = threading.Lock()
    network = Network(framework("torch"), nn.Sequential(layer).double())
    made = network.answer_set("0", Call((np.arange(8.0).reshape(2, 4),), {}), {"eps": 1.0})
    assert len(made.outputs) == (not lock) and not made.error


class Padded:
    """Makes a network that halves its picture twice and pads what it doubles again."""

    def __new__(cls):
        import torch
        from torch import nn
        from torch.nn.functional import interpolate, pad

        class Net(nn.Module):
            def forward(self, x):
                small = nn.functional.max_pool2d(x, 2)
                large = interpolate(nn.functional.max_pool2d(small, 2), scale_factor=2)
                sides = [small.shape[3] - large.shape[3], small.shape[2] - large.shape[2]]
                self.sides = sides
                return torch.cat([small, pad(large, [0, sides[0], 0, sides[1]])], 1)

        return Net()


def test_pictures_of_odd_sides_are_halved_to_sides_of_which_one_alone_is_odd():
    """A padding of rows for columns shows nowhere else: at 27 x 43 pixels every map has an odd side wherever the other has one."""
    net = Padded()
    for given in ("2x3x64x64", "2x3x224x224", "2x3x64x96", "2x3x100x80"):
        small = chosen_inputs(given, framework("torch"), net).small
        assert small[1] % 2 and small[2] % 2 and net.sides in ([0, 1], [1, 0]), (given, small, net.sides)
