"""Shapes that a mistake can have in any module."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.localize.blame import Subject
from alignment.localize.finding import Hint
from alignment.localize.hints.arrays import array_hint, close
from alignment.localize.kinds import Kind


def general(s: Subject) -> Iterator[Hint]:
    """An exception, a wrong shape, values that are not finite, zero, the input, or the right ones changed in a known way."""
    out, expected, given = s.output, s.expected, s.input
    if s.blame.ours.error:
        yield Kind.RAISES, f"the port's layer cannot take the reference's input: {s.blame.ours.error}"
    if out is None or expected is None:
        return
    if not np.isfinite(out).all():
        yield Kind.NOT_FINITE, f"{out.size - int(np.isfinite(out).sum())} of {out.size} values are NaN or infinite"
        return
    if out.shape != expected.shape:
        yield Kind.SHAPE, f"shape {out.shape}, expected {expected.shape}"
        return
    if not out.any():
        yield Kind.ZERO, "all zero"
    if given is not None and close(out, given):
        yield Kind.DOES_NOTHING, "it gives its input back"
    yield from array_hint(out, expected)
