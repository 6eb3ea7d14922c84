"""What two arrays have to do with each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.compare import distance, norm, relative
from alignment.localize.finding import Hint
from alignment.localize.kinds import Kind

CLOSE = 1e-6  # relative L2 at which a hypothesis counts as met; kernels' float32 constants stay below it


def close(a: np.ndarray | None, b: np.ndarray | None, rtol: float = CLOSE) -> bool:
    """Whether two arrays are equal to rounding, relative to the larger norm."""
    if a is None or b is None or a.shape != b.shape or a.size == 0:
        return False
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    return float(np.linalg.norm(a - b)) <= rtol * max(float(np.linalg.norm(b)), float(np.linalg.norm(a)), 1e-300)


def common_factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """The number that a is b times, where there is one."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    if a.shape != b.shape or not b.any() or not np.isfinite(a).all():
        return None
    ratio = float(a @ b / (b @ b))
    return ratio if ratio != 0 and close(a, ratio * b, CLOSE) else None


def array_hint(out: np.ndarray, expected: np.ndarray) -> Iterator[Hint]:
    """Scale, permutation, single wrong elements, rounding to half precision."""
    ratio = common_factor(out, expected)
    if ratio is not None and abs(ratio - 1) > CLOSE:
        yield Kind.SCALED, f"every value times {ratio:.6g}"
    for axis in range(1, out.ndim):
        if close(np.sort(out, axis=axis), np.sort(expected, axis=axis), 1e-9) and not close(out, expected, 1e-9):
            yield Kind.PERMUTED, f"the right values in another order along axis {axis}"
    different = ~np.isclose(out, expected, rtol=1e-9, atol=1e-12 * float(np.abs(expected).max(initial=0)))
    where = [tuple(map(int, place)) for place in zip(*np.nonzero(different), strict=True)]
    columns = {place[-1] for place in where} if out.ndim > 1 else set()
    if 0 < len(where) <= max(1, out.size // 100):
        yield Kind.FEW_ELEMENTS, f"{len(where)} of {out.size} values differ, first at {where[0]}"
    if len(columns) == 1 and out.shape[-1] > 8:
        yield Kind.FEW_ELEMENTS, f"only index {columns.pop()} of the last axis differs"
    error = relative(distance(out, expected), norm(expected))
    low = np.asarray(expected, np.float32)
    truncated = (low.view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32)
    if 1e-5 < error < 1e-2:
        if close(out, truncated, 3e-4):
            yield Kind.HALF_PRECISION, f"rounded to bfloat16: relative L2 {error:.1e}"
        if close(out, low.astype(np.float16), 3e-5):
            yield Kind.HALF_PRECISION, f"rounded to float16: relative L2 {error:.1e}"
