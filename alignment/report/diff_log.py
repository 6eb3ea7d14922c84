"""Logs in reprod_log's look, with both verdicts: by the guide's threshold on the mean difference, and by this project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from alignment.report.table import exact_of, float32_ratio, times

OfRecord = Mapping[str, np.ndarray]


def mean_difference(a: np.ndarray | None, b: np.ndarray | None) -> float | None:
    """The mean absolute difference, as reprod_log computes it; of text, the share that differs; None where shapes differ."""
    if a is None or b is None or a.shape != b.shape:
        return None
    if a.size == 0:
        return 0.0
    if a.dtype.kind in "US" or b.dtype.kind in "US":
        return float((a != b).mean())
    with np.errstate(invalid="ignore", over="ignore"):
        wide = [array.astype(np.int64) if array.dtype.kind in "bui" else array for array in (a, b)]
        return float(np.abs(wide[0] - wide[1]).mean())


def _by_the_guide(name: str, first: OfRecord, second: OfRecord, threshold: float) -> tuple[list[str], bool]:
    value = mean_difference(first.get(name), second.get(name))
    passed = value is not None and value <= threshold
    shown = "only in one record, or of another shape" if value is None else value
    return [f"{name}: ", f"\tmean diff: check passed: {passed}, value: {shown}"], passed


def compared(first: OfRecord, second: OfRecord, threshold: float) -> tuple[str, bool]:
    """The log of two records by the guide's rule alone, and whether all arrays pass."""
    lines, verdicts = [], []
    for name in dict.fromkeys([*first, *second]):
        of_name, passed = _by_the_guide(name, first, second, threshold)
        lines += of_name
        verdicts.append(passed)
    passed = bool(verdicts) and all(verdicts)
    return _stamped([*lines, f"diff check {'passed' if passed else 'failed'}"]), passed


def diff_log(result: StepResult) -> str:
    """The log of a step: each array of its records with both verdicts and the reason of the second; then what failed.

    The last line is this project's verdict on the step, the one before it the guide's on the step's own records. The ``further``
    records (extreme cases, training mode, curves), which the guide's example does not have, follow a line that says so.
    """
    threshold = tolerance.GUIDE_THRESHOLDS.get(result.name, 0.0)
    lines, verdicts = [], []
    for records in (result.records, result.further):
        first, second = (records[role] for role in ("port", "reference"))
        if records is result.further and (first or second):
            lines.append("beyond the guide's example, in a record of their own:")
        for name in dict.fromkeys([*first, *second]):
            of_name, passed = _by_the_guide(name, first, second, threshold)
            lines += [*of_name, f"\tthis project: {_by_this_project(name, result)}"]
            verdicts += [passed] if records is result.records else []
    lines += [f"failed: {row.name}: {row.reason}" for row in result.quantities if not row.passed]
    lines += result.problems
    if verdicts:
        lines.append(f"mean diff of at most {threshold:g}: {'passed' if all(verdicts) else 'failed'}")
    return _stamped([*lines, f"diff check {'passed' if result.passed else 'failed'}"])


def _by_this_project(name: str, result: StepResult) -> str:
    rows = [row for row in result.quantities if row.name == name]
    about = name.rpartition(".")[0]
    rows = rows or [row for row in result.quantities if about and row.name.startswith(f"{about}.")] or result.quantities
    return f"check passed: {bool(rows) and all(row.passed for row in rows)}, {_reason(rows)}"


def _reason(rows: Sequence[Quantity]) -> str:
    failed = [row for row in rows if not row.passed]
    if failed:
        return failed[0].reason
    ratio, exact = float32_ratio(rows), exact_of(rows)
    said = [] if ratio is None else [f"float32 error {times(ratio)} its noise floor (bound {tolerance.FLOOR_FACTOR:g})"]
    said += [] if exact is None else [f"exact mode differs by {exact:.1e}"]
    return ", ".join(said) or "all values agree"


def _stamped(lines: Sequence[str]) -> str:
    stamp = f"[{datetime.now():%Y/%m/%d %H:%M:%S}] root INFO: "
    return "".join(f"{stamp}{line}\n" for line in lines)
