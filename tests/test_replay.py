"""A mistake in a forward of another form is named where one change of the port gives the reference's values in every case."""

import dataclasses

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn

from alignment import tolerance
from alignment.frameworks.paddle import Paddle
from alignment.localize import localize
from alignment.localize.hypotheses import replay
from alignment.models.calibration import random_values
from alignment.project import import_file
from alignment.strangers import Refused
from tests.conftest import ROOT
from tests.sound_pairs import PAIRS, audited

FORMS = ROOT / "tests/forms"
# What is changed in the port's source -> kind, words; the reference's mixer is a loop, and the port's takes all times at once.
MISTAKES = {
    "two parts exchanged": ("self.scan(x, step, drive, read)", "self.scan(x, step, read, drive)", "operand", "expected [0, 2, 1]"),
    "a factor": ("(step * x).unsqueeze(-1)", "x.unsqueeze(-1)", "call_missing", "* softplus in line 42 is missing behind *"),
    "sizes in another order": (
        "low, drive, read = paddle.split(parts, [self.low, self.states, self.states], axis=-1)",
        "drive, read, low = paddle.split(parts, [self.states, self.states, self.low], axis=-1)",
        "operand", "the parts of split lie in another order, expected [2, 0, 1], with the sizes [2, 3, 3]",
    ),
}  # fmt: skip


def found(ours, theirs, *inputs):
    return localize(ours, theirs, inputs, weights=False, backward=False).first


def test_a_sound_port_without_the_loop_is_silent():
    assert not audited("Scan", PAIRS["Scan"], 1).findings


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_another_form_is_named(case, tmp_path):
    before, after, kind, words = MISTAKES[case]
    source = (FORMS / "scan_ours.py").read_text()
    assert before in source
    (tmp_path / "ours.py").write_text(source.replace(before, after))
    ours, theirs = import_file(tmp_path / "ours.py").Scan(), import_file(FORMS / "scan_theirs.py").Scan()
    first = found(ours, theirs, np.random.default_rng(0).standard_normal((2, 6, 5)))
    assert first.kind == kind and words in first.hint and first.location == "mixer", first.line()


class Right(torch.nn.Module):
    """A loss of some labels, of which those below 0 do not count."""

    def __init__(self, kind):
        super().__init__()
        self.head, self.kind = torch.nn.Linear(8, 6), kind

    def forward(self, x, target):
        kept = target >= 0
        logs = torch.log_softmax(self.head(x), -1)
        if self.kind == "mask":
            sharp = -logs.gather(-1, target.clamp(min=0)[..., None]).squeeze(-1)
            return ((sharp - 0.1 * logs.mean(-1)) * kept).sum() / kept.sum()
        return torch.nn.functional.cross_entropy(self.head(x)[kept], target[kept])


class Ours(nn.Layer):
    """The same; ``wrong`` counts what is ignored, or gives the mean of means."""

    def __init__(self, kind, wrong):
        super().__init__()
        self.head, self.kind, self.wrong = nn.Linear(8, 6), kind, wrong

    def forward(self, x, target):
        kept = (target >= 0).astype(x.dtype)
        logs = F.log_softmax(self.head(x), -1)
        if self.kind == "mask":
            sharp = -paddle.take_along_axis(logs, target.clip(min=0).unsqueeze(-1), -1).squeeze(-1)
            even = logs.mean() if self.wrong else (logs.mean(-1) * kept).sum() / kept.sum()
            return (sharp * kept).sum() / kept.sum() - 0.1 * even
        losses = []
        for part in (slice(0, 2), slice(2, 7)):
            some, wanted = self.head(x)[:, part].flatten(0, 1), target[:, part].flatten()
            losses.append(F.cross_entropy(some, wanted, reduction="mean" if self.wrong else "sum"))
        return sum(losses) / (2 if self.wrong else kept.sum())


