"""Hints are never false: every hypothesis is claimed where its mistake was made, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
from paddle import nn

from alignment.comparisons.update.runs import ADAMW, RMSPROP, SGD
from alignment.kinds import Kind
from alignment.localize import localize
from alignment.localize.hypotheses import optimizers, picture_boxes, pictures
from alignment.localize.hypotheses.arrays import bfloat16, explains, float16
from alignment.localize.hypotheses.hypothesis import Observed
from alignment.models.weights import copy_weights
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.presets import EvalPreset

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((4, 6, 12, 12)).astype(np.float32)


# --- the rule --------------------------------------------------------------------------------------------------------------

RIGHT = RNG.standard_normal(50)
WRONG = RIGHT * 1.5


@pytest.mark.parametrize(
    ("made", "ours", "right", "claimed"),
    [
        (WRONG, WRONG, RIGHT, True),
        (RIGHT, RIGHT, RIGHT, False),  # what equals the right value explains nothing
        (RIGHT + 1e-9, RIGHT + 2e-9, RIGHT, False),  # nor what lies as near to it as to the port
        (RIGHT, WRONG, RIGHT, False),
        (np.full(50, np.inf), np.full(50, np.inf), RIGHT, False),  # infinity agrees with nothing
        (np.full(50, np.nan), np.full(50, np.nan), RIGHT, False),
        (WRONG, np.where(np.arange(50) == 3, np.inf, WRONG), RIGHT, False),
        (WRONG, WRONG, np.full(50, np.inf), True),
        (WRONG, WRONG[:49], RIGHT, False),
        (None, WRONG, RIGHT, False),
    ],
)
def test_a_hypothesis_counts_where_it_explains_the_port_and_the_right_one_does_not(made, ours, right, claimed):
    assert explains(made, ours, right) is claimed


# --- layers ----------------------------------------------------------------------------------------------------------------


def found(ours, theirs, training=False, inputs=INPUTS, names=None):
    """Location, kind and words of the first finding; of a part that is alone in its network."""
    copy_weights(theirs, ours, names)
    for part in ("running_mean", "running_var"):
        for module in theirs.modules():
            if hasattr(module, part):
                getattr(module, part).copy_(torch.rand(getattr(module, part).shape) + 0.5)
    copy_weights(theirs, ours, names)
    first = localize(ours, theirs, inputs, training=training, names=names).first
    return (None, Kind.UNKNOWN, "") if first is None else (first.location, first.kind, first.hint)


class Applied(nn.Layer):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


ACTIVATIONS = {
    # A function in place of the reference's layer, and what it is called. The pass's inputs lie between -3 and 3: only the
    # second, wider input tells ReLU from ReLU6.
    "relu6 for hardswish": (F.relu6, torch.nn.Hardswish(), Kind.ACTIVATION, "computes ReLU6,"),
    "relu for relu6": (F.relu, torch.nn.ReLU6(), Kind.ACTIVATION, "computes ReLU,"),
    "swish for hardswish": (F.silu, torch.nn.Hardswish(), Kind.ACTIVATION, "computes Swish,"),
    "tanh gelu": (lambda x: F.gelu(x, approximate=True), torch.nn.GELU(), Kind.ACTIVATION, "computes GELU (tanh),"),
    "exact gelu": (F.gelu, torch.nn.GELU(approximate="tanh"), Kind.ACTIVATION, "computes GELU, expected GELU (tanh)"),
    "gelu by a sigmoid": (lambda x: x * F.sigmoid(1.702 * x), torch.nn.GELU(), Kind.ACTIVATION, "computes GELU (sigmoid),"),
    "hard sigmoid of Keras": (lambda x: (0.2 * x + 0.5).clip(0, 1), torch.nn.Hardsigmoid(), Kind.ACTIVATION, "slope 0.2"),
    "offset": (lambda x: (x / 6 + 0.4).clip(0, 1), torch.nn.Hardsigmoid(), Kind.ACTIVATION, "offset 0.4, expected"),
    "hard swish of slope 0.2": (
        lambda x: x * (0.2 * x + 0.5).clip(0, 1),
        torch.nn.Hardswish(),
        Kind.ACTIVATION,
        "slope 0.2 and offset 0.5",
    ),
    "no sixth": (lambda x: x * F.relu6(x + 3), torch.nn.Hardswish(), Kind.ACTIVATION, "without the division by 6"),
    "slope": (
        lambda x: F.leaky_relu(x, 0.2),
        torch.nn.LeakyReLU(0.1),
        Kind.ACTIVATION,
        "slope 0.2 of the negative values, expected 0.1",
    ),
    "leaky for relu": (
        lambda x: F.leaky_relu(x, 0.2),
        torch.nn.ReLU(),
        Kind.ACTIVATION,
        "slope 0.2 of the negative values, expected ReLU",
    ),
    "nothing": (lambda x: x, torch.nn.ReLU(), Kind.ACTIVATION, "computes identity,"),
    "scaled": (lambda x: 0.5 * F.relu(x), torch.nn.ReLU(), Kind.SCALED, "every value times 0.5"),
    "shifted": (lambda x: F.relu(x - 0.1), torch.nn.ReLU(), Kind.CALL_EXTRA, "- 0.1 is superfluous"),
    "squared": (lambda x: F.relu(x) ** 2, torch.nn.ReLU(), Kind.CALL_EXTRA, "** 2 is superfluous"),
    "random": (
        lambda x: F.relu(x) + paddle.rand(x.shape).astype(x.dtype),
        torch.nn.ReLU(),
        Kind.GLOBAL_GENERATOR,
        "two identical calls",
    ),
    "bfloat16": (lambda x: F.relu(x).astype("bfloat16").astype(x.dtype), torch.nn.ReLU(), Kind.HALF_PRECISION, "bfloat16"),
    "float16": (lambda x: F.silu(x).astype("float16").astype(x.dtype), torch.nn.SiLU(), Kind.HALF_PRECISION, "float16"),
    "float16 before": (
        lambda x: F.silu(x.astype("float16").astype(x.dtype)),
        torch.nn.SiLU(),
        Kind.HALF_PRECISION,
        "input is rounded to float16",
    ),
    "not finite": (lambda x: F.relu(x) / 0.0, torch.nn.ReLU(), Kind.NOT_FINITE, "NaN or infinite"),
    "sound": (F.relu, torch.nn.ReLU(), Kind.UNKNOWN, ""),
}


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_an_activation_is_named(case):
    function, layer, kind, words = ACTIVATIONS[case]
    inputs = INPUTS * 4 if case == "relu for relu6" else INPUTS.clip(-2.9, 2.9)
    _, seen, hint = found(nn.Sequential(Applied(function)), torch.nn.Sequential(layer), inputs=inputs)
    assert (seen, words in hint) == (kind, True), hint


def batch_norm(**settings):
    return nn.Sequential(nn.BatchNorm2D(6, **settings))


def normalised_by(function):
    """BatchNorm2D in evaluation mode with another formula: the function gets input, mean, variance, weight, bias and eps."""

    class Other(nn.BatchNorm2D):
        def forward(self, x):
            shaped = [t.reshape([1, -1, 1, 1]) for t in (self._mean, self._variance, self.weight, self.bias)]
            return function(x, *shaped, 1e-5)

    return nn.Sequential(Other(6))


NORMS = {
    "eps": (lambda: batch_norm(epsilon=1e-3), Kind.BATCH_NORM_EPS),
    "a rare eps": (lambda: batch_norm(epsilon=7.3e-4), Kind.BATCH_NORM_EPS),
    "eps outside the root": (
        lambda: normalised_by(lambda x, m, v, w, b, e: (x - m) / (v.sqrt() + e) * w + b),
        Kind.EPS_OUTSIDE_ROOT,
    ),
    "no bias": (lambda: normalised_by(lambda x, m, v, w, b, e: (x - m) / (v + e).sqrt() * w), Kind.BIAS_MISSING),
    "no weight": (lambda: normalised_by(lambda x, m, v, w, b, e: (x - m) / (v + e).sqrt() + b), Kind.SCALE_MISSING),
    "no affine": (lambda: normalised_by(lambda x, m, v, w, b, e: (x - m) / (v + e).sqrt()), Kind.AFFINE_MISSING),
    "no root": (lambda: normalised_by(lambda x, m, v, w, b, e: (x - m) / (v + e) * w + b), Kind.OTHER_FUNCTION),
    "sound": (lambda: normalised_by(lambda x, m, v, w, b, e: (x - m) / (v + e).sqrt() * w + b), Kind.UNKNOWN),
}


@pytest.mark.parametrize("case", NORMS)
def test_a_normalisation_is_named(case):
    make, kind = NORMS[case]
    torch.manual_seed(0)  # of variances that are alike by chance another eps is as right
    theirs = torch.nn.Sequential(torch.nn.BatchNorm2d(6))
    torch.nn.init.uniform_(theirs[0].weight, 0.5, 2)
    torch.nn.init.uniform_(theirs[0].bias, 0.5, 2)
    _, seen, hint = found(make(), theirs)
    assert seen == kind, hint


CONVOLUTIONS = {
    "stride": ({"stride": 2}, {"stride": 1}, Kind.STRIDE),
    "stride 3": ({"stride": 1}, {"stride": 3}, Kind.STRIDE),
    "padding": ({"padding": 1}, {"padding": 2}, Kind.PADDING),
    "no padding": ({"padding": 1}, {"padding": 0}, Kind.PADDING),
    "dilation": ({"padding": 2}, {"padding": 2, "dilation": 2}, Kind.DILATION),
    "dilation and padding": ({"padding": 1}, {"padding": 3, "dilation": 3}, Kind.DILATION),
    "reflected": ({"padding": 1}, {"padding": 1, "padding_mode": "reflect"}, Kind.PADDING),
    "stride and padding": ({"padding": 1}, {"padding": 3, "stride": 2}, Kind.STRIDE),
    "sound": ({"padding": 1}, {"padding": 1}, Kind.UNKNOWN),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_is_named(case):
    right, wrong, kind = CONVOLUTIONS[case]
    kind_seen, hint = found(nn.Sequential(nn.Conv2D(6, 4, 3, **wrong)), torch.nn.Sequential(torch.nn.Conv2d(6, 4, 3, **right)))[1:]
    assert kind_seen == kind, hint


POOLS = {
    "ceil": (nn.MaxPool2D(3, 2, ceil_mode=True), torch.nn.MaxPool2d(3, 2), "ceil_mode=True, expected False"),
    "kernel": (
        nn.MaxPool2D(2, 2),
        torch.nn.MaxPool2d(3, 2, 1),
        "kernel_size (2, 2), expected (3, 3); padding (0, 0), expected (1, 1)",
    ),
    "window": (nn.AvgPool2D(2, 2), torch.nn.AvgPool2d(3, 2), ""),
    "stride": (nn.MaxPool2D(3, 3), torch.nn.MaxPool2d(3, 2), "stride 3, expected 2"),
    "one axis": (nn.MaxPool2D(3, 3), torch.nn.MaxPool2d(3, (2, 3)), "stride (3, 3), expected (2, 3)"),
    "exclusive": (nn.AvgPool2D(3, 2, 1), torch.nn.AvgPool2d(3, 2, 1), "leaves the padding out"),
    "sum": (Applied(lambda x: x.sum([2, 3], keepdim=True)), torch.nn.AdaptiveAvgPool2d(1), "sum over the picture"),
    "max": (nn.AdaptiveMaxPool2D(1), torch.nn.AdaptiveAvgPool2d(1), "max pooling"),
    "corner": (Applied(lambda x: x[:, :, :5, :5].mean([2, 3], keepdim=True)), torch.nn.AdaptiveAvgPool2d(1), "a window of 5 x 5"),
    "sound": (nn.MaxPool2D(3, 2), torch.nn.MaxPool2d(3, 2), ""),
}


@pytest.mark.parametrize("case", POOLS)
def test_a_pooling_is_named(case):
    ours, theirs, words = POOLS[case]
    _, _, hint = found(nn.Sequential(ours), torch.nn.Sequential(theirs))
    assert words in hint and (words or "expected" not in hint or "windows" in hint), hint


# --- wiring ----------------------------------------------------------------------------------------------------------------


def wired(framework, forward):
    """A part with two convolutions, an activation and an input, put together by a function of (conv a, conv b, relu, x)."""
    base, conv, relu = {"paddle": (nn.Layer, nn.Conv2D, nn.ReLU), "torch": (torch.nn.Module, torch.nn.Conv2d, torch.nn.ReLU)}[
        framework
    ]

    class Part(base):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = conv(6, 6, 1), conv(6, 6, 1), relu()

        def forward(self, x):
            return forward(self.a(x), self.b(self.act(self.a(x))), self.act, x)

    return Part()


WIRINGS = {
    "gate added": (lambda a, b, act, x: b + x, lambda a, b, act, x: b * x, Kind.GATE_ADDED),
    "gate missing": (lambda a, b, act, x: x + 0 * b, lambda a, b, act, x: b * x, Kind.DOES_NOTHING),
    "gate alone": (lambda a, b, act, x: b + 0 * x, lambda a, b, act, x: b * x, Kind.GATE_MISSING),
    "residual multiplied": (lambda a, b, act, x: b * x, lambda a, b, act, x: b + x, Kind.COMBINED_OTHERWISE),
    "residual subtracted": (lambda a, b, act, x: b - x, lambda a, b, act, x: b + x, Kind.COMBINED_OTHERWISE),
    "residual missing": (lambda a, b, act, x: b + 0 * x, lambda a, b, act, x: b + x, Kind.NO_RESIDUAL),
    "residual twice": (lambda a, b, act, x: b + x + x, lambda a, b, act, x: b + x, Kind.RESIDUAL_EXTRA),
    "activation before the residual": (
        lambda a, b, act, x: F.relu(b) + x,
        lambda a, b, act, x: torch.relu(b + x),
        Kind.ACTIVATION_ORDER,
    ),
    "activation after the residual": (lambda a, b, act, x: F.relu(b + x), lambda a, b, act, x: b + x, Kind.ACTIVATION_ORDER),
    "rounded gate": (
        lambda a, b, act, x: b.astype("float16").astype(x.dtype) * x,
        lambda a, b, act, x: b * x,
        Kind.HALF_PRECISION,
    ),
    "another input": (lambda a, b, act, x: b * a, lambda a, b, act, x: b * x, Kind.OPERAND),
    "a part of the residual": (lambda a, b, act, x: b + 0.3 * x, lambda a, b, act, x: b + x, Kind.CALL_EXTRA),
    "sound": (lambda a, b, act, x: x + b, lambda a, b, act, x: b + x, Kind.UNKNOWN),
}


@pytest.mark.parametrize("case", WIRINGS)
def test_what_a_part_does_with_its_layers_is_named(case):
    ours, theirs, kind = WIRINGS[case]
    _, seen, hint = found(wired("paddle", ours), wired("torch", theirs))
    assert seen == kind, hint


def test_dropout_and_activation_in_another_order_are_named():
    theirs = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Hardswish(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 4))
    ours = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Hardswish(), nn.Linear(8, 4))
    inputs = RNG.standard_normal((16, 8)).astype(np.float32)
    assert found(ours, theirs, training=False, inputs=inputs)[0] is None
    place, kind, hint = found(ours, theirs, training=True, inputs=inputs)
    assert (place, kind) == ("Sequential.forward", Kind.CALL_ORDER)
    assert hint == "the port's forward calls the reference's 2 (Dropout) where the reference calls 1 (Hardswish)"


def branches(shortcut_first, extra):
    """A residual block whose shortcut is computed before its layers, or after them."""
    base, conv, norm, relu = (torch.nn.Module, torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.relu)
    if not shortcut_first:
        base, conv, norm, relu = nn.Layer, nn.Conv2D, nn.BatchNorm2D, F.relu

    class Block(base):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.short = conv(6, 6, 1), norm(6), conv(6, 6, 1)

        def forward(self, x):
            if shortcut_first:
                return relu(self.short(x) + self.norm(self.conv(x)))
            y = self.norm(self.conv(x))
            x = self.short(x)
            if extra:
                x = relu(x)
            return relu(x + y)

    return Block()


@pytest.mark.parametrize("extra", [True, False])
def test_branches_that_are_computed_in_another_order_are_no_other_order(extra):
    place, kind, hint = found(branches(False, extra), branches(True, False))
    assert (
        (kind == Kind.CALL_EXTRA and "relu is superfluous" in hint and "calls the reference's" not in hint)
        if extra
        else (place is None)
    ), hint


# --- statistics ------------------------------------------------------------------------------------------------------------


class OwnStatistics(nn.BatchNorm2D):
    """torch's statistics by another rule: a function of (old, mean or unbiased variance, biased or not, n)."""

    def __init__(self, rule):
        super().__init__(6)
        self.rule = rule

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        mean, variance = x.mean([0, 2, 3]), x.var([0, 2, 3], unbiased=False)
        n = x.size // x.shape[1]
        shaped = [t.reshape([1, -1, 1, 1]) for t in (mean, variance, self.weight, self.bias)]
        with paddle.no_grad():
            for own, made in ((self._mean, mean), (self._variance, variance * n / (n - 1))):
                own.set_value(self.rule(own, made, n, own is self._variance))
        return (x - shaped[0]) / (shaped[1] + float(np.float32(1e-5))).sqrt() * shaped[2] + shaped[3]


