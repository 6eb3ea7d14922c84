"""Two record files from anyone, compared by the strict rules and block by block: ``python -m alignment.compare A.npy B.npy``.

Nothing that a file carries is run, and neither file is held in memory: an array is read in blocks of a few megabytes.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.record import OnDisk, open_record
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open

RTOL = 1e-5
LARGEST = 100.0  # times rtol and the root mean square: how far a single element may lie


@dataclass
class Row:
    """One array of the two records."""

    name: str
    shape: list[int]
    dtype: str
    mean_abs_diff: float | None = None
    max_abs_diff: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    passed: bool = True
    reason: str = ""


def compare_records(a: dict[str, OnDisk], b: dict[str, OnDisk], rtol: float = RTOL) -> list[Row]:
    """One row an array, in the second record's order and then the first's.

    Floating arrays pass with equal shape and type, every value finite, a relative L2 of at most ``rtol``, and no element
    further off than ``100 * rtol`` times the root mean square. Integers, booleans and text pass when every value is equal.
    """
    rows = []
    for name in dict.fromkeys([*b, *a]):
        ours, theirs = a.get(name), b.get(name)
        known = theirs or ours
        assert known is not None
        row = Row(name, list(known.shape), str(known.dtype))
        if ours is None or theirs is None:
            row.passed, row.reason = False, f"only in the {'second' if ours is None else 'first'} record"
        elif ours.shape != theirs.shape:
            row.passed, row.reason = False, f"shape {ours.shape} in the first, {theirs.shape} in the second"
        elif ours.dtype.newbyteorder("=") != theirs.dtype.newbyteorder("="):
            row.passed, row.reason = False, f"type {ours.dtype} in the first, {theirs.dtype} in the second"
        elif known.dtype.kind not in "fciubUS":
            row.passed, row.reason = False, f"type {known.dtype} cannot be compared"
        else:
            _compare(row, ours, theirs, rtol)
        rows.append(row)
    return rows


def _compare(row: Row, ours: OnDisk, theirs: OnDisk, rtol: float) -> None:
    if ours.fortran != theirs.fortran and len(ours.shape) > 1:
        pairs: Any = [(ours.whole().ravel(), theirs.whole().ravel())]
    else:
        pairs = zip(ours.blocks(), theirs.blocks(), strict=True)
    floating = ours.dtype.kind in "fc"
    bad = [0, 0]
    differing, first, done = 0, -1, 0
    total = largest = squares = norm_a = norm_b = product = 0.0
    for x, y in pairs:
        if ours.dtype.kind == "c":
            x, y = x.view(x.real.dtype), y.view(y.real.dtype)
        different = x != y
        if floating:
            for side, values in enumerate((x, y)):
                bad[side] += values.size - int(np.isfinite(values).sum())
        if different.any() and first < 0:
            first = done + int(np.argmax(different))
        differing += int(different.sum())
        done += x.size
        if ours.dtype.kind in "US" or any(bad):
            continue
        p, q = x.astype(np.float64), y.astype(np.float64)
        gap = p - q
        sizes = np.abs(gap)
        total, largest = total + float(sizes.sum()), max(largest, float(sizes.max(initial=0.0)))
        squares, norm_a, norm_b = squares + float(gap @ gap), norm_a + float(p @ p), norm_b + float(q @ q)
        product += float(p @ q)
    if any(bad):
        sides = " and ".join(f"{n} in the {which}" for n, which in zip(bad, ("first", "second"), strict=True) if n)
        row.passed, row.reason = False, f"NaN or infinite values: {sides}"
        return
    if ours.dtype.kind not in "US":
        row.mean_abs_diff, row.max_abs_diff = total / max(done, 1), largest
        row.relative_l2 = math.sqrt(squares / norm_b) if norm_b > 0 else (0.0 if squares == 0 else math.inf)
        row.cosine = product / math.sqrt(norm_a * norm_b) if norm_a * norm_b > 0 else float(norm_a == norm_b)
    if not floating:
        if differing:
            row.passed, row.reason = False, f"{differing} of {done} values differ, first at flat index {first}"
        return
    limit = LARGEST * rtol * math.sqrt(norm_b / max(done, 1))
    assert row.relative_l2 is not None
    if row.relative_l2 > rtol:
        row.passed, row.reason = False, f"relative L2 {row.relative_l2:.1e} above {rtol:g}; first difference at flat index {first}"
    elif largest > limit:
        row.passed, row.reason = False, f"one element differs by {largest:.1e}, more than {limit:.1e}"


def table(rows: list[Row]) -> str:
    """The rows as text."""
    show = lambda value: "-" if value is None else "0" if value == 0 else f"{value:.1e}"  # noqa: E731
    head = ("name", "shape", "type", "mean abs diff", "max abs diff", "rel. L2", "cosine", "verdict", "reason")
    lines = [head] + [
        (
            row.name,
            "x".join(map(str, row.shape)) or "()",
            row.dtype,
            show(row.mean_abs_diff),
            show(row.max_abs_diff),
            show(row.relative_l2),
            "-" if row.cosine is None else f"{row.cosine:.7f}",
            "passed" if row.passed else "FAILED",
            row.reason,
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        prog="python -m alignment.compare",
        description="Compare two record files (reprod_log's .npy layout, or .npz) by the strict rules. Nothing in them is run. "
        "Exit status: 0 all arrays agree, 1 some differ, 2 a file cannot be read.",
    )
    parser.add_argument("first", metavar="A.npy", help="the port's record")
    parser.add_argument("second", metavar="B.npy", help="the reference's record")
    parser.add_argument("--rtol", type=float, default=RTOL, help=f"relative L2 allowed for floating arrays (default: {RTOL:g})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file, too")
    args = parser.parse_args(argv)
    if not 0 <= args.rtol < 1:
        raise UserError(f"--rtol must lie between 0 and 1, found {args.rtol:g}")
    first, second = open_record(args.first), open_record(args.second)
    if not first and not second:
        raise UserError(f"{args.first} and {args.second} hold no arrays: there is nothing to compare")
    rows = compare_records(first, second, args.rtol)
    passed = all(row.passed for row in rows)
    if args.json:
        with atomic_open(args.json, "w") as file:
            json.dump({"passed": passed, "rtol": args.rtol, "arrays": [asdict(row) for row in rows]}, file, indent=1)
            file.write("\n")
    print(table(rows))
    print(f"{sum(row.passed for row in rows)} of {len(rows)} arrays agree")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
