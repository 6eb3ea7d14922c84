"""Two record files from anyone, compared by the strict rules and block by block: ``python -m alignment.compare A.npy B.npy``.

Nothing that a file carries is run, and neither file is held in memory: an array is read in blocks of a few megabytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from alignment import tolerance
from alignment.distance import Distance
from alignment.record import BLOCK, OnDisk, open_record
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.json_output import add_output_flags, outputs_of
from mobilenetv3_common.terminal import printable

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

    def note(self, remark: str) -> None:
        self.reason = f"{self.reason}; {remark}" if self.reason else remark

    def fail(self, reason: str) -> None:
        self.passed = False
        self.note(reason)


def compare_records(a: dict[str, OnDisk], b: dict[str, OnDisk], rtol: float = tolerance.RECORDS_RTOL) -> list[Row]:
    """One row an array, in the second record's order and then the first's.

    Floating and complex arrays pass with equal shape and type, every value finite, a relative L2 of at most ``rtol``, and no
    element further off than ``100 * rtol`` times the root mean square, however large or small the numbers are. Integers,
    booleans and text pass when every value is equal, text in whatever room it has. A single number may have the shape () on one
    side and e.g. (1,) on the other. Minus infinity in the same places of both is a mask, as of logits, and left out; NaN, plus
    infinity, and infinity on one side alone never pass. Empty arrays pass: their shape and type are all that they have.
    """
    rows = []
    for name in dict.fromkeys([*b, *a]):
        ours, theirs = a.get(name), b.get(name)
        known = theirs or ours
        assert known is not None
        row = Row(name, list(known.shape), str(known.dtype))
        if ours is None or theirs is None:
            row.fail(f"only in the {'second' if ours is None else 'first'} record")
        elif ours.shape != theirs.shape and not _one_number(ours, theirs):
            row.fail(f"shape {ours.shape} in the first, {theirs.shape} in the second")
        elif not _one_type(ours.dtype, theirs.dtype):
            row.fail(f"type {ours.dtype} in the first, {theirs.dtype} in the second")
        else:
            _compare(row, ours, theirs, rtol)
            if ours.shape != theirs.shape:
                row.note(f"one number, of shape {ours.shape} in the first and {theirs.shape} in the second")
        rows.append(row)
    return rows


def _one_type(a: np.dtype, b: np.dtype) -> bool:
    """Whether two types are the same but for the order of their bytes, and for the room that text has beyond its characters."""
    return a.newbyteorder("=") == b.newbyteorder("=") or (a.kind == b.kind and a.kind in "US")


def _one_number(a: OnDisk, b: OnDisk) -> bool:
    """Whether one side is a scalar and the other an array with one element: a loss, with which nobody broadcasts by mistake."""
    return a.size == b.size == 1 and () in (a.shape, b.shape)


def _compare(row: Row, ours: OnDisk, theirs: OnDisk, rtol: float) -> None:
    if ours.size == 0:
        row.mean_abs_diff = row.max_abs_diff = row.relative_l2 = 0.0
        row.note("empty: no value to compare")
        return
    found = Distance(ours.size, ours.dtype)
    for x, y in _pairs(ours, theirs):
        found.add(x, y)
    if any(found.bad):
        counts = [n + found.masked for n in found.bad]
        sides = " and ".join(f"{n} in the {which}" for n, which in zip(counts, ("first", "second"), strict=True) if n)
        row.fail(f"NaN or infinite values: {sides}")
        return
    if ours.dtype.kind not in "US":
        row.mean_abs_diff, row.max_abs_diff = found.mean, found.largest.number()
        row.relative_l2, row.cosine = found.relative(), found.cosine()
    if ours.dtype.kind not in "fc":
        if found.differing:
            row.fail(f"{found.differing} of {ours.size} values differ, first at flat index {found.first}")
        return
    _judge(row, found, rtol)


def _judge(row: Row, found: Distance, rtol: float) -> None:
    """The verdict on floating numbers, all of them finite."""
    relative, furthest = found.relative(), found.furthest()
    if not relative <= rtol or (rtol == 0 and found.differing):
        row.fail(f"relative L2 {relative:.1e} above {rtol:g}; first difference at flat index {found.first}")
    elif not furthest <= LARGEST * rtol:
        bound = LARGEST * rtol
        row.fail(f"one element differs by {found.largest.number():.1e}: {furthest:.1e} of the root mean square, above {bound:.1e}")
    if found.masked == found.size:
        row.fail("every value is minus infinity in both: nothing to compare")
    elif found.masked:
        row.note(f"minus infinity in both: {counted(found.masked, 'value')} left out")
    if found.subnormal():
        row.note("all values are subnormal, with fewer digits than others of the type")


def _pairs(ours: OnDisk, theirs: OnDisk) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of both arrays in one order."""
    if ours.dtype.itemsize == theirs.dtype.itemsize and (
        ours.fortran == theirs.fortran or min(len(ours.shape), len(theirs.shape)) < 2
    ):
        yield from zip(ours.blocks(), theirs.blocks(), strict=True)
        return
    first, second = (array.whole().reshape(-1) for array in (ours, theirs))
    step = max(1, BLOCK // ours.dtype.itemsize)
    for start in range(0, len(first), step):
        yield first[start : start + step], second[start : start + step]


def table(rows: list[Row]) -> str:
    """The rows as text."""
    show = lambda value: "-" if value is None else "0" if value == 0 else f"{value:.1e}"  # noqa: E731
    head = ("name", "shape", "type", "mean abs diff", "max abs diff", "rel. L2", "cosine", "verdict", "reason")
    lines = [head] + [
        (
            printable(row.name),
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
        "Exit status: 0 all arrays agree, 1 some differ, 2 a file cannot be read, 3 this command itself failed.",
    )
    parser.add_argument("first", metavar="A.npy", help="the port's record")
    parser.add_argument("second", metavar="B.npy", help="the reference's record")
    parser.add_argument(
        "--rtol",
        type=float,
        default=tolerance.RECORDS_RTOL,
        help=f"relative L2 allowed for floating arrays (default: {tolerance.RECORDS_RTOL:g})",
    )
    add_output_flags(parser, "the rows")
    args = parser.parse_args(argv)
    outputs = outputs_of(vars(args))
    if not 0 <= args.rtol < 1:
        raise UserError(f"--rtol must lie between 0 and 1, found {args.rtol:g}")
    first, second = open_record(args.first), open_record(args.second)
    if not first and not second:
        raise UserError(f"{args.first} and {args.second} hold no arrays: there is nothing to compare")
    rows = compare_records(first, second, args.rtol)
    passed = all(row.passed for row in rows)
    outputs.write({"passed": passed, "rtol": args.rtol, "arrays": [asdict(row) for row in rows]})
    with outputs.for_people():
        print(table(rows))
        print(f"{sum(row.passed for row in rows)} of {len(rows)} arrays agree")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
