"""What one-ulp changes do to the reference in exact mode: how far a value that has just missed its bound may lie.

In a network of very many layers, or one that enlarges every difference, two sound sides part by more than ``EXACT_RTOL``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from alignment import tolerance
from alignment.compare import Change, Lanes, Leeway, Quantity, distance, judge_measured, norm, relative, without_masked
from alignment.frameworks.base import STATISTICS

ULP_DRAWS = ("ulp64", "ulp64#1", "ulp64#2")  # one draw can spare the very element that matters
K = TypeVar("K", bound=Hashable)


def just_missed(row: Quantity) -> bool:
    """Whether a row failed with a difference in exact mode that may still be rounding."""
    return not row.passed and tolerance.EXACT_RTOL < (row.float64_diff or 0.0) <= tolerance.MOST_EXACT_RTOL


def is_statistic(name: Hashable) -> bool:
    """Whether a tensor of this name is a running mean or variance."""
    return str(name).rpartition(".")[2] in STATISTICS


def wholes(values: Mapping[K, np.ndarray]) -> dict[K, float]:
    """The L2 norm of what each value of a pass is part of.

    A running statistic is part of its layer's statistics: a mean of numbers of size 1 that cancel is not exact to more digits than
    these numbers are. An output of a module is part of what the pass computes: it is held to the outputs' size in the median, so
    that one mask of large numbers does not count.
    """
    of_layers: dict[str, float] = {}
    sizes: list[float] = []
    for name, array in values.items():
        layer = str(name).rpartition(".")[0]
        if is_statistic(name):
            of_layers[layer] = of_layers.get(layer, 0.0) + norm(array) ** 2
        elif array.dtype.kind == "f" and array.size and np.isfinite(array).all():
            sizes.append(norm(array) / array.size**0.5)
    typical = float(np.median(sizes)) if sizes else 0.0
    found = {}
    for name, array in values.items():
        layer = str(name).rpartition(".")[0]
        found[name] = of_layers[layer] ** 0.5 if is_statistic(name) else typical * array.size**0.5
    return found


def near_zero(row: Quantity, lanes: Lanes, whole: float) -> bool:
    """Whether a row failed whose value, and error in exact mode, may be rounding around zero of what it is part of.

    Args:
        row: as it was judged.
        lanes: of the value.
        whole: the norm of what it is part of.
    """
    ours, theirs = without_masked(lanes.port64, lanes.reference64)
    if row.passed or ours is None or theirs is None or ours.shape != theirs.shape or theirs.dtype.kind != "f":
        return False
    nothing = Leeway().part_of(whole).nothing64
    return norm(theirs) <= nothing / tolerance.NOISE_SHARE and distance(ours, theirs) <= nothing


def farthest(passes: Iterable[Mapping[K, np.ndarray]], truth: Mapping[K, np.ndarray], names: Iterable[K]) -> dict[K, float]:
    """How far (L2) each value lies from the truth in the pass that moved it most.

    A pass says nothing of a value that it does not have, has in another shape, or moves by more than ``FLIPPED`` of its norm: there
    a loop ended elsewhere, or a comparison of two equal numbers (a mask with 1) came out otherwise. What is small beside the whole
    that it is part of (``wholes``) is moved by the rounding of that.

    Args:
        passes: of the reference, with one-ulp changes; none is asked for where there are no names.
        truth: of the reference, without.
        names: of the values.
    """
    found = dict.fromkeys(names, 0.0)
    nothing = {name: Leeway().part_of(whole).nothing64 for name, whole in wholes(truth).items()} if found else {}
    for moved in passes if found else ():
        for name in found:
            ours, theirs = without_masked(moved.get(name), truth[name])
            if ours is None or ours.shape != theirs.shape:
                continue
            far = distance(ours, theirs)
            if far <= max(tolerance.FLIPPED * norm(theirs), nothing[name]):
                found[name] = max(found[name], far)
    return found


def judge_again(row: Quantity, lanes: Lanes, moved: float, whole: float = 0.0, leeway: Leeway | None = None) -> Quantity:
    """The row of a value that has just missed its bound, held to ``TRAJECTORY_FACTOR`` of what one-ulp changes do to it.

    Where these show it to be zero but for rounding, it may have the rounding of what it is part of.

    Args:
        row: as it was judged.
        lanes: of the value.
        moved: how far (L2) one-ulp changes move the truth.
        whole: the norm of what the value is part of.
        leeway: that it was judged with.
    """
    scale = norm(without_masked(lanes.reference64, lanes.port64)[0])
    leeway = replace(leeway or Leeway(), change64=Change(moved, scale))
    again = judge_measured(row.name, lanes, leeway.part_of(whole))
    if again.passed and not again.noise:
        again.note(
            f"exact mode differs by {again.float64_diff:.1e}, one-ulp changes of the reference by {relative(moved, scale):.1e}"
        )
    return again
