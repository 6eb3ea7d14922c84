"""Hypotheses about quantised graphs (``alignment.localize.hypotheses.quantised``), on plain arrays."""

import numpy as np
import pytest
from onnx import helper

from alignment.finding import NO_HINT
from alignment.frameworks._onnx_graph import OnnxNode
from alignment.kinds import Kind
from alignment.localize.hypotheses.quantised import LAYERED, QUANTISED, Layered
from alignment.localize.quantised import QuantisedTensor
from alignment.models.quantised import Quantiser

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((6, 6, 3, 3)) * np.array([0.3, 0.5, 1.0, 1.7, 2.9, 5.0]).reshape(6, 1, 1, 1)
SCALE = np.abs(WEIGHT).max((1, 2, 3)) / 127
CONV = helper.make_node("Conv", ["x", "w", "b"], ["y"])


def spread(scale, axis=0, ndim=4):
    return np.reshape(scale, [-1 if place == axis else 1 for place in range(ndim)]) if np.size(scale) > 1 else scale


def rounded(array, scale, axis=0):
    return np.rint(array / spread(scale, axis, array.ndim))


def weight(levels, scale, zero=0, axis=0, slot=1, ends=(-128, 127), right=WEIGHT, **more):
    reader = OnnxNode(CONV, 0, None, {})
    zero = np.full(np.shape(scale), zero, np.int64)
    made = Quantiser("w", reader, np.asarray(scale, float), zero, axis, ends, levels.astype(np.int64), reader, slot, right=right)
    made.earlier = more.pop("earlier", [])
    return QuantisedTensor(made, more.pop("others", []), more.pop("product", None), more.pop("meant", 0))


def activation(x, scale, zero, back=None, ends=(0, 255), others=()):
    node = OnnxNode(helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), 0, None, {})
    made = Quantiser("x", node, np.float64(scale), np.int64(zero), 1, ends, right=x)
    pair = (scale, zero) if back is None else back
    constants = {"bs": np.float64(pair[0]), "bz": np.int64(pair[1])}
    made.back = [OnnxNode(helper.make_node("DequantizeLinear", ["q", "bs", "bz"], ["y"]), 1, None, constants)]
    return QuantisedTensor(made, list(others))


ONE = np.abs(WEIGHT).max() / 127
SWAPPED = SCALE[[0, 1, 4, 3, 2, 5]]
OTHER = RNG.permutation(SCALE) * 1.31
BIAS = RNG.standard_normal(6)
PRODUCT = 0.02 * SCALE
X = RNG.standard_normal((4, 5, 6)) * 2
FITS = (X.max() - X.min()) / 250, round(-X.min() / ((X.max() - X.min()) / 250))
WIDE = activation(X, *FITS).one
NARROW = activation(X / 50, FITS[0] / 50, FITS[1]).one
WEIGHTS = weight(rounded(WEIGHT * 1.31, OTHER), OTHER, right=WEIGHT * 1.31).one
CASES = {
    "twice": (
        weight(rounded(rounded(WEIGHT, 5 * SCALE) * spread(5 * SCALE), SCALE), SCALE, earlier=[5 * SCALE]),
        Kind.QUANTISED_TWICE,
    ),
    "axis": (weight(rounded(WEIGHT, SCALE), SCALE, axis=1), Kind.QUANTISED_AXIS),
    "exchanged": (weight(rounded(WEIGHT, SCALE), SWAPPED), Kind.QUANTISED_SCALE),
    "another_layers_scale": (weight(rounded(WEIGHT, SCALE), OTHER, others=[("other", WEIGHTS)]), Kind.QUANTISED_SCALE),
    "zero_point": (weight(rounded(WEIGHT, SCALE), SCALE, zero=3), Kind.ZERO_POINT),
    "bias_scale": (weight(rounded(BIAS, PRODUCT), SCALE, slot=2, right=BIAS, product=PRODUCT), Kind.QUANTISED_SCALE),
    "per_tensor": (weight(rounded(WEIGHT, ONE), ONE), Kind.QUANTISED_PER_TENSOR),
    "factor": (weight(rounded(WEIGHT, SCALE), 1.5 * SCALE), Kind.QUANTISED_SCALE),
    "read_back_otherwise": (activation(X, *FITS, back=(1.3 * FITS[0], FITS[1])), Kind.QUANTISED_SCALE),
    "calibrated_on_others": (activation(X, FITS[0] / 3, FITS[1]), Kind.CALIBRATION),
}
MORE = {
    "scales along the other axis": (weight(rounded(WEIGHT, SCALE, 1), SCALE, axis=1), Kind.QUANTISED_AXIS, "expected axis 0"),
    "signed as unsigned": (weight(rounded(WEIGHT, SCALE) % 256, SCALE, ends=(0, 255)), Kind.ZERO_POINT, "the levels are unsigned"),
    "no zero point": (weight(rounded(WEIGHT, SCALE) + 128, SCALE, ends=(0, 255)), Kind.ZERO_POINT, "zero point 0, expected 128"),
    "zero point of an activation": (activation(X, FITS[0], 0), Kind.ZERO_POINT, "would hold"),
    "read back": (activation(X, *FITS, back=(FITS[0], FITS[1] + 5)), Kind.ZERO_POINT, "read back with zero point"),
    "another activation's scale": (activation(X / 50, *FITS, others=[("other", WIDE)]), Kind.QUANTISED_SCALE, "other"),
    "a bias with its own scale": (weight(rounded(BIAS, SCALE), SCALE, slot=2, right=BIAS, product=PRODUCT), Kind.QUANTISED_SCALE,
                                  "integer kernels"),
}  # fmt: skip
SOUND = {
    "per channel": weight(rounded(WEIGHT, SCALE), SCALE),
    "with a zero point": weight(rounded(WEIGHT, SCALE) + 100, SCALE, zero=100, ends=(0, 255)),
    "activation": activation(X, *FITS),
    "activation with another's scale": activation(X, *FITS, others=[("other", NARROW)]),
    "bias": weight(rounded(BIAS, PRODUCT), PRODUCT, slot=2, right=BIAS, product=None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_by_its_own_hypothesis(name):
    subject, kind = CASES[name]
    assert QUANTISED.hint(subject)[0] is kind, QUANTISED.hint(subject)
    hypothesis = QUANTISED.makers[name]
    QUANTISED.remove(name)
    try:
        assert QUANTISED.hint(subject)[0] is not kind or name in ("exchanged", "another_layers_scale", "bias_scale")
    finally:
        QUANTISED.register(name, hypothesis)


@pytest.mark.parametrize("name", MORE)
def test_more_of_each_are_named(name):
    subject, kind, words = MORE[name]
    found = QUANTISED.hint(subject)
    assert found[0] is kind and words in found[1], found


@pytest.mark.parametrize("name", SOUND)
def test_sound_rounding_is_silent(name):
    assert QUANTISED.hint(SOUND[name]) == NO_HINT


def test_layers_left_out_and_layers_to_be_kept():
    assert LAYERED.hint(Layered("Conv", False, False, 3))[0] is Kind.NOT_QUANTISED
    assert LAYERED.hint(Layered("Conv", True, True, 3))[0] is Kind.QUANTISED_EXTRA
    for sound in (Layered("Conv", True, False, 3), Layered("Conv", False, True, 3), Layered("Gemm", False, False, 0)):
        assert LAYERED.hint(sound) == NO_HINT
