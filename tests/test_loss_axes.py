"""Losses of more than two dimensions: an audit names the axis along which a port takes the classes, in both directions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.localize.hypotheses.changed import CHANGED

THEIRS = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self, of="{of}"):
        super().__init__()
        self.body = nn.Conv1d(3, 6, 1) if of == "1" else nn.Conv2d(3, 6, 1)
        self.loss = {loss}
    def forward(self, x, y):
        return {call}

def given(n, rng):
    shape = (n, 6) if "{of}" == "1" else (n, 6, 6)
    return rng.standard_normal((n, 3, *shape[1:])).astype("float32"), rng.integers(0, 6, shape)
"""
OURS = THEIRS.replace("import torch\n", "").replace("torch", "paddle").replace("nn.Module", "nn.Layer").replace("Conv1d", "Conv1D")
OURS = OURS.replace("Conv2d", "Conv2D")
LAYER, CALL = ("nn.CrossEntropyLoss()", "self.loss(self.body(x), y)"), ("None", "F.cross_entropy(self.body(x), y)")
CASES = {  # dimensions, (loss, call) of the reference and of the port, what is named; None where the port is right
    "a layer on sequences": ("1", LAYER, LAYER, "the classes are taken along axis 2, expected axis 1"),
    "a layer on pictures": ("2", LAYER, LAYER, "the classes are taken along axis 3, expected axis 1"),
    "a function on sequences": ("1", CALL, CALL, "cross_entropy axis -1, expected 1"),
    "a function on pictures": ("2", CALL, CALL, "cross_entropy axis -1, expected 1"),
    "another axis of a picture": (
        "2", LAYER, ("nn.CrossEntropyLoss(axis=2)", LAYER[1]), "the classes are taken along axis 2, expected axis 1"
    ),
    "the right axis of a layer": ("2", LAYER, ("nn.CrossEntropyLoss(axis=1)", LAYER[1]), None),
    "the right axis of a function": ("1", CALL, ("None", "F.cross_entropy(self.body(x), y, axis=1)"), None),
    "a log-softmax before it": (
        "1", ("nn.NLLLoss()", "self.loss(F.log_softmax(self.body(x), 1), y)"),
        ("nn.NLLLoss()", "self.loss(F.log_softmax(self.body(x)), y)"), "expected 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_axis_of_the_classes_is_named(name, tmp_path, capsys):
    of, theirs, ours, named = CASES[name]
    for file, text, (loss, call) in (("theirs_axes.py", THEIRS, theirs), ("ours_axes.py", OURS, ours)):
        (tmp_path / file).write_text(text.replace("{of}", of).replace("{loss}", loss).replace("{call}", call))
    sides = ["--port", f"{tmp_path}/ours_axes.py:Net", "--reference", f"{tmp_path}/theirs_axes.py:Net"]
    given = ["--input", f"{tmp_path}/theirs_axes.py:given", "--eval-only"]
    status = main(["audit", *sides, *given, "--report", str(tmp_path / "report")])
    said = capsys.readouterr()
    mistakes = json.loads((tmp_path / "report/alignment.json").read_text())["mistakes"]
    if named is None:
        assert status == 0 and not mistakes, said.out + said.err
        return
    assert status == 1 and named in said.out and "every value times" not in said.out, said.out
    assert len(mistakes) == 1 and mistakes[0]["kind"] in ("softmax_axis", "axis"), mistakes


def test_one_number_is_scaled_only_by_a_fraction_that_a_mistake_makes():
    right = np.float64(1.7320508)
    for ratio, named in ((3.0, True), (0.25, True), (15 / 16, True), (0.987794, False), (1.00275, False)):
        found = [one.words for one in CHANGED.confirmed(np.asarray(ratio * right), np.asarray(right))]
        assert found == ([f"every value times {ratio:g}"] if named else []), (ratio, found)
    pair = np.array([1.0, 2.0])
    assert [one.words for one in CHANGED.confirmed(0.987794 * pair, pair)] == ["every value times 0.987794"]


QUANTISER = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.linspace(-1, 1, 36).reshape(9, 4).contiguous())
    def forward(self, maps):
        rows = maps.flatten(2).transpose(1, 2).reshape(-1, 4)
        gap = (rows[:, None] - self.codes[None]).square().sum(-1)
        return gap.min(-1).values.mean()

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantise = Net()
    def forward(self, x):
        return self.quantise(x)
"""


def test_a_module_with_tables_of_its_own_is_no_loss_of_classes(tmp_path, capsys):
    theirs = "import torch\nfrom torch import nn\n" + QUANTISER
    ours = "import paddle\nfrom paddle import nn\n" + QUANTISER.replace("nn.Module", "nn.Layer").replace(
        "nn.Parameter(torch.linspace(-1, 1, 36).reshape(9, 4).contiguous())",
        "self.create_parameter([9, 4])",
    ).replace(".transpose(1, 2)", "").replace("reshape(-1, 4)", "reshape([-1, 4])").replace(".min(-1).values", ".min(-1)")
    for file, text in (("ours_quantiser.py", ours), ("theirs_quantiser.py", theirs)):
        (tmp_path / file).write_text(text)
    sides = ["--port", f"{tmp_path}/ours_quantiser.py:Whole", "--reference", f"{tmp_path}/theirs_quantiser.py:Whole"]
    assert main(["audit", *sides, "--input", "2x4x4x3", "--report", str(tmp_path / "report")]) == 1
    assert "classes" not in capsys.readouterr().out
