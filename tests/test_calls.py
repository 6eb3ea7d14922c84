"""Mistakes between the layers are named by the line of the port that makes them; right rewrites never are."""

import functools
import json
import textwrap

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn

from alignment.cli import main
from alignment.faults import Edit
from alignment.frameworks import _calls
from alignment.frameworks.paddle import Paddle
from alignment.frameworks.torch import Torch
from alignment.localize import localize
from alignment.localize.calls import aligned, equal
from alignment.localize.hypotheses import proposals
from alignment.project import import_file, load_project
from bench import functional
from tests.conftest import ROOT

PROJECT = ROOT / "projects/functional/project.py"
SAMPLE = (
    "softmax_over_heads", "scale_missing", "wrong_axes_moved_back", "residual_after_the_activation", "gelu_approximate",
    "sizes_of_the_parts", "concat_in_another_order", "sides_of_the_padding", "maximum_for_mean", "squares_for_distances",
    "softmax_by_hand", "two_swaps_for_transpose", "gelu_by_hand", "variance_of_squares",
)  # fmt: skip


@pytest.fixture(scope="module")
def project():
    return load_project(PROJECT)


def judged(project, names, beside):
    outcomes = functional.run_all(PROJECT, project, project.edits(), names, lambda text: None, beside)
    assert functional.enough(outcomes), "\n".join(one.line_of_text() for one in outcomes)
    return outcomes


def test_a_sample_of_faults_is_named_by_line_and_of_rewrites_passes(project):
    outcomes = judged(project, SAMPLE, beside=False)
    assert sum(not one.kinds for one in outcomes) == 4 and sum(bool(one.kinds) for one in outcomes) == 10
    by_name = {one.name: one.found.hint for one in outcomes if one.found}
    assert by_name["softmax_over_heads"] == "port.py:21: softmax axis 1, expected -1"
    assert by_name["scale_missing"] == (
        "port.py:20-21: / 2.82843 is missing between @ and softmax (the scale of the attention scores)"
    )
    assert by_name["residual_after_the_activation"] == "port.py:54: relu before +, expected after it"


@pytest.mark.slow
def test_every_fault_is_named_by_line_alone_and_beside_rewrites(project):
    known = project.edits()
    assert len(known.faults) >= 50 and len(known.rewrites) >= 12
    outcomes = judged(project, None, beside=True)
    assert all(one.named for one in outcomes if one.kinds and " beside " not in one.name)


def test_a_fault_that_is_not_named_and_a_rewrite_that_is_are_counted(project, tmp_path):
    """The benchmark itself can fail."""
    bench = functional.Bench(PROJECT, project, tmp_path)
    wrong = bench.found("Gate", [Edit("port.py", "F.sigmoid(gate)", "F.tanh(gate)")])
    assert functional.enough([functional.Outcome("a fault", wrong, "port.py:68", ["other_function"])])
    assert not functional.enough([functional.Outcome("another line", wrong, "port.py:67", ["other_function"])])
    assert not functional.enough([functional.Outcome("not found", None, "port.py:68", ["other_function"])])
    assert not functional.enough([functional.Outcome("a rewrite", wrong, "port.py:68", ())])


def test_a_command_counts_them(capsys, tmp_path):
    flags = ["bench", str(PROJECT), "--functional-faults", "--result-dir", str(tmp_path)]
    assert main([*flags, "--inject", "slope"]) == 0
    assert "1 faults: 1 detected, 1 named by line, 1 called what they are, 0 false lines" in capsys.readouterr().out
    (row, *_) = json.loads((tmp_path / "functional_faults.json").read_text())
    assert row["found"]["source"] == row["line"] == "port.py:69"
    assert main([*flags, "--inject", "nothing"]) == 2
    assert "error: --inject nothing: no such fault or rewrite of functional" in capsys.readouterr().err
    assert main([*flags, "--jobs", "3"]) == 2


