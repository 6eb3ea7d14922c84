"""Statistics of a normalisation layer that differ after a pass whose output is right."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.frameworks.base import Layer, leaves
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.hypothesis import Family, Hypothesis, Observed, seen


@dataclass(frozen=True)
class _StatisticsUpdate:
    """What a training pass made of one statistic.

    Attributes:
        name: of the statistic within the layer.
        momentum: the share that the batch has in the reference.
        start: the statistic before.
        batch: the batch's own, in the reference.
        ours, theirs: the statistic after the pass.
        count: values of each channel in the batch; 0 where unknown.
    """

    name: str
    momentum: float
    start: np.ndarray
    batch: np.ndarray
    ours: np.ndarray
    theirs: np.ndarray
    count: int

    def with_share(self, share: float, batch: np.ndarray) -> np.ndarray:
        """The statistic after, where the batch has another share."""
        return self.start + share * (batch - self.start)

    @property
    def biased(self) -> np.ndarray | None:
        """The batch's variance without the factor n / (n - 1); None where the statistic is none."""
        return self.batch * (self.count - 1) / self.count if self.name.endswith("running_var") and self.count > 1 else None


def _update(s: Subject) -> _StatisticsUpdate | None:
    """The statistic that is wrong; None where the layer has no momentum of its own, or the batch says nothing.

    An average that takes every batch with the same share has none to be wrong, nor has a buffer of somebody's own.
    """
    what, (layer, x) = s.blame.what, _normalising(s)
    momentum = layer.settings.get("momentum")
    if what not in s.blame.theirs.buffers or what not in s.blame.ours.buffers or not momentum:
        return None
    network, momentum = s.pair.reference, float(momentum)
    start = network.began(s.path, what)
    ours, theirs = s.blame.ours.buffers[what], s.blame.theirs.buffers[what]
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    batch = start + (theirs - start) / momentum
    if np.abs(batch - start).max(initial=0) <= tolerance.EXACT_RTOL * np.abs(batch).max(initial=0):  # it says nothing of its share
        return None
    count = x.size // x.shape[1] if x is not None and x.ndim >= 2 else 0
    what = what.partition("[")[0]  # without which part of the layer's it is
    return _StatisticsUpdate(what, momentum, start, batch, ours, theirs, count)


def _normalising(s: Subject) -> tuple[Layer, np.ndarray | None]:
    """The reference's layer that holds the statistic, and what it is given.

    It may lie in the module that is to blame: a layer whose channels the port has in several has no counterpart by itself.
    """
    network, inside = s.pair.reference, s.blame.what.partition("[")[0].rpartition(".")[0]
    path = f"{s.path}.{inside}" if s.path and inside else inside or s.path
    if not inside or path not in network.modules:
        return s.layer, s.input
    call = network.given_inside(s.path, s.call, [path]).get(path)
    return network.framework.layer(network.modules[path]), None if call is None else next(iter(leaves(call.args, np.ndarray)), None)


def _observed(s: Subject) -> list[Observed]:
    update = _update(s)
    return [Observed(update, update.ours, update.theirs)] if update else []


STATISTICS = Family("statistics", _observed)


@STATISTICS
def frozen(s: Subject) -> Iterator[Hypothesis]:
    if one := _update(s):
        words = f"{one.name} is not updated in training: frozen, or the layer is in evaluation mode"
        yield Hypothesis(Kind.STATISTICS_FROZEN, words, lambda update: update.start, tolerance.SAME)


@STATISTICS
def never_written(s: Subject) -> Iterator[Hypothesis]:
    """A statistic of a module of one's own, which the port leaves as it was."""
    what, ours, theirs = s.blame.what, s.blame.ours.buffers, s.blame.theirs.buffers
    if what not in ours or what not in theirs or s.layer.settings.get("momentum") or ours[what].shape != theirs[what].shape:
        return
    start = s.pair.reference.began(s.path, what)
    if np.array_equal(ours[what], start) and not np.array_equal(theirs[what], start):
        yield seen(Kind.STATISTICS_FROZEN, f"the buffer {what} stays as it was in the port: this statistic is not updated")


@STATISTICS
def momentum_inverted(s: Subject) -> Iterator[Hypothesis]:
    if one := _update(s):
        words = f"momentum inverted: the new batch has the share {1 - one.momentum:.4g} where torch's momentum gives it "
        words += f"{one.momentum:g} (Paddle's momentum is the share of the old value)"
        yield Hypothesis(Kind.MOMENTUM_INVERTED, words, lambda update: update.with_share(1 - update.momentum, update.batch))


@STATISTICS
def biased(s: Subject) -> Iterator[Hypothesis]:
    if (one := _update(s)) and one.biased is not None:
        words = f"biased variance: the batch variance lacks the factor n/(n-1) = {one.count}/{one.count - 1}"
        yield Hypothesis(Kind.BIASED_VARIANCE, words, lambda update: update.with_share(update.momentum, update.biased))


@STATISTICS
def unbiased(s: Subject) -> Iterator[Hypothesis]:
    if (one := _update(s)) and one.biased is not None:
        twice = one.batch * one.count / (one.count - 1)
        words = f"unbiased variance: the batch variance has the factor n/(n-1) = {one.count}/{one.count - 1}, not expected"
        yield Hypothesis(Kind.UNBIASED_VARIANCE, words, lambda update: update.with_share(update.momentum, twice))


@STATISTICS
def momentum_inverted_and_biased(s: Subject) -> Iterator[Hypothesis]:
    if (one := _update(s)) and one.biased is not None:
        words = "momentum inverted, and the variance is the biased one"
        yield Hypothesis(Kind.MOMENTUM_INVERTED, words, lambda update: update.with_share(1 - update.momentum, update.biased))


@STATISTICS
def momentum(s: Subject) -> Iterator[Hypothesis]:
    """Another share, which most of the channels show."""
    if (one := _update(s)) is None:
        return
    far = np.abs(one.batch - one.start)
    moved = far > tolerance.READABLE * far.max(initial=0)
    for made_from, remark in ((one.batch, ""), (one.biased, ", and the variance is the biased one")):
        if made_from is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            share = float(np.median((one.ours - one.start)[moved] / (made_from - one.start)[moved]))
        if np.isfinite(share):
            words = f"momentum {share:.4g} in torch's sense, expected {one.momentum:g}{remark}"
            yield Hypothesis(Kind.MOMENTUM, words, functools.partial(_with_share, share, made_from))


def _with_share(share: float, batch: np.ndarray, update: _StatisticsUpdate) -> np.ndarray:
    return update.with_share(share, batch)
