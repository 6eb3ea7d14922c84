"""Fresh weights: what is drawn otherwise than the reference draws it is found and said, other ways of drawing the same are not."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

from alignment import audit, tolerance
from alignment.comparisons.comparison import explained
from alignment.comparisons.context import Context
from alignment.comparisons.material import moved_by_one_ulp
from alignment.comparisons.model import initialisation
from alignment.comparisons.result import StepResult
from alignment.frameworks import framework
from alignment.initialisers import (
    CUT_STD,
    NORMAL,
    TRUNCATED,
    UNIFORM,
    difference_words,
    extremes,
    extremes_bound,
    fan_words,
    ks_bound,
    ks_distance,
    shape_of,
)
from alignment.project import ModelSpec, Project
from mobilenetv3_paddle.models import mobilenetv3
from projects.mobilenetv3.project import PROJECT

RNG = np.random.default_rng(0)
KINDS = {
    NORMAL: lambda n: RNG.normal(size=n),
    UNIFORM: lambda n: RNG.uniform(-math.sqrt(3), math.sqrt(3), n),
    TRUNCATED: lambda n: (x := RNG.normal(size=3 * n))[np.abs(x) < 2][:n],
}


# --- samples ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_distribution_is_told_from_the_others_and_named(kind):
    sample = 0.03 * KINDS[kind](8192)
    assert shape_of(sample) == kind
    bound = ks_bound(8192, 300, tolerance.INITIALISATION_FALSE_ALARM)
    for other, draw in KINDS.items():
        made = 0.03 * draw(8192)
        assert max(ks_distance(sample, made), ks_distance(abs(sample), abs(made))) < bound or other != kind
    if kind != UNIFORM:
        uniform = sample.std() * KINDS[UNIFORM](8192)  # of equal deviation
        assert ks_distance(abs(sample), abs(uniform)) > bound
        assert difference_words(uniform, sample, (8,)) == f"uniform, expected {kind}"


def test_what_is_no_known_distribution_gets_no_name():
    assert shape_of(RNG.laplace(size=8192)) == "" and shape_of(np.zeros(100)) == "" and shape_of(RNG.normal(size=40)) == ""


@pytest.mark.parametrize(("count", "probability"), [(20, 0.05), (500, 0.05), (3000, 0.01)])
def test_the_bound_keeps_its_promise(count, probability):
    """Of so many pairs of equal samples, at most that share lies beyond the bound."""
    bound = ks_bound(count, 1, probability)
    beyond = sum(ks_distance(RNG.normal(size=count), RNG.normal(size=count)) > bound for _ in range(1000))
    assert beyond <= 1000 * probability
    assert ks_bound(count, 7, probability) > bound > ks_bound(2 * count, 1, probability)


def test_extremes_see_a_cut_off():
    normal, cut = KINDS[NORMAL](4000), KINDS[TRUNCATED](4000)
    bound = extremes_bound(300, tolerance.INITIALISATION_FALSE_ALARM)
    assert extremes(normal, cut) > bound > extremes(normal, KINDS[NORMAL](4000))
    assert sum(extremes(RNG.normal(size=50), RNG.normal(size=50)) > extremes_bound(1, 0.05) for _ in range(1000)) <= 50
    assert extremes(np.repeat(normal, 3), normal) == 0 and extremes(np.full(99, 9.0), normal) == 1, "repeated values count once"


def test_fans_are_named_only_where_one_gain_explains_both_deviations():
    shape, deviation = (16, 3, 3, 3), lambda gain, fan: (gain / fan) ** 0.5
    assert fan_words(shape, deviation(2, 27), deviation(2, 144), 8192) == "fan_in for fan_out"
    assert fan_words(shape, deviation(2, 144), deviation(2, 27), 8192) == "fan_out for fan_in"
    assert fan_words((16, 10, 3, 3), deviation(1, 117), deviation(1, 90), 8192) == "the mean of fan_in and fan_out for fan_in"
    assert fan_words(shape, 0.01, deviation(2, 144), 8192) == "", "another constant"
    assert fan_words(shape, deviation(2, 27), deviation(1, 144), 8192) == "", "another gain, too"
    glorot, he, default = deviation(1, 64), deviation(2, 192), 1 / 3
    assert fan_words((96, 32), glorot, deviation(default, 32), 8192) == "", "1 / fan_out is torch's default here, too"
    assert fan_words((32, 3, 8, 8), he, deviation(default, 192), 8192) == "", "2 / mean is nearly torch's default here"
    assert fan_words((40, 40, 1, 1), deviation(2, 40), deviation(1, 40), 8192) == "", "equal fans explain nothing"
    assert fan_words((8,), 0.1, 0.2, 8192) == ""


# --- a port ----------------------------------------------------------------------------------------------------------------


class Reference(torch.nn.Module):
    """Initialised as torchvision's MobileNetV3."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.BatchNorm2d(16)
        self.squeeze, self.head = torch.nn.Conv2d(16, 8, 1), torch.nn.Linear(24, 50)
        for layer in (self.stem, self.squeeze):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        torch.nn.init.normal_(self.head.weight, 0, 0.01)
        for layer in (self.squeeze, self.head):
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.squeeze(self.norm(self.stem(x)))


