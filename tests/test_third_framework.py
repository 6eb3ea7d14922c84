"""A framework that the engine has never seen costs one file in ``alignment/frameworks/``: its port is aligned and located in.

``tests/third/tinynet.py`` is the framework, ``tests/third/frameworks/tinynet.py`` that file, the project below the port.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import alignment.frameworks
from alignment.cli import main
from mobilenetv3_common.errors import UserError
from tests.conftest import ROOT

THIRD = ROOT / "tests" / "third"
SOURCE = """
import tinynet
import torch

from alignment.frameworks.tinynet import TinyNet
from alignment.frameworks.torch import Torch
from alignment.project import ModelSpec, Project, Side


class Port(tinynet.Module):
    def __init__(self):
        super().__init__()
        self.first = tinynet.Linear(12, 16)
        self.act = tinynet.ReLU()
        self.last = tinynet.Linear(16, 5)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 16)
        self.act = torch.nn.ReLU()
        self.last = torch.nn.Linear(16, 5)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


spec = ModelSpec(Port, Reference, input_shape=(12,))
PROJECT = Project("third", port=Side(TinyNet()), reference=Side(Torch()), models={"net": spec})
"""
BROKEN = {
    "another activation": ("tinynet.ReLU()", "tinynet.Identity()", "act", "it computes identity, expected ReLU"),
    "a layer skipped": ("self.act(self.first(x))", "self.first(x)", "Port.forward", "act is called 0 times"),
    "a gradient cut off": ("self.act(self.first(x))", "tinynet.Tensor(self.act(self.first(x)).data)", "Port.forward",
        "detached"),
    "a bias left out": ("self.last = tinynet.Linear(16, 5)", "self.last = tinynet.Linear(16, 5); del self.last.bias; "
        "self.last.forward = lambda x: x @ self.last.kernel", "last.bias", "the port has no such tensor"),
    "a wider layer": ("tinynet.Linear(12, 16)", "tinynet.Linear(12, 17)", "first.weight", "shape (17, 12), expected (16, 12)"),
}  # fmt: skip


@pytest.fixture
def known(monkeypatch):
    """The framework is installed, and its file is among the engine's."""
    monkeypatch.syspath_prepend(str(THIRD))
    monkeypatch.setattr(alignment.frameworks, "__path__", [*alignment.frameworks.__path__, str(THIRD / "frameworks")])


def align(folder, source):
    (folder / "own.py").write_text(source)
    status = main(["run", str(folder / "own.py"), "--result-dir", str(folder / "result")])
    return status, json.loads((folder / "result" / "alignment.json").read_text())


def test_a_port_in_a_third_framework_is_aligned(known, tmp_path):
    assert "tinynet" in alignment.frameworks.names()
    status, report = align(tmp_path, SOURCE)
    assert status == 0 and (report["port"], report["reference"]) == ("tinynet", "torch")
    rows = {quantity["name"]: quantity for step in report["steps"] for quantity in step["quantities"]}
    shapes = {tuple(row["shape"]) for name, row in rows.items() if name.endswith("gradients.first.weight")}
    assert shapes == {(16, 12)}, "compared in torch's layout, under torch's name"
    exact = [row["float64_diff"] for row in rows.values() if row["float64_diff"] is not None]
    assert len(exact) > 10 and max(exact) < 1e-14
    assert (tmp_path / "result" / "forward_tinynet.npy").is_file()


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_in_it_is_located(case, known, tmp_path):
    before, after, place, words = BROKEN[case]
    assert before in SOURCE.split("class Reference")[0]
    status, report = align(tmp_path, SOURCE.replace(before, after, 1))
    first = report["first_divergence"]
    assert status == 1 and first["location"] == place and words in first["hint"], first


def test_what_the_framework_cannot_do_is_said(known, tmp_path, capsys):
    (tmp_path / "own.py").write_text(SOURCE)
    assert main(["run", str(tmp_path / "own.py"), "--device", "gpu", "--result-dir", str(tmp_path / "r")]) == 2
    assert "tinynet has no device gpu: use --device cpu" in capsys.readouterr().err


def test_a_model_tells_its_framework(known):
    import tinynet

    found = alignment.frameworks.framework_of(tinynet.Linear(2, 3))
    assert found.name == "tinynet"
    state = found.state(tinynet.Linear(2, 3))
    assert {name: array.shape for name, array in state.items()} == {"weight": (3, 2), "bias": (3,)}
    with pytest.raises(UserError, match="is not a module of mindspore, onnx, paddle, tinynet, torch"):
        alignment.frameworks.framework_of(np.zeros(3))
