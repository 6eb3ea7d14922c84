"""Records and the strict rules: everything that reprod_log wrongly passes fails here, and no file runs code."""

import io
import os
import pickle

import numpy as np
import pytest
import reprod_log

from alignment import tolerance
from alignment.compare import Group, Lanes, Leeway, judge_equal, judge_measured, strict_problem, summation32
from alignment.record import load_record, save_record
from alignment.report.table import float32_ratio
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import atomic_open, ensure_writable_dir

A = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_reprod_log_reads_our_records_and_we_read_its(tmp_path):
    arrays = {"logits": A, "loss": np.float32(3.5).reshape(())}
    save_record(tmp_path / "ours.npy", arrays)
    helper = reprod_log.ReprodDiffHelper()
    theirs = helper.load_info(str(tmp_path / "ours.npy"))
    assert theirs.keys() == arrays.keys() and all(np.array_equal(theirs[k], arrays[k]) for k in arrays)
    logger = reprod_log.ReprodLogger()
    logger.add("logits", A)
    logger.save(str(tmp_path / "theirs.npy"))
    assert np.array_equal(load_record(tmp_path / "theirs.npy")["logits"], A)
    np.savez(tmp_path / "x.npz", logits=A)
    assert np.array_equal(load_record(tmp_path / "x.npz")["logits"], A)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_malicious_record_runs_nothing(tmp_path):
    trace = tmp_path / "exploded"
    np.save(tmp_path / "bomb.npy", np.array({"logits": Bomb(trace)}, dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match=r"bomb.npy is not read: it asks for posix.system"):
        load_record(tmp_path / "bomb.npy")
    assert not trace.exists()
    reprod_log.ReprodDiffHelper().load_info(str(tmp_path / "bomb.npy"))
    assert trace.exists(), "reprod_log runs it, or this test shows nothing"


def npy(value, **options):
    buffer = io.BytesIO()
    np.save(buffer, value, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"text", "not a record"),
        (npy(A), "one array of type float32"),
        (npy(np.array({"a": 1}, dtype=object)), "'a' is a int, not an array of numbers"),
        (npy(np.array([1, 2], dtype=object)), r"object array of shape \(2,\), not a dictionary"),
        (npy(np.array({"a": np.array([None])}, dtype=object)), "'a' is an array of objects, not of numbers"),
        (npy(np.array({"a": A}, dtype=object))[:-20], "ends too early|damaged|truncated"),
        (pickle.dumps({"a": A}), "not a record"),
        (b"PK\x03\x04 broken", "damaged"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "r.npy").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_record(tmp_path / "r.npy")


NAN = np.array([1.0, np.nan], np.float32)
INF = np.array([np.inf, 1.0], np.float32)
# What reprod_log 1.0.1 passes, wrongly.
UNEQUAL = {
    "NaN on both sides": (NAN, NAN),
    "NaN on one side": (NAN, np.ones(2, np.float32)),
    "a wrong element beside infinity": (INF, np.array([np.inf, 2.0], np.float32)),
    "infinity on both sides": (INF, INF),
    "a transposed vector": (A[:1].T.copy(), A[:1]),
    "a transposed matrix": (A.T.copy(), A),
    "a broadcast row": (A[:1], A),
    "a broadcast scalar": (np.float32(0).reshape(()), np.zeros(1000, np.float32)),
    "another type": (A.astype(np.int64), A),
    "one element in 1e5": (np.zeros(100_000, np.float32), np.eye(1, 100_000, 7, dtype=np.float32)[0] * np.float32(0.05)),
    "integers that wrap around": (np.array([-128], np.int8), np.array([0], np.int8)),
    "missing in the port": (None, A),
    "missing in the reference": (A, None),
    "text": (np.array(["a", "b"]), np.array(["a", "c"])),
}


@pytest.mark.parametrize("case", UNEQUAL)
def test_the_strict_rules_pass_nothing_unequal(case):
    paddle, ref = UNEQUAL[case]
    quantity = judge_equal(case, paddle, ref)
    assert not quantity.passed and quantity.reason


@pytest.mark.parametrize("value", [A, np.array([True, False]), np.array(["x"]), np.array(3)])
def test_equal_passes(value):
    assert judge_equal("same", value, value.copy()).passed


@pytest.mark.parametrize("case", [case for case in UNEQUAL if case not in ("text", "another type", "integers that wrap around")])
def test_measured_quantities_follow_the_strict_rules_too(case):
    paddle, ref = UNEQUAL[case]
    wide = lambda x: None if x is None else x.astype(np.float64)  # noqa: E731
    assert not judge_measured(case, Lanes(port32=paddle, reference32=ref, reference64=wide(ref), port64=wide(paddle))).passed


def test_a_mask_of_minus_infinity_is_equal_where_all_lanes_have_it():
    truth = np.array([1.0, -np.inf, 3.0])
    narrow = truth.astype(np.float32)
    assert judge_measured("q", Lanes(port32=narrow, reference32=narrow, reference64=truth, port64=truth)).passed
    for other in ([1.0, 2.0, 3.0], [-np.inf, -np.inf, 3.0], [1.0, -np.inf, 3.1], [1.0, np.inf, 3.0], [1.0, np.nan, 3.0]):
        wrong = np.array(other)
        lanes = Lanes(port32=wrong.astype(np.float32), reference32=narrow, reference64=truth, port64=wrong)
        assert not judge_measured("q", lanes).passed, other
    nothing = np.full(3, -np.inf)
    assert not judge_measured("q", Lanes(port64=nothing, reference64=nothing)).passed, "nothing real to compare"


def measured(error32=0.0, error64=0.0, noise=1e-6, **leeway):
    rng = np.random.default_rng(0)
    truth, a, b, c = (rng.normal(size=1000) for _ in range(4))
    lanes = Lanes(
        port32=(truth + error32 * a).astype(np.float32),
        reference32=(truth + noise * b).astype(np.float32),
        port64=truth + error64 * c,
        reference64=truth,
    )
    return judge_measured("q", lanes, Leeway(**leeway))


def test_the_floor_decides():
    assert measured(error32=5e-6).passed and not measured(error32=2e-5).passed
    assert measured(error32=2e-5, noise=5e-6).passed, "a noisier reference allows more"
    assert measured(error32=2e-4, flips=3).passed and not measured(error32=2e-1, flips=3).passed
    assert measured(error32=2e-4, float32=False).passed
    assert measured(error64=5e-13).passed and not measured(error64=5e-12).passed
    assert measured(error64=5e-12, pooled64=1e-12).passed and not measured(error64=5e-11, pooled64=1e-12).passed
    assert measured(error64=1e-3).reason.startswith("exact mode differs by 1.")


def test_every_reason_of_a_failure_is_kept():
    """A float32 error of 1e20 once ended as failed with the reason "zero but for rounding"."""
    noise = np.full(10, 1e-20)
    lanes = Lanes(
        port32=np.full(10, 1e20, np.float32), reference32=noise.astype(np.float32), port64=noise, reference64=noise, ulp64=2 * noise
    )
    quantity = judge_measured("q", lanes)
    assert not quantity.passed and quantity.noise and quantity.flips == 0
    assert quantity.reason.startswith("float32 error 1.0e+40 is ") and "zero but for rounding" in quantity.reason
    assert quantity.as_json()["noise"] is True and quantity.as_json()["paddle_error"] == quantity.port_error


def test_noise_and_flips_are_told_by_fields_not_by_prose():
    rows = [measured(), measured(flips=2), measured(error32=1e-3)]
    assert [(row.noise, row.flips) for row in rows] == [(False, 0), (False, 2), (False, 0)]
    assert float32_ratio(rows[:2]) == pytest.approx(rows[0].port_error / rows[0].reference_error)
    assert float32_ratio(rows) > 100, "a failing quantity counts, whatever its reason says"
    group = Group("g")
    for row in rows[:2]:
        group.add(row)
    assert group.rows()[0].flips == 2 and group.rows()[0].passed


def test_a_float32_lane_that_claims_to_be_exact_is_refused():
    lanes = Lanes(port64=A, reference64=A)
    assert judge_measured("q", lanes).reason == "float64 run gave type float32"
    assert judge_measured("q", Lanes()).reason == "nothing to compare"


def test_strict_problem_names_what_is_wrong():
    assert strict_problem(A, A) == ""
    assert strict_problem(A, A.T) == "shape (3, 4) in the port, (4, 3) in the reference"
    assert strict_problem(NAN, np.ones(2, np.float32)) == "1 NaN or infinite value in the port"


def test_atomic_files_are_whole_or_absent(tmp_path):
    target = tmp_path / "f"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="midway"), atomic_open(target, "w") as file:  # noqa: PT012
        file.write("half")
        raise RuntimeError("midway")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
    with atomic_open(target, "w") as file:
        file.write("new")
    assert target.read_text() == "new"
    with pytest.raises(UserError, match="cannot write"), atomic_open(tmp_path / "gone" / "f"):
        pass
    with pytest.raises(UserError, match="cannot write in directory"):
        ensure_writable_dir(target / "below_a_file")


def test_the_order_of_summation_is_no_mistake():
    """Paddle's float32 mean over 222 x 222 places was off by 2.5e-6, torch's by 8e-8; coarser numbers than that are found."""
    allowed = summation32([(2, 4, 222, 222)], across=False)
    assert measured(error32=3e-6, noise=1e-8, summation32=allowed).passed
    assert not measured(error32=3e-6, noise=1e-8).passed
    assert not measured(error32=1e-4, noise=1e-8, summation32=allowed).passed, "float16 is coarser"
    assert summation32([(8, 100, 3)], across=True) == pytest.approx(800**0.5 * 2**-24), "samples too, in training"
    assert summation32([(), (1,)], across=False) == 2**-24
    assert summation32([(2, 10**9)], across=True) == tolerance.SUMMATION_32