class Port(nn.Layer):
    def __init__(self, change=lambda network: None):
        super().__init__()
        self.stem, self.norm = nn.Conv2D(3, 16, 3, bias_attr=False), mobilenetv3.BatchNorm2D(16)
        self.squeeze, self.head = nn.Conv2D(16, 8, 1), nn.Linear(24, 50)
        self.apply(mobilenetv3._init_weights)
        change(self)

    def forward(self, x):
        return self.squeeze(self.norm(self.stem(x)))


def context_of(change, reference=Reference):
    """Of a port of which something is changed after it is built."""
    spec = ModelSpec(lambda: Port(change), reference, input_shape=(3, 8, 8), initialisation=True)
    return Context(Project("initialised", PROJECT.port, PROJECT.reference, {"net": spec}))


def convolutions(draw):
    """Draws the convolutions' weights: a function of the weight, and of the standard deviation that it has in the reference."""

    def change(network):
        for layer in (network.stem, network.squeeze):
            draw(layer.weight, (2.0 / (layer.weight.shape[0] * math.prod(layer.weight.shape[2:]))) ** 0.5)

    return change


def put(name, value):
    """Gives one tensor the values of an initialiser."""

    def change(network):
        layer, _, last = name.partition(".")
        value(getattr(getattr(network, layer), last))

    return change


def by_fan_in(weight, _deviation=0.0):
    nn.initializer.Normal(0.0, (2.0 / math.prod(weight.shape[1:])) ** 0.5)(weight)


def same_each_time(weight):
    paddle.seed(1)
    nn.initializer.Normal(0.0, 0.01)(weight)


def partly(weight):
    weight.set_value(paddle.concat([weight[:1] * 0, weight[1:]]))


def repeated(weight):
    weight.set_value(weight[:1].tile([weight.shape[0], 1]))


Normal, Uniform, Constant = nn.initializer.Normal, nn.initializer.Uniform, nn.initializer.Constant
BROKEN = {
    "fan_in for fan_out": (convolutions(by_fan_in), "stem.weight", ": fan_in for fan_out"),
    "of one small layer": (put("squeeze.weight", by_fan_in), "squeeze.weight", "standard deviation 0.3"),
    "uniform": (convolutions(lambda w, s: Uniform(-s * 3**0.5, s * 3**0.5)(w)), "stem.weight", "uniform, expected normal"),
    "cut off": (convolutions(lambda w, s: nn.initializer.TruncatedNormal(0.0, s / CUT_STD, -2 * s / CUT_STD, 2 * s / CUT_STD)(w)),
        "stem.weight", "normal cut off at two standard deviations, expected normal"),
    "another gain": (convolutions(lambda w, s: Normal(0.0, s / 2**0.5)(w)), "stem.weight", "standard deviation 0.08"),
    "a mean": (convolutions(lambda w, s: Normal(s / 2, s)(w)), "stem.weight", "mean 0.0"),
    "zeros": (convolutions(lambda w, s: Constant(0.0)(w)), "stem.weight",
        "all values 0, expected random values of standard deviation 0.1"),
    "a linear layer": (put("head.weight", Normal(0.0, 0.02)), "head.weight", "standard deviation 0.0"),
    "its bias": (put("head.bias", Normal(0.0, 0.01)), "head.bias", "random values of standard deviation 0.0"),
    "a small bias": (put("squeeze.bias", Constant(0.01)), "squeeze.bias", "all values 0.01, expected all values 0"),
    "normalisation from zero": (put("norm.weight", Constant(0.0)), "norm.weight", "all values 0, expected all values 1"),
    "statistics": (put("norm._variance", Constant(0.0)), "norm.running_var", "all values 0, expected all values 1"),
    "the seed is ignored": (put("head.weight", same_each_time), "head.weight", "not initialised anew: equal for different seeds"),
    "a row forgotten": (put("head.weight", partly), "head.weight", "all values 0, expected random values"),
    "rows repeated": (put("head.weight", repeated), "head.weight", "the same values again and again"),
}  # fmt: skip


def fresh_weights(context):
    """What the step's own measurement of fresh weights explains."""
    result = StepResult(1, "forward")
    initialisation.judge(context, result)
    return explained(result)


