"""Random numbers that a model draws by functions: both sides draw the same; another rate is found, and a port that draws none."""

import importlib
import random

import numpy as np
import paddle
import pytest
import torch

from alignment import audit, called
from alignment.frameworks import framework_of
from alignment.models import mirrored, unsaved
from alignment.models.observe import MaskDraws, share_dropout
from alignment.project import Project, Side
from mobilenetv3_common.errors import UserError
from tests.kinds import draws_ours, draws_theirs
from tests.sound_pairs import PAIRS, audited

X = np.linspace(-1, 1, 4 * 3 * 2 * 5).reshape(4, 3, 2, 5)
F, P = torch.nn.functional, paddle.nn.functional
# What is drawn: by torch, by Paddle.
SAME = {
    "rand": (lambda x: torch.rand(4, 1, 1, 1), lambda x: paddle.rand([4, 1, 1, 1])),
    "rand of a type": (lambda x: torch.rand((4, 3), dtype=x.dtype), lambda x: paddle.rand([4, 3], x.dtype)),
    "rand_like": (lambda x: torch.rand_like(x), lambda x: paddle.rand_like(x)),
    "uniform": (lambda x: x.new_empty(4, 3).uniform_(-2, 3), lambda x: paddle.uniform([4, 3], x.dtype, -2, 3)),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(), lambda x: paddle.empty_like(x).uniform_(0, 1)),
    "randn": (lambda x: torch.randn(4, 3), lambda x: paddle.randn([4, 3])),
    "randn_like": (lambda x: torch.randn_like(x), lambda x: paddle.randn_like(x)),
    "normal": (lambda x: x.new_empty(4, 3).normal_(1, 2), lambda x: paddle.normal(1.0, 2.0, [4, 3])),
    "standard normal": (lambda x: torch.randn(4, 3), lambda x: paddle.standard_normal([4, 3])),
    "bernoulli_": (lambda x: x.new_empty(4, 1, 1).bernoulli_(0.7), lambda x: paddle.empty([4, 1, 1], x.dtype).bernoulli_(0.7)),
    "bernoulli": (
        lambda x: torch.bernoulli(torch.full((4, 3), 0.3)).to(x.dtype),
        lambda x: paddle.bernoulli(paddle.full([4, 3], 0.3, x.dtype)),
    ),
    "bernoulli, and a dropout": (
        lambda x: torch.ones_like(x).bernoulli_(0.75) * x / 0.75,
        lambda x: P.dropout(x, 0.25, training=True),
    ),
    "floor of rand, and bernoulli": (
        lambda x: torch.floor(0.6 + torch.rand(4, 1, 1, dtype=x.dtype)),
        lambda x: paddle.bernoulli(paddle.full([4, 1, 1], 0.6, x.dtype)),
    ),
    "randint": (lambda x: torch.randint(0, 1000, (4,)), lambda x: paddle.randint(0, 1000, [4])),
    "randint below": (lambda x: torch.randint(9, (4, 3)), lambda x: paddle.randint(9, shape=[4, 3])),
    "randperm": (lambda x: torch.randperm(9), lambda x: paddle.randperm(9)),
    "rand, and numpy": (lambda x: torch.rand(4, 3, dtype=x.dtype), lambda x: paddle.to_tensor(np.random.rand(4, 3), x.dtype)),
    "uniform_, and numpy": (
        lambda x: x.new_empty(5).uniform_(-2, 3),
        lambda x: paddle.to_tensor(np.random.uniform(-2, 3, size=5), x.dtype),
    ),
    "randn, and numpy": (lambda x: torch.randn(4, 3), lambda x: paddle.to_tensor(np.random.randn(4, 3), "float32")),
    "one number, and Python": (
        lambda x: x * torch.rand([], dtype=x.dtype),
        lambda x: x * random.random(),
    ),
    "one number, and numpy": (lambda x: x + torch.rand(1, dtype=x.dtype), lambda x: x + np.random.uniform()),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
        lambda x: P.scaled_dot_product_attention(*[x.transpose([0, 2, 1, 3])] * 3, dropout_p=0.4).transpose([0, 2, 1, 3]),
    ),
    "causal attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4, is_causal=True),
        lambda x: P.scaled_dot_product_attention(*[x.transpose([0, 2, 1, 3])] * 3, None, 0.4, True).transpose([0, 2, 1, 3]),
    ),
    "masked attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, torch.eye(2, dtype=x.dtype), 0.4),
        lambda x: P.scaled_dot_product_attention(*[x.transpose([0, 2, 1, 3])] * 3, paddle.eye(2, dtype=x.dtype), 0.4).transpose(
            [0, 2, 1, 3]
        ),
    ),
}  # fmt: skip


