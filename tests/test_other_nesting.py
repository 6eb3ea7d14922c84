"""Layers that the port divides, nests or pads otherwise, and constants that lie elsewhere: silent but for what is wrong."""

import json

import numpy as np
import pytest

from alignment.cli import main
from alignment.frameworks.torch import depthwise_by_taps, exact_celu, exact_hardsigmoid

HEAD = """
import numpy as np
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
# The normalisation has its channels last, inside a module that is called otherwise, and a table is one rounding apart.
NESTED_REF = """

class ConvModule(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.depthwise, self.norm, self.out = nn.Conv1d(n, n, 4, padding=3, groups=n), nn.BatchNorm1d(n), nn.Conv1d(n, n, 1)

    def forward(self, x, mask):
        x = (x * mask).transpose(1, 2)
        x = F.silu(self.norm(self.depthwise(x)[..., :x.shape[-1]]))
        return self.out(x * torch.sigmoid(x)).transpose(1, 2), None


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln, self.conv_module = nn.LayerNorm(n), ConvModule(n)

    def forward(self, x, mask):
        y, _ = self.conv_module(self.ln(x), mask)
        return x + y, mask


class Encoder(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.embed, self.layers = nn.Linear(6, n), nn.ModuleList([Layer(n) for _ in range(2)])
        at = torch.arange(0, 64.0)[:, None] * torch.exp(torch.arange(0, n, 2.0) * -(9.21 / n))
        self.pe = torch.cat([at.sin(), at.cos()], 1)

    def forward(self, x):
        x, mask = self.embed(x) + self.pe[: x.shape[1]].to(x.dtype), (x[..., :1] > -9).to(x.dtype)
        for layer in self.layers:
            x, mask = layer(x, mask)
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.encoder(x))
"""
NESTED = """

def drawn(n):
    bound = nn.initializer.Uniform(-n ** -.5, n ** -.5)
    return {"weight_attr": bound, "bias_attr": bound}


class Mixing(nn.Layer):
    def __init__(self, n):
        super().__init__()
        self.dw = nn.Conv1D(n, n, 4, groups=n, data_format="NLC", **drawn(4))
        self.bn = nn.BatchNorm1D(n, data_format="NLC")
        self.fc = nn.Linear(n, n, **drawn(n))

    def forward(self, x, valid):
        x = F.silu(self.bn(self.dw(F.pad(x * valid, [3, 0], data_format="NLC"))))
        return self.fc(x * F.sigmoid(x))


class Residual(nn.Layer):
    def __init__(self, n, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(n), inner

    def forward(self, x, *more):
        return x + self.inner(self.norm(x), *more)


class Net(nn.Layer):
    def __init__(self, n=8):
        super().__init__()
        self.stem, self.fc = nn.Linear(6, n, **drawn(6)), nn.Linear(n, 5, **drawn(n))
        self.blocks = nn.LayerList([Residual(n, Mixing(n)) for _ in range(2)])
        at = np.arange(64)[:, None] * np.exp(np.arange(0, n, 2) * -(9.21 / n))
        self.table = np.concatenate([np.sin(at), np.cos(at)], 1).astype("float32")

    def forward(self, x):
        valid = (x[..., :1] > -9).astype(x.dtype)
        x = self.stem(x) + paddle.to_tensor(self.table[: x.shape[1]]).astype(x.dtype)
        for block in self.blocks:
            x = block(x, valid)
        return self.fc(x)
"""
# The convolution is padded outside.
PADDED_REF = """

class Mixer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv1d, self.out = nn.Conv1d(n, n, 4, padding=3, groups=n), nn.Linear(n, n)

    def forward(self, x):
        y = F.silu(self.conv1d(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        return self.out(y * torch.sigmoid(y))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Linear(6, 8), nn.ModuleList([Mixer(8) for _ in range(2)]), nn.Linear(8, 5)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)
"""
PADDED = """

def drawn(n):
    bound = nn.initializer.Uniform(-n ** -.5, n ** -.5)
    return {"weight_attr": bound, "bias_attr": bound}


class Mix(nn.Layer):
    def __init__(self, n):
        super().__init__()
        self.dw, self.out = nn.Conv1D(n, n, 4, groups=n, **drawn(4)), nn.Linear(n, n, **drawn(n))

    def forward(self, x):
        y = F.silu(self.dw(F.pad(x.transpose([0, 2, 1]), [3, 0], data_format="NCL")).transpose([0, 2, 1]))
        return self.out(y * F.sigmoid(y))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.fc = nn.Linear(6, 8, **drawn(6)), nn.Linear(8, 5, **drawn(8))
        self.blocks = nn.LayerList([Mix(8) for _ in range(2)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.fc(x)
"""
TIED_REF = """

class Half(nn.Module):
    def __init__(self, embed):
        super().__init__()
        self.embed_tokens, self.fc = embed, nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(self.embed_tokens(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(11, 8)
        self.encoder, self.decoder = Half(self.shared), Half(self.shared)

    def forward(self, x):
        return torch.tanh(self.encoder(x)) * 0.5 + self.decoder(x.flip(1))
"""
TIED = """

class Half(nn.Layer):
    def __init__(self, embed):
        super().__init__()
        bound = nn.initializer.Uniform(-8 ** -.5, 8 ** -.5)
        self.embed_tokens, self.fc = embed, nn.Linear(8, 8, bound, bound)

    def forward(self, x):
        return self.fc(self.embed_tokens(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(11, 8, weight_attr=nn.initializer.Normal())
        self.encoder, self.decoder = Half(self.shared), Half(self.shared)

    def forward(self, x):
        return paddle.tanh(self.encoder(x)) * 0.25 + self.decoder(x.flip(1))
"""
CONVOLUTIONS_FIRST = (
    "y = [self.left(x), self.right(x)]",
    "a, b = self.left.conv2d(x), self.right.conv2d(x)\n"
    "        y = [self.left.act(self.left.norm(a)), self.right.act(self.right.norm(b))]",
)
PAIRS = {"split": (REF, PORT, "4x3x16x16"), "nested": (NESTED_REF, NESTED, "4x12x6"), "padded": (PADDED_REF, PADDED, "4x12x6")}
DETACHED = ("y * F.sigmoid(y)", "y * F.sigmoid(y.detach())")
CASES = {
    "split, sound": ((), []),
    "split, convolutions before normalisations": (CONVOLUTIONS_FIRST, []),
    "split, the second half first": (("[self.left(x), self.right(x)]", "[self.right(x), self.left(x)]"), []),
    "split, momentum as in the reference": (("momentum=0.97", "momentum=0.03"), [("momentum_inverted", "stem.bn", "0.97")]),
    "split, the block in front": (
        ("[*y, self.block(y[-1])]", "[self.block(y[-1]), *y]"),
        [("operand", "a", "concat")],
    ),
    "split, another table": (("arange(8)", "arange(1, 9)"), [(None, "Net.forward", "")]),
    "nested, sound": ((), []),
    "nested, momentum as in the reference": (
        ('data_format="NLC")\n        self.fc', 'momentum=0.1, data_format="NLC")\n        self.fc'),
        [("momentum_inverted", "encoder.layers.0.conv_module.norm", "0.9")],
    ),
    "padded, sound": ((), []),
    "padded, detached beside it": (DETACHED, [("detached", "layers.1", "detach")]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_layers_in_another_form(case, tmp_path, capsys):
    change, wanted = CASES[case]
    reference, right, shape = PAIRS[case.partition(",")[0]]
    port = right.replace(*change) if change else right
    assert change == () or port != right
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", shape)
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    said = capsys.readouterr().out
    assert (status, len(mistakes)) == (int(bool(wanted)), len(wanted)), said
    for one, (kind, place, words) in zip(mistakes, wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and one["location"].startswith(place) and words in one["hint"], one
    assert "still fails" not in said and "no output of" not in said, said


def test_one_tensor_under_several_names_has_its_gradient_once_where_the_model_is_mended(tmp_path, capsys):
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + TIED_REF)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + TIED)
    np.savez(tmp_path / "ids.npz", x=np.random.default_rng(0).integers(0, 11, (4, 9)))
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", f"{tmp_path}/ids.npz")
    assert main(["audit", *sides, "--report", str(tmp_path / "report")]) == 1
    (mistake,) = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert "* 0.25, expected 0.5" in mistake["hint"] and "still fails" not in capsys.readouterr().out


def test_what_an_exact_function_is_given_wrongly_is_for_the_framework_to_refuse():
    for function in (depthwise_by_taps, exact_hardsigmoid, exact_celu):
        assert function([np.zeros(3)], [np.zeros(3)]) is NotImplemented
