"""Properties of every comparison of two arrays, tried on numbers that hypothesis draws: of any size, type and shape."""

from __future__ import annotations

import io
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from alignment import tolerance
from alignment.compare import Lanes, judge_close, judge_equal, judge_measured
from alignment.distance import Distance, norm
from alignment.record import OnDisk
from alignment.record_diff import compare_records

QUICK = settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
FLOATS = ("<f2", "<f4", "<f8", ">f4", ">f8", np.longdouble)
COMPLEX = ("<c8", "<c16")
WHOLE = ("?", "<i1", "<u1", "<i4", "<i8", "<u8", "S3", "U2")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@pytest.fixture(autouse=True)
def no_warning():
    """An overflow on the way would be a warning of numpy's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def on_disk(array):
    fortran = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
    data = array.tobytes("F" if fortran else "C")
    return OnDisk(array.shape, array.dtype, fortran, lambda: io.BytesIO(data))


def row(a, b, rtol=tolerance.RECORDS_RTOL):
    return compare_records({"x": on_disk(np.asarray(a))}, {"x": on_disk(np.asarray(b))}, rtol)[0]


def finite(kinds, shape=SHAPES):
    return hnp.arrays(
        st.sampled_from(kinds).map(np.dtype), shape, elements={"allow_nan": False, "allow_infinity": False, "allow_subnormal": True}
    )


def any_array(shape=SHAPES):
    return st.one_of(
        hnp.arrays(st.sampled_from((*FLOATS, *COMPLEX)).map(np.dtype), shape),
        hnp.arrays(st.sampled_from(WHOLE).map(np.dtype), shape),
    )


@QUICK
@given(st.one_of(finite((*FLOATS, *COMPLEX)), hnp.arrays(st.sampled_from(WHOLE).map(np.dtype), SHAPES)))
@example(np.array([1.7e308, -1.7e308]))
@example(np.array([5e-324]))
@example(np.array([], np.float32))
def test_an_array_agrees_with_itself_in_any_order_of_bytes_and_axes(array):
    assert row(array, array).passed
    assert row(array, array, 0.0).passed
    assert row(array, np.asfortranarray(array)).passed
    assert row(array, array.astype(array.dtype.newbyteorder())).passed
    assert row(array, array).relative_l2 in (0, None)


@QUICK
@given(any_array(), st.data())
def test_a_nan_never_passes(array, data):
    if array.dtype.kind not in "fc" or array.size == 0:
        return
    other = array.copy()
    place = data.draw(st.integers(0, array.size - 1))
    other.reshape(-1)[place] = data.draw(st.sampled_from([np.nan, *([complex(0, np.nan)] if array.dtype.kind == "c" else [])]))
    for a, b in ((other, array), (array, other), (other, other)):
        found = row(a, b)
        assert not found.passed and "NaN or infinite values" in found.reason
        assert not judge_equal("x", a, b).passed
        assert not judge_close("x", a, b, 0.5).passed


@QUICK
@given(finite(FLOATS, hnp.array_shapes(max_dims=2, max_side=4)), st.data())
def test_plus_infinity_and_infinity_on_one_side_never_pass(array, data):
    place = data.draw(st.integers(0, array.size - 1))
    plus, minus = array.copy(), array.copy()
    plus.reshape(-1)[place], minus.reshape(-1)[place] = np.inf, -np.inf
    for a, b in ((plus, plus), (plus, array), (array, plus), (minus, array), (array, minus), (plus, minus), (minus, plus)):
        assert not row(a, b).passed
    masked = row(minus, minus)
    assert masked.passed == (array.size > 1)
    assert "minus infinity in both" in masked.reason


@QUICK
@given(finite(("<f8",), hnp.array_shapes(min_dims=1, max_dims=1, max_side=6)), st.integers(-1000, 900), st.floats(-3, 3))
@example(np.array([1.0, 2.0]), 900, 1e-3)
@example(np.array([1.0, 2.0]), -1000, 1e-3)
def test_the_verdict_does_not_depend_on_the_size_of_the_numbers(array, power, share):
    """Scaled by a power of two nothing changes; squares of float64 overflow from 1e154 and vanish below 1e-162."""
    exponents = np.frexp(array)[1]
    array = np.where((abs(exponents) < 20) & (array != 0), array, 1.0)  # so that every scaled number is a normal one
    other = array.copy()
    other[0] += share * array[0]
    scaled, of_other = np.ldexp(array, power), np.ldexp(other, power)
    at_one, found = row(other, array), row(of_other, scaled)
    assert found.passed == at_one.passed
    assert found.relative_l2 == pytest.approx(at_one.relative_l2, rel=1e-12)
    assert found.cosine == pytest.approx(at_one.cosine, abs=1e-12)
    assert judge_close("x", of_other, scaled, 1e-5).passed == judge_close("x", other, array, 1e-5).passed
    lanes = [Lanes(port64=a, reference64=b) for a, b in ((other, array), (of_other, scaled))]
    assert judge_measured("x", lanes[0]).passed == judge_measured("x", lanes[1]).passed


@settings(QUICK, max_examples=100)
@given(finite((*FLOATS, *COMPLEX), hnp.array_shapes(min_dims=1, max_dims=2, max_side=4)), st.data())
def test_what_passes_is_near(array, data):
    """The exact distance, in fractions of Python, decides; nothing that is further off than the bounds passes."""
    other = data.draw(finite((array.dtype,), st.just(array.shape)))
    if data.draw(st.booleans()):
        other = np.where(data.draw(hnp.arrays(bool, array.shape)), array, other).astype(array.dtype)
    found = row(other, array)
    squares, whole = (sum(map(_square, values.reshape(-1).tolist())) for values in (_exact(other) - _exact(array), _exact(array)))
    share = _root(squares / whole) if whole else (0.0 if squares == 0 else math.inf)
    if share > tolerance.RECORDS_RTOL * (1 + 1e-9):
        assert not found.passed
    if squares == 0:
        assert found.passed and found.relative_l2 == 0
    assert found.relative_l2 == pytest.approx(share, rel=1e-9)


def _exact(array):
    """Numbers as pairs of fractions in an object array, so that nothing is rounded."""
    parts = np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array
    whole = [Fraction(*one.as_integer_ratio()) for one in parts.astype(np.longdouble).reshape(-1)]
    found = np.empty(len(whole), object)
    found[:] = whole
    return found


def _root(one):
    """The square root of a fraction of any size; infinity where no float holds it."""
    power = (one.numerator.bit_length() - one.denominator.bit_length()) // 2
    try:
        return math.ldexp(math.sqrt(one / Fraction(4) ** power), power)
    except OverflowError:
        return math.inf


def _square(one):
    return one * one


@QUICK
@given(hnp.arrays(st.sampled_from(("?", "<i1", "<i8", "<u8")).map(np.dtype), hnp.array_shapes(max_side=4)), st.data())
def test_whole_numbers_and_booleans_pass_if_every_value_is_equal(array, data):
    other = data.draw(hnp.arrays(array.dtype, array.shape))
    found = row(other, array)
    assert found.passed == np.array_equal(other, array)
    exact = [abs(int(a) - int(b)) for a, b in zip(other.reshape(-1), array.reshape(-1), strict=True)]
    assert found.max_abs_diff == pytest.approx(max(exact)) and found.mean_abs_diff == pytest.approx(sum(exact) / len(exact))


@QUICK
@given(any_array(), any_array())
def test_other_shapes_and_types_never_pass(a, b):
    found = row(a, b)
    if a.dtype.newbyteorder("=") != b.dtype.newbyteorder("="):
        assert not found.passed
    if a.shape != b.shape and not (a.size == b.size == 1 and () in (a.shape, b.shape)):
        assert not found.passed and "shape" in found.reason


def test_a_scalar_beside_one_element_is_compared_and_said():
    for shape in ((1,), (1, 1), (1, 1, 1)):
        for a, b in ((np.array(2.5), np.full(shape, 2.5)), (np.full(shape, 2.5), np.array(2.5))):
            found = row(a, b)
            assert found.passed and found.reason == f"one number, of shape {a.shape} in the first and {b.shape} in the second"
    assert not row(np.array(2.5), np.array([2.6])).passed
    assert not row(np.array([2.5]), np.array([[2.5]])).passed, "two arrays of other shapes"
    assert not row(np.ones((4, 1)), np.ones((1, 4))).passed and not row(np.array(1.0), np.ones(4)).passed


CASES = {  # first, second, whether they agree
    "squares that overflow": (np.full(4, 1e200), np.full(4, 2e200), False),
    "squares that overflow, and rounding": (np.full(4, 1e200), np.full(4, 1e200 * (1 + 1e-9)), True),
    "a difference that overflows": (np.array([1.7e308]), np.array([-1.7e308]), False),
    "a norm that overflows": (np.full(9, 1.7e308), np.full(9, 1.6e308), False),
    "squares that vanish": (np.full(4, 1e-200), np.full(4, 2e-200), False),
    "subnormals": (np.array([5e-324]), np.array([1e-323]), False),
    "a subnormal and nothing": (np.array([5e-324]), np.zeros(1), False),
    "flushed to zero beside others": (np.array([1.0, 1e-310]), np.array([1.0, 0.0]), True),
    "subnormals of float32": (np.full(3, 1e-40, np.float32), np.full(3, 1.1e-40, np.float32), False),
    "zeros of either sign": (np.array([0.0]), np.array([-0.0]), True),
    "imaginary parts": (np.array([1 + 1j]), np.array([1 + 2j]), False),
    "imaginary parts that overflow": (np.array([1 + 1e200j]), np.array([1 + 2e200j]), False),
    "whole numbers beyond 2 ** 53": (np.array([2**53 + 1]), np.array([2**53]), False),
    "the ends of int64": (np.array([-(2**63)]), np.array([2**63 - 1]), False),
    "booleans": (np.array([True]), np.array([False]), False),
    "long doubles": (np.array([np.longdouble("1e4000")]), np.array([np.longdouble("2e4000")]), False),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_is_judged_on_purpose(name):
    a, b, agree = CASES[name]
    found = row(a, b)
    assert found.passed is agree, found
    assert not math.isnan(found.relative_l2) and (found.relative_l2 > 0) == (
        name != "zeros of either sign" and not np.array_equal(a, b)
    )
    assert row(a, a).passed and row(b, b).passed
    if a.dtype.kind in "fc" and name != "long doubles":
        assert judge_close("x", a, b, 1e-5).passed is agree
        assert judge_equal("x", a, b).passed is bool((a == b).all())


def test_the_former_sums_pass_what_they_should_not():
    """The check's own check: with plain squares the distance is NaN or 0."""
    with np.errstate(all="ignore"):
        for name in ("squares that overflow", "squares that vanish"):
            a, b, _ = CASES[name]
            share = np.sqrt(((a - b) @ (a - b)) / (b @ b))
            assert not share > tolerance.RECORDS_RTOL, "NaN is above nothing, and so is 0 / 0"