class Theirs(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Ours(paddle.nn.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def drawn(model, dtype="float64"):
    """What a model gives, and the shares of values that its draws drop."""
    framework = framework_of(model)
    sharing = share_dropout(framework, model, MaskDraws(3)).functions
    framework.set_training(model, True)
    return framework.call(model, (X.astype(dtype),)).outputs[0], sharing.drawn


@pytest.mark.parametrize("name", SAME)
def test_both_frameworks_draw_the_same_numbers(name):
    theirs, ours = SAME[name]
    right, shares = drawn(Theirs(theirs))
    found, own = drawn(Ours(ours))
    assert right.shape == found.shape and np.allclose(right, found, rtol=1e-12, atol=1e-12)
    assert shares == pytest.approx(own) if None not in shares + own else len(shares) == len(own) == 1
    assert np.unique(right).size > 1 or right.size < 9
    assert np.array_equal(drawn(Theirs(theirs))[0], right), "whenever it is run"


def test_what_nobody_shares_is_drawn_as_ever():
    torch.manual_seed(0)
    first, second = torch.rand(9), torch.rand(9)
    assert not torch.equal(first, second) and np.random.rand() != np.random.rand() and random.random() != random.random()
    framework, model = framework_of(Theirs(lambda x: torch.rand_like(x))), Theirs(lambda x: torch.rand_like(x))
    assert not np.array_equal(framework.call(model, (X,)).outputs[0], framework.call(model, (X,)).outputs[0])


def test_a_copy_of_a_model_draws_what_the_model_draws():
    for model in (Theirs(lambda x: torch.rand_like(x)), Ours(lambda x: paddle.rand_like(x))):
        right, _ = drawn(model)
        framework = framework_of(model)
        assert np.array_equal(framework.call(framework.copy(model), (X,)).outputs[0], right)


def test_normal_numbers_are_normal():
    numbers = drawn(Theirs(lambda x: torch.randn(200, 500)))[0]
    assert abs(numbers.mean()) < 0.01 and abs(numbers.std() - 1) < 0.01 and abs((numbers**4).mean() - 3) < 0.1


INPUTS = {"AttentionNet": "2x6x16", "Rand": "4x5x8", "Bernoulli": "4x5x8", "Linspace": "4x5x8",
          "LinspaceOfFour": "4x5x8", "Noise": "4x5x6", "Masked": "4x5x6",
          "Less": "4x5x8", "ByHand": "4x5x6"}  # fmt: skip
SOUND = {
    "AttentionNet": "AttentionNet", "AttentionWritten": "AttentionNet", "Rand": "Rand", "Bernoulli": "Bernoulli",
    "BernoulliByRand": "Bernoulli", "Noise": "Noise", "Masked": "Masked",
    "RandLess": "Rand", "RandGreater": "Rand", "NoiseMinus": "Noise", "Linspace": "Linspace", "ByHand": "ByHand",
    "LinspaceInline": "LinspaceOfFour",
}  # fmt: skip
# Port -> reference, kind, place, words of the first mistake.
WRONG = {
    "AttentionRate": ("AttentionNet", "dropout_rate", "attn", "drop 0.4 of the values, expected 0.1"),
    "AttentionNone": ("AttentionNet", "dropout_missing", "attn", "draws no random numbers here, expected 1 draw (p = 0.1)"),
    "AttentionWrittenRate": ("AttentionNet", "dropout_rate", "attn", "drop 0.4 of the values, expected 0.1"),
    "RandRate": ("Rand", "", "blocks.0.drop_path", ""),
    "RandOneRate": ("Rand", "", "blocks.2.drop_path", ""),
    "RandNone": ("Rand", "setting", "blocks.0.drop_path", "rate of DropPath is 0, expected 0.1"),
    "RandUnscaled": ("Rand", "", "blocks.0.drop_path", ""),
    "BernoulliRate": ("Bernoulli", "setting", "blocks.0.drop_path", "rate of DropPathBernoulli is 0.4, expected 0.1"),
    "LinspaceWrong": ("Linspace", "setting", "blocks.1.drop_path", "is 0.1, expected 0.05"),
    "LinspaceInlineWrong": ("LinspaceOfFour", "", "blocks.1", ""),
    "LinspaceInlineTurned": ("LinspaceOfFour", "other_function", "blocks.1", "keeps what is to be dropped, and drops"),
    "RandOfBatch": ("Rand", "call_argument", "blocks.0.drop_path", "draws numbers of shape [1, 1, 1], expected [4, 1, 1]"),
    "NoiseLarge": ("Noise", "", "NoiseLarge.forward", "0.3, expected 0.1"),
    "NoiseNone": ("Noise", "dropout_missing", "NoiseNone.forward", "draws no random numbers"),
    "RandLessRate": ("Rand", "", "blocks.0.drop_path", ""),
    "NoiseMinusLarge": ("Noise", "", "NoiseMinusLarge.forward", ""),
    "ByHandRate": ("ByHand", "", "ByHandRate.forward", ""),
    "MaskedMore": ("Masked", "dropout_rate", "MaskedMore.forward", "drop 0.75 of the values, expected 0.25"),
}  # fmt: skip
FAST = (
    "LinspaceInline",
    "AttentionWritten",
    "Bernoulli",
    "RandLess",
    "AttentionRate",
    "RandNone",
    "LinspaceInlineTurned",
    "RandOfBatch",
)  # one of each kind of draw; the others are slow


def cases(names):
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


SOUND_OTHERWISE = {"Less": ("Rand", "RandLess", "Bernoulli")}  # reference: ports


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND_OTHERWISE["Less"])
def test_a_reference_may_compare_where_the_port_does_not(name):
    found = audit(getattr(draws_ours, name), draws_theirs.Less, inputs="4x5x8")
    assert found.passed and "NOT compared" not in found.verdict, str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "taken"), [("RandLess", "mirrored.DRAWING"), ("LinspaceInline", "mirrored.DRAWING")])
