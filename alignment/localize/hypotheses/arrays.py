"""What two arrays have to do with each other, and the rule that every hint has to pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from alignment import tolerance
from alignment.compare import distance

UNEXPLAINED = 0.05  # share of the port's difference from the reference that a hypothesis may leave over


def close(a: np.ndarray | None, b: np.ndarray | None, rtol: float = tolerance.CLOSE) -> bool:
    """Whether two arrays are finite and equal to rounding, relative to the larger norm."""
    if a is None or b is None or a.shape != b.shape or a.size == 0:
        return False
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    return float(np.linalg.norm(a - b)) <= rtol * max(float(np.linalg.norm(b)), float(np.linalg.norm(a)), tolerance.TINY)


def against(size: int, expected: Sequence[int]) -> str:
    """A size that is the same along all axes, against the right one: ``"1, expected 2"``, ``"(1, 1), expected (2, 1)"``."""
    same = len(set(expected)) == 1
    ours, right = (size, expected[0]) if same else ((size,) * len(expected), tuple(expected))
    return f"{ours}, expected {right}"


def explains(
    made: np.ndarray | None,
    ours: np.ndarray | None,
    right: np.ndarray | None,
    rtol: float = tolerance.CLOSE,
    unexplained: float = UNEXPLAINED,
) -> bool:
    """Whether a hypothesis gives what the port gives where the right module does not: the rule for every hint.

    Values that are not finite agree with nothing. A hypothesis whose result lies as near to the reference's as to the port's
    explains nothing, however small all three differences are.

    Args:
        made: what the reference gives with the mistake in it; None where the mistake cannot be made.
        ours: what the port gives.
        right: what the reference gives.
        rtol: relative L2 within which ``made`` must be ``ours``.
        unexplained: share of the distance between ``ours`` and ``right`` that ``made`` may lie from ``ours``.
    """
    if made is None or ours is None or not close(ours, made, rtol):
        return False
    if right is None or right.shape != ours.shape or not np.isfinite(right).all():
        return True
    gap = distance(ours, right)
    return gap > 0 and distance(ours, made) <= unexplained * gap


def common_factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """The number that a is b times, where there is one."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    if a.shape != b.shape or not b.any() or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    ratio = float(a @ b / (b @ b))
    return ratio if ratio != 0 and close(a, ratio * b, tolerance.CLOSE) else None


def factor_hint(a: np.ndarray, b: np.ndarray) -> float | None:
    """The number that a is b times, where that explains their difference."""
    ratio = common_factor(a, b)
    if ratio is None or abs(ratio - 1) <= tolerance.CLOSE:
        return None
    return ratio if explains(ratio * np.asarray(b, np.float64), a, b) else None


def bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, half to even, as float32."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def float16(array: np.ndarray) -> np.ndarray:
    """Rounded to float16, as float32."""
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32).astype(np.float16).astype(np.float32)


HALVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"bfloat16": bfloat16, "float16": float16}
