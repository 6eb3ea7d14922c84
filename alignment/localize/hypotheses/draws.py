"""Mistakes in what a module makes of random numbers: masks of another shape, or of what is to be dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from alignment.frameworks._dropout import is_mirrored, mirror
from alignment.frameworks.base import CallChange, Trace
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.call_words import title
from alignment.localize.hypotheses.proposals import Proposal
from alignment.models.links import plain
from alignment.models.mirrored import Mask, drawing, in_rounds, masks_of, same_mask

COMPARING = ("lt", "le", "gt", "ge", "floor", "ceil")  # what makes a mask of numbers
ChangedPass = Callable[[Mapping[int, CallChange]], Trace | None]


def of_draws(s: Subject, ours: ChangedPass, theirs: Callable[[], Trace | None], right: Callable[[Trace], bool]) -> Proposal | None:
    """What is wrong with the masks of a module, where it is right with the reference's.

    Args:
        s: the module.
        ours, theirs: passes of the port, with calls that are changed, and of the reference.
        right: whether a pass of the port gives what the reference gives.
    """
    if not hasattr(s.pair.port, "draws"):
        return None
    mine, expected = _masks(ours({})), _masks(theirs())
    pairs = list(zip(mine, expected, strict=False))
    wrong = [pair for pair in pairs if not _alike(*pair)]
    if len(mine) != len(expected) or not wrong:
        return None
    changes: dict[int, CallChange] = {a.made.number: [_in_place(a.array, b.array)] for a, b in wrong}
    trace = ours(changes)
    if trace is None or not right(trace):
        return None
    one, other = wrong[0]
    shapes = [list(mask.numbers.shape) for mask in (one, other)]
    if plain(tuple(shapes[0])) != plain(tuple(shapes[1])):
        words = f"{title(one.drawn)} draws numbers of shape {shapes[0]}, expected {shapes[1]}"
        return Proposal(Kind.CALL_ARGUMENT, words, one.drawn, changes, conclusive=True)
    made = next((step for step in one.steps if step.name in COMPARING), None)
    if made is not None and _turned_round(s, ours, theirs):
        words = f"{title(made)} of the random numbers keeps what is to be dropped, and drops what is to be kept"
        return Proposal(Kind.OTHER_FUNCTION, words, made, changes, conclusive=True)
    return None


def _masks(trace: Trace | None) -> list[Mask]:
    return [] if trace is None else masks_of(trace)


def _alike(one: Mask, other: Mask) -> bool:
    return same_mask(one.array, other.array) and plain(one.numbers.shape) == plain(other.numbers.shape)


def _in_place(mine: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The reference's mask in the place of the port's, which may be one of zeros and ones."""
    whole = np.isin(mine, (0, 1)).all() and right.any()
    array = right / np.abs(right).max() if whole and right.dtype.kind == "f" else right
    return array.reshape(mine.shape) if array.size == mine.size else array


def _turned_round(s: Subject, ours: ChangedPass, theirs: Callable[[], Trace | None]) -> bool:
    """Whether the port keeps in every draw just what the reference drops, from either end, and some of both in one."""
    own = drawing(s.pair.port, s.pair.reference, s.path)
    before, some, contrary = is_mirrored(s.pair.port.modules[s.path]), False, {False: True, True: True}
    try:
        for _ in in_rounds(s.pair.port, s.pair.reference):
            right = [mask.array != 0 for mask in _masks(theirs())]
            some = some or any(kept.any() and not kept.all() for kept in right)
            for on in contrary:
                mirror(own.values(), on)
                mine = [mask.array != 0 for mask in _masks(ours({}))]
                same = len(mine) == len(right) and all(a.size == b.size for a, b in zip(mine, right, strict=True))
                contrary[on] &= same and all((a.ravel() != b.ravel()).all() for a, b in zip(mine, right, strict=True))
    finally:
        mirror(own.values(), before)
    return some and any(contrary.values())
