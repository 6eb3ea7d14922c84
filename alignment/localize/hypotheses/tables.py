"""Constants that the constructor computes and no file of weights holds: another base of rotary positions, another mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from alignment.frameworks.base import Tensor
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis
from alignment.localize.hypotheses.passes import by_repair_of_pass

TABLES = Family("tables", by_repair_of_pass)
FEW = 8  # tables, each of which is tried alone
SAID = "the constructor makes other constants: "  # then the port's tensor, by the reference's path of its module


@TABLES
def other_constants(s: Subject) -> Iterator[Hypothesis]:
    """Buffers outside the weights that differ, where the reference's values in them make all the module's outputs right."""
    found = [] if s.pair.truth is not None or s.expected is None else _differing(s)
    framework = s.pair.port.framework
    before = [framework.array(tensor) for _, tensor, _ in found]
    words = [_words(name, own, right) for (name, _, right), own in zip(found, before, strict=True)]

    def predict(one: Subject, places: Sequence[int]) -> np.ndarray | None:
        try:
            for place in places:
                framework.assign(found[place][1], found[place][2].reshape(before[place].shape))
            made = one.pair.port.answer(one.path, one.call).outputs
        finally:
            for place in places:
                framework.assign(found[place][1], before[place])
        right = one.blame.theirs.outputs
        return made[one.differing] if len(made) == len(right) and all(map(close, made, right)) else None

    every = range(len(found))
    for places in ([place] for place in every if len(found) <= FEW):  # one that is not used may be another table
        yield Hypothesis(Kind.CONSTANT, SAID + words[places[0]], partial(predict, places=places))
    if len(found) > 1:
        yield Hypothesis(Kind.CONSTANT, SAID + "; ".join(words), partial(predict, places=every))


def _differing(s: Subject) -> list[tuple[str, Tensor, np.ndarray]]:
    """Name, the port's tensor and the reference's values of a module's tables that have one name on both sides, or one size."""
    ours, theirs = s.pair.port.tables(s.path), s.pair.reference.tables(s.path)
    arrays = {name: s.pair.port.framework.array(tensor) for name, tensor in ours.items()}
    right = {name: s.pair.reference.framework.array(tensor) for name, tensor in theirs.items()}
    pairs = {name: name for name in arrays if name in right and right[name].shape == arrays[name].shape}
    for alike in (lambda a, b: np.array_equal(a.ravel(), b.ravel()), lambda a, b: a.size == b.size > 1):
        for name in (one for one in arrays if one not in pairs):
            free = (one for one in right if one not in pairs.values() and alike(arrays[name], right[one]))
            if (other := next(free, None)) is not None:
                pairs[name] = other
    differ = [name for name, other in pairs.items() if not np.array_equal(arrays[name].ravel(), right[other].ravel())]
    return [(name, ours[name], right[pairs[name]]) for name in differ]


def _words(name: str, mine: np.ndarray, right: np.ndarray) -> str:
    mine = mine.reshape(right.shape)
    if (order := _another_order(np.squeeze(mine), np.squeeze(right))) is not None:
        return f"{name} {order}"
    with np.errstate(invalid="ignore"):
        apart = np.where(mine == right, 0, np.nan_to_num(np.abs(mine - right), nan=np.inf))
    place = tuple(int(axis) for axis in np.unravel_index(int(np.argmax(apart)), mine.shape))
    return f"{name} at {list(place)} is {mine[place]:.6g}, expected {right[place]:.6g}"


def _another_order(mine: np.ndarray, right: np.ndarray) -> str | None:
    """How the values of a table lie otherwise; None where they are others."""
    mine, right = (one.astype(np.float64) for one in (mine, right))
    if mine.ndim == 2 and mine.shape[0] == mine.shape[1] and close(mine.T, right):
        return "has rows and columns exchanged"
    for axis, size in enumerate(mine.shape):
        (first, last), (right_first, right_last) = (
            [np.take(one, range(start, size - 1 + start), axis) for start in (0, 1)] for one in (mine, right)
        )
        ways = {
            "is reversed": close(np.flip(mine, axis), right),
            "has its halves exchanged": size % 2 == 0 and close(np.roll(mine, size // 2, axis), right),
            "begins one place too early": size > 2 and close(last, right_first),
            "begins one place too late": size > 2 and close(first, right_last),
        }
        if words := next((words for words, holds in ways.items() if holds), None):
            return f"{words} along axis {axis}"
    return None
