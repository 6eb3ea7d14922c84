"""Convolutional networks of public ports: what differs in size or kind is said so, and the steps pass once it is fixed."""

import json

import pytest

from alignment.cli import main

HEAD = """
import {framework}
from {framework} import nn
from {framework}.nn import functional as F
"""
LAYERS = """

def uniform(n):
    return nn.initializer.Uniform(-n ** -.5, n ** -.5)


def conv(i, o, k, **more):
    n = i * k * k // more.get("groups", 1)
    return nn.Conv2D(i, o, k, weight_attr=uniform(n), bias_attr=uniform(n), **more)


def linear(i, o):
    return nn.Linear(i, o, uniform(i), uniform(i))
"""
GATED_REF = """

class Gate(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(n, m, 1), nn.Conv2d(m, n, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn, self.se1 = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), Gate(16, 8)
        self.mid, self.se2, self.fc = nn.Conv2d(16, 12, 3), Gate(12, 6), nn.Linear(12, 5)

    def forward(self, x):
        x = self.mid(self.se1(torch.relu(self.bn(self.stem(x)))))
        return self.fc(self.se2(x).mean((2, 3)))
"""
GATED = (
    LAYERS
    + """

class Gate(nn.Layer):
    def __init__(self, n, m):
        super().__init__()
        self.pool, self.squeeze, self.excitation = nn.AdaptiveAvgPool2D(1), linear(n, m), linear(m, n)

    def forward(self, x):
        y = F.sigmoid(self.excitation(F.relu(self.squeeze(self.pool(x).squeeze([2, 3])))))
        return x * y.unsqueeze([2, 3])


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1, self.gate1 = conv(3, 16, 3), nn.BatchNorm2D(16), Gate(16, 8)
        self.conv2, self.gate2, self.head = conv(16, 12, 3), Gate(12, 6), linear(12, 5)

    def forward(self, x):
        x = self.conv2(self.gate1(F.relu(self.norm1(self.conv1(x)))))
        return self.head(self.gate2(x).mean([2, 3]))
"""
)
NARROW = GATED.replace("Gate(16, 8)", "Gate(16, 4)").replace("Gate(12, 6)", "Gate(12, 3)")
WIDTHS = [("width", "se1.reduce.weight", "4 output channels, expected 8")]
DRAWN = ("return nn.Linear(i, o, uniform(i)", "return nn.Linear(i, o, uniform(i / 9)")
BACK = (
    GATED.replace("linear(n, m), linear(m, n)", "conv(n, m, 1), conv(m, n, 1)")
    .replace(".squeeze([2, 3])))))", "))))")
    .replace("y.unsqueeze([2, 3])", "y")
)
BACK_REF = (
    GATED_REF.replace("nn.Conv2d(n, m, 1), nn.Conv2d(m, n, 1)", "nn.Linear(n, m), nn.Linear(m, n)")
    .replace("mean((2, 3), keepdim=True)", "mean((2, 3))")
    .replace("x * torch.sigmoid(", "x * torch.sigmoid(")
    .replace("(2, 3))))))", "(2, 3))))))[..., None, None]")
)
# Reference, port, and kind, place and words of its mistakes.
CASES = {
    "linear layers for convolutions by 1 x 1": (GATED_REF, GATED, []),
    "of another width": (GATED_REF, NARROW, WIDTHS),
    "of another width, and an eps": (GATED_REF, NARROW.replace("Norm2D(16)", "Norm2D(16, epsilon=1e-3)"), [
        *WIDTHS, ("batch_norm_eps", "bn", "0.001")]),
    "of another width, and an initialiser": (GATED_REF, NARROW.replace(*DRAWN), [
        *WIDTHS, ("initialisation", "fc.weight", "the port's source sets this initialiser")]),
    "convolutions by 1 x 1 for linear layers": (BACK_REF, BACK, []),
    "the same, of another width": (BACK_REF, BACK.replace("Gate(16, 8)", "Gate(16, 4)"), WIDTHS),
    "an initialiser in layers by other names": (GATED_REF, GATED.replace(*DRAWN), [
        ("initialisation", "se1.reduce.weight", "the port's source sets this initialiser")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_convolutions(case, tmp_path, capsys):
    reference, port, wanted = CASES[case]
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x3x16x16")
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    said = capsys.readouterr().out
    assert (status, len(mistakes)) == (int(bool(wanted)), len(wanted)), said
    for one, (kind, place, words) in zip(mistakes, wanted, strict=True):
        assert one["kind"] == kind and one["location"].startswith(place) and words in one["hint"], one
    assert "still fails" not in said and "cannot be run again" not in said, said
