"""How far two values of two dumps lie apart, by the most that both of them hold: all numbers, those printed, or statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alignment.compare import distance, norm, relative
from alignment.dumps.others.printed import shown
from alignment.dumps.others.recording import Dumped, Figure
from mobilenetv3_common.counted import counted

BY_VALUES, BY_PRINT, BY_FIGURES = "", "by the digits that were printed", "by statistics alone"


@dataclass
class Apart:
    """What two values differ by.

    Attributes:
        share: relative L2; of statistics the largest of their differences, relative to the tensor's size. NaN where one is NaN.
        mean, largest: absolute; None where they are not known.
        by: what was compared, in words; empty for all numbers.
        problem: why they cannot be compared, or equal each other; empty where they can.
        shape: of the reference's.
        scale: norm of the reference's; 0 where it is not known.
        whole: whether they are whole numbers, which are equal or not.
    """

    share: float = 0.0
    mean: float | None = None
    largest: float | None = None
    by: str = BY_VALUES
    problem: str = ""
    shape: tuple[int, ...] = ()
    scale: float = 0.0
    whole: bool = False


def apart(ours: Dumped, theirs: Dumped, turned: bool = False) -> Apart:
    """How far the port's value lies from the reference's.

    Args:
        ours, theirs: of the port and of the reference.
        turned: whether a matrix may lie the other way round, as Paddle keeps those of linear layers.

    Raises:
        UserError: a file of one is damaged.
    """
    if ours.load is not None and theirs.load is not None:
        return _of_arrays(ours.load(), theirs.load(), turned)
    if None not in (ours.shape, theirs.shape) and ours.shape != theirs.shape and not (turned and _is_turned(ours, theirs)):
        return Apart(problem=f"shape {ours.shape} in the port, {theirs.shape} in the reference", shape=theirs.shape or ())
    printed = _printed(ours), _printed(theirs)
    if all(printed) and not turned:
        return _of_printed(*printed, theirs.shape or ())
    return _of_figures(ours, theirs)


def _is_turned(ours: Dumped, theirs: Dumped) -> bool:
    return len(theirs.shape or ()) == 2 and ours.shape == (theirs.shape or ())[::-1]


def _of_arrays(ours: np.ndarray, theirs: np.ndarray, turned: bool) -> Apart:
    if turned and theirs.ndim == 2 and ours.shape == theirs.shape[::-1]:
        ways = [_same_shape(one, theirs) for one in (ours, ours.T) if one.shape == theirs.shape]
        return min(ways, key=lambda one: (bool(one.problem), one.share))
    if ours.shape != theirs.shape:
        return Apart(problem=f"shape {ours.shape} in the port, {theirs.shape} in the reference", shape=theirs.shape)
    return _same_shape(ours, theirs)


def _same_shape(ours: np.ndarray, theirs: np.ndarray) -> Apart:
    made = Apart(shape=theirs.shape, whole=theirs.dtype.kind in "iub" and ours.dtype.kind in "iub")
    if ours.dtype.kind not in "fiub" or theirs.dtype.kind not in "fiub":
        made.problem = "" if np.array_equal(ours, theirs) else f"type {ours.dtype} in the port, {theirs.dtype} in the reference"
        return made
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))  # masks hold infinity, on both sides
    ours, theirs = np.where(same & ~np.isfinite(theirs), 0.0, ours), np.where(same & ~np.isfinite(theirs), 0.0, theirs)
    for side, one in (("the port", ours), ("the reference", theirs)):
        if bad := one.size - int(np.isfinite(one).sum()):
            made.problem = f"{counted(bad, 'NaN or infinite value')} in {side} alone"
            return made
    sizes = np.abs(ours - theirs)
    made.mean, made.largest = (float(f(sizes)) if sizes.size else 0.0 for f in (np.mean, np.max))
    made.share, made.scale = relative(distance(ours, theirs), norm(theirs)), float(norm(theirs))
    return made


def _printed(value: Dumped) -> list[Figure]:
    if value.printed:
        return list(value.printed)
    return [Figure(float(number)) for number in shown(value.load())] if value.load is not None else []


def _of_printed(ours: Sequence[Figure], theirs: Sequence[Figure], shape: tuple[int, ...]) -> Apart:
    if len(ours) != len(theirs):
        return Apart(problem=f"{len(ours)} numbers are printed of the port's, {len(theirs)} of the reference's", shape=shape)
    mine, right = (np.array([one.value for one in side]) for side in (ours, theirs))
    made = _same_shape(mine, right)
    if not made.problem:
        left = np.array([a.half + b.half for a, b in zip(ours, theirs, strict=True)])
        same = (mine == right) | ~np.isfinite(right)
        excess = np.where(same, 0.0, np.maximum(np.abs(np.where(same, 0.0, mine - np.where(same, 0.0, right))) - left, 0.0))
        made.share = relative(float(norm(excess)), made.scale)
    made.by, made.shape = BY_PRINT, shape
    return made


def _figures_of(value: Dumped) -> dict[str, Figure]:
    if value.load is None:
        return dict(value.figures)
    array = value.load().astype(np.float64)
    if not array.size:
        return {}
    spread = {"std": Figure(float(array.std(ddof=1)))} if array.size > 1 else {}
    found = {"max": array.max(), "min": array.min(), "mean": array.mean(), "norm": np.linalg.norm(array)}
    return {name: Figure(float(one)) for name, one in found.items()} | spread


def _of_figures(ours: Dumped, theirs: Dumped) -> Apart:
    """Statistics of one tensor: a norm relative to itself, the others to the largest number."""
    mine, right = _figures_of(ours), _figures_of(theirs)
    made = Apart(by=BY_FIGURES, shape=theirs.shape or ())
    shared = [name for name in right if name in mine]
    if not shared:
        made.problem = "the two dumps hold nothing of it that can be compared"
        return made
    largest = max((abs(right[name].value) for name in ("max", "min", "mean", "std") if name in right), default=0.0)
    for name in shared:
        a, b = mine[name], right[name]
        if not np.isfinite([a.value, b.value]).all():
            if not (a.value == b.value or (np.isnan(a.value) and np.isnan(b.value))):
                made.problem = f"{name} {a.value:g} in the port, {b.value:g} in the reference"
            continue
        gap = max(abs(a.value - b.value) - a.half - b.half, 0.0)
        made.share = max(made.share, relative(gap, abs(b.value) if name == "norm" else largest))
    return made
