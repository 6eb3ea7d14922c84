"""Are the results of two trainings equal? Paired two one-sided tests (TOST) on what each seed's two runs differ by.

That a test finds no difference says little: noisy seeds hide anything. Equivalence turns the question round. It is shown where
the 90 % confidence interval of the mean difference lies within a declared margin; a difference is shown where the 95 % interval
lies outside of it; else the answer is "undecided", with the number of further seeds that would probably decide. Source:
D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987; the margin of 0.15 points is
that of document 000, step 10.

Whoever looks again after each further seed has more chances of a wrong answer. Looks after every number of seeds from 3 up to a
``budget`` share the error rate. The level of a single look is computed from random walks of normal numbers: the error rate depends
on nothing else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alignment import tolerance

FEWEST = 3  # seeds: the spread of two tells nothing
MOST = 1000  # seeds that are looked for in advance
WALKS = 40_000  # of normal numbers, from which the level of a single look is computed
POWER = 0.8  # with which the further seeds would decide


@dataclass(frozen=True)
class Equivalence:
    """The answer.

    Attributes:
        answer: ``"equal within the margin"``, ``"different"`` (beyond the margin), or ``"undecided"``.
        seeds: pairs of runs, or runs of the trusted side.
        mean: difference of port and reference, in the numbers' own unit.
        low, high: its confidence interval.
        deviation: standard deviation of the differences, or of the trusted side's runs.
        margin: below which a difference does not matter.
        alone: variance of the port's side, in that of one run: 0 where runs are paired, 1 where it has one run.
        level: of one look, at each end.
    """

    answer: str
    seeds: int
    mean: float
    low: float
    high: float
    deviation: float
    margin: float
    alone: float
    level: float

    @property
    def decided(self) -> bool:
        return self.answer != UNDECIDED

    @property
    def more(self) -> int | None:
        """How many further seeds would probably decide, if mean and deviation stay; 0 where it is decided, None where none of up to
        1,000 would."""
        if self.decided:
            return 0
        if self.seeds < FEWEST:
            return FEWEST - self.seeds
        counts = np.arange(self.seeds + 1, MOST + 1)
        level = self.level if abs(self.mean) < self.margin else self.level / 2
        needed = (_student(counts, level) + _student(counts, 1 - POWER)) * self.deviation * np.sqrt(self.alone + 1 / counts)
        enough = needed <= abs(abs(self.mean) - self.margin)
        return int(counts[int(np.argmax(enough))]) - self.seeds if enough.any() else None

    def words(self, scale: float = 1.0, unit: str = "") -> str:
        """One line; numbers are multiplied by ``scale``, and have a ``unit``."""
        mean, low, high, deviation, margin = (scale * v for v in (self.mean, self.low, self.high, self.deviation, self.margin))
        mean = mean if abs(mean) > tolerance.EXACT_RTOL * max(abs(low), abs(high)) else 0.0  # -3.6e-15 is rounding
        what = "difference from the mean" if self.alone else "mean difference"
        said = f"{self.answer}: {what} of {self.seeds} {'runs' if self.alone else 'pairs'} {mean:+.3g}{unit}"
        if self.seeds < FEWEST:
            return f"{said}; {FEWEST} or more are needed"
        said += f" (interval {low:+.3g} to {high:+.3g}, standard deviation {deviation:.3g}, margin {margin:.3g})"
        if self.decided:
            return said
        said += "; there is a difference, whether it exceeds the margin is not known" if low > 0 or high < 0 else ""
        return f"{said}; " + (f"about {self.more} more seeds would decide" if self.more else f"{MOST} seeds would not decide")


EQUAL, DIFFERENT, UNDECIDED = "equal within the margin", "different", "undecided"


def equivalence(
    ours: Sequence[float],
    theirs: Sequence[float],
    margin: float = tolerance.ACCURACY_DIFFERENCE,
    budget: int | None = None,
    step: float = 0.0,
) -> Equivalence:
    """Judge paired results.

    Args:
        ours, theirs: a number for each seed, of the port and of the reference, in the same order; runs of one seed begin from the
            same weights, and see the same pictures and masks, so that what the seed does to both falls out.
        margin: in the numbers' own unit, above 0.
        budget: the most seeds that are tried, where the answer is looked at after each; None where it is looked at once.
        step: what the numbers are rounded to, e.g. one picture of the evaluation: equal numbers are not known any closer.

    Raises:
        ValueError: numbers that are not finite, of two lengths, or none; a margin that is not above 0; more seeds than the budget.
    """
    differences = np.asarray(ours, float) - np.asarray(theirs, float)
    if len(ours) != len(theirs) or not len(ours) or not np.isfinite(differences).all():
        raise ValueError(f"{len(ours)} and {len(theirs)} numbers: give as many finite numbers of one side as of the other")
    if budget is not None and len(differences) > budget:
        raise ValueError(f"{len(differences)} seeds are more than the budget of {budget}")
    level = tolerance.EQUIVALENCE_LEVEL if budget is None else look_level(budget)
    variance = float(differences.var(ddof=1)) if len(differences) > 1 else math.nan
    return _judged(float(differences.mean()), variance + step**2 / 6, len(differences), 0.0, margin, level)


def surely_different(
    ours: Sequence[float],
    theirs: Sequence[float],
    margin: float = tolerance.ACCURACY_DIFFERENCE,
    step: float = 0.0,
    level: float = tolerance.ACCURACY_FALSE_FAILURE,
) -> bool:
    """Whether the means differ by more than the margin, with at most ``level`` of equal ones called so.

    The differences of pairs are tested, and the two sides as if nothing paired them, each at half of the level: few pairs say
    little of their own spread, and pairs that chaotic training has parted are no better than others. Where seeds move both sides
    alike, the second test errs less than it may.

    Args:
        ours, theirs, margin, step: as of ``equivalence``.
        level: of both tests together.
    """
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    count = len(a)
    if count < FEWEST:
        return False
    beyond = abs(float(a.mean() - b.mean())) - margin
    paired = (float((a - b).var(ddof=1)) + step**2 / 6) / count
    alone = (float(a.var(ddof=1) + b.var(ddof=1)) + step**2 / 6) / count
    wide = float(_student(count, level / 4)) * math.sqrt(paired), float(_student(2 * count - 1, level / 4)) * math.sqrt(alone)
    return beyond > min(wide)


def one_against_many(
    ours: float, theirs: Sequence[float], margin: float = tolerance.ACCURACY_DIFFERENCE, step: float = 0.0
) -> Equivalence:
    """Judge one run against several of the trusted side, whose spread is taken to be its own, too.

    Args:
        ours: its result.
        theirs: results of runs of the trusted side with other seeds.
        margin, step: as of ``equivalence``.

    Raises:
        ValueError: numbers that are not finite, or none; a margin that is not above 0.
    """
    if not len(theirs) or not np.isfinite([ours, *theirs]).all():
        raise ValueError("give finite numbers, one or more of the trusted side")
    variance = float(np.var(theirs, ddof=1)) if len(theirs) > 1 else math.nan
    return _judged(ours - float(np.mean(theirs)), variance + step**2 / 12, len(theirs), 1.0, margin, tolerance.EQUIVALENCE_LEVEL)


def _judged(mean: float, variance: float, count: int, alone: float, margin: float, level: float) -> Equivalence:
    """The answer from a difference whose variance is ``variance * (alone + 1 / count)``, known from ``count`` numbers."""
    if not (margin > 0 and math.isfinite(margin)):
        raise ValueError(f"a margin of {margin}: it is a number above 0")
    if count < FEWEST:
        return Equivalence(UNDECIDED, count, mean, -math.inf, math.inf, math.sqrt(variance), margin, alone, level)
    error = math.sqrt(variance * (alone + 1 / count))
    half, wide = float(_student(count, level)) * error, float(_student(count, level / 2)) * error
    low, high = mean - half, mean + half
    # A port without a difference may seem better or worse: both together are as likely as one wrong "equal".
    answer = EQUAL if -margin < low and high < margin else DIFFERENT if abs(mean) - wide > margin else UNDECIDED
    return Equivalence(answer, count, mean, low, high, math.sqrt(variance), margin, alone, level)


def _student(count: int | np.ndarray, level: float) -> np.ndarray:
    """The quantile of Student's distribution for a mean of so many differences."""
    from scipy.special import stdtrit  # here: who asks for nothing of this kind needs no scipy

    return stdtrit(np.asarray(count, float) - 1, 1 - level)


@functools.lru_cache
def look_level(budget: int) -> float:
    """The level of each look after 3, 4, ... ``budget`` seeds, at which all of them together err as often as one look may."""
    from scipy.special import stdtr

    if budget <= FEWEST:
        return tolerance.EQUIVALENCE_LEVEL
    walks = np.random.default_rng(0).standard_normal((WALKS, budget))
    counts = np.arange(1, budget + 1)
    means = walks.cumsum(1) / counts
    variances = ((walks**2).cumsum(1) - counts * means**2)[:, FEWEST - 1 :] / (counts[FEWEST - 1 :] - 1)
    heights = means[:, FEWEST - 1 :] * np.sqrt(counts[FEWEST - 1 :] / variances)
    smallest = stdtr(counts[FEWEST - 1 :] - 1.0, heights).min(1)  # over the looks: how far below the end of the margin it seems
    return float(np.quantile(smallest, tolerance.EQUIVALENCE_LEVEL))