WORDS = {
    "mask": "mean over all values, expected over those that ge in line",
    "means": "mean of 2 means (cross_entropy) of [6, 15] values, expected one mean over the 15 that are not ignored",
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_loss_that_counts_otherwise_is_named(kind):
    rng = np.random.default_rng(0)
    target = rng.integers(0, 6, (3, 7))
    target[:, 5:] = -100
    given = rng.standard_normal((3, 7, 8)), target
    assert found(Ours(kind, False), Right(kind), *given) is None
    first = found(Ours(kind, True), Right(kind), *given)
    assert WORDS[kind] in first.hint, first.line()


def test_a_change_that_is_right_in_one_case_alone_names_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    target = rng.integers(0, 6, (3, 7))
    target[:, 5:] = -100
    given = rng.standard_normal((3, 7, 8)), target
    told = replay.replayed

    def in_the_first(cases, orders, rtol):
        return told([cases[0], dataclasses.replace(cases[1], right=lambda trace: False)], orders, rtol)

    monkeypatch.setattr("alignment.localize.hypotheses.calls.replayed", in_the_first)
    assert WORDS["means"] not in found(Ours("means", True), Right("means"), *given).hint
    assert told([], (), tolerance.OPERATION_RTOL) is None


class Scores(torch.nn.Module):
    def forward(self, q, k):
        return torch.softmax(torch.einsum("bid,bjd->bij", q, k), -1).tril()


class Products(nn.Layer):
    """Scores of positions ahead are left out behind the softmax, and another power of them is taken."""

    def forward(self, q, k):
        scores = paddle.matmul(q, k, transpose_y=True)
        scores = scores * scores.abs().sqrt() + scores.cos()
        return paddle.concat([scores.tril(), scores.triu()], -1)[..., :5]


def test_a_change_that_cannot_be_computed_is_passed_over():
    """Two operands of one shape, of which the product turns one, cannot be exchanged by numpy as they are."""
    given = np.random.default_rng(0).standard_normal((2, 2, 5, 4))
    first = found(Products(), Scores(), *given)
    assert first.location == "Products.forward" and "raises" not in first.hint
    with pytest.raises(Refused):
        replay._refusing(lambda arrays: [arrays[0] @ arrays[0]], [given[0]])


class Distilled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x, teacher):
        student = torch.log_softmax(self.head(x) / 4, -1)
        return (torch.softmax(teacher / 4, -1) * student).sum(-1)


class Distilling(nn.Layer):
    def __init__(self, kind):
        super().__init__()
        self.head, self.kind = nn.Linear(8, 8), kind

    def forward(self, x, teacher):
        output = self.head(x)
        if self.kind == "shared":
            soft = teacher / 4
            return (F.softmax(soft, -1) * F.log_softmax(soft, -1)).sum(-1) + 0 * output.sum(-1)
        student = F.log_softmax((output if self.kind == "sound" else teacher) / 4, -1)
        return (F.softmax(teacher / 4, -1) * student).sum(-1) + 0 * output.sum(-1)


def test_a_call_on_another_value_is_not_called_missing():
    """The port divides by 4 where the reference does, and something else: the division is not missing."""
    given = np.random.default_rng(0).standard_normal((2, 4, 8))
    assert found(Distilling("sound"), Distilled(), *given) is None
    for kind, words in (
        ("teacher", ": / 4 takes input 2, expected head in line"),
        ("shared", "log_softmax takes / 4 of input 2, expected"),
    ):
        first = found(Distilling(kind), Distilled(), *given)
        assert words in first.hint and first.kind == "operand", first.line()


class Contexts(torch.nn.Module):
    """Two layers make a context of one row; the second one's is taken."""

    def __init__(self):
        super().__init__()
        self.select, self.enrich, self.mix = (torch.nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, static):
        select, enrich = self.select(static), self.enrich(static)
        x = x * select.unsqueeze(1)
        return self.mix(x + enrich.unsqueeze(1).expand(-1, x.shape[1], -1))


class Contextual(nn.Layer):
    def __init__(self, taken):
        super().__init__()
        self.select, self.enrich, self.mix = (nn.Linear(6, 6) for _ in range(3))
        self.taken = taken

    def forward(self, x, static):
        contexts = {"select": self.select(static), "enrich": self.enrich(static)}
        x = x * contexts["select"].unsqueeze(1)
        return self.mix(x + contexts[self.taken].unsqueeze(1))


