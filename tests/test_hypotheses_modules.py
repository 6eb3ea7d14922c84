"""Every hypothesis about a container, a statistic, a gradient or any module names its mistake, on plain arrays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from alignment import formulas
from alignment.finding import NO_HINT
from alignment.frameworks.base import Layer
from alignment.kinds import Kind
from alignment.localize.hypotheses import hint
from alignment.localize.hypotheses.arrays import bfloat16
from alignment.localize.hypotheses.backward import BACKWARD
from alignment.localize.hypotheses.changed import CHANGED
from alignment.localize.hypotheses.general import GENERAL, RANDOM
from alignment.localize.hypotheses.outputs import ANOTHER_OUTPUT, DETACHED, OUTPUTS
from alignment.localize.hypotheses.statistics import STATISTICS
from alignment.localize.hypotheses.tables import TABLES
from alignment.localize.hypotheses.wiring import SIBLINGS, WIRING
from alignment.models.tracing import Answer
from tests.plain import RNG, Plain, PlainNetwork, function, subject

X = RNG.standard_normal((3, 4, 5, 5))
EXPECTED = []


def case(family, name, kind, words, s):
    EXPECTED.append((family, name, s, kind, words))


# --- containers ------------------------------------------------------------------------------------------------------------

FIRST = function("own", lambda x: np.sin(3 * x), "First")
SECOND = function("own", lambda x: np.cos(2 * x) + 0.1, "Second")
PARTS = {"first": FIRST, "second": SECOND}


def block(forward, parts=None):
    """A container; ``forward(x, inside)`` calls its children."""
    return Plain(Layer("own", {}, "Block"), lambda x, s, w, inside: forward(x, inside), children=parts or PARTS)


def relu(x):
    return np.maximum(x, 0)


def chained(x, inside):
    return inside("second", inside("first", x))


def shortcut(x, inside):
    return x + chained(x, inside)


def gated(x, inside):
    return inside("first", x) * inside("second", x)


def after(x, inside):
    return relu(shortcut(x, inside))


for name, kind, words, ours, theirs in (
    ("residual", Kind.DOES_NOTHING, "it gives its input back", lambda x, inside: x + 0 * chained(x, inside), chained),
    ("residual", Kind.NO_RESIDUAL, "residual missing: the input is not added", chained, shortcut),
    ("residual", Kind.RESIDUAL_EXTRA, "residual too much", shortcut, chained),
    ("residual", Kind.EXTRA_SCALING, "the output is multiplied by the input once more", lambda x, i: x * chained(x, i), chained),
    (
        "another_operation",
        Kind.COMBINED_OTHERWISE,
        "it computes the input - second, expected the input + second",
        lambda x, inside: x - chained(x, inside),
        shortcut,
    ),
    (
        "another_operation",
        Kind.GATE_ADDED,
        "it computes first + second, expected first * second",
        lambda x, inside: inside("first", x) + inside("second", x),
        gated,
    ),
    (
        "one_part_left_out",
        Kind.GATE_MISSING,
        "second is not multiplied: it computes first",
        lambda x, inside: inside("first", x) + 0 * inside("second", x),
        gated,
    ),
    (
        "one_part_left_out",
        Kind.NO_RESIDUAL,
        "the input is not added: it computes second",
        lambda x, inside: relu(chained(x, inside)),
        after,
    ),
    (
        "activation_elsewhere",
        Kind.ACTIVATION_ORDER,
        "it computes the input + ReLU(second), expected ReLU(the input + second)",
        lambda x, inside: x + relu(chained(x, inside)),
        after,
    ),
    (
        "combined_in_half_precision",
        Kind.HALF_PRECISION,
        "second rounded to bfloat16 in the input + second",
        lambda x, inside: x + bfloat16(chained(x, inside)),
        shortcut,
    ),
    (
        "child_in_half_precision",
        Kind.HALF_PRECISION,
        "the output of first is rounded to bfloat16",
        lambda x, inside: inside("second", bfloat16(inside("first", x)).astype(float)),
        chained,
    ),
    (
        "called_another_number_of_times",
        Kind.LAYER_NOT_CALLED,
        "second is called 0 times in the port's forward, expected 1",
        lambda x, inside: inside("first", x) ** 3,
        chained,
    ),
    (
        "call_order",
        Kind.CALL_ORDER,
        "calls the reference's second (Second) where the reference calls first (First)",
        lambda x, inside: inside("first", inside("second", x)),
        chained,
    ),
):
    case(WIRING, name, kind, words, subject(block(ours), block(theirs), X))

LEFT, RIGHT = function("relu6", lambda x: np.clip(x, 0, 6), "ReLU6"), function("own", lambda x: np.tanh(x) ** 3, "Cube")
parts = {"left": LEFT, "right": RIGHT}
case(
    SIBLINGS,
    "sibling",
    Kind.CALL_ORDER,
    "another order: it computes the reference's left (ReLU6), expected Cube",
    subject(block(chained, {"left": RIGHT, "right": LEFT}), block(lambda x, i: i("right", i("left", x)), parts), X, path="right"),
)

# --- statistics ------------------------------------------------------------------------------------------------------------

START, BATCH = RNG.random(4) + 1, X.var((0, 2, 3), ddof=1)
COUNT = X.size // 4
BIASED = BATCH * (COUNT - 1) / COUNT


def after_update(share, batch):
    return START + share * (batch - START)


for name, kind, words, what, ours in (
    ("frozen", Kind.STATISTICS_FROZEN, "running_var is not updated in training", "running_var", START),
    (
        "momentum_inverted",
        Kind.MOMENTUM_INVERTED,
        "momentum inverted: the new batch has the share 0.9",
        "running_var",
        after_update(0.9, BATCH),
    ),
    ("biased", Kind.BIASED_VARIANCE, "biased variance", "running_var", after_update(0.1, BIASED)),
    ("unbiased", Kind.UNBIASED_VARIANCE, "unbiased variance", "running_var", after_update(0.1, BATCH * COUNT / (COUNT - 1))),
    (
        "momentum_inverted_and_biased",
        Kind.MOMENTUM_INVERTED,
        "momentum inverted, and the variance is the biased one",
        "running_var",
        after_update(0.9, BIASED),
    ),
    ("momentum", Kind.MOMENTUM, "momentum 0.3 in torch's sense, expected 0.1", "running_var", after_update(0.3, BATCH)),
    (
        "momentum",
        Kind.MOMENTUM,
        "momentum 0.3 in torch's sense, expected 0.1, and the variance",
        "running_var",
        after_update(0.3, BIASED),
    ),
):
    norm = function("batch_norm_of_own", lambda x: x, momentum=0.1)
    right = after_update(0.1, BATCH)
    answers = (Answer([X], {what: one}) for one in (ours, right))
    both = dict(zip(("ours", "theirs"), answers, strict=True))
    case(STATISTICS, name, kind, words, subject(norm, norm, X, what=what, start={what: START}, **both))

own = function("own", lambda x: x)  # of a class of somebody's own, without a momentum
stays = {"ours": Answer([X], {"mean": START}), "theirs": Answer([X], {"mean": BATCH})}
words = "the buffer mean stays as it was in the port"
case(STATISTICS, "never_written", Kind.STATISTICS_FROZEN, words, subject(own, own, X, what="mean", start={"mean": START}, **stays))

# --- constants, outputs, any module -----------------------------------------------------------------------------------------

OWN = function("own", lambda x: np.sin(x) + 2, "Own")


def tabled(values, name="base", **others):
    table = [np.array(values)]
    given = lambda x, s, w, inside: x * table[0].reshape(-1, 5)[-1] + table[0].sum()  # noqa: E731
    return Plain(Layer("own", {}, "Own"), given, tables={**{one: [np.array(array)] for one, array in others.items()}, name: table})


case(
    TABLES,
    "other_constants",
    Kind.CONSTANT,
    "base at [1] is 3, expected 2",
    subject(tabled([1.0, 3.0, 3.0, 4.0, 5.0]), tabled([1.0, 2.0, 3.0, 4.0, 5.0]), X),
)
ROWS = np.arange(20.0).reshape(4, 5) ** 2
for words, mine, theirs in (
    ("is reversed along axis 0", ROWS[::-1], ROWS),
    ("has its halves exchanged along axis 0", ROWS[[2, 3, 0, 1]], ROWS),
    ("begins one place too early along axis 0", np.vstack([ROWS[:1] - 1, ROWS[:-1]]), ROWS),
    ("begins one place too late along axis 0", np.vstack([ROWS[1:], ROWS[-1:] + 1]), ROWS),
    ("has rows and columns exchanged", np.arange(25.0), np.arange(25.0).reshape(5, 5).T),
    ("at [1, 0] is 25, expected 24", np.where(ROWS == 25, 25, ROWS), np.where(ROWS == 25, 24, ROWS)),
):
    given = subject(tabled(mine, "pos", base=[1.0] * 5), tabled(theirs, index=[2.0] * 5, base=theirs), X)
    case(TABLES, "other_constants", Kind.CONSTANT, f"the constructor makes other constants: pos {words}", given)


def test_a_table_of_another_name_that_is_not_what_is_wrong_is_not_named():
    port = tabled(ROWS, "pos", base=[1.0] * 5)
    other = Plain(Layer("own", {}, "Own"), lambda x, s, w, inside: np.sin(x), tables={"index": [ROWS[::-1]]})
    assert TABLES.hint(subject(port, other, X)) == NO_HINT


def several(*made):
    return function("own", lambda x: tuple(one(x) for one in made), "Own")


THREE = (np.sin, np.cos, np.tanh)
case(
    OUTPUTS,
    "exchanged",
    Kind.PERMUTED,
    "output 2 and output 3 are exchanged",
    subject(several(np.sin, np.tanh, np.cos), several(*THREE), X, what="output 2"),
)
for kind, words, second in (
    (Kind.SHAPE, "output 2 has shape (3, 4, 5, 4), expected (3, 4, 5, 5)", lambda x: np.cos(x)[..., 1:]),
    (Kind.SCALED, "output 2: every value times 3", lambda x: 3 * np.cos(x)),
):
    s = subject(several(np.sin, second, np.tanh), several(*THREE), X, what="output 2")
    case(ANOTHER_OUTPUT, "changed", kind, words, s)

DRAWN = np.random.default_rng(5)
case(
    RANDOM,
    "draws_by_itself",
    Kind.GLOBAL_GENERATOR,
    "two identical calls differ in 100% of the values",
    subject(function("own", lambda x: x + DRAWN.random(x.shape)), OWN, X),
)


def dropping(*shares):
    """A module that is told to have drawn random numbers for such shares of its values."""
    return replace(OWN, drawn=shares)


for kind, words, ours in (
    (Kind.DROPOUT_MISSING, "the port draws no random numbers here, expected 1 draw (p = 0.2)", []),
    (Kind.CALL_EXTRA, "random numbers: 2 draws (p = 0.2, 0.5), expected 1 draw (p = 0.2)", [0.2, 0.5]),
    (Kind.DROPOUT_RATE, "random numbers drop 0.5 of the values, expected 0.2", [0.5]),
):
    s = subject(dropping(*ours), dropping(0.2), X)
    case(RANDOM, "draws_otherwise", kind, words, s)


def broken(x):
    raise ValueError("too small")


for name, kind, words, made in (
    ("raises", Kind.RAISES, "the port's layer cannot take the reference's input: too small", broken),
    ("not_finite", Kind.NOT_FINITE, "of 300 values are NaN or infinite", lambda x: np.where(x > 1, np.nan, np.sin(x) + 2)),
    ("other_shape", Kind.SHAPE, "shape (3, 4, 5, 4), expected (3, 4, 5, 5)", lambda x: np.sin(x)[..., 1:]),
    ("zero", Kind.ZERO, "all zero", np.zeros_like),
    ("gives_input_back", Kind.DOES_NOTHING, "it gives its input back", lambda x: x),
    ("function_applied", Kind.ACTIVATION_EXTRA, "Tanh is applied to the right output", lambda x: np.tanh(np.sin(x) + 2)),
    ("function_applied", Kind.ACTIVATION_EXTRA, "LogSoftmax is applied", lambda x: formulas.log_softmax(np.sin(x) + 2)),
    ("right_output_changed", Kind.SCALED, "every value times 1.5", lambda x: 1.5 * (np.sin(x) + 2)),
    (
        "input_in_half_precision",
        Kind.HALF_PRECISION,
        "its input is rounded to bfloat16",
        lambda x: np.sin(bfloat16(x).astype(float)) + 2,
    ),
):
    case(GENERAL, name, kind, words, subject(function("own", made, "Own"), OWN, X))


def of_first_class(x):
    """A loss of logits whose classes are the second axis."""
    return -np.moveaxis(formulas.log_softmax(np.moveaxis(x, 1, -1)), -1, 1)[:, 0].mean()


case(
    GENERAL,
    "classes_along_another_axis",
    Kind.SOFTMAX_AXIS,
    "the classes are taken along axis 3, expected axis 1",
    subject(
        function("own", lambda x: of_first_class(np.moveaxis(x, 3, 1)), "Loss"),
        function("own", of_first_class, "Loss"),
        RNG.standard_normal((3, 5, 4, 5)),
    ),
)
case(
    GENERAL,
    "overflows",
    Kind.OVERFLOW,
    "values overflow float16, whose largest number is 65504",
    subject(
        function("own", lambda x: np.where(x > 1, np.inf, np.sin(x) + 2)), OWN, X, dtype="float16", right=Answer([np.sin(X) * 1e5])
    ),
)

# --- gradients -------------------------------------------------------------------------------------------------------------

G = RNG.standard_normal((3, 4, 5, 5))
SMALL = RNG.standard_normal((6, 3))


def gradient(ours, right, what="gradient of weight", ours_of=OWN, theirs=OWN, **more):
    """A subject whose gradient alone is wrong."""
    if what == "gradient of its input":
        made = {"ours": Answer([X], input_gradients=[ours]), "theirs": Answer([theirs_output(theirs)], input_gradients=[right])}
    else:
        made = {"ours": Answer([X], gradients={"weight": ours}), "theirs": Answer([X], gradients={"weight": right})}
    return subject(ours_of, theirs, X, phase="backward", what=what, **made, **more)


def theirs_output(theirs):
    return subject(theirs, theirs, X).expected


ROWS = np.arange(6)[:, None]
BLOCK = block(shortcut)
for name, kind, words, s in (
    ("frozen", Kind.FROZEN, "weight gets no gradient in the port", gradient(None, SMALL)),
    (
        "padding_row",
        Kind.PADDING_INDEX,
        "padding_idx 2, expected None: only the gradient of this number's row differs",
        gradient(
            np.where(ROWS == 2, 0, SMALL),
            SMALL,
            ours_of=function("embedding", np.sin, padding_idx=2),
            theirs=function("embedding", np.sin, padding_idx=None),
        ),
    ),
    ("not_frozen", Kind.NOT_FROZEN, "weight gets a gradient in the port alone", gradient(SMALL, None)),
    ("detached", Kind.DETACHED, "no gradient flows back through it in the port", gradient(None, G, "gradient of its input")),
    (
        "not_finite",
        Kind.NOT_FINITE,
        "1 of 18 values of the gradient are NaN",
        gradient(np.where(np.arange(18).reshape(6, 3) == 7, np.nan, SMALL), SMALL),
    ),
    ("zero", Kind.DETACHED, "the gradient is all zero in the port", gradient(0 * SMALL, SMALL)),
    (
        "one_path",
        Kind.DETACHED,
        "no gradient flows back through second: detached",
        gradient(G, 3 * G + np.sin(G), "gradient of its input", BLOCK, BLOCK, gradients=[G], cotangents=[G]),
    ),
    (
        "one_path",
        Kind.DETACHED,
        "no gradient flows back through the input's own place",
        gradient(2 * G + np.sin(G), 3 * G + np.sin(G), "gradient of its input", BLOCK, BLOCK, gradients=[G], cotangents=[G]),
    ),
    ("scaled", Kind.GRADIENT_SCALED, "the gradient is 2 times the reference's", gradient(2 * SMALL, SMALL)),
    ("right_gradient_changed", Kind.PERMUTED, "the right values in another order along axis 1", gradient(SMALL[:, ::-1], SMALL)),
):
    case(BACKWARD, name, kind, words, s)

IDS = [f"{family.name}: {words[:50]}" for family, *_, words in EXPECTED]


@pytest.mark.parametrize("number", range(len(EXPECTED)), ids=IDS)
def test_a_mistake_of_a_module_is_named(number):
    _, _, s, kind, words = EXPECTED[number]
    found = hint(s)
    assert found[0] is kind and words in found[1], found


@pytest.mark.parametrize(
    "family", [WIRING, SIBLINGS, STATISTICS, TABLES, OUTPUTS, ANOTHER_OUTPUT, RANDOM, BACKWARD], ids=lambda f: f.name
)
def test_every_hypothesis_has_a_case_of_its_own(family):
    assert set(family.makers) <= {name for other, name, *_ in EXPECTED if other is family}


@pytest.mark.parametrize("number", range(len(EXPECTED)), ids=IDS)
def test_nothing_is_claimed_of_a_module_that_is_right(number):
    s = EXPECTED[number][2]
    assert (
        hint(replace(s, blame=replace(s.blame, ours=s.blame.theirs), pair=replace(s.pair, port=s.pair.reference), _probes={}))[1]
        == ""
    )


# --- arrays ----------------------------------------------------------------------------------------------------------------

RIGHT_ARRAY = RNG.standard_normal((7, 40)).astype(np.float32)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda a: 3 * a, Kind.SCALED, "every value times 3"),
        (lambda a: a[:, ::-1], Kind.PERMUTED, "the right values in another order along axis 1"),
        (lambda a: np.where(a == a.max(), 9, a), Kind.FEW_ELEMENTS, "1 of 280 values differ, first at"),
        (
            lambda a: np.where(np.arange(40) == 3, a + np.arange(7)[:, None] + 1, a),
            Kind.FEW_ELEMENTS,
            "only index 3 of the last axis differs",
        ),
        (bfloat16, Kind.HALF_PRECISION, "rounded to bfloat16"),
        (lambda a: bfloat16(a * (1 + 1e-2 * np.sin(a))), Kind.HALF_PRECISION, "computed in bfloat16"),
    ],
)
def test_an_array_that_is_changed_in_a_known_way_is_named(change, kind, words):
    found = CHANGED.hint(change(RIGHT_ARRAY), RIGHT_ARRAY)
    assert found[0] is kind and words in found[1]


BOXES = np.concatenate([RNG.uniform(0, 50, (3, 5, 2)), RNG.uniform(60, 99, (3, 5, 2))], -1)
FORMS = {
    "two corners (xyxy)": BOXES,
    "a corner and the size (xywh)": np.concatenate([BOXES[..., :2], BOXES[..., 2:] - BOXES[..., :2]], -1),
    "the centre and the size (cxcywh)": np.concatenate(
        [(BOXES[..., :2] + BOXES[..., 2:]) / 2, BOXES[..., 2:] - BOXES[..., :2]], -1
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), itertools.permutations(FORMS, 2))
def test_boxes_in_another_form_are_named(ours, theirs):
    assert CHANGED.hint(FORMS[ours], FORMS[theirs]) == (Kind.BOX_FORM, f"boxes as {ours}, expected {theirs}")
    assert CHANGED.hint(FORMS[ours] + 1e-3, FORMS[theirs])[0] is not Kind.BOX_FORM
    assert CHANGED.hint(FORMS[ours][..., :3], FORMS[theirs][..., :3])[0] is not Kind.BOX_FORM


@pytest.mark.parametrize(
    "change", [lambda a: a, lambda a: a + 1, lambda a: np.where(a > 0, 2 * a, a), lambda a: np.sort(a.ravel()).reshape(a.shape)]
)
def test_no_change_of_an_array_is_claimed_of_another_one(change):
    assert CHANGED.hint(change(RIGHT_ARRAY), RIGHT_ARRAY)[0] is Kind.UNKNOWN


# --- answers that no plain module computes -----------------------------------------------------------------------------------


class Answering:
    """A network of which a test says what a call gives."""

    roles: dict[str, str] = {}  # noqa: RUF012 (it has no tensors)

    def __init__(self, answer):
        self._answer = answer

    def answer(self, path, call, cotangents=None):
        return self._answer(cotangents)

    def answer_with(self, path, call, change):
        return self._answer(change)


def two_outputs(*kept):
    """A module with two outputs: its input's gradient is the sum of the cotangents of those that are kept."""

    def answer(cotangents):
        given = [one for number, one in enumerate(cotangents) if one is not None and number in kept]
        return Answer(outputs=[SMALL, G], input_gradients=[sum(given) if given else None])

    return Answering(answer)