SOURCE = """
    import paddle
    from paddle.nn.functional import gelu as act, softmax


    def attend(q, k, v):
        scores = paddle.matmul(q, k, transpose_y=True) * q.shape[-1] ** -0.5
        return softmax(scores, axis=-1) @ v


    class Block(paddle.nn.Layer):
        def __init__(self, width=8):
            super().__init__()
            self.qkv = paddle.nn.Linear(width, 3 * width)
            self.norm = paddle.nn.LayerNorm(width)
            self.act = act

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, axis=-1)
            return x + self.act(attend(q, k, v))


    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.blocks = paddle.nn.LayerList([Block(), Block()])
            self.head = paddle.nn.Linear(8, 3)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(axis=1))
"""
REFERENCE = """
    import torch
    import torch.nn.functional as F


    class Block(torch.nn.Module):
        def __init__(self, width=8):
            super().__init__()
            self.qkv = torch.nn.Linear(width, 3 * width)
            self.norm = torch.nn.LayerNorm(width)

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            return x + F.gelu(F.scaled_dot_product_attention(q, k, v))


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList([Block(), Block()])
            self.head = torch.nn.Linear(8, 3)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(1))
"""


def written(folder, name, text):
    (folder / name).write_text(textwrap.dedent(text).lstrip("\n"))
    return folder / name