def test_a_sound_port_would_be_failed_without_it(name, taken, monkeypatch):
    module, attribute = taken.split(".")
    nothing = frozenset() if attribute.isupper() else lambda value: False
    monkeypatch.setattr(importlib.import_module(f"alignment.models.{module}"), attribute, nothing)
    found = audit(getattr(draws_ours, name), getattr(draws_theirs, SOUND[name]), inputs=INPUTS[SOUND[name]])
    assert not found.passed, str(found)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", ["Linspace", "LinspaceInline"])
def test_rates_that_float32_rounds_are_the_same_rates(name, together, monkeypatch):
    """Where they are not taken for one another, the difference is rounding, and no calls are blamed for it."""
    if not together:
        monkeypatch.setattr(unsaved, "_is_float", lambda value: False)
    found = audit(getattr(draws_ours, name), getattr(draws_theirs, SOUND[name]), inputs=INPUTS[SOUND[name]])
    assert found.passed and f"({1 if together else 2} known difference" in found.verdict, str(found)


def test_a_mistake_beside_other_draws_is_the_only_one():
    """A block with a mistake is wrong with either numbers: what it makes of the numbers alone says which are its own."""
    found = audit(draws_ours.LinspaceInlineRelu, draws_theirs.LinspaceOfFour, inputs="4x5x8")
    assert [one.kind for one in found.mistakes] == ["activation"], str(found)


def test_functions_that_are_watched_still_tell_what_they_name():
    """Their code gives way to one that notes the first call: it must not look as if it drew nothing."""
    framework = framework_of(draws_ours.LinspaceInline())
    with called.watched(Project("", Side(framework), Side(framework), {}), draws_ours.LinspaceInline):
        assert mirrored.draws(framework, draws_ours.InlineBlock)


@pytest.mark.parametrize("name", cases(SOUND))
def test_a_sound_port_is_compared_in_training_mode(name):
    reference = SOUND[name]
    found = audit(getattr(draws_ours, name), getattr(draws_theirs, reference), inputs=INPUTS[reference])
    assert found.passed and "NOT compared" not in found.verdict, str(found)
    assert not any(line.startswith("training mode") for line in found.not_checked)


@pytest.mark.parametrize("name", cases(WRONG))
def test_other_draws_are_found(name):
    reference, kind, place, words = WRONG[name]
    found = audit(getattr(draws_ours, name), getattr(draws_theirs, reference), inputs=INPUTS[reference])
    first = found.mistakes[0]
    assert not found.passed and first.place == place and words in first.words and kind in first.kind, first


class ByGenerator(torch.nn.Module):
    """Its numbers come from a generator of its own, which nobody can share."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 4)

    def forward(self, x):
        x = self.fc(x)
        return x * torch.from_numpy(np.random.default_rng().random(x.shape)).to(x) if self.training else x


class Plain(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc = paddle.nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(x)


class ByNumpy(ByGenerator):
    """A layer is left out where a number of numpy says so."""

    def forward(self, x):
        return self.fc(x) if not self.training or np.random.uniform(0, 1) > 0.5 else x[..., :4]


class ByPython(Plain):
    def __init__(self, rate=0.5):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        return self.fc(x) if not self.training or random.random() > self.rate else x[..., :4]


def test_a_layer_that_numpy_or_python_leaves_out_is_left_out_on_both_sides():
    assert audit(ByPython, ByNumpy, inputs="4x6").passed
    assert not audit(Plain, ByNumpy, inputs="4x6").passed


def test_a_training_mode_that_was_not_compared_is_said_in_the_verdict():
    found = audit(Plain, ByGenerator, inputs="4x6")
    assert found.passed and found.verdict.endswith("Training mode was NOT compared.")
    assert audit(Plain, ByGenerator, inputs="4x6", training=False).verdict.endswith("found in the port.")


def test_a_training_mode_that_is_asked_for_and_cannot_be_compared_is_refused(tmp_path, capsys):
    from alignment.audit.command import audited
    from alignment.audit.given import maker_of
    from alignment.flags import audit_parser

    makers = [maker_of("port", Plain), maker_of("reference", ByGenerator)]
    flags = ["--port", makers[0].text, "--reference", makers[1].text, "--report", str(tmp_path), "--training", "--input", "4x6"]
    with pytest.raises(UserError, match=r"^--training: the reference draws random numbers that cannot be shared"):
        audited(audit_parser().parse_args(flags), flags, *makers)


def test_a_stock_encoder_shares_the_dropout_of_its_attention_in_exact_mode():
    """There torch hands the call of attention to itself once more: between it and the layer stand functions of the engine."""
    found = audited("Bert", PAIRS["Bert"], 0)
    assert not found.status, found
