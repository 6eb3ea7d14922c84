"""What happened to a weight that is not the reference's: tensors alone are compared, nothing is computed with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alignment.finding import NO_HINT, Hint
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import HALVES, common_factor


def weight_hint(name: str, wrong: list[str], ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Hint:
    """What happened to a weight of the right shape that is not the reference's; ``wrong`` names all that differ."""
    a, b = ours[name], theirs[name]
    if (found := _layout_hint(a, b)) != NO_HINT:
        return found
    for half, rounded in HALVES.items():
        if all(np.array_equal(ours[n], rounded(theirs[n]).astype(ours[n].dtype)) for n in wrong):
            return Kind.HALF_PRECISION, f"rounded to {half}"
    if not np.isfinite(a).all():
        return Kind.NOT_FINITE, f"{a.size - int(np.isfinite(a).sum())} of {a.size} values are NaN or infinite"
    unrelated = [n for n in wrong if _unrelated(ours[n], theirs[n])]
    if len(unrelated) >= 0.5 * len(theirs):
        return Kind.WEIGHTS_NOT_LOADED, f"weights not loaded: {len(wrong)} of {len(theirs)} tensors are not the reference's"
    if (a == a.flat[0]).all():
        return Kind.WEIGHTS_NOT_LOADED, f"not loaded: all values are {a.flat[0]:g}"
    for other, value in theirs.items():
        if other != name and value.shape == a.shape and np.array_equal(value, a) and not np.array_equal(value, b):
            return Kind.WEIGHTS_SWAPPED, f"it holds the values of {other}"
    last = name.rpartition(".")[2]
    same = [n for n in theirs if n.rpartition(".")[2] == last]
    if {n.rpartition(".")[2] for n in wrong} == {last} and len(wrong) == len(same) == len(unrelated):
        return Kind.WEIGHTS_NOT_LOADED, f"not loaded: every {last} differs"
    ratio = common_factor(a, b)
    if ratio is not None:
        return Kind.SCALED, f"every value times {ratio:.6g}"
    different = int((a != b).sum())
    if different <= max(1, a.size // 100):
        return Kind.FEW_ELEMENTS, f"{different} of {a.size} values differ"
    if len(wrong) <= 2 and len(unrelated) == len(wrong):
        return Kind.WEIGHTS_NOT_LOADED, f"not loaded: {len(wrong)} of {len(theirs)} tensors keep other values"
    return NO_HINT


def _unrelated(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a tensor holds nothing of the reference's: a constant, or numbers that do not go with them."""
    x, y = (array.astype(np.float64).ravel() - array.mean(dtype=np.float64) for array in (a, b))
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return size == 0 or abs(float(x @ y)) < max(0.3, 4 / a.size**0.5) * size


def _layout_hint(a: np.ndarray, b: np.ndarray) -> Hint:
    """The right values in another layout."""
    if b.ndim == 2 and b.shape[0] == b.shape[1] and np.array_equal(a, b.T):
        return Kind.WEIGHT_TRANSPOSED, "weight transposed: a square one loads either way round"
    if b.ndim == 2 and np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)):
        if np.array_equal(a.reshape(b.T.shape).T, b) or _partly_transposed(a, b):
            return Kind.WEIGHT_TRANSPOSED, "weight transposed"
        return Kind.WEIGHT_REORDERED, "the right values in another order"
    if b.ndim == 4 and b.shape[2] == b.shape[3] and np.array_equal(a, b.transpose(0, 1, 3, 2)):
        return Kind.WEIGHT_TRANSPOSED, "kernel transposed: height and width are swapped"
    if b.ndim == 4 and b.shape[1] > 1 and np.array_equal(a, b[:, ::-1]):
        return Kind.CHANNELS_REVERSED, "input channels reversed: RGB weights for a BGR network"
    if b.ndim == 4 and b.shape[0] == b.shape[1] and np.array_equal(a, b.transpose(1, 0, 2, 3)):
        return Kind.WEIGHT_TRANSPOSED, "weight transposed: input and output channels are swapped"
    if b.ndim != 2 and np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)):
        return Kind.WEIGHT_REORDERED, "the right values in another order"
    return NO_HINT


def _partly_transposed(a: np.ndarray, b: np.ndarray) -> bool:
    """A square part of a weight is turned round."""
    n = min(a.shape)
    return np.array_equal(a[:n, :n], b[:n, :n].T) and np.array_equal(a[n:], b[n:]) and np.array_equal(a[:, n:], b[:, n:])
