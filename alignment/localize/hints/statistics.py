"""Statistics of a normalisation layer that differ after a pass whose output is right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.localize.blame import Subject
from alignment.localize.finding import Hint
from alignment.localize.hints.arrays import close
from alignment.localize.kinds import Kind


def statistics(s: Subject) -> Iterator[Hint]:
    """Frozen, updated with another momentum, or from the biased variance."""
    what = s.blame.what
    if what not in s.blame.theirs.buffers:
        return
    network = s.pair.reference
    start = network.start[network.below(s.path)[what]]
    ours, theirs = s.blame.ours.buffers[what], s.blame.theirs.buffers[what]
    momentum = float(s.layer.settings.get("momentum") or 0.1)
    batch = start + (theirs - start) / momentum
    moved = np.abs(batch - start) > 1e-3 * np.abs(batch).max()
    if not moved.any() or ours.shape != theirs.shape:
        return
    seen = float(np.median((ours - start)[moved] / (batch - start)[moved]))
    if close(ours, start, 1e-9):
        yield Kind.STATISTICS_FROZEN, f"{what} is not updated in training: frozen, or the layer is in evaluation mode"
    if close(ours, start + (1 - momentum) * (batch - start)):
        yield (
            Kind.MOMENTUM_INVERTED,
            f"momentum inverted: the new batch has the share {seen:.4g} where torch's momentum gives it {momentum:g} "
            "(Paddle's momentum is the share of the old value)",
        )
    x = s.input
    if what.endswith("running_var") and x is not None and x.ndim >= 2:
        n = x.size // x.shape[1]
        biased = start + momentum * (batch * (n - 1) / n - start)
        if close(ours, biased, 1e-5) and not close(ours, theirs, 1e-9):
            yield Kind.BIASED_VARIANCE, f"biased variance: the batch variance lacks the factor n/(n-1) = {n}/{n - 1}"
        unbiased = start + momentum * (batch * n / max(n - 1, 1) - start)
        if close(ours, unbiased, 1e-5) and not close(ours, theirs, 1e-9):
            yield (
                Kind.UNBIASED_VARIANCE,
                f"unbiased variance: the batch variance has the factor n/(n-1) = {n}/{n - 1}, not expected",
            )
        flipped = start + (1 - momentum) * (batch * (n - 1) / n - start)
        if close(ours, flipped, 1e-5):
            yield Kind.MOMENTUM_INVERTED, "momentum inverted, and the variance is the biased one"
    if abs(seen - momentum) > 1e-3 * momentum and close(ours, start + seen * (batch - start), 1e-5):
        yield Kind.MOMENTUM, f"momentum {seen:.4g} in torch's sense, expected {momentum:g}"