STATISTICS = {
    "sound": (lambda old, new, n, variance: 0.9 * old + 0.1 * new, Kind.UNKNOWN),
    "frozen": (lambda old, new, n, variance: old + 0, Kind.STATISTICS_FROZEN),
    "inverted": (lambda old, new, n, variance: 0.1 * old + 0.9 * new, Kind.MOMENTUM_INVERTED),
    "momentum": (lambda old, new, n, variance: 0.99 * old + 0.01 * new, Kind.MOMENTUM),
    "biased": (lambda old, new, n, variance: 0.9 * old + 0.1 * new * ((n - 1) / n if variance else 1), Kind.BIASED_VARIANCE),
    "unbiased twice": (
        lambda old, new, n, variance: 0.9 * old + 0.1 * new * (n / (n - 1) if variance else 1),
        Kind.UNBIASED_VARIANCE,
    ),
    "added": (lambda old, new, n, variance: old + 0.1 * new, Kind.UNKNOWN),
}


@pytest.mark.parametrize("case", STATISTICS)
def test_statistics_are_named(case):
    rule, kind = STATISTICS[case]
    _, seen, hint = found(nn.Sequential(OwnStatistics(rule)), torch.nn.Sequential(torch.nn.BatchNorm2d(6)), training=True)
    assert seen == kind, hint


