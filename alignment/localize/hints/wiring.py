"""Mistakes of a container whose children are all right: something between them is missing, or extra."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.frameworks.base import leaves
from alignment.localize.blame import Subject
from alignment.localize.finding import Hint
from alignment.localize.hints.arrays import close
from alignment.localize.kinds import Kind


def wiring(s: Subject) -> Iterator[Hint]:
    """A residual or a scaling that is missing or extra; children that forward leaves out or calls in another order."""
    given, out, expected = s.input, s.output, s.expected
    if given is None or out is None or expected is None:
        return
    if out.shape == expected.shape == given.shape:
        if close(out, given):
            yield Kind.DOES_NOTHING, "it gives its input back"
        if close(out, expected - given):
            yield Kind.NO_RESIDUAL, "residual missing: the input is not added to the output"
        if close(out, expected + given):
            yield Kind.RESIDUAL_EXTRA, "residual too much: the input is added to the output"
        if close(out, expected * given):
            yield Kind.EXTRA_SCALING, "the output is multiplied by the input once more"
    matched = s.pair.matching.paths  # either side may call a function in place of a layer
    children = [path for path in s.pair.reference.children(s.path, s.pair.called) if path in matched]
    ours, theirs = (side.called(s.path, s.call, children) for side in (s.pair.port, s.pair.reference))
    for child in children:
        if ours.count(child) != theirs.count(child):
            yield (
                Kind.LAYER_NOT_CALLED,
                f"{child} is called {ours.count(child)} times in the port's forward, expected {theirs.count(child)}",
            )
    for mine, other in zip(ours, theirs, strict=True):
        if mine != other and _depends(s, mine, other, children):
            yield Kind.CALL_ORDER, f"the port's forward calls {mine} where the reference calls {other}"


def _depends(s: Subject, later: str, earlier: str, children: list[str]) -> bool:
    """Whether a child is given what another one made, through other children or not: only then does their order matter."""
    calls = s.pair.calls

    def outputs(path: str) -> list[np.ndarray]:
        return leaves(calls[path].output, np.ndarray) if path in calls else []

    made, reached = outputs(earlier), {earlier}
    for child in [key for key in calls if key in children]:  # in the order of computation
        given = leaves((calls[child].args, calls[child].kwargs), np.ndarray)
        if child not in reached and any(close(one, other, 1e-12) for one in given for other in made):
            reached.add(child)
            made += outputs(child)
    return later in reached
