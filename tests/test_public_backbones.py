"""Forms of public backbones: packed projections, layers that nothing reads, gains beside gains, one output more."""

import json

import pytest

from alignment.cli import main

HEAD = """
import {framework}
from {framework} import nn

"""
TOKEN_REF = """

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x[:, 0]).reshape(b, 1, 2, 4).permute(0, 2, 1, 3)
        k, v = (f(x).reshape(b, n, 2, 4).permute(0, 2, 1, 3) for f in (self.k, self.v))
        weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, 1, 8))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.head = nn.Linear(6, 8), Attention(), nn.Linear(8, 3)

    def forward(self, x):
        x = self.embed(x)
        return self.head(torch.cat([self.attn(x), x[:, 1:]], 1)[:, 0])
"""
LINEAR = """

def linear(i, o):
    u = nn.initializer.Uniform(-(i ** -.5), i ** -.5)
    return nn.Linear(i, o, u, u)
"""
TOKEN = (
    LINEAR
    + """

class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = linear(8, 24), linear(8, 8)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, 2, 4]).transpose([2, 0, 3, 1, 4])
        weights = nn.functional.softmax((q[:, :, 0:1] * k).sum(-1) * 0.5, -1)
        token = self.proj((weights.unsqueeze(2) @ v).transpose([0, 2, 1, 3]).reshape([b, 1, 8]))
        return paddle.concat([token, x[:, 1:]], 1)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.head = linear(6, 8), Attention(), linear(8, 3)

    def forward(self, x):
        return self.head(self.attn(self.embed(x))[:, 0])
"""
)
RAW_REF = """

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x, position):
        b, n, _ = x.shape
        heads = lambda y: y.reshape(b, n, 2, 4).transpose(1, 2)
        q, k, v = heads(self.q_proj(x + position)), heads(self.k_proj(x + position)), heads(self.v_proj(x))
        weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(b, n, 8))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.head = nn.Linear(6, 8), Attention(), nn.Linear(8, 3)

    def forward(self, x):
        position = torch.linspace(-1, 1, x.shape[1], dtype=x.dtype)[:, None]
        return self.head(self.attn(self.embed(x), position))
"""
RAW = (
    LINEAR
    + """

class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        u = nn.initializer.Uniform(-(8 ** -.5), 8 ** -.5)
        self.in_proj_weight = self.create_parameter([8, 24], default_initializer=u)
        self.in_proj_bias = self.create_parameter([24], default_initializer=u)
        self.out_proj = linear(8, 8)

    def part(self, x, i):
        y = nn.functional.linear(x, self.in_proj_weight[:, 8 * i:8 * i + 8], self.in_proj_bias[8 * i:8 * i + 8])
        return y.reshape([x.shape[0], x.shape[1], 2, 4]).transpose([0, 2, 1, 3])

    def forward(self, x, position):
        q, k, v = self.part(x + position, 0), self.part(x + position, 1), self.part(x, 2)
        weights = nn.functional.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5, -1)
        return self.out_proj((weights @ v).transpose([0, 2, 1, 3]).reshape(x.shape))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.head = linear(6, 8), Attention(), linear(8, 3)

    def forward(self, x):
        position = paddle.linspace(-1, 1, x.shape[1], dtype=x.dtype)[:, None]
        return self.head(self.attn(self.embed(x), position))
"""
)
# Gains beside each other, of which names do not say which is which, and a norm inside the body that nothing calls.
GAINS_REF = """

class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((8,), 0.1))

    def forward(self, x):
        return x * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.attention_scaling, self.mlp, self.mlp_scaling = nn.Linear(8, 8), Gain(), nn.Linear(8, 8), Gain()

    def forward(self, x):
        x = x + self.attention_scaling(self.attention(x))
        return x + self.mlp_scaling(torch.tanh(self.mlp(x)))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.layernorm = nn.Linear(6, 8), nn.ModuleList([Block(), Block()]), nn.LayerNorm(8)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return NORMED


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.classifier = Body(), nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(self.model(x))
"""
GAINS = (
    LINEAR
    + """

class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attn, self.fc = linear(8, 8), linear(8, 8)
        tenth = nn.initializer.Constant(0.1)
        self.scale_1 = self.create_parameter([8], default_initializer=tenth)
        self.scale_2 = self.create_parameter([8], default_initializer=tenth)

    def forward(self, x):
        x = x + self.ATTENTION * self.attn(x)
        return x + self.MLP * paddle.tanh(self.fc(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.block1, self.block2, self.head = linear(6, 8), Block(), Block(), linear(8, 3)

    def forward(self, x):
        return self.head(self.block2(self.block1(self.embed(x))))
"""
)
# A body that returns one output more, and heads that the port uses from the last stage to the first one.
STAGES_REF = """

class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 16), nn.Linear(16, 24)])
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(16), nn.LayerNorm(24)])

    def forward(self, x):
        hidden = []
        for layer, norm in zip(self.layers, self.norms):
            x = norm(layer(x))[:, ::2]
            hidden.append(x)
        return [x, *hidden]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.heads = Body(), nn.ModuleList([nn.Linear(8, 4), nn.Linear(16, 4), nn.Linear(24, 4)])
        self.classifier = nn.Linear(12, 3)

    def forward(self, x):
        found = [head(y).mean(1) for head, y in zip(self.heads, self.model(x)[1:])]
        return self.classifier(torch.cat(found[::-1], 1))
"""
STAGES = (
    LINEAR
    + """

class Body(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([linear(6, 8), linear(8, 16), linear(16, 24)])
        self.norms = nn.LayerList([nn.LayerNorm(8), nn.LayerNorm(16), nn.LayerNorm(24)])

    def forward(self, x):
        hidden = []
        for layer, norm in zip(self.layers, self.norms):
            x = norm(layer(x))[:, ::2]
            hidden.append(x)
        return hidden


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.model, self.c3, self.c2, self.c1 = Body(), linear(24, 4), linear(16, 4), linear(8, 4)
        self.classifier = linear(12, 3)

    def forward(self, x):
        a, b, c = self.model(x)
        found = [head(y).mean(1) for head, y in ((self.c3, c), (self.c2, b), (self.c1, a))]
        return self.classifier(paddle.concat(found, 1))
"""
)
LISTED_REF = (
    STAGES_REF.partition("        found =")[0]
    .replace("self.model, self.heads = Body(), ", "self.model = Body()  # ")
    .replace("self.classifier =", "#")
    + "        return self.model(x)[1:]\n"
)
LISTED = (
    STAGES.partition("        a, b, c =")[0]
    .replace("self.model, self.c3, self.c2, self.c1 = Body(), ", "self.model = Body()  # ")
    .replace("self.classifier =", "#")
    + "        return self.model(x)\n"
)
POOLED_REF = """

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(x.mean(2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.act, self.head = nn.Conv1d(5, 8, 3), nn.ReLU(), Head()

    def forward(self, x):
        return self.head(self.act(self.stem(x)))
"""
POOLED = """

def conv(i, o, k):
    u = nn.initializer.Uniform(-((i * k) ** -.5), (i * k) ** -.5)
    return nn.Conv1D(i, o, k, weight_attr=u, bias_attr=u)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.act = conv(5, 8, 3), nn.ReLU()
        self.output = nn.Sequential(nn.Dropout(0.0), conv(8, 3, 1))

    def forward(self, x):
        return self.output(self.act(self.stem(x)).mean(2, keepdim=True)).squeeze(2)
"""
UNREAD, READ = GAINS_REF.replace("NORMED", "x"), GAINS_REF.replace("NORMED", "self.layernorm(x)")
DETACHED = GAINS_REF.replace("NORMED", "x * self.layernorm.weight.detach().cos()")


