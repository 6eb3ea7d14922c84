"""A layer whose channels the port has in several layers, each with its normalisation, and constants in a frozen layer."""

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.frameworks.torch import depthwise_by_taps, exact_celu, exact_hardsigmoid

HEAD = """
import {framework}
from {framework} import nn
from {framework}.nn import functional as F
"""
REF = """

class Conv(nn.Module):
    def __init__(self, i, o, k=1):
        super().__init__()
        self.conv, self.act = nn.Conv2d(i, o, k, padding=k // 2, bias=False), nn.SiLU()
        self.bn = nn.BatchNorm2d(o, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Projection(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv = nn.Conv2d(n, 1, 1, bias=False).requires_grad_(False)
        self.conv.weight.data[:] = torch.arange(n, dtype=torch.float).view(1, n, 1, 1)

    def forward(self, x):
        return self.conv(x.softmax(1))


class Stage(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.cv1, self.m, self.cv2 = Conv(i, o), Conv(o // 2, o // 2, 3), Conv(3 * o // 2, o)

    def forward(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.append(self.m(y[-1]))
        return self.cv2(torch.cat(y, 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.a, self.down, self.b = Conv(3, 16, 3), Stage(16, 16), Conv(16, 16, 3), Stage(16, 16)
        self.head, self.dfl = nn.Conv2d(16, 8, 1), Projection(8)
        self.table = nn.Parameter(torch.linspace(0, 1, 16).view(1, 16, 1, 1), requires_grad=False)

    def forward(self, x):
        x = self.b(self.down(self.a(self.stem(x) + self.table)))
        return self.dfl(self.head(x)).flatten(1)
"""
PORT = """

def uniform(n):
    return nn.initializer.Uniform(-n ** -.5, n ** -.5)


class ConvBN(nn.Layer):
    def __init__(self, i, o, k=1):
        super().__init__()
        self.conv2d = nn.Conv2D(i, o, k, padding=k // 2, weight_attr=uniform(i * k * k), bias_attr=False)
        self.norm, self.act = nn.BatchNorm2D(o, momentum=0.97, epsilon=1e-3), nn.Silu()

    def forward(self, x):
        return self.act(self.norm(self.conv2d(x)))


class CSP(nn.Layer):
    def __init__(self, i, o):
        super().__init__()
        self.left, self.right = ConvBN(i, o // 2), ConvBN(i, o // 2)
        self.block, self.fuse = ConvBN(o // 2, o // 2, 3), ConvBN(3 * o // 2, o)

    def forward(self, x):
        y = [self.left(x), self.right(x)]
        return self.fuse(paddle.concat([*y, self.block(y[-1])], axis=1))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = ConvBN(3, 16, 3)
        self.stages = nn.Sequential(CSP(16, 16), nn.Sequential(ConvBN(16, 16, 3), CSP(16, 16)))
        self.head = nn.Conv2D(16, 8, 1, weight_attr=uniform(16), bias_attr=uniform(16))
        self.proj = paddle.arange(8).astype("float32").reshape([1, 8, 1, 1])
        self.register_buffer("ramp", paddle.linspace(0, 1, 16).reshape([16, 1, 1]))

    def forward(self, x):
        x = self.head(self.stages(self.stem(x) + self.ramp))
        return (F.softmax(x, axis=1) * self.proj.astype(x.dtype)).sum(1, keepdim=True).flatten(1)
"""
CONVOLUTIONS_FIRST = (
    "y = [self.left(x), self.right(x)]",
    "a, b = self.left.conv2d(x), self.right.conv2d(x)\n"
    "        y = [self.left.act(self.left.norm(a)), self.right.act(self.right.norm(b))]",
)
CASES = {
    "sound": ((), []),
    "convolutions before normalisations": (CONVOLUTIONS_FIRST, []),
    "the second half first": (("[self.left(x), self.right(x)]", "[self.right(x), self.left(x)]"), []),
    "momentum as in the reference": (("momentum=0.97", "momentum=0.03"), [("momentum_inverted", "stem.bn", "0.97")]),
    "the block in front": (
        ("[*y, self.block(y[-1])]", "[self.block(y[-1]), *y]"),
        [("operand", "a", "concat"), ("operand", "b", "")],
    ),
    "another table": (("arange(8)", "arange(1, 9)"), [(None, "Net.forward", "")]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_a_split_layer(case, tmp_path, capsys):
    change, wanted = CASES[case]
    port = PORT.replace(*change) if change else PORT
    assert change == () or port != PORT
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + REF)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x3x16x16")
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    said = capsys.readouterr().out
    assert (status, len(mistakes)) == (int(bool(wanted)), len(wanted)), said
    for one, (kind, place, words) in zip(mistakes, wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and one["location"].startswith(place) and words in one["hint"], one
    assert "still fails" not in said and "no output of" not in said, said


def test_what_an_exact_function_is_given_wrongly_is_for_the_framework_to_refuse():
    for function in (depthwise_by_taps, exact_hardsigmoid, exact_celu):
        assert function([np.zeros(3)], [np.zeros(3)]) is NotImplemented
