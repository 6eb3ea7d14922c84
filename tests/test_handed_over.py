"""A value that a caller hands over is looked for where it is chosen or made, not where it is used; what the engine itself puts
into a port is no mistake of it."""

import functools
import json

import numpy as np
import paddle
import pytest
from torch import nn

from alignment.cli import main
from alignment.frameworks import framework
from alignment.frameworks.base import Call, Instead, Wanted
from alignment.localize.calls import aligned
from alignment.localize.hypotheses.call_words import told_apart
from alignment.models.forms.axes import Rearranged
from alignment.models.mending import mend
from alignment.models.tracing import Network
from alignment.project import import_file
from alignment.strangers import Refused

THEIRS = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.q, self.v, self.first = nn.Linear(6, 6), nn.Linear(6, 6), first
        if first:
            self.table = nn.Embedding(9, 1)

    def forward(self, x, mask=None, bias=None):
        n = x.shape[1]
        if bias is None:
            place = torch.arange(n)
            bias = self.table(place[None, :] - place[:, None] + 4).squeeze(-1) + mask
        scores = self.q(x) @ x.transpose(1, 2) + bias
        return torch.softmax(scores, -1) @ self.v(x), bias


class Block(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.attention = Attention(first)

    def forward(self, x, mask, bias):
        y, bias = self.attention(x, mask=mask, bias=bias)
        return x + y, bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(True), Block(False), Block(False)])

    def forward(self, x):
        mask, bias = torch.full((x.shape[1], x.shape[1]), -1e9).triu(1).to(x.dtype), None
        for block in self.blocks:
            x, bias = block(x, mask, bias)
        return x
"""
OURS = """
import numpy as np
import paddle
from paddle import nn


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.q, self.v = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, bias):
        scores = paddle.matmul(self.q(x), x, transpose_y=True) + bias
        return paddle.matmul(nn.functional.softmax(scores, -1), self.v(x))


class Residual(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fn = Attention()

    def forward(self, x, *args):
        return x + self.fn(x, *args)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.table = self.create_parameter([9, 1])
        self.layers = nn.LayerList([Residual() for _ in range(3)])

    def bias(self, n):
        place = np.arange(n)[None, :] - np.arange(n)[:, None] + 4
        rows = paddle.gather(self.table, paddle.to_tensor(place.reshape(-1)), axis=0)
        return rows.reshape([n, n])

    def forward(self, x):
        n = x.shape[1]
        mask = paddle.triu(paddle.full([n, n], -1e9, dtype=x.dtype), diagonal=1)
        bias = self.bias(n) + mask
        for layer in self.layers:
            x = layer(x, bias)
        return x
"""
LOOP = "        for layer in self.layers:\n            x = layer(x, bias)"
HELPER = """
import numpy as np


def places(n):
    rows = np.arange(n)[None, :]
    columns = np.arange(n)[:, None]
    far = np.abs(columns) - 1  # of one axis
    return columns - rows + 4 + 0 * far
"""
MISTAKES = {
    "the wrong one of two": (LOOP, LOOP.replace("layer in self.layers", "i, layer in enumerate(self.layers)").replace(
        "(x, bias)", "(x, mask if i == 1 else bias)"), "x = layer(", "expected + in line"),
    "a wrong one": ("np.arange(n)[None, :] - np.arange(n)[:, None]", "np.arange(n)[:, None] - np.arange(n)[None, :]",
        "place = np.arange(n)[:, None]", "looks up are the reference's with rows and columns exchanged"),
    "a wrong one of a helper": ("        place = np.arange(n)[None, :] - np.arange(n)[:, None] + 4", "        place = places(n)",
        "columns - rows", "looks up are the reference's with rows and columns exchanged"),
    "other places": ("[:, None] + 4", "[:, None] + 3", "paddle.gather(", "looks up are not the reference's: at [0, 0] 3, "),
}  # fmt: skip


@pytest.fixture
def audited(tmp_path, capsys):
    """A function that audits a port with this source: its mistakes, and what was printed."""

    def run(source, theirs=THEIRS):
        for name, text in (("ours", source), ("theirs", theirs)):
            (tmp_path / f"{name}.py").write_text(text)
        sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--eval-only"]
        main(["audit", *sides, "--input", "2x5x6", "--report", str(tmp_path / "report")])
        return json.loads((tmp_path / "report/alignment.json").read_text())["localization"]["every"], capsys.readouterr().out

    return run


def test_a_port_whose_layers_share_what_they_are_given_is_right(audited):
    found, out = audited(OURS)
    assert not found and "PASS: no mistake found" in out, out


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_handed_over_is_followed_to_where_it_is_made(case, audited):
    before, after, line, words = MISTAKES[case]
    assert before in OURS
    source = HELPER + OURS.replace(before, after) if "helper" in case else OURS.replace(before, after)
    found, out = audited(source)
    number = next(n for n, text in enumerate(source.splitlines(), start=1) if line in text)
    assert len(found) == 1 and words in found[0]["hint"], out
    assert found[0]["source"].endswith(f"ours.py:{number}"), out


LACKING = """
{imports}


class Inner(nn.{module}):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x, memory, gate=None):
        y = self.a(x) * memory
        return y if gate is None else y * gate


