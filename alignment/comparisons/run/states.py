"""States of networks in the measurements of runs: put in and taken out by name, held against each other tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Change, Group, Lanes, Leeway, Quantity, distance, judge_measured, norm, relative
from alignment.finding import Finding
from mobilenetv3_common.weights import State


def under(name: str, state: Mapping[str, np.ndarray]) -> State:
    """A state as a part of a measurement."""
    return {f"{name}.{tensor}": array for tensor, array in state.items()}


def part(measured: Mapping[str, Any], name: str) -> State:
    """The state that was put under a name."""
    return {key.removeprefix(f"{name}."): array for key, array in measured.items() if key.startswith(f"{name}.")}


def unlike(ours: State, theirs: State, rtol: float = tolerance.RUN_RTOL) -> list[str]:
    """Names of the tensors that differ by more than rounding, in the reference's order."""
    scales = {n: max(norm(array), tolerance.RUN_LEAST * array.size**0.5) for n, array in theirs.items()}
    return [n for n in theirs if n not in ours or not distance(ours[n], theirs[n]) <= rtol * scales[n]]


def shown(wrong: Sequence[str], ours: State, theirs: State) -> str:
    """How many tensors are wrong, and by how much the first of them."""
    name = wrong[0]
    size = "missing" if name not in ours else f"relative L2 {relative(distance(ours[name], theirs[name]), norm(theirs[name])):.1e}"
    return f"{len(wrong)} of {len(theirs)} tensors, first {name}: {size}"


def after_updates(place: str, count: int, ours: State, theirs: State) -> Finding | None:
    """States after so many updates: no hypothesis says what made them differ."""
    wrong = unlike(ours, theirs)
    return Finding("train", place, measured=f"after {count} updates: {shown(wrong, ours, theirs)}") if wrong else None


def judge_wrong(found: Mapping[str, str]) -> list[Quantity]:
    """One row for each thing that was looked at: what is wrong with it, ``""`` for nothing."""
    return [Quantity(name, []).fail(words) if words else Quantity(name, []) for name, words in found.items()]


def judge_states(name: str, ours: State, theirs: State, moved: State) -> Sequence[Quantity]:
    """Canonical float64 states after several updates, tensor by tensor, within what one-ulp changes do to the reference."""
    names = [n for n in dict.fromkeys([*theirs, *ours]) if theirs.get(n, ours.get(n)).dtype.kind == "f"]  # type: ignore[union-attr]
    changes = {n: Change(distance(moved[n], theirs[n]), norm(theirs[n])) for n in names if n in theirs}
    pooled = max((change.share for change in changes.values() if change.share < tolerance.NOISE_SHARE), default=0.0)
    if not names:
        return []
    group = Group(name)
    for tensor in names:
        leeway = Leeway(pooled64=pooled, change64=changes.get(tensor))
        group.add(judge_measured(f"{name}.{tensor}", Lanes(port64=ours.get(tensor), reference64=theirs.get(tensor)), leeway))
    if all(n in ours and n in theirs and ours[n].shape == theirs[n].shape for n in names):
        # As one vector: the mean after a normalisation without a shift is 1e-8, and its relative difference says nothing.
        together = sum(distance(ours[n], theirs[n]) ** 2 for n in names) ** 0.5
        group.quantity.float64_diff = relative(together, sum(change.scale**2 for change in changes.values()) ** 0.5)
    return group.rows()
