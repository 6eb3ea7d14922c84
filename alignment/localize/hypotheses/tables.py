"""Constants that the constructor computes and no file of weights holds: another base of rotary positions, another mask."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.frameworks.base import Tensor
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis
from alignment.localize.hypotheses.passes import by_repair_of_pass

TABLES = Family("tables", by_repair_of_pass)


@TABLES
def other_constants(s: Subject) -> Iterator[Hypothesis]:
    """Buffers outside the weights that differ, where the reference's values in them make all the module's outputs right."""
    found = [] if s.pair.truth is not None or s.expected is None else _differing(s)
    if not found:
        return
    framework = s.pair.port.framework
    before = [framework.array(tensor) for _, tensor, _ in found]
    words = [_words(name, own, right) for (name, _, right), own in zip(found, before, strict=True)]

    def predict(one: Subject) -> np.ndarray | None:
        try:
            for _, tensor, values in found:
                framework.assign(tensor, values)
            made = one.pair.port.answer(one.path, one.call).outputs
        finally:
            for (_, tensor, _), own in zip(found, before, strict=True):
                framework.assign(tensor, own)
        right = one.blame.theirs.outputs
        return made[one.differing] if len(made) == len(right) and all(map(close, made, right)) else None

    yield Hypothesis(Kind.CONSTANT, "the constructor makes other constants: " + "; ".join(words), predict)


def _differing(s: Subject) -> list[tuple[str, Tensor, np.ndarray]]:
    """Name, the port's tensor and the reference's values of the tables in a module that have one name and shape on both sides."""
    port, reference, found = s.pair.port, s.pair.reference, []
    for path in reference.modules:
        if path in port.modules and (path == s.path or path.startswith(f"{s.path}." if s.path else "")):
            theirs = reference.framework.unsaved(reference.modules[path])
            for name, tensor in port.framework.unsaved(port.modules[path]).items():
                mine, right = port.framework.array(tensor), reference.framework.array(theirs[name]) if name in theirs else None
                if right is not None and right.shape == mine.shape and not np.array_equal(mine, right):
                    found.append((f"{path}.{name}" if path else name, tensor, right))
    return found


def _words(name: str, mine: np.ndarray, right: np.ndarray) -> str:
    with np.errstate(invalid="ignore"):
        apart = np.where(mine == right, 0, np.nan_to_num(np.abs(mine - right), nan=np.inf))
    place = tuple(int(axis) for axis in np.unravel_index(int(np.argmax(apart)), mine.shape))
    return f"{name} at {list(place)} is {mine[place]:.6g}, expected {right[place]:.6g}"