class Net(nn.{module}):
    def __init__(self):
        super().__init__()
        self.b, self.inner = nn.Linear(6, 6), Inner()

    def forward(self, x):
        gate = nn.functional.relu(x)
        return self.inner(x, self.b(x){given})
"""
TORCH = {"imports": "from torch import nn", "module": "Module"}
PADDLE = {"imports": "from paddle import nn", "module": "Layer"}


@pytest.mark.parametrize("given", ["", ", gate"])
def test_an_input_that_a_layer_is_not_given_is_named(given, audited):
    found, out = audited(LACKING.format(**PADDLE, given=given), LACKING.format(**TORCH, given=", gate"))
    hints = [one["hint"] for one in found]
    assert len(hints) == (not given) and all("inner takes the input, b in line" in one for one in hints), out
    assert all("expected also relu in line" in one for one in hints), out


AVERAGED = """
{imports}


class Net(nn.{module}):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 5)

    def forward(self, x, labels):
        return nn.functional.cross_entropy(self.a(x), labels, ignore_index={ignored})
"""


@pytest.mark.parametrize("ignored", [-100, 4])
def test_a_mean_over_labels_that_are_ignored_is_named(ignored, tmp_path, capsys):
    """The axis -1 of two is the axis 1."""
    labels = np.array([0, 1, ignored, 2, ignored, 3])
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32), labels=labels)
    for name, side in (("ours", PADDLE), ("theirs", TORCH)):
        (tmp_path / f"{name}.py").write_text(AVERAGED.format(**side, ignored=ignored))
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--eval-only"]
    status = main(["audit", *sides, "--input", f"{tmp_path}/inputs.npz", "--report", str(tmp_path / "report")])
    out = capsys.readouterr().out
    assert status == (ignored < 0) and "expected cross_entropy(axis=1)" not in out, out
    assert ("the mean of cross_entropy is over all" in out) is (ignored < 0), out


def test_a_form_that_does_not_fit_a_call_is_refused():
    x, mask = np.ones((2, 3, 4)), np.ones((3, 3))
    form = Rearranged.learned(Call((mask, x), {}, x), Call((x, mask), {}, x))
    with pytest.raises(Refused):
        form.given((x, np.ones((1, 3, 3))), {})


@pytest.mark.parametrize("returned", ["x + y", "x + y, bias"])
def test_a_module_that_returns_something_else_takes_no_place(returned, tmp_path):
    """Its caller would go on with a pair, as it never does."""
    for name, text in (("ours", THEIRS.replace("return x + y, bias", f"return {returned}")), ("theirs", THEIRS)):
        (tmp_path / f"{name}.py").write_text(text)
    nets = [import_file(tmp_path / f"{name}.py").Net() for name in ("ours", "theirs")]
    sides = [Network(framework("torch"), net, paths) for net, paths in zip(nets, ({"blocks.0": "blocks.0"}, None), strict=True)]
    x, mask = np.ones((2, 5, 6), np.float32), np.zeros((5, 5), np.float32)
    blocks = [side.modules["blocks.0"] for side in sides]
    calls = [side.framework.call(one, (x, mask, None), {}, {"": one}).calls[""] for side, one in zip(sides, blocks, strict=True)]
    assert mend(*sides, "blocks.0", calls=tuple(calls)) is ("bias" in returned)


@pytest.mark.parametrize("asked", [["0.weight"], ["1.weight"], ["0.weight", "1.weight"], []])
def test_what_stands_in_a_layer_s_place_gives_gradients_whichever_are_asked_for(asked):
    """Paddle's own function of Python refuses a gradient that it is not asked for by others."""
    sides, paths = [framework("paddle"), framework("torch")], {"": "", "0": "0", "1": "1"}
    ours, theirs = paddle.nn.Sequential(paddle.nn.Embedding(5, 4), paddle.nn.Linear(4, 4)), nn.Sequential(
        nn.Embedding(5, 4), nn.Linear(4, 4)
    )  # fmt: skip
    port = Network(sides[0], ours, paths)
    assert mend(port, Network(sides[1], theirs), "1")
    tensors = dict(ours.named_parameters())
    made = sides[0].vjp(ours, (np.arange(5),), None, Wanted(parameters={name: tensors[name] for name in asked}))
    assert {name for name, gradient in made.parameters.items() if gradient is not None} == set(asked)