def test_empty_arrays_pass_with_a_word_and_reach_the_engine():
    empty = np.zeros((0, 3))
    assert row(empty, empty).reason == "empty: no value to compare" and row(empty, empty).passed
    assert not row(empty, np.zeros((0, 4))).passed
    assert judge_measured("x", Lanes(port64=empty, reference64=empty)).passed
    assert judge_close("x", empty, empty, 1e-5).passed and judge_equal("x", empty, empty).passed


@QUICK
@given(st.lists(finite(("<f8",), hnp.array_shapes(min_dims=1, max_dims=1, max_side=5)), min_size=1, max_size=4))
def test_blocks_change_nothing(pieces):
    whole = np.concatenate(pieces)
    in_pieces, at_once = Distance(whole.size, whole.dtype), Distance(whole.size, whole.dtype)
    for piece in pieces:
        in_pieces.add(piece, np.zeros_like(piece))
    at_once.add(whole, np.zeros_like(whole))
    assert in_pieces.largest.number() == at_once.largest.number() == np.abs(whole).max()
    assert in_pieces.squares[0].root().number() == pytest.approx(at_once.squares[0].root().number(), rel=1e-12)
    assert at_once.squares[0].root().number() == pytest.approx(norm(whole), rel=1e-12)
    assert in_pieces.first == at_once.first and in_pieces.differing == at_once.differing


@pytest.mark.parametrize("lane", ["ulp32", "ulp64"])
def test_a_floor_that_is_not_finite_lets_nothing_pass(lane):
    """One-ulp changes that overflow say nothing of how far a port may be away."""
    right, wrong = np.array([1.0, 2.0]), np.array([9.0, 9.0])
    lanes = {
        "port32": wrong.astype(np.float32), "reference32": right.astype(np.float32), "port64": wrong, "reference64": right,
        "ulp32": right.astype(np.float32), "ulp64": right,
    }  # fmt: skip
    lanes[lane] = np.array([1.0, np.inf]).astype(lanes[lane].dtype)
    row = judge_measured("x", Lanes(**lanes))
    assert (not row.passed and "not finite" in row.reason) or "infinite" in row.reason