@pytest.mark.parametrize("momentum", [None, 0.0])
def test_a_momentum_that_the_reference_does_not_have_is_not_spoken_of(momentum):
    """An average over all batches has no momentum; a part that holds several layers neither."""
    theirs = torch.nn.Sequential(torch.nn.BatchNorm2d(6, momentum=momentum))
    ours = nn.Sequential(OwnStatistics(lambda old, new, n, variance: 0.5 * old + 0.2 * new))
    assert found(ours, theirs, training=True)[1] not in (Kind.MOMENTUM, Kind.MOMENTUM_INVERTED)


# --- optimizers ------------------------------------------------------------------------------------------------------------


def material(clipped=False):
    """Three updates of four tensors, one of a norm layer and one a bias, under a moving learning rate."""
    rng = np.random.default_rng(1)
    shapes = {"a.weight": (30, 20), "n.weight": (30,), "n.bias": (30,), "b.bias": (40,)}
    gradients = [{n: rng.standard_normal(s) * (8 if clipped else 1) for n, s in shapes.items()} for _ in range(3)]
    start = {n: rng.standard_normal(s) for n, s in shapes.items()}
    groups = {"a.weight": 0, "n.weight": 1, "n.bias": 1, "b.bias": 2}
    return optimizers.Material.of(gradients, start, groups, [1e-2, 9e-3, 6.5e-3, 3.5e-3])