def test_a_call_that_takes_another_layer_s_result_lacks_no_step_before_it():
    """The reference lays out what it takes, and so it is no value of the port's; but what it lays out is."""
    given = [np.random.default_rng(0).standard_normal(shape) for shape in ((3, 5, 6), (3, 6))]
    assert found(Contextual("enrich"), Contexts(), *given) is None
    first = found(Contextual("select"), Contexts(), *given)
    assert first.kind == "operand" and "select" in first.hint and "expected" in first.hint, first.line()


def test_numbers_that_a_pass_computes_are_operands_and_constants_are_none():
    """A mean goes into the next call as a value, a tensor that the source makes of a number as that number."""

    class Net(nn.Layer):
        def forward(self, x):
            return x / x.mean() + paddle.to_tensor(2.0)

    operations = Paddle().traced(Net(), (np.arange(4.0).reshape(2, 2),), {}, {}, {}).operations
    divided, added = (next(one for one in operations if one.name == name) for name in ("div", "add"))
    assert len(divided.inputs) == 2 and not divided.attributes
    assert len(added.inputs) == 1 and added.attributes == {"constant": 2.0}


def test_a_parameter_that_its_source_starts_at_a_number_stays_near_it():
    """A correction of the scores of experts that is below zero; weights of ones and biases of zeros are drawn as before."""
    rng = np.random.default_rng(0)
    assert (random_values(rng, "router.correction", np.full(50, -1.5, np.float32)) < 0).all()
    for start in (0, 1):
        drawn = random_values(rng, "bias", np.full(500, start, np.float32))
        assert abs(drawn.mean()) < 0.05


def test_a_gain_by_any_name_lets_the_input_through():
    """Around 0, one behind the other, they would leave the outputs the same for every sample."""
    rng = np.random.default_rng(0)
    for name, shape in (("act.lab.scale", (1,)), ("norm.g", (500,)), ("norm.weight", (500,))):
        drawn = random_values(rng, name, np.ones(shape, np.float32))
        assert (drawn >= 0.5).all() and (drawn <= 1.5).all()


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.inner(x) + x


class Blocks(torch.nn.Module):
    """The activation stands in the caller, behind the first block."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Mixed(), Mixed()])
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.blocks[0](torch.cat([x, x.cumsum(1)], -1)))
        return self.head(self.blocks[1](x))


class Unit(nn.Layer):
    def __init__(self, last):
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), last

    def forward(self, x):
        y = x + self.inner(x)
        return y if self.last else F.gelu(y)


class Units(nn.Layer):
    """The activation stands in the block."""

    def __init__(self, wrong=""):
        super().__init__()
        self.blocks = nn.LayerList([Unit(False), Unit(wrong != "last")])
        self.head, self.wrong = nn.Linear(6, 3), wrong

    def forward(self, x):
        parts = [x.cumsum(1), x] if self.wrong == "order" else [x, x.cumsum(1)]
        x = self.blocks[0](paddle.concat(parts, axis=-1))
        x = F.gelu(x) if self.wrong == "twice" else x
        return self.head(self.blocks[1](x))


@pytest.mark.parametrize(("wrong", "place"), {"order": "Units.forward", "last": "blocks.1"}.items())
def test_an_activation_that_the_caller_applies_is_no_mistake_beside_one(wrong, place):
    given = np.random.default_rng(0).standard_normal((2, 5, 3))
    assert found(Units(), Blocks(), given) is None
    first = found(Units(wrong), Blocks(), given)
    assert first.location == place and ("gelu" in first.hint.lower()) is (wrong == "last"), first.line()


def test_an_activation_in_the_block_and_in_the_caller_is_one_too_many():
    first = found(Units("twice"), Blocks(), np.random.default_rng(0).standard_normal((2, 5, 3)))
    assert "gelu" in first.hint.lower(), first.line()


class WrittenOut(torch.nn.Module):
    """An attention that is written out; it also gives the bias of its scores, which the port's caller keeps."""

    def __init__(self, factor):
        super().__init__()
        self.q, self.v, self.factor = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), factor

    def forward(self, x, bias):
        q, k, v = (y.view(*y.shape[:2], 2, 4).transpose(1, 2) for y in (self.q(x), x, self.v(x)))
        scores = q @ k.transpose(3, 2)
        scores = (scores if self.factor is None else scores * self.factor) + bias
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape), bias


