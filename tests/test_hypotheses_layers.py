"""Every hypothesis about a layer names its mistake, on plain arrays; without it the mistake has another name or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from alignment import formulas
from alignment.frameworks.base import Layer
from alignment.kinds import Kind
from alignment.localize.hypotheses import hint
from alignment.localize.hypotheses.activation import ACTIVATION, GATE
from alignment.localize.hypotheses.call_words import _number
from alignment.localize.hypotheses.convolution import CONVOLUTION
from alignment.localize.hypotheses.exported import _listed
from alignment.localize.hypotheses.layers import BATCH_NORM, DROPOUT, EMBEDDING, LINEAR, PAD, SQUEEZE
from alignment.localize.hypotheses.pooling import POOLING
from alignment.localize.hypotheses.settings import OWN_FUNCTION, OWN_SETTING, SETTINGS
from tests.plain import CONV, CONV_WEIGHTS, RNG, Plain, function, subject, weight

X = RNG.standard_normal((3, 4, 9, 9))
ROWS = RNG.standard_normal((5, 6))
EXPECTED = []  # family, name of the hypothesis, subject, kind, words


def case(family, name, kind, words, ours, theirs, *inputs, **more):
    """One mistake; the port says of its layer what the reference says, unless it is told otherwise."""
    EXPECTED.append((family, name, subject(ours, theirs, *inputs, **more), kind, words))


def layer(kind, compute, settings, weights=None, title="", stock=True):
    return Plain(Layer(kind, settings, title or kind.title()), compute, weights or {}, stock=stock)


# --- convolutions ----------------------------------------------------------------------------------------------------------


def convolved(x, s, w, inside, **changes):
    return formulas.conv(x, **{"weight": w["weight"], "bias": w.get("bias"), **s, **changes})


W = CONV_WEIGHTS["weight"]
for name, kind, words, changes in (
    ("bias_missing", Kind.BIAS_MISSING, "the bias is not added", {"bias": None}),
    ("stride", Kind.STRIDE, "stride 2, expected 1", {"stride": (2, 2)}),
    ("padding", Kind.PADDING, "padding 0, expected 1", {"padding": (0, 0)}),
    ("dilation", Kind.DILATION, "dilation 2, expected 1", {"dilation": (2, 2)}),
    ("dilation", Kind.DILATION, "dilation 3, expected 1", {"dilation": (3, 3), "padding": (3, 3)}),
    ("kernel_transposed", Kind.WEIGHT_TRANSPOSED, "kernel transposed", {"weight": np.ascontiguousarray(W.transpose(0, 1, 3, 2))}),
    ("kernel_flipped", Kind.WEIGHT_FLIPPED, "kernel flipped", {"weight": W[:, :, ::-1, ::-1]}),
    ("channels_swapped", Kind.WEIGHT_TRANSPOSED, "weight transposed: input and output", {"weight": W.transpose(1, 0, 2, 3)}),
    ("padding_on_one_side", Kind.PADDING, "padding off by one: it lies (0, 2, 1, 1)", {"padding": ((1, 1), (0, 2))}),
    ("padding_on_one_side", Kind.PADDING, "padding off by one: it lies (0, 2, 0, 2)", {"padding": ((0, 2), (0, 2))}),
    ("padding_mode", Kind.PADDING, "padding mode reflect, expected zeros", {"padding_mode": "reflect"}),
    ("padding_mode", Kind.PADDING, "padding mode circular, expected zeros", {"padding_mode": "circular"}),
):
    ours = layer("conv", lambda x, s, w, inside, c=changes: convolved(x, s, w, inside, **c), CONV, CONV_WEIGHTS)
    case(CONVOLUTION, name, kind, words, ours, layer("conv", convolved, CONV, CONV_WEIGHTS, "Conv2d"), X)
HALVING = {**CONV, "stride": (2, 2)}
ours = layer("conv", lambda x, s, w, inside: convolved(x, s, w, inside, padding=((0, 1), (0, 1))), HALVING, CONV_WEIGHTS)
words = "it lies (0, 1, 0, 1) (left, right, top, bottom), as TensorFlow's SAME, expected (1, 1) on both sides"
case(
    CONVOLUTION,
    "same_padding",
    Kind.PADDING,
    words,
    ours,
    layer("conv", convolved, HALVING, CONV_WEIGHTS, "Conv2d"),
    X[..., :8, :8],
)

# --- activations -----------------------------------------------------------------------------------------------------------


def relu(x):
    return np.maximum(x, 0)


def hardswish(x):
    return x * np.clip(x / 6 + 0.5, 0, 1)


for name, words, made, theirs in (
    (
        "negative_slope",
        "slope 0.3 of the negative values, expected ReLU",
        lambda x: np.where(x > 0, x, 0.3 * x),
        ("relu", relu, "ReLU"),
    ),
    (
        "alpha",
        "ELU with alpha 0.7, expected 1",
        lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)),
        ("elu", formulas.ACTIVATIONS["ELU"], "ELU"),
    ),
    ("another_function", "it computes Tanh, expected ReLU", np.tanh, ("relu", relu, "ReLU")),
    (
        "another_function",
        "it computes ReLU6, expected Hardswish",
        lambda x: np.clip(x, 0, 6),
        ("hardswish", hardswish, "Hardswish"),
    ),
    (
        "clipped",
        "values between -0.5 below and 0.75 above, expected Hardtanh",
        lambda x: np.clip(x, -0.5, 0.75),
        ("hardtanh", lambda x: np.clip(x, -1, 1), "Hardtanh"),
    ),
    (
        "hard_gate_in_place",
        "it computes clip(0.25 x + 0.4, 0, 1), expected Sigmoid",
        lambda x: np.clip(x / 4 + 0.4, 0, 1),
        ("sigmoid", formulas.sigmoid, "Sigmoid"),
    ),
    (
        "hard_gate_in_place",
        "it computes x * clip(0.25 x + 0.4, 0, 1), expected SiLU",
        lambda x: x * np.clip(x / 4 + 0.4, 0, 1),
        ("silu", lambda x: x * formulas.sigmoid(x), "SiLU"),
    ),
):
    given = {"alpha": 1.0} if theirs[0] == "elu" else {}
    case(ACTIVATION, name, Kind.ACTIVATION, words, function(theirs[0], made), function(*theirs, **given), 2 * X)
case(
    GATE,
    "constants",
    Kind.ACTIVATION,
    "slope 0.2 and offset 0.5, expected 0.166666667 and 0.5",
    function("hardswish", lambda x: x * np.clip(0.2 * x + 0.5, 0, 1)),
    function("hardswish", hardswish),
    2 * X,
)
case(
    GATE,
    "constants",
    Kind.FLOAT32_CONSTANT,
    "slope 0.166666672 and offset 0.5",
    function("hardswish", lambda x: x * np.clip(float(np.float32(1 / 6)) * x + 0.5, 0, 1)),
    function("hardswish", hardswish),
    2 * X,
)

# --- pooling ---------------------------------------------------------------------------------------------------------------

POOL = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": False, "count_include_pad": True}


def pooled(x, how="mean", kernel=(3, 3), stride=(2, 2), padding=(1, 1), **more):
    return formulas.pool(x, kernel, stride, padding, how, **more)


for name, kind, words, changes in (
    ("maxima", Kind.POOLING, "max pooling, expected AvgPool2d", {"how": "max"}),
    ("means_without_padding", Kind.POOLING, "average pooling that leaves the padding out", {"count_padding": False}),
    ("sizes", Kind.PADDING, "padding 0, expected 1", {"padding": (0, 0)}),
    ("sizes", Kind.STRIDE, "stride 1, expected 2", {"stride": (1, 1)}),
    ("sizes", Kind.POOLING, "windows of 2 x 2, expected 3 x 3", {"kernel": (2, 2)}),
):
    case(
        POOLING,
        name,
        kind,
        words,
        function("avg_pool", lambda x, c=changes: pooled(x, **c), **POOL),
        function("avg_pool", pooled, "AvgPool2d", **POOL),
        X,
    )
case(
    POOLING,
    "means",
    Kind.POOLING,
    "average pooling that counts the padding, expected MaxPool2d",
    function("max_pool", pooled, **POOL),
    function("max_pool", lambda x: pooled(x, "max"), "MaxPool2d", **POOL),
    X,
)
EVEN = RNG.standard_normal((3, 4, 8, 8))
case(
    POOLING,
    "ceil_mode",
    Kind.POOLING,
    "ceil_mode=True, expected False",
    function("max_pool", lambda x: pooled(x, "max", ceil_mode=True), **POOL),
    function("max_pool", lambda x: pooled(x, "max"), **POOL),
    EVEN,
)
for name, words, made in (
    ("whole_picture", "max pooling, expected AdaptiveAvgPool2d", lambda x: x.max((2, 3), keepdims=True)),
    ("summed", "sum over the picture", lambda x: x.sum((2, 3), keepdims=True)),
    ("one_window", "one average over a window of 7 x 7", lambda x: x[:, :, :7, :7].mean((2, 3), keepdims=True)),
):
    means = function("adaptive_avg_pool", lambda x: x.mean((2, 3), keepdims=True), "AdaptiveAvgPool2d", output_size=(1, 1))
    case(POOLING, name, Kind.POOLING, words, function("adaptive_avg_pool", made, output_size=(1, 1)), means, X)
for made in (
    lambda x: x.mean((0, 2, 3), keepdims=True),
    lambda x: np.broadcast_to(x.mean((0, 2, 3), keepdims=True), (*x.shape[:2], 1, 1)),
):
    ours = function("adaptive_avg_pool", made, output_size=(1, 1))
    case(POOLING, "over_the_batch", Kind.BATCH, "mean over the samples of the batch, too", ours, means, X)

# --- batch normalisation ---------------------------------------------------------------------------------------------------

NORM = {"weight": weight(4) + 2, "bias": weight(4), "running_mean": weight(4), "running_var": RNG.random(4) / 100 + 0.001}


def of_batch(x):
    return x.mean((0, 2, 3)), x.var((0, 2, 3))


def normalised(x, s, w, inside, statistics=None, **changes):
    statistics = statistics or (w["running_mean"], w["running_var"])
    return formulas.normalised(x, *statistics, **{"eps": s["eps"], "weight": w["weight"], "bias": w["bias"], **changes})


def in_training(x, s, w, inside):
    return normalised(x, s, w, inside, of_batch(x))


COUNT = X.size // 4
for name, kind, words, training, made in (
    ("other_mode", Kind.TRAINING_MODE, "evaluation mode forgotten", False, in_training),
    ("other_mode", Kind.EVALUATION_MODE, "evaluation mode in training", True, normalised),
    ("norm_missing", Kind.DOES_NOTHING, "batch normalisation is missing", False, lambda x, **_: x),
    ("affine", Kind.BIAS_MISSING, "the bias is not added", False, lambda x, **k: normalised(x, **k, bias=None)),
    ("affine", Kind.SCALE_MISSING, "the weight is not multiplied", False, lambda x, **k: normalised(x, **k, weight=None)),
    (
        "affine",
        Kind.AFFINE_MISSING,
        "weight and bias are left out",
        False,
        lambda x, **k: normalised(x, **k, weight=None, bias=None),
    ),
    ("eps", Kind.BATCH_NORM_EPS, "wrong eps: 0.001, expected 1e-05", False, lambda x, **k: normalised(x, **k, eps=1e-3)),
    ("eps", Kind.BATCH_NORM_EPS, "wrong eps: 0.0007, expected 1e-05", False, lambda x, **k: normalised(x, **k, eps=7e-4)),
    (
        "eps_outside_root",
        Kind.EPS_OUTSIDE_ROOT,
        "eps is added to the standard deviation",
        False,
        lambda x, **k: normalised(
            x, **k, statistics=(k["w"]["running_mean"], (np.sqrt(k["w"]["running_var"]) + 1e-5) ** 2), eps=0.0
        ),
    ),
    (
        "unbiased_variance",
        Kind.UNBIASED_VARIANCE,
        "it normalises by the unbiased variance",
        True,
        lambda x, **k: normalised(x, **k, statistics=(of_batch(x)[0], of_batch(x)[1] * COUNT / (COUNT - 1))),
    ),
):
    both = [layer("batch_norm", one, {"eps": 1e-5}, NORM) for one in (made, in_training if training else normalised)]
    case(BATCH_NORM, name, kind, words, *both, X, training=training)

# --- dropout, linear layers, margins, embeddings, squeeze-excitation --------------------------------------------------------

KEPT = RNG.random(X.shape) > 0.5


def dropout(made, title="Dropout"):
    return function("dropout", made, title, p=0.5)


THIRD = RNG.random(X.shape) > 0.3
for name, kind, words, training, made in (
    ("left_on", Kind.DROPOUT_ON, "dropout left on in evaluation mode", False, lambda x: 2 * x * KEPT),
    ("scaled_in_evaluation", Kind.DROPOUT_SCALE, "dropout scales by 0.5 in evaluation mode", False, lambda x: 0.5 * x),
    ("does_nothing", Kind.DROPOUT_MISSING, "dropout does nothing in training", True, lambda x: x),
    (
        "not_scaled",
        Kind.DROPOUT_SCALE,
        "dropout keeps values unscaled in training, expected the factor 2",
        True,
        lambda x: x * KEPT,
    ),
    ("another_rate", Kind.DROPOUT_RATE, "which is p = 0.3, expected 0.5", True, lambda x: x * THIRD / 0.7),
):
    right = (lambda x: 2 * x * KEPT) if training else (lambda x: x)
    case(DROPOUT, name, kind, words, dropout(made), dropout(right), X, training=training)
CHANNELS = np.broadcast_to(np.random.default_rng(7).random((3, 4, 1, 1)) > 0.5, X.shape)
case(
    DROPOUT,
    "single_values_or_channels",
    Kind.DROPOUT_SHAPE,
    "dropout drops single values, expected whole channels",
    dropout(lambda x: 2 * x * KEPT),
    dropout(lambda x: 2 * x * CHANNELS),
    X,
    training=True,
)

LINE = {"weight": weight(6, 6), "bias": weight(6)}
for name, kind, words, made in (
    ("linear_bias_missing", Kind.BIAS_MISSING, "the bias is not added", lambda x, w, **_: x @ w["weight"].T),
    ("weight_transposed", Kind.WEIGHT_TRANSPOSED, "weight transposed: a square one", lambda x, w, **_: x @ w["weight"] + w["bias"]),
):
    right = layer("linear", lambda x, w, **_: x @ w["weight"].T + w["bias"], {}, LINE)
    case(LINEAR, name, kind, words, layer("linear", made, {}, LINE), right, ROWS)


def margins(settings):
    left, right, top, bottom = settings["padding"]
    wide = [(0, 0), (0, 0), (top, bottom), (left, right)]
    return function("pad", lambda x: np.pad(x, wide, constant_values=settings["value"]), **settings)


ZEROS = {"padding": (1, 1, 1, 1), "mode": "constant", "value": 0.0}
case(
    PAD,
    "margin",
    Kind.PADDING,
    "wrong padding (2, 0, 1, 1), expected (1, 1, 1, 1)",
    margins({**ZEROS, "padding": (2, 0, 1, 1)}),
    margins(ZEROS),
    X,
)

NUMBERS, TABLE = RNG.integers(0, 6, (4, 9)), {"weight": weight(6, 3)}


def looked_up(x, s, w, inside):
    return np.where((x == s["padding_idx"])[..., None], 0.0, w["weight"][x])


def embedding(index):
    return layer("embedding", looked_up, {"padding_idx": index}, TABLE)


case(
    EMBEDDING,
    "padding_index",
    Kind.PADDING_INDEX,
    "padding_idx 2, expected None: it gives zeros",
    embedding(2),
    embedding(None),
    NUMBERS,
)
LARGE, WORDS = RNG.integers(300, 600, (4, 9)), {"weight": weight(600, 3)}
for words, inside_it in (
    ("the indices went through uint8, which does not hold them all", lambda x: x.astype("uint8")),
    ("the indices are 1 too large", lambda x: np.minimum(x + 1, 599)),
    ("the indices are 1 too small", lambda x: x - 1),
):
    ours = layer("embedding", lambda x, s, w, inside, f=inside_it: w["weight"][f(x)], {"padding_idx": None}, WORDS)
    right = layer("embedding", lambda x, s, w, inside: w["weight"][x], {"padding_idx": None}, WORDS)
    case(EMBEDDING, "other_indices", Kind.INDICES, words, ours, right, LARGE)

case(
    SQUEEZE,
    "squeeze_missing",
    Kind.NO_SQUEEZE_EXCITATION,
    "squeeze-excitation missing",
    function("squeezeexcitation", lambda x: x),
    function("squeezeexcitation", lambda x: x * formulas.sigmoid(x.mean((2, 3), keepdims=True))),
    X,
)

# --- settings --------------------------------------------------------------------------------------------------------------


def shrink(x, s, w, inside):
    return np.sign(x) * np.maximum(np.abs(x) - s["lambd"], 0)


def group_norm(x, s, w, inside):
    parts = x.reshape(len(x), s["num_groups"], -1)
    made = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + s["eps"])
    return made.reshape(x.shape)


def groups(number, eps=1e-5, kind="group_norm", stock=True):
    return layer(kind, group_norm, {"num_groups": number, "eps": eps}, stock=stock)


case(
    SETTINGS,
    "said_by_the_port",
    Kind.ACTIVATION,
    "wrong lambd 1, expected 0.5",
    layer("softshrink", shrink, {"lambd": 1.0}),
    layer("softshrink", shrink, {"lambd": 0.5}),
    X,
)
case(
    SETTINGS,
    "said_by_the_port",
    Kind.GROUPS,
    "wrong num_groups 4, expected 2; eps 0.1, expected 1e-05",
    groups(4, 0.1),
    groups(2),
    X,
)
case(SETTINGS, "usual", Kind.GROUPS, "wrong num_groups 4, expected 2", groups(4, kind="own"), groups(2), X)
case(
    OWN_SETTING,
    "usual_setting_repairs",
    Kind.GROUPS,
    "wrong num_groups 4, expected 2",
    groups(4),
    replace(function("own", lambda x: group_norm(x, {"num_groups": 2, "eps": 1e-5}, {}, None)), stock=False),
    X,
)
case(
    OWN_SETTING,
    "frozen_statistics_repair",
    Kind.TRAINING_MODE,
    "by the statistics of the batch in training mode, expected the running ones in every mode",
    layer("batch_norm", in_training, {"eps": 1e-5}, NORM),
    layer("own", lambda x, s, w, inside: normalised(x, {"eps": 1e-5}, w, inside), {}, NORM, stock=False),
    X,
    training=True,
)
case(
    OWN_FUNCTION,
    "another_activation",
    Kind.ACTIVATION,
    "it computes Tanh, expected ReLU",
    function("tanh", np.tanh),
    replace(function("own", relu), stock=False),
    X,
)


IDS = [f"{family.name}: {words[:50]}" for family, *_, words in EXPECTED]


@pytest.mark.parametrize("number", range(len(EXPECTED)), ids=IDS)
def test_a_mistake_of_a_layer_is_named(number):
    _, _, s, kind, words = EXPECTED[number]
    found = hint(s)
    assert found[0] is kind and words in found[1], found


FAMILIES = (
    CONVOLUTION,
    ACTIVATION,
    GATE,
    POOLING,
    BATCH_NORM,
    DROPOUT,
    LINEAR,
    PAD,
    EMBEDDING,
    SQUEEZE,
    SETTINGS,
    OWN_SETTING,
    OWN_FUNCTION,
)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_hypothesis_has_a_case_of_its_own(family):
    assert set(family.makers) <= {name for other, name, *_ in EXPECTED if other is family}


@pytest.mark.parametrize("number", range(len(EXPECTED)), ids=IDS)
def test_no_mistake_of_a_layer_is_claimed_where_there_is_none(number):
    """The right module, and one that is wrong in no known way: one value in three moved by itself."""
    s = EXPECTED[number][2]
    right, other = replace(s.blame, ours=s.blame.theirs), RNG.standard_normal(s.expected.shape)
    assert hint(replace(s, blame=right, pair=_sound(s.pair), _probes={}))[1] == ""
    strange = replace(s.blame.theirs, outputs=[s.expected + np.where(other > 0.4, other, 0)])
    assert hint(replace(s, blame=replace(s.blame, ours=strange), pair=_sound(s.pair), _probes={}))[0] in (
        Kind.UNKNOWN,
        Kind.GLOBAL_GENERATOR,
    )


def _sound(pair):
    return replace(pair, port=pair.reference)


@pytest.mark.parametrize(("count", "shown"), [(4, "(0, 1, 2, 3)"), (5, "(0, 1, 2, 3, ...)")])
def test_a_vector_in_words_has_four_numbers_at_most(count, shown):
    assert _listed(np.arange(float(count))) == shown
    listed = _number(tuple(np.arange(float(count)).tolist()))
    assert listed == (str([0.0, 1.0, 2.0, 3.0]) if count == 4 else "[0, 1, 2, 3, ...]")
    assert _number((0, 2, 3, 1, 4)) == "[0, 2, 3, 1, 4]", "an order of axes is said in full"
