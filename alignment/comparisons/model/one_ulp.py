"""What one-ulp changes do to the reference in exact mode: how far a value that has just missed its bound may lie.

In a network of very many layers, or one that enlarges every difference, two sound sides part by more than ``EXACT_RTOL``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from alignment import tolerance
from alignment.compare import Change, Lanes, Leeway, Quantity, distance, judge_measured, norm, relative, without_masked

ULP_DRAWS = ("ulp64", "ulp64#1", "ulp64#2")  # one draw can spare the very element that matters
K = TypeVar("K", bound=Hashable)


def just_missed(row: Quantity) -> bool:
    """Whether a row failed with a difference in exact mode that may still be rounding."""
    return not row.passed and tolerance.EXACT_RTOL < (row.float64_diff or 0.0) <= tolerance.MOST_EXACT_RTOL


def farthest(passes: Iterable[Mapping[K, np.ndarray]], truth: Mapping[K, np.ndarray], names: Iterable[K]) -> dict[K, float]:
    """How far (L2) each value lies from the truth in the pass that moved it most.

    A pass says nothing of a value that it does not have, has in another shape, or moves by more than ``FLIPPED`` of its norm: there
    a loop ended elsewhere, or a comparison of two equal numbers (a mask with 1) came out otherwise.

    Args:
        passes: of the reference, with one-ulp changes; none is asked for where there are no names.
        truth: of the reference, without.
        names: of the values.
    """
    found = dict.fromkeys(names, 0.0)
    for moved in passes if found else ():
        for name in found:
            ours, theirs = without_masked(moved.get(name), truth[name])
            if ours is None or ours.shape != theirs.shape:
                continue
            far = distance(ours, theirs)
            if far <= tolerance.FLIPPED * norm(theirs):
                found[name] = max(found[name], far)
    return found


def judge_again(row: Quantity, lanes: Lanes, moved: float) -> Quantity:
    """The row of a value that has just missed its bound, held to ``TRAJECTORY_FACTOR`` of what one-ulp changes do to it.

    Args:
        row: as it was judged.
        lanes: of the value.
        moved: how far (L2) one-ulp changes move the truth.
    """
    scale = norm(without_masked(lanes.reference64, lanes.port64)[0])
    again = judge_measured(row.name, lanes, Leeway(change64=Change(moved, scale)))
    if again.passed:
        again.note(
            f"exact mode differs by {again.float64_diff:.1e}, one-ulp changes of the reference by {relative(moved, scale):.1e}"
        )
    return again