@pytest.mark.parametrize(("kept", "words"), [((0, 1), ""), ((0,), "no gradient flows back from output 2"), ((), "")])
def test_one_of_two_outputs_that_is_detached_is_named(kept, words):
    s = gradient(SMALL, 2 * SMALL)
    pair = replace(s.pair, port=two_outputs(*kept), reference=two_outputs(0, 1), cotangents=[SMALL, 2 * SMALL])
    found = list(DETACHED.hypotheses(replace(s, pair=pair, path="", phase="backward")))
    assert [one.words.partition(" in the port")[0] for one in found] == ([words] if words else [])


@pytest.mark.parametrize("rounded", [True, False])
def test_weights_in_low_precision_are_named(rounded):
    """The port's output is that of rounded weights, or leans nowhere."""
    exact = RNG.standard_normal((4, 8, 16))
    biased = exact * (1 + 0.02 * RNG.standard_normal((1, 8, 1)))
    noise = 1e-4 * RNG.standard_normal(exact.shape)
    s = gradient(SMALL, SMALL)
    module = Plain(Layer("own", {}, "Own"), lambda x, s, w, inside: x, {"weight": SMALL})
    network = PlainNetwork(module)
    blame = replace(
        s.blame, what="output", ours=Answer([biased + noise if rounded else exact + noise]), theirs=Answer([exact - noise]),
        right=Answer([exact]),
    )  # fmt: skip
    pair = replace(
        s.pair,
        port=network,
        reference=network,
        truth=Answering(lambda change: Answer([biased])),
        draws=(network,),
        dtype="bfloat16",
    )
    kinds = [one.kind for one in GENERAL.hypotheses(replace(s, pair=pair, path="", phase="forward", blame=blame, _probes={}))]
    assert (Kind.AUTOCAST_LIST in kinds) == rounded


def test_a_normalisation_with_ones_and_zeros_is_not_said_to_do_nothing():
    """What gives its input back with these weights alone is something else, which another one shows."""
    ones = {"weight": np.ones((4, 1, 1))}
    scaling = Plain(Layer("own", {}, "Own"), lambda x, s, w, inside: x * w["weight"], weights=ones)
    for ours, words in ((scaling, ""), (function("own", lambda x: x, "Own"), "it gives its input back")):
        s = subject(ours, Plain(Layer("own", {}, "Own"), lambda x, s, w, inside: np.sin(x) + 2, weights=ones), X)
        assert next(iter(GENERAL.makers["gives_input_back"](s)), None) is None if not words else GENERAL.hint(s)[1] == words