def test_lines_of_helpers_and_functions_that_are_held_under_other_names_are_found(tmp_path):
    """A function imported by name, one held by the module, and one called in a function outside of every class."""
    reference = import_file(written(tmp_path, "theirs.py", REFERENCE)).Net()
    inputs = np.random.default_rng(0).standard_normal((2, 5, 8))
    cases = {
        "": ("", None),
        "softmax(scores, axis=-1)": ("softmax(scores, axis=1)", "ours.py:7: softmax axis 1, expected 2"),
        "self.act(attend(q, k, v))": ("self.act(attend(q, k, v), approximate=True)", "ours.py:19: gelu approximate True"),
        "x.mean(axis=1)": ("x.mean(axis=2)", "ours.py:31: mean axis 2, expected 1"),
        "return x + self": ("return x * self", "ours.py:19: *, expected +"),
    }
    for number, (old, (new, words)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        ours = import_file(written(folder, "ours.py", SOURCE.replace(old, new) if old else SOURCE)).Net()
        first = localize(ours, reference, inputs, weights=False, backward=False).first
        if words is None:
            assert first is None
        else:
            assert words in first.hint and first.source == words.partition(": ")[0], first.line()


def test_an_audit_names_the_line_in_all_that_it_writes(tmp_path, capsys):
    text = SOURCE.replace("x.mean(axis=1)", "x.max(axis=1)")
    port, reference = written(tmp_path, "wrong.py", text), written(tmp_path, "right.py", REFERENCE)
    flags = ["--port", f"{port}:Net", "--reference", f"{reference}:Net", "--input", "2x5x8", "--report", str(tmp_path / "out")]
    assert main(["audit", "--eval-only", *flags]) == 1
    line = "wrong.py:31: max(axis=1), expected mean(axis=1)"
    assert line in capsys.readouterr().out
    first = json.loads((tmp_path / "out/alignment.json").read_text())["first_divergence"]
    assert first["source"] == "wrong.py:31" and line in first["hint"] and first["location"] == "Net.forward"
    for name in ("report.md", "report.html"):
        text = (tmp_path / "out" / name).read_text()  # a card says the line once, above the sentence
        assert all(part in text for part in line.split(": ", 1)), name


class Two(nn.Layer):
    """Two mistakes in one forward, and a call that raises behind a third."""

    def __init__(self, kind):
        super().__init__()
        self.fc, self.kind = nn.Linear(6, 6), kind

    def forward(self, x):
        if self.kind == "raises":
            return F.softmax(self.fc(x).transpose([0, 2, 1]), axis=-1) @ x.transpose([0, 2, 1])
        y = F.softmax(self.fc(x), axis=-1 if self.kind == "sound" else 1)
        y = y.clip(0.1, 0.9 if self.kind == "sound" else 0.2)
        return x + y if self.kind == "sound" else x - y


class TwoReference(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.fc, self.kind = torch.nn.Linear(6, 6), kind

    def forward(self, x):
        if self.kind == "raises":
            return torch.softmax(self.fc(x), dim=-1) @ x.transpose(1, 2)
        return x + torch.softmax(self.fc(x), dim=-1).clamp(0.1, 0.9)


def test_several_mistakes_of_one_forward_are_named_together():
    inputs = np.random.default_rng(1).standard_normal((2, 5, 6))
    found = {
        kind: localize(Two(kind), TwoReference(kind), inputs, weights=False, backward=False).first for kind in ("sound", "wrong")
    }
    assert found["sound"] is None
    said = found["wrong"].hint.split("; also ")
    assert len(said) == 3, said
    assert "softmax axis 1, expected -1" in said[0] and "max 0.2, expected 0.9" in said[1] and "-, expected +" in said[2]


class Modulated(nn.Layer):
    """The parts of what is split are taken by a function, which makes other values of them first."""

    def __init__(self, order):
        super().__init__()
        self.fc, self.order = nn.Linear(6, 12), order

    def forward(self, x, given):
        parts = self.fc(given).chunk(2, axis=-1)
        return modulated(F.relu(x), *(parts[place].unsqueeze(1) for place in self.order))


def modulated(x, shift, scale):
    return x * (1 + scale) + shift


class ModulatedReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 12)

    def forward(self, x, given):
        shift, scale = self.fc(given).chunk(2, dim=-1)
        return modulated(torch.relu(x), shift[:, None], scale[:, None])


def test_parts_that_are_exchanged_are_named_where_they_are_split():
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((2, 5, 6)), rng.standard_normal((2, 6))
    assert localize(Modulated((0, 1)), ModulatedReference(), inputs, weights=False).first is None
    first = localize(Modulated((1, 0)), ModulatedReference(), inputs, weights=False, backward=False).first
    assert "the parts of chunk are taken in another order for" in first.hint and "expected [1, 0]" in first.hint, first.line()


@pytest.mark.parametrize(("spelled", "other", "apart"), [(-1, -1, False), (4, 3, True), (-1, -2, True)])
def test_the_last_axis_of_any_number_of_axes_is_no_other_axis(spelled, other, apart):
    def softmax(axis, place):
        return _calls.Operation(0, "softmax", "softmax", [0], [1], {"axis": (place,)}, {"axis": axis})

    assert proposals._differs(softmax(spelled, 4), softmax(other, 3), "axis") == apart


def test_the_cause_is_named_where_a_later_line_raises():
    first = localize(
        Two("raises"), TwoReference("raises"), np.random.default_rng(1).standard_normal((2, 5, 6)), weights=False
    ).first
    assert "transpose to [0, 2, 1] is superfluous" in first.hint and "then" in first.measured and "raises" in first.measured


class InPlace(nn.Layer):
    """Values that are overwritten, a number as a tensor, and a function that is held with its arguments."""

    def __init__(self, row=0, more=1.0, tanh=False):
        super().__init__()
        self.fc, self.row, self.more = nn.Linear(6, 6), row, more
        self.act = functools.partial(F.gelu, approximate=tanh)

    def forward(self, x):
        y = self.fc(x).clone()
        y[:, self.row] = 0
        y = y.add_(paddle.to_tensor(self.more, dtype=y.dtype))
        return self.act(y).cumsum(1)


class InPlaceReference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        y = self.fc(x).clone()
        y[:, 0] = 0
        y += 1
        return torch.nn.functional.gelu(y).cumsum(1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, None),
        ({"row": 1}, "setitem index [:, 1], expected [:, 0]"),
        ({"more": 2.0}, "+ 2, expected 1"),
        ({"tanh": True}, "gelu approximate True, expected False"),
    ],
)
def test_what_is_overwritten_or_held_is_traced(settings, words):
    first = localize(
        InPlace(**settings), InPlaceReference(), np.random.default_rng(0).standard_normal((2, 4, 6)), weights=False
    ).first
    assert first is None if words is None else words in first.hint, first