@pytest.mark.parametrize("case", BROKEN)
def test_another_initialisation_is_found_and_named(case):
    change, place, words = BROKEN[case]
    found = fresh_weights(context_of(change))
    assert found is not None and found.stage == "initialisation" and found.kind == "initialisation"
    assert found.location == place and words in found.hint and re.search(r"\d tensors? differs?$", found.measured), found.line()


def by_rows(weight, deviation):
    """Drawn row by row."""
    weight.set_value(paddle.stack([paddle.randn(weight.shape[1:]) * deviation for _ in range(weight.shape[0])]))


def by_numpy(weight, deviation):
    """From a generator that the framework's seed does not reach."""
    weight.set_value(np.random.default_rng().normal(0, deviation, weight.shape).astype("float32"))


def twice(weight, deviation):
    """Drawn twice: other numbers of the same distribution."""
    for _ in range(2):
        Normal(0.0, deviation)(weight)


def kaiming(weight, deviation):
    nn.initializer.KaimingNormal(fan_in=round(2 / deviation**2), nonlinearity="relu")(weight)


def box_muller(weight, deviation):
    u, v = paddle.uniform(weight.shape, min=1e-7, max=1.0), paddle.uniform(weight.shape, min=0.0, max=1.0)
    weight.set_value(deviation * paddle.sqrt(-2 * paddle.log(u)) * paddle.cos(2 * math.pi * v))


@pytest.mark.parametrize("draw", [by_rows, by_numpy, twice, kaiming, box_muller])
def test_other_ways_to_draw_the_same_are_not_called_a_mistake(draw):
    result = StepResult(1, "forward")
    initialisation.judge(context_of(convolutions(draw)), result)
    assert result.passed, [q.reason for q in result.quantities if not q.passed]
    assert result.evidence["initialisation"] == "3 random and 6 constant tensors, 12 seeds"


def test_a_reference_that_is_made_with_fixed_weights_is_compared_to_the_last_bit():
    """Its values are the same for every seed: the port must have them, not others of the same distribution."""

    def fixed():
        network = Reference()
        for number, tensor in enumerate(network.parameters()):
            tensor.data.copy_(torch.from_numpy(np.random.default_rng(number).normal(size=tuple(tensor.shape))))
        return network

    def loaded(network):
        PROJECT.port.framework.load(network, PROJECT.reference.framework.state(fixed()))

    assert fresh_weights(context_of(loaded, fixed)) is None
    found = fresh_weights(context_of(lambda network: None, fixed))
    assert found.location == "stem.weight" and found.hint.startswith("random values of standard deviation 0.1"), found.line()
    assert found.hint.endswith("expected fixed values") and found.measured.startswith("432 of 432 values differ")


def torch_port(change=lambda network: None):
    """A port to PyTorch, with the framework's own fresh weights."""

    def make():
        network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(288, 40)
        )
        change(network)
        return network

    return make


def of_data(network):
    network[3].bias.data.normal_(0, 0.1)


def a_parameter_of_its_own(network):
    network[3].bias = torch.nn.Parameter(torch.zeros(40))
    network[3].weight.data = torch.randn(40, 288)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda network: None, ""),
        (lambda network: network[3].reset_parameters(), ""),
        (lambda network: torch.nn.init.normal_(network[3].bias), "3.bias"),
        (lambda network: torch.nn.init.ones_(network[1].bias), "1.bias"),
        (of_data, "3.bias"),
        (a_parameter_of_its_own, "3.weight"),
    ],
)
def test_a_port_to_pytorch_may_keep_the_weights_that_pytorch_draws(change, wrong):
    """PyTorch draws a bias that Paddle fills with zeros; what the port's source draws is its own."""
    made = lambda: nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.Flatten(), nn.Linear(288, 40))  # noqa: E731
    result = audit(torch_port(change), made, inputs="4x3x8x8")
    assert [one.place for one in result.mistakes] == [wrong] * bool(wrong), str(result)
    known = {name for one in result.differences for name in (one.place, *one.also) if one.kind == "initialisation"}
    assert known == {"0.weight", "0.bias", "3.weight", "3.bias"} - {wrong} - ({"3.bias"} if wrong == "3.weight" else set())


def normed(change=lambda layer: None):
    """A port with a weight norm, whose gain is the norm of what Paddle has drawn, unless the port's source fills it."""

    def make():
        layer = nn.utils.weight_norm(nn.Conv1D(4, 6, 3))
        change(layer)
        return nn.Sequential(layer, nn.ReLU(), nn.Conv1D(6, 3, 3))

    return make


def of_a_global_initialiser():
    nn.initializer.set_global_initializer(nn.initializer.XavierUniform(), nn.initializer.Constant())
    try:
        return normed()()
    finally:
        nn.initializer.set_global_initializer(None)


