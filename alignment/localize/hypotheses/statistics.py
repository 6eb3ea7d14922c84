"""Statistics of a normalisation layer that differ after a pass whose output is right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import explains

ROUNDING = 1e-12  # of a statistic: a batch whose own is no farther from it says nothing of the share that it is given


def statistics(s: Subject) -> Iterator[Hint]:
    """Frozen, updated with another momentum, or from the biased variance.

    Only a layer that has a momentum of its own is spoken of: a part that holds several layers, or an average that takes every
    batch with the same share, has none to be wrong.
    """
    what = s.blame.what
    momentum = s.layer.settings.get("momentum")
    if what not in s.blame.theirs.buffers or what not in s.blame.ours.buffers or not momentum:
        return
    momentum = float(momentum)
    network = s.pair.reference
    start = network.start[network.below(s.path)[what]]
    ours, theirs = s.blame.ours.buffers[what], s.blame.theirs.buffers[what]
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return
    batch = start + (theirs - start) / momentum
    biased = batch
    x, variance = s.input, what.endswith("running_var")
    n = x.size // x.shape[1] if x is not None and x.ndim >= 2 else 0
    far = np.abs(batch - start)
    moved = far > 1e-3 * far.max(initial=0)
    if far.max(initial=0) <= ROUNDING * np.abs(batch).max(initial=0):
        return
    if explains(start, ours, theirs, 1e-9):
        yield Kind.STATISTICS_FROZEN, f"{what} is not updated in training: frozen, or the layer is in evaluation mode"
    if explains(start + (1 - momentum) * (batch - start), ours, theirs):
        yield (
            Kind.MOMENTUM_INVERTED,
            f"momentum inverted: the new batch has the share {1 - momentum:.4g} where torch's momentum gives it {momentum:g} "
            "(Paddle's momentum is the share of the old value)",
        )
    if variance and n > 1:
        biased = batch * (n - 1) / n
        if explains(start + momentum * (biased - start), ours, theirs):
            yield Kind.BIASED_VARIANCE, f"biased variance: the batch variance lacks the factor n/(n-1) = {n}/{n - 1}"
        if explains(start + momentum * (batch * n / (n - 1) - start), ours, theirs):
            yield (
                Kind.UNBIASED_VARIANCE,
                f"unbiased variance: the batch variance has the factor n/(n-1) = {n}/{n - 1}, not expected",
            )
        if explains(start + (1 - momentum) * (biased - start), ours, theirs):
            yield Kind.MOMENTUM_INVERTED, "momentum inverted, and the variance is the biased one"
    for made_from, remark in ((batch, ""), *(((biased, ", and the variance is the biased one"),) if biased is not batch else ())):
        with np.errstate(divide="ignore", invalid="ignore"):
            seen = float(np.median((ours - start)[moved] / (made_from - start)[moved]))
        if np.isfinite(seen) and explains(start + seen * (made_from - start), ours, theirs):
            yield Kind.MOMENTUM, f"momentum {seen:.4g} in torch's sense, expected {momentum:g}{remark}"
    if what.endswith("running_mean") and explains(batch, ours, theirs):
        yield Kind.MOMENTUM, "the statistics are those of the last batch: momentum 1 in torch's sense"