class Attended(nn.Layer):
    """The same by a function, or by ``einsum``."""

    def __init__(self, scale, function=True):
        super().__init__()
        self.q, self.v, self.scale, self.function = nn.Linear(8, 8), nn.Linear(8, 8), scale, function

    def forward(self, x, bias):
        q, k, v = (y.reshape([*y.shape[:2], 2, 4]) for y in (self.q(x), x, self.v(x)))
        if self.function:
            bias = bias.expand([x.shape[0], 2, x.shape[1], x.shape[1]])
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self.scale).flatten(2)
        scores = paddle.einsum("bqhd,bkhd->bhqk", q, k)
        scores = (scores if self.scale is None else scores * self.scale) + bias
        return paddle.einsum("bhqk,bkhd->bqhd", F.softmax(scores, -1), v).flatten(2)


class Around(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.inner = WrittenOut(factor)

    def forward(self, x, bias):
        return self.inner(x, bias)[0]


class AroundOurs(nn.Layer):
    def __init__(self, *given):
        super().__init__()
        self.inner = Attended(*given)

    def forward(self, x, bias):
        return self.inner(x, bias)


SCALES = {
    "scaled by the function": (None, None, True, "takes the scores times 0.5, expected as they are"),
    "scaled otherwise": (0.3, None, True, "takes the scores times 0.5, expected times 0.3"),
    "a call too much": (None, 0.3, False, "* 0.3 is superfluous"),
    "a call that is missing": (0.3, None, False, "* 0.3 is missing"),
    "right": (0.3, 0.3, True, ""),
    "right without a factor": (None, 1.0, True, ""),
    "right with a call": (0.3, 0.3, False, ""),
}


@pytest.mark.parametrize("case", SCALES)
def test_a_constant_factor_of_scores_is_named(case):
    factor, scale, function, words = SCALES[case]
    rng = np.random.default_rng(0)
    first = found(AroundOurs(scale, function), Around(factor), rng.standard_normal((2, 5, 8)), rng.standard_normal((1, 2, 5, 5)))
    assert (first is None) is (not words) and words in (first.hint if first else ""), first.line()


def test_numbers_that_are_only_repeated_are_not_where_a_port_leaves_the_reference():
    """A form of the mask; what is wrong behind it has no name."""

    class Capped(WrittenOut):
        def forward(self, x, bias):
            self.factor = (1 + 0.1 * torch.sin(3 * x)).mean(-1)[:, None, :, None]
            return super().forward(x, bias)

    theirs, rng = Around(None), np.random.default_rng(0)
    theirs.inner = Capped(None)
    first = found(AroundOurs(None), theirs, rng.standard_normal((2, 5, 8)), rng.standard_normal((1, 2, 5, 5)))
    assert first is not None and "no value equal to the result of scaled_dot_product_attention" in first.hint, first.line()


class Begun(torch.nn.Module):
    """Tokens that are moved one place on, behind one that begins."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(9, 4)

    def forward(self, labels):
        moved = labels.new_zeros(labels.shape)
        moved[..., 1:] = labels[..., :-1].clone()
        moved[..., 0] = 3
        return self.words(moved.masked_fill(moved == 8, 2))


class BegunOurs(nn.Layer):
    """The same, joined."""

    def __init__(self, start=3, pad=2):
        super().__init__()
        self.words, self.start, self.pad = nn.Embedding(9, 4), start, pad

    def forward(self, labels):
        first = paddle.full([labels.shape[0], 1], self.start, dtype=labels.dtype)
        moved = paddle.concat([first, labels[:, :-1]], axis=1)
        return self.words(paddle.where(moved == 8, paddle.full_like(moved, self.pad), moved))


@pytest.mark.parametrize(("given", "words"), [
    ({}, ""),
    ({"start": 1}, "full fill value 1, expected 3"),
    ({"pad": 1}, "full_like fill value 1, expected 2"),
])  # fmt: skip
def test_a_number_that_is_filled_in_is_named(given, words):
    first = found(BegunOurs(**given), Begun(), np.array([[1, 2, 5, 8, 4], [4, 5, 6, 7, 8], [7, 8, 2, 3, 0]]))
    assert (first is None) is (not words) and words in (first.hint if first else ""), first.line()