@pytest.mark.parametrize(
    ("port", "wrong"),
    [
        (normed(), set()),
        (normed(lambda layer: layer.weight_g.set_value(paddle.full([6], 0.3))), {"0.weight_g"}),
        (of_a_global_initialiser, {"0.bias", "0.weight_v", "2.bias", "2.weight"}),
    ],
)
def test_a_gain_is_drawn_with_its_weight_and_a_global_initialiser_is_the_ports_choice(port, wrong):
    right = lambda: torch.nn.Sequential(  # noqa: E731
        torch.nn.utils.weight_norm(torch.nn.Conv1d(4, 6, 3)), torch.nn.ReLU(), torch.nn.Conv1d(6, 3, 3)
    )
    result = audit(port, right, inputs="4x4x16")
    assert {name for one in result.mistakes for name in (one.place, *one.also)} == wrong, str(result)


@pytest.mark.parametrize("own", [True, False])
def test_the_small_model_and_paddles_own_initialisation(own, context, monkeypatch):
    if not own:
        monkeypatch.setattr(mobilenetv3, "_init_weights", lambda layer: None)
    result = StepResult(1, "forward")
    initialisation.judge(context(), result)
    assert result.passed is own and result.covers == ["initialisation"]
    assert result.quantities[0].shape == [210] and result.evidence["initialisation"].startswith("54 random and 156 constant")
    if not own:
        row = result.quantities[1]
        assert row.name == "initialisation.features.0.0.weight" and "fan_in for fan_out" in row.reason


def test_who_has_no_training_runs_is_asked_for_nothing(context):
    sound = context()
    assert initialisation.wanted(sound)
    without = dataclasses.replace(PROJECT, port=dataclasses.replace(PROJECT.port, train=None))
    assert not initialisation.wanted(dataclasses.replace(sound, project=without))
    asked = without.with_models(lambda spec: dataclasses.replace(spec, initialisation=True))
    assert initialisation.wanted(dataclasses.replace(sound, project=asked))
    refused = context(PROJECT.with_models(lambda spec: dataclasses.replace(spec, initialisation=False)))
    result = StepResult(1, "forward")
    initialisation.judge(refused, result)
    assert not result.covers and not result.quantities and fresh_weights(refused) is None


@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_a_model_that_is_loaded_next_is_built_without_random_draws(name: str) -> None:
    """Its large parameters hold finite numbers of the law that was asked for, and no two builds hold the same."""
    side = framework(name)
    kind = torch.nn.Linear if name == "torch" else paddle.nn.Linear
    side.seed(0)
    drawn = [side.state(kind(300, 200)) for _ in range(2)]
    with side.loaded_next():
        filled = [side.state(kind(300, 200)) for _ in range(2)]
        side.seed(5)
        small = side.state(kind(8, 8))["weight"]
    side.seed(5)
    assert np.array_equal(small, side.state(kind(8, 8))["weight"])  # small ones are drawn, in the order that the seed gives
    first, second = (state["weight"] for state in filled)
    assert np.isfinite(first).all() and not np.array_equal(first, second)
    assert np.std(first) == pytest.approx(np.std(drawn[0]["weight"]), rel=0.02)
    assert abs(first).max() == pytest.approx(abs(drawn[0]["weight"]).max(), rel=0.2)
    after = [side.state(kind(300, 200))["weight"] for _ in range(2)]  # the initialisers draw again
    assert len({array.tobytes() for array in (*after, *(state["weight"] for state in drawn))}) == 4


def test_a_parameter_that_loading_does_not_reach_is_never_equal_by_chance() -> None:
    """Each side keeps its own numbers there, and those of one law must differ between the sides as drawn ones do."""
    bound = paddle.nn.initializer.Uniform(-(80**-0.5), 80**-0.5)
    makers = {"torch": lambda: torch.nn.Linear(80, 80), "paddle": lambda: paddle.nn.Linear(80, 80, weight_attr=bound)}
    filled = []
    for name, make in makers.items():
        with framework(name).loaded_next():
            filled += [framework(name).state(make())["weight"] for _ in range(3)]
    assert all(np.mean(one == other) < 0.01 for one, other in itertools.combinations(filled, 2))


def test_one_ulp_is_what_nextafter_gives() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.standard_normal(997), [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-45, -1e-45, 3e38]])
    for dtype in ("float32", "float64"):
        with np.errstate(over="ignore"):
            given = values.astype(dtype)
        towards = np.where(np.random.default_rng(3).random(given.shape) < 0.5, -np.inf, np.inf).astype(dtype)
        expected = np.where((given == 0) | np.isinf(given), given, np.nextafter(given, towards))
        assert moved_by_one_ulp(given.copy(), np.random.default_rng(3)).tobytes() == expected.tobytes()