ORDERED, CROSSED = (
    GAINS.replace("ATTENTION", attention).replace("MLP", mlp) for attention, mlp in (("scale_1", "scale_2"), ("scale_2", "scale_1"))
)
# Reference, port, and kind and place of its mistakes.
CASES = {
    "a class token's query": (TOKEN_REF, TOKEN, []),
    "a class token's query, and a wrong scale": (TOKEN_REF, TOKEN.replace("* 0.5", "* 0.25"), [("", "attn")]),
    "raw packed tensors": (RAW_REF, RAW, []),
    "raw packed tensors, and a wrong position": (RAW_REF, RAW.replace("self.part(x, 2)", "self.part(x + position, 2)"), [
        ("", "attn")]),
    "a norm that nothing reads": (UNREAD, ORDERED, []),
    "a norm that nothing reads, and gains by other names": (UNREAD, CROSSED, []),
    "a norm that nothing reads, and a mistake": (UNREAD, ORDERED.replace("paddle.tanh(self.fc(x))", "self.fc(x)"), [
        ("call_missing", "model.layers.0")]),
    "a norm that is read": (READ, ORDERED, [("layer_missing", "model.layernorm")]),
    "a norm of which the weight alone is read": (DETACHED, ORDERED, [("layer_missing", "model.layernorm")]),
    "an output more": (STAGES_REF, STAGES, []),
    "an output more, and an eps": (STAGES_REF, STAGES.replace("LayerNorm(16)", "LayerNorm(16, epsilon=1e-3)"), [
        ("norm_eps", "model.norms.1")]),
    "an output more, and a mistake behind it": (STAGES_REF, STAGES.replace("found, 1", "found[::-1], 1"), [("", "Net.forward")]),
    "stages by themselves": (LISTED_REF, LISTED, []),
    "stages by themselves, and an eps": (LISTED_REF, LISTED.replace("LayerNorm(16)", "LayerNorm(16, epsilon=1e-3)"), [
        ("norm_eps", "model.norms.1")]),
    "stages by themselves, and a function": (LISTED_REF, LISTED.replace("norm(layer(x))", "norm(layer(x)).tanh()"), [("", "")]),
    "axes that the caller takes away": (POOLED_REF, POOLED, []),
    "axes that the caller takes away, and a function": (POOLED_REF, POOLED.replace("nn.ReLU()", "nn.GELU()"), [
        ("", "Net.forward")]),
    "axes that the caller takes away, and a wrong sign": (POOLED_REF, POOLED.replace(".squeeze(2)", ".squeeze(2).neg()"), [
        ("", "Net.forward")]),
    "one gain for both": (UNREAD, ORDERED.replace("x + self.scale_2", "x + self.scale_1"), [("", "model.layers.0")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_a_form(case, tmp_path, capsys):
    reference, port, wanted = CASES[case]
    (tmp_path / "theirs.py").write_text(HEAD.format(framework="torch") + reference)
    (tmp_path / "ours.py").write_text(HEAD.format(framework="paddle") + port)
    sides = ("--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--input", "4x5x6")
    status = main(["audit", *sides, "--report", str(tmp_path / "report")])
    mistakes = json.loads((tmp_path / "report" / "alignment.json").read_text())["mistakes"]
    assert (status, len(mistakes)) == (int(bool(wanted)), len(wanted)), capsys.readouterr().out
    for one, (kind, place) in zip(mistakes, wanted, strict=True):
        assert one["kind"] == (kind or one["kind"]) and one["location"].startswith(place), one
