"""Mistakes of a container whose children are all right: something between them is missing, or extra."""

from __future__ import annotations

from collections.abc import Iterator

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
    network = s.pair.reference
    names = [name for name, _ in network.framework.children(network.modules[s.path])]
    children = [f"{s.path}.{name}" if s.path else name for name in names]
    ours, theirs = (side.called(s.path, s.call, children) for side in (s.pair.port, s.pair.reference))
    for child in children:
        if ours.count(child) != theirs.count(child):
            yield (
                Kind.LAYER_NOT_CALLED,
                f"{child} is called {ours.count(child)} times in the port's forward, expected {theirs.count(child)}",
            )
    if ours != theirs:
        place = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        yield Kind.CALL_ORDER, f"the port's forward calls {ours[place]} where the reference calls {theirs[place]}"