MODULATED = """
import {0}
from {0} import nn


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.table, self.fc = nn.Linear(6, 12), nn.Linear(6, 6)

    def forward(self, x):
        shift, scale = self.table(x.mean(1)).chunk(2, -1)
        x = x + self.fc(modulate(x, shift, scale))
        return self.fc(modulate(x, shift, scale))
"""


def test_two_arguments_that_one_line_of_a_helper_takes_are_told_apart_by_where_they_come_from(tmp_path):
    (tmp_path / "ours.py").write_text(MODULATED.format("paddle", "Layer"))
    trace = framework("paddle").traced(import_file(tmp_path / "ours.py").Net(), (np.ones((2, 5, 6), np.float32),))
    pair = aligned(trace, trace)
    scale, shift = [one.outputs[0] for one in trace.operations if one.name == "reshape"][:2]
    words = "unsqueeze in line 7 of part {} of chunk in line 16"
    assert told_apart(pair, scale, shift) == (words.format("2/2"), words.format("1/2"))
    assert told_apart(pair, shift, trace.given[0]) == ("unsqueeze in line 7", "the input")


def test_arguments_that_a_caller_exchanges_are_shown_at_its_call(audited):
    theirs, ours = MODULATED.format("torch", "Module"), MODULATED.format("paddle", "Layer")
    found, out = audited(ours, theirs)
    assert not found, out
    wrong = ours.replace("return self.fc(modulate(x, shift, scale))", "return self.fc(modulate(x, scale, shift))")
    found, out = audited(wrong, theirs)
    assert [one["source"] for one in found] == [f"ours.py:{wrong[: wrong.index('return self.fc')].count(chr(10)) + 1}"], out


@pytest.mark.parametrize("wrong", [False, True])
def test_two_arguments_that_are_taken_for_each_other_are_one_mistake(wrong, audited):
    changes = {
        "nn.Linear(6, 12)": "nn.Linear(6, 36)",
        "shift, scale = self.table(x.mean(1)).chunk(2, -1)": "a, b, c, d, e, f = self.table(x.mean(1)).chunk(6, -1)",
        "x = x + self.fc(modulate(x, shift, scale))": "x = x + c.unsqueeze(1) * self.fc(modulate(x, a, b))",
        "return self.fc(modulate(x, shift, scale))": "return x + f.unsqueeze(1) * self.fc(modulate(x, d, e))",
    }
    source = functools.reduce(lambda text, one: text.replace(one, changes[one]), changes, MODULATED)
    ours = source.replace("(x, d, e)", "(x, e, d)") if wrong else source
    found, out = audited(ours.format("paddle", "Layer"), source.format("torch", "Module"))
    words = (
        "ours.py:18: part 4/6 of chunk in line 16 and part 5/6 of chunk in line 16 are taken for each other, in modulate (line 7)"
    )
    assert [one["hint"].partition(" (output")[0] for one in found] == [words] * wrong, out


