"""What happened to a weight that is not the reference's: tensors alone are compared, nothing is computed with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from alignment.localize.hints import Hint, common_factor


def weight_hint(name: str, wrong: list[str], ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Hint:
    """What happened to a weight that is not the reference's; ``wrong`` names all that differ."""
    a, b = ours[name], theirs[name]
    if a.shape == b.shape:
        if b.ndim == 2 and b.shape[0] == b.shape[1] and np.array_equal(a, b.T):
            return "weight_transposed", "weight transposed: a square one loads either way round"
        if b.ndim == 2 and a.size == b.size and np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)):
            if np.array_equal(a.reshape(b.T.shape).T, b) or _partly_transposed(a, b):
                return "weight_transposed", "weight transposed"
            return "weight_reordered", "the right values in another order"
        if b.ndim == 4 and b.shape[2] == b.shape[3] and np.array_equal(a, b.transpose(0, 1, 3, 2)):
            return "weight_transposed", "kernel transposed: height and width are swapped"
        if b.ndim == 4 and b.shape[1] > 1 and np.array_equal(a, b[:, ::-1]):
            return "channels_reversed", "input channels reversed: RGB weights for a BGR network"
        if all(
            np.array_equal(ours[n], theirs[n].astype(np.float16).astype(ours[n].dtype)) for n in wrong if n in ours and n in theirs
        ):
            return "half_precision", "rounded to float16"
    if a.ndim == 2 and a.shape == b.shape[::-1]:
        return "weight_transposed", "weight transposed: its shape is turned round"
    if len(wrong) >= 0.5 * len(theirs):
        return "weights_not_loaded", f"weights not loaded: {len(wrong)} of {len(theirs)} tensors are not the reference's"
    if a.shape == b.shape and (a == a.flat[0]).all():
        return "weights_not_loaded", f"not loaded: all values are {a.flat[0]:g}"
    for other, value in theirs.items():
        if other != name and value.shape == a.shape and np.array_equal(value, a) and not np.array_equal(value, b):
            return "weights_swapped", f"it holds the values of {other}"
    if a.shape == b.shape:
        if len({n.rsplit(".", 1)[-1] for n in wrong}) == 1:
            last = name.rsplit(".", 1)[-1]
            same = [n for n in theirs if n.rsplit(".", 1)[-1] == last]
            if len(wrong) == len(same):
                return "weights_not_loaded", f"not loaded: every {last} differs"
        ratio = common_factor(a, b)
        if ratio is not None:
            return "scaled", f"every value times {ratio:.6g}"
        different = int((a != b).sum())
        if different <= max(1, a.size // 100):
            return "few_elements", f"{different} of {a.size} values differ"
        if len(wrong) <= 2:
            return "weights_not_loaded", f"not loaded: {len(wrong)} of {len(theirs)} tensors keep other values"
    return "", ""


def _partly_transposed(a: np.ndarray, b: np.ndarray) -> bool:
    """A square part of a weight is turned round."""
    n = min(a.shape)
    return np.array_equal(a[:n, :n], b[:n, :n].T) and np.array_equal(a[n:], b[n:]) and np.array_equal(a[:, n:], b[:, n:])


def tied_names(layer: Any, names: Mapping[str, str]) -> list[list[str]]:
    """Groups of torch names whose Paddle parameters are one tensor; ``names``: Paddle name -> torch name."""
    groups: dict[int, list[str]] = {}
    for path, sublayer in layer.named_sublayers(include_self=True):
        for name, parameter in sublayer.named_parameters(include_sublayers=False):
            full = f"{path}.{name}" if path else name
            groups.setdefault(id(parameter), []).append(names.get(full, full))
    return [group for group in groups.values() if len(group) > 1]