OPTIMIZERS = {
    "sgd": replace(SGD, weight_decay=0.1),
    "rmsprop": replace(RMSPROP, weight_decay=0.1),
    "adamw": replace(ADAMW, weight_decay=0.1),
    "adamw with decays of its own": replace(ADAMW, weight_decay=0.1, norm_weight_decay=0.02, bias_weight_decay=0.0),
}
ALIKE = {  # in these updates one mistake is another one too
    (Kind.LR_SCALED, Kind.SIGN), (Kind.NORM_AND_BIAS_WEIGHT_DECAY, Kind.NORM_WEIGHT_DECAY),
    (Kind.BIAS_WEIGHT_DECAY, Kind.NORM_AND_BIAS_WEIGHT_DECAY),
}  # fmt: skip


def mistakes_of(name, clip):
    given = material(clip is not None)
    form = optimizers.Form.of(OPTIMIZERS[name], clip)
    right = optimizers.weights_after(form, given)
    noise = [made + 1e-3 * RNG.standard_normal(made.shape) for made in right]
    return given, form, right, list(optimizers.OPTIMIZER.hypotheses(form, given, noise, right))


@pytest.mark.parametrize("clip", [None, 20.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_mistake_of_an_optimizer_is_named_and_no_other(name, clip):
    given, form, right, mistakes = mistakes_of(name, clip)
    named = 0
    for one in mistakes:
        place, (kind, words) = one.about or "", one.hint
        made = [given.start + move for move in np.split(one.predict(given), len(right))]
        if not all(np.isfinite(array).all() for array in made) or all(
            np.allclose(a, b, rtol=1e-9) for a, b in zip(made, right, strict=True)
        ):
            continue  # what changes nothing is no mistake
        seen = optimizers.optimizer_hint(form, given, made)
        assert seen is not None, words
        assert (seen[0], seen[1][0]) == (place, kind) or (kind, seen[1][0]) in ALIKE, (words, seen)
        named += 1
    assert named > 15


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_mistake_of_an_optimizer_is_claimed_of_another_one(name):
    given = material()
    form = optimizers.Form.of(OPTIMIZERS[name], None)
    right = optimizers.weights_after(form, given)
    rng = np.random.default_rng(2)
    signs = [given.start - 1e-3 * np.sign(g) for g in given.gradients]  # sign descent is none of them
    noisy = [made + 1e-4 * rng.standard_normal(made.shape) for made in right]
    infinite = [made * np.inf for made in right]
    one_wrong = [np.where(np.arange(made.size) == 5, made * 1.1, made) for made in right]
    for ours in (right, signs, noisy, infinite, one_wrong):
        assert optimizers.optimizer_hint(form, given, ours) is None


# --- pictures --------------------------------------------------------------------------------------------------------------

LEVELS = np.random.default_rng(3).integers(0, 256, (16, 16, 3)).astype(np.uint8)
MEAN, STD = np.array(EvalPreset().mean), np.array(EvalPreset().std)


def line(slope, offset):
    return (LEVELS * slope + offset).transpose(2, 0, 1).astype(np.float32)


def normalisation_hint(ours):
    levels = pictures.Levels(LEVELS.transpose(2, 0, 1).astype(np.float64), MEAN, STD)
    return pictures.in_every_case(pictures.NORMALISATION, [Observed(levels, ours, line(1 / (255 * STD), -MEAN / STD), 1e-5)])


@pytest.mark.parametrize(
    ("slope", "offset", "kind"),
    [
        (1 / (255 * STD), -MEAN / STD + 0.1, Kind.WRONG_MEAN),
        (1 / (255 * STD * 1.1), -MEAN / STD / 1.1, Kind.WRONG_STD),
        (np.ones(3), np.array([3.0, 5.0, 7.0]), Kind.WRONG_MEAN_STD),
    ],
)
def test_a_normalisation_that_is_not_known_is_said_as_measured(slope, offset, kind):
    found = normalisation_hint(line(slope, offset))
    assert found[0] is kind and found[1] not in pictures.NORMALISATION.makers


def test_a_picture_that_is_no_function_of_the_levels_is_not_normalised_otherwise():
    right = line(1 / (255 * STD), -MEAN / STD)
    assert pictures.by_level(right, LEVELS) and pictures.by_level(right[::-1].copy(), LEVELS)
    assert not pictures.by_level(right[:, :, ::-1].copy(), LEVELS)
    assert normalisation_hint(right[:, :, ::-1].copy()) == (Kind.UNKNOWN, "")


BOX = (5, 9, 20, 17)


def erased(box):
    picture = np.random.default_rng(4).random((3, 64, 64))
    top, left, height, width = box
    picture[:, top : top + height, left : left + width] = 0
    return picture


BOXES = {
    (9, 5, 17, 20): Kind.AXES_SWAPPED,
    (5, 9, 17, 20): Kind.AXES_SWAPPED,
    (9, 5, 20, 17): Kind.AXES_SWAPPED,
    (5, 9, 15, 8): Kind.BOX,
    (6, 9, 20, 17): Kind.BOX,
    (5, 9, 21, 18): Kind.BOX,
    (0, 0, 20, 17): Kind.BOX,
    (1, 2, 3, 4): Kind.UNKNOWN,
    (5, 9, 20, 23): Kind.UNKNOWN,
    BOX: Kind.UNKNOWN,
}


@pytest.mark.parametrize("box", BOXES)
def test_another_box_is_named(box):
    given = picture_boxes.Boxed(BOX, erased, (64, 64))
    case = Observed(given, erased(box), erased(BOX), 1e-9)
    assert pictures.in_every_case(picture_boxes.BOXES, [case])[0] is BOXES[box]


def test_a_window_is_found_where_it_was_cut():
    picture = np.random.default_rng(5).random((3, 40, 50))
    assert picture_boxes.window_of(picture[:, 3:33, 7:37], picture) == (3, 7)
    assert picture_boxes.window_of(picture[:, 3:33, 7:37] + 1e-9, picture) is None
    assert picture_boxes.window_hint([((7, 3), (3, 7))])[0] is Kind.AXES_SWAPPED
    assert picture_boxes.window_hint([((4, 6), (3, 7))])[0] is Kind.CROP_OFF_BY_ONE
    assert picture_boxes.window_hint([((0, 0), (3, 7))])[0] is Kind.CROP


def test_half_precision_is_rounded_to_even_as_the_frameworks_round():
    values = np.random.default_rng(6).standard_normal(1000).astype(np.float32)
    for mine, theirs in ((bfloat16, torch.bfloat16), (float16, torch.float16)):
        assert np.array_equal(mine(values), torch.tensor(values).to(theirs).float().numpy())


# --- settings, randomness --------------------------------------------------------------------------------------------------

SIGNAL = RNG.standard_normal((4, 6, 15)).astype(np.float32)
SETTINGS = {
    "groups": (nn.GroupNorm(3, 6), torch.nn.GroupNorm(2, 6), INPUTS, Kind.GROUPS, "num_groups 3, expected 2"),
    "eps": (nn.GroupNorm(2, 6, 1e-3), torch.nn.GroupNorm(2, 6), INPUTS, Kind.NORM_EPS, "eps 0.001, expected 1e-05"),
    "corners": (
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), torch.nn.Upsample(scale_factor=2, mode="bilinear"),
        INPUTS, Kind.ALIGN_CORNERS, "align_corners True, expected False",
    ),
    "axis": (nn.Softmax(-1), torch.nn.Softmax(1), INPUTS, Kind.AXIS, "dim -1, expected 1"),
    "output padding": (
        nn.Conv1DTranspose(6, 4, 3, 2, 1, 0), torch.nn.ConvTranspose1d(6, 4, 3, 2, 1, 1), SIGNAL, Kind.OUTPUT_PADDING,
        "output_padding (0,), expected (1,)",
    ),
    "ceil mode": (nn.MaxPool1D(2, 2, ceil_mode=True), torch.nn.MaxPool1d(2, 2), SIGNAL, Kind.POOLING, "ceil_mode True, expected"),
    "margin": (nn.Pad1D([2, 1]), torch.nn.ConstantPad1d((1, 2), 0.0), SIGNAL, Kind.PADDING, "padding (2, 1), expected (1, 2)"),
    "sound": (nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6), INPUTS, Kind.UNKNOWN, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", SETTINGS)
def test_another_setting_of_a_stock_layer_is_named(case):
    ours, theirs, inputs, kind, words = SETTINGS[case]
    theirs = torch.nn.Sequential(theirs)
    first = localize(nn.Sequential(ours), theirs, inputs, weights=False).first
    assert (first is None) if kind is Kind.UNKNOWN else (first.kind == kind and words in first.hint), first


def test_a_padding_number_is_named_by_its_row():
    theirs = torch.nn.Sequential(torch.nn.Embedding(10, 6, padding_idx=2))
    numbers = RNG.integers(0, 10, (4, 20))
    for ours, stage in ((nn.Embedding(10, 6), "backward"), (nn.Embedding(10, 6, padding_idx=3), "forward")):
        first = localize(nn.Sequential(ours), theirs, numbers, weights=False).first
        assert (first.stage, first.kind) == (stage, Kind.PADDING_INDEX) and "expected 2" in first.hint, first
    assert localize(nn.Sequential(nn.Embedding(10, 6, padding_idx=2)), theirs, numbers, weights=False).first is None


class Noisy(torch.nn.Module):
    """Random numbers of a generator of its own; seldom ones where ``often`` is small."""

    def __init__(self, often):
        super().__init__()
        self.often = often

    def forward(self, x):
        dropped = torch.from_numpy(np.random.default_rng().random((len(x), *(1,) * (x.ndim - 1)))) < self.often
        return torch.where(dropped, 0.0, x) if self.training else x


@pytest.mark.parametrize("often", [0.5, 0.15])
def test_the_references_own_noise_never_hides_a_mistake(often):
    """Tanh in place of ReLU: the reference's masks would be taken for the noise floor."""
    theirs = torch.nn.Sequential(torch.nn.ReLU(), Noisy(often))
    ours = nn.Sequential(nn.Tanh(), nn.Identity())
    with pytest.raises(UserError, match="draws random numbers in training mode that cannot be shared"):
        localize(ours, theirs, INPUTS, training=True)
    assert localize(ours, theirs, INPUTS).first.location == "0"


def test_masks_of_whole_channels_are_shared():
    theirs = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout2d(0.4))
    for ours, place in (
        (nn.Sequential(nn.ReLU(), nn.Dropout2D(0.4)), None),
        (nn.Sequential(nn.Tanh(), nn.Dropout2D(0.4)), "0"),
        (nn.Sequential(nn.ReLU(), nn.Dropout2D(0.6)), "1"),
        (nn.Sequential(nn.ReLU(), nn.Dropout(0.4)), "1"),
    ):
        first = localize(ours, theirs, INPUTS, training=True).first
        assert (first and first.location) == place, first
    theirs = torch.nn.Sequential(torch.nn.Dropout(0.4))
    for ours in (nn.Dropout(0.4, mode="downscale_in_infer"), nn.Dropout(0.4, axis=0)):
        assert localize(nn.Sequential(ours), theirs, INPUTS, training=True).first is not None


def test_an_output_of_another_size_leaves_the_table_whole():
    """Paddle was given gradients of the reference's shape, read beyond their end, and ended the process."""
    found = localize(nn.Sequential(nn.MaxPool1D(3, 2, 0)), torch.nn.Sequential(torch.nn.MaxPool1d(3, 2, 1)), SIGNAL)
    assert found.first.kind == Kind.PADDING and {row.name for row in found.layers if row.phase == "forward"} == {"", "0"}