MASKED = """
{imports}


class Net(nn.{module}):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, mask, drop):
        gone = drop == 1
        x = {where}(gone[:, None, None], x * 0.5, x)
        mask = {where}(gone[:, None], mask * 0 + 1, mask)
        kept = mask.{cast}.unsqueeze(-1)
        return (self.fc(x) * kept).sum(1) / kept.sum(1), mask
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_step_that_changes_an_input_for_all_that_follows_is_named(wrong, tmp_path, capsys):
    """No call of the port gives what the reference goes on with, and the port returns its input as it is."""
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    np.savez(tmp_path / "inputs.npz", x=rng.standard_normal((2, 5, 6)).astype("float32"), mask=mask, drop=np.array([0, 1]))
    ours = MASKED.format(
        imports="import paddle\nfrom paddle import nn", module="Layer", where="paddle.where", cast="astype(x.dtype)"
    )
    theirs = MASKED.format(imports="import torch\nfrom torch import nn", module="Module", where="torch.where", cast="to(x.dtype)")
    step = "        mask = paddle.where(gone[:, None], mask * 0 + 1, mask)\n"
    (tmp_path / "ours.py").write_text(ours.replace(step, "") if wrong else ours)
    (tmp_path / "theirs.py").write_text(theirs)
    sides = ["--port", f"{tmp_path}/ours.py:Net", "--reference", f"{tmp_path}/theirs.py:Net", "--eval-only"]
    status = main(["audit", *sides, "--input", f"{tmp_path}/inputs.npz", "--report", str(tmp_path / "report")])
    found, out = json.loads((tmp_path / "report/alignment.json").read_text())["localization"]["every"], capsys.readouterr().out
    assert status == wrong and len(found) == wrong, out
    if wrong:
        assert "where (input 2) are missing before astype" in found[0]["hint"] and found[0]["source"] == "ours.py:12-14", out


STATES = """
import {0}
from {0} import nn


class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.start_h, self.start_c = nn.Linear(6, 6), nn.Linear(6, 6)
        self.first, self.second = {2}, {2}

    def forward(self, x):
        h, c = self.start_h(x[:, 0]), self.start_c(x[:, 0])
        a, state = self.first(x[:, :3], (h.unsqueeze(0), c.unsqueeze(0)))
        b, _ = self.second(x[:, 3:], state)
        return {0}.{3}([a, b], 1)
"""


def test_two_states_of_a_layer_that_are_exchanged_are_named(audited):
    theirs = STATES.format("torch", "Module", "nn.LSTM(6, 6, batch_first=True)", "cat")
    ours = STATES.format("paddle", "Layer", "nn.LSTM(6, 6)", "concat")
    found, out = audited(ours, theirs)
    assert not found, out
    wrong = ours.replace("(h.unsqueeze(0), c.unsqueeze(0))", "(c.unsqueeze(0), h.unsqueeze(0))")
    found, out = audited(wrong, theirs)
    words = "first takes start_c in line 13, start_h in line 13 in this order, expected start_h in line 13, start_c in line 13"
    assert len(found) == 1 and words in found[0]["hint"] and found[0]["source"] == "ours.py:14", out


IN_ROUNDS = """
import {0}
from {0} import nn


class Net(nn.{1}):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        y, seen = self.fc(x), x
        for adds in (False, True, True, False):
            if adds:
                y = y + x
            else:
                seen = {0}.tanh(y)
        return y, seen
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_value_that_a_later_round_makes_is_no_operand_of_an_earlier_one(wrong, audited):
    theirs, ours = IN_ROUNDS.format("torch", "Module"), IN_ROUNDS.format("paddle", "Layer")
    found, out = audited(ours.replace("y + x", "y + 1.5 * x") if wrong else ours, theirs)
    assert len(found) == wrong and all("ours.py:15" in one["hint"] for one in found), out


def test_a_value_that_a_later_call_makes_cannot_be_given():
    layer, given = paddle.nn.Sequential(paddle.nn.ReLU(), paddle.nn.Tanh()), (np.ones((2, 3), np.float32),)
    side = framework("paddle")
    first, second = (one.number for one in side.traced(layer, given).operations if one.name in ("relu", "tanh"))
    trace = side.traced(layer, given, changes={first: Instead(lambda arrays: arrays[:1], ((second, 0),))})
    assert "made later" in trace.error
    assert not side.traced(layer, given, changes={second: Instead(lambda arrays: arrays[:1], ((first, 0),))}).error