def test_arrays_that_are_too_large_to_keep_leave_a_module_without_lines(monkeypatch):
    monkeypatch.setattr(_calls, "LIMIT", 100)
    first = localize(Two("wrong"), TwoReference("wrong"), np.ones((2, 5, 6)), weights=False, backward=False).first
    assert first.location == "Two.forward" and not first.source


def test_what_is_patched_for_a_trace_is_put_back():
    model, x = nn.Linear(4, 4), np.ones((1, 4))
    before = F.softmax, paddle.concat, paddle.Tensor.__add__, paddle.Tensor.reshape, nn.functional.hardsigmoid, paddle.Tensor.T
    traced = Paddle().traced(lambda t: F.softmax(model(t) + 1).T.reshape([2, 2]), (x.astype("float32"),))
    assert [one.name for one in traced.operations][-4:] == ["add", "softmax", "transpose", "reshape"]
    after = F.softmax, paddle.concat, paddle.Tensor.__add__, paddle.Tensor.reshape, nn.functional.hardsigmoid, paddle.Tensor.T
    assert before == after


def test_equal_calls_have_one_name_and_one_form_in_both_frameworks():
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4))
    pairs = [
        (lambda t: t.transpose([0, 2, 3, 1]), lambda t: t.permute(0, 2, 3, 1)),
        (lambda t: paddle.transpose(t, [0, 1, 3, 2]), lambda t: t.mT),
        (lambda t: t.flatten(1), lambda t: t.reshape(2, -1)),
        (lambda t: t.mean(axis=[2, 3], keepdim=True), lambda t: t.mean((-1, -2), True)),
        (lambda t: paddle.concat([t, t], axis=-1), lambda t: torch.cat((t, t), 3)),
        (lambda t: t.clip(0.0, 1.0), lambda t: torch.clamp(t, min=0, max=1)),
        (lambda t: F.pad(t, [1, 2, 0, 1]), lambda t: torch.nn.functional.pad(t, (1, 2, 0, 1))),
        (lambda t: F.avg_pool2d(t, 2, exclusive=False), lambda t: torch.nn.functional.avg_pool2d(t, (2, 2))),
        (lambda t: F.gelu(t, approximate=True), lambda t: torch.nn.functional.gelu(t, approximate="tanh")),
        (lambda t: 2.0 / t, lambda t: torch.div(torch.tensor(2.0), t)),
        (lambda t: t.chunk(3, 1)[1], lambda t: t.split(1, dim=1)[1]),
        (lambda t: t[:, 1:], lambda t: t[:, 1:]),
        (lambda t: F.normalize(t, axis=1), lambda t: torch.nn.functional.normalize(t)),
        (lambda t: F.leaky_relu(t), lambda t: torch.nn.functional.leaky_relu(t)),
        (lambda t: F.hardsigmoid(t), lambda t: torch.nn.functional.hardsigmoid(t)),
    ]
    for number, functions in enumerate(pairs):
        ours, theirs = (side().traced(function, (x,)) for side, function in zip((Paddle, Torch), functions, strict=True))
        assert ours.error == theirs.error == "", number
        one, other = ours.operations[0], next(o for o in theirs.operations if o.inputs)
        shared = one.attributes.keys() & other.attributes.keys()
        assert one.name == other.name and {k: one.attributes[k] for k in shared} == {k: other.attributes[k] for k in shared}, number
        assert not list(aligned(ours, theirs).candidates()) and equal(
            ours.values[ours.results[0]], theirs.values[theirs.results[0]]
        )


def test_values_are_compared_one_by_one():
    masked = np.array([-1e9, 1.0, 2.0])
    assert equal(masked, masked + [1e-3, 0, 0]) and not equal(masked, masked + [0, 1e-3, 0])
    assert equal(np.array([-np.inf, 1.0]), np.array([-np.inf, 1.0])) and not equal(
        np.array([-np.inf, 1.0]), np.array([np.inf, 1.0])
    )
