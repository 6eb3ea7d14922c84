"""Hard gates, clip(slope * x + offset, 0, 1), and what is multiplied by one: the constants that a port has in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import CLOSE, close

SLOPE, OFFSET = 1 / 6, 0.5
KINDS = {"hardsigmoid", "hardswish"}
SOME = 8  # values on the slope that a line is drawn through


def gates(s: Subject) -> Iterator[Hint]:
    """Another slope or offset than relu6(x + 3) / 6 has."""
    x, out = s.input, s.output
    if s.layer.kind not in KINDS or x is None or out is None or x.shape != out.shape:
        return
    x, out = x.astype(np.float64), out.astype(np.float64)
    factor = x if s.layer.kind == "hardswish" else np.ones_like(x)
    kept = np.abs(factor) > 1e-3
    gate = out[kept] / factor[kept]
    sloping = (gate > CLOSE) & (gate < 1 - CLOSE)
    if sloping.sum() < SOME:
        return
    slope, offset = (float(value) for value in np.polyfit(x[kept][sloping], gate[sloping], 1))
    exactly = max(abs(slope - SLOPE), abs(offset - OFFSET))
    if exactly > 1e-12 and close(out, factor * np.clip(slope * x + offset, 0, 1), min(CLOSE, exactly / 100)):
        words = f"slope {slope:.9g} and offset {offset:.9g}, expected {SLOPE:.9g} and {OFFSET:g}"
        yield (Kind.FLOAT32_CONSTANT if exactly < CLOSE else Kind.ACTIVATION), words
