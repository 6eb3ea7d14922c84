"""python -m alignment.compare: anyone's records, the strict rules, and no file runs code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from alignment.record import open_record, save_record
from alignment.record_diff import main
from tests.conftest import ROOT
from tests.test_records import UNEQUAL, Bomb, npy

A = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)


def compared(tmp_path, ours, theirs, *flags):
    save_record(tmp_path / "a.npy", ours)
    np.savez(tmp_path / "b.npz", **theirs)
    return main([str(tmp_path / "a.npy"), str(tmp_path / "b.npz"), *flags])


def test_equal_records_of_two_layouts_agree(tmp_path, capsys):
    arrays = {"x": A, "f": np.asfortranarray(A), "i": np.arange(3), "t": np.array(["a", "b"]), "s": np.array(2.5), "e": A[:0]}
    assert compared(tmp_path, arrays, arrays | {"f": A}, "--json", str(tmp_path / "out.json")) == 0
    assert "6 of 6 arrays agree" in capsys.readouterr().out
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["passed"] and [row["name"] for row in report["arrays"]] == list(arrays)


def test_rounding_passes_and_more_does_not(tmp_path):
    assert compared(tmp_path, {"x": A}, {"x": A * np.float32(1 + 1e-6)}) == 0
    assert compared(tmp_path, {"x": A}, {"x": A * np.float32(1 + 1e-4)}) == 1
    assert compared(tmp_path, {"x": A}, {"x": A * np.float32(1 + 1e-4)}, "--rtol", "1e-3") == 0
    one = A.copy()
    one[7, 7] += 0.003
    assert compared(tmp_path, {"x": A}, {"x": one}) == 1


@pytest.mark.parametrize("case", [case for case in UNEQUAL if not case.startswith("missing")])
def test_unequal_records_differ(tmp_path, capsys, case):
    a, b = UNEQUAL[case]
    assert compared(tmp_path, {"x": a}, {"x": b}) == 1
    assert "FAILED" in capsys.readouterr().out


def test_every_difference_has_its_own_line(tmp_path, capsys):
    nan = A.copy()
    nan[0, :3] = np.nan, np.inf, -np.inf
    ours = {"left": A, "shape": A, "type": A, "nan": nan, "both": nan, "int": np.array([-128], np.int8), "text": np.array(["a"])}
    theirs = {
        "right": A,
        "shape": A.T,
        "type": A.astype(np.float64),
        "nan": A,
        "both": nan,
        "int": np.array([0], np.int8),
        "text": np.array(["b"]),
    }
    assert compared(tmp_path, ours, theirs) == 1
    out = capsys.readouterr().out
    for line in (
        "only in the first record",
        "only in the second record",
        "shape (300, 400) in the first, (400, 300) in the second",
        "type float32 in the first, float64 in the second",
        "NaN or infinite values: 3 in the first",
        "NaN or infinite values: 3 in the first and 3 in the second",
        "1 of 1 values differ, first at flat index 0",
    ):
        assert line in out, out


REFUSED = {
    "nothing": (b"", "is empty"),
    "text": (b"hello", "is not a record"),
    "one array": (npy(A), "one array of type float32"),
    "objects": (npy(np.array({"a": np.array([None])}, dtype=object)), "'a' is an array of objects"),
    "not arrays": (npy(np.array({"a": 1}, dtype=object)), "'a' is a int, not an array"),
    "not a dictionary": (npy(np.array([1, 2], dtype=object)), "object array of shape (2,)"),
    "cut short": (npy(np.array({"a": A}, dtype=object))[:-9000], "ends too early|damaged"),
    "a broken archive": (b"PK\x03\x04 broken", "damaged"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "is not a record"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_in_one_line(tmp_path, capsys, case):
    content, message = REFUSED[case]
    (tmp_path / "bad.npy").write_bytes(content)
    save_record(tmp_path / "good.npy", {"a": A})
    assert main([str(tmp_path / "bad.npy"), str(tmp_path / "good.npy")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert any(part in error for part in message.split("|")), error


def test_two_empty_records_and_wrong_flags_are_refused(tmp_path, capsys):
    save_record(tmp_path / "e.npy", {})
    assert main([str(tmp_path / "e.npy"), str(tmp_path / "e.npy")]) == 2
    assert "nothing to compare" in capsys.readouterr().err
    assert main([str(tmp_path / "gone.npy"), str(tmp_path / "e.npy")]) == 2
    assert main([str(tmp_path / "e.npy"), str(tmp_path / "e.npy"), "--rtol", "-1"]) == 2


def test_a_pickle_bomb_does_not_go_off(tmp_path, capsys):
    trace = tmp_path / "exploded"
    np.save(tmp_path / "bomb.npy", np.array({"x": Bomb(trace)}, dtype=object), allow_pickle=True)
    assert main([str(tmp_path / "bomb.npy"), str(tmp_path / "bomb.npy")]) == 2
    assert "it asks for posix.system, which could run code" in capsys.readouterr().err and not trace.exists()


def test_reprod_logs_own_records_are_read(tmp_path):
    import reprod_log

    logger = reprod_log.ReprodLogger()
    logger.add("logits", A)
    logger.save(str(tmp_path / "theirs.npy"))
    record = open_record(tmp_path / "theirs.npy")
    assert np.array_equal(record["logits"].whole(), A)


def command(*args):
    return subprocess.run(
        [sys.executable, "-m", "alignment.compare", *map(str, args)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_million_elements_take_two_seconds_at_most(tmp_path):
    big = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    for name in ("a", "b"):
        save_record(tmp_path / f"{name}.npy", {"x": big})
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert command(tmp_path / "a.npy", tmp_path / "b.npy").returncode == 0
        times.append(time.perf_counter() - start)
    assert min(times) < 2


def test_a_large_record_is_streamed(tmp_path):
    """256 MiB a record: the peak stays far below one of them. (2 GiB is measured in docs/benchmarks.md.)"""
    big = np.zeros(64 * 2**20, np.float32)
    big[::1000] = 1
    for name in ("a", "b"):
        save_record(tmp_path / f"{name}.npy", {"x": big})
    code = (
        "import sys; from alignment.record_diff import main; "
        f"status = main([{str(tmp_path / 'a.npy')!r}, {str(tmp_path / 'b.npy')!r}]); "
        # VmHWM, since a child's ru_maxrss begins at its parent's.
        "print(next(int(x.split()[1]) // 1024 for x in open('/proc/self/status') if x.startswith('VmHWM'))); sys.exit(status)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=os.environ, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[-1]) < 200, "MiB"
