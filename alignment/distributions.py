"""Whether samples have the distribution that they ought to have; the probability of a false alarm is bounded, not estimated.

Each row may fail a right sample with a probability of at most ``tolerance.DRAWS_FALSE_ALARM``. The bounds hold for every
sample size and for discrete values too, where they are only more cautious.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity

OTHER = "all others"


class Gap(NamedTuple):
    """How far two samples lie apart.

    Attributes:
        largest: the largest gap of the two distribution functions, 0..1.
        allowed: what chance alone exceeds with the row's probability.
        beyond: values of one sample that lie beyond all of the other's, at the end where there are most.
        allowed_beyond: likewise.
    """

    largest: float
    allowed: float
    beyond: int
    allowed_beyond: int

    @property
    def same(self) -> bool:
        """Whether the two may have the same distribution."""
        return self.largest <= self.allowed and self.beyond <= self.allowed_beyond


def gap(ours: np.ndarray, theirs: np.ndarray, false_alarm: float = tolerance.DRAWS_FALSE_ALARM) -> Gap:
    """Compare two samples; the larger one is cut to the size of the smaller.

    Two tests share the probability of a false alarm. The gap of the distribution functions is Kolmogorov and Smirnov's; for two
    samples of n values, P(gap > x) <= e exp(-n x^2) (Wei and Dudley 2012). The values at the ends show other bounds of a
    range sooner: that the k smallest of all 2n values come from one of the two samples has a probability of at most 2^(1-k).

    Args:
        ours, theirs: float (n,).
        false_alarm: probability that two samples of one distribution are called different.
    """
    n = min(len(ours), len(theirs))
    a, b = np.sort(ours[:n]), np.sort(theirs[:n])
    values = np.concatenate([a, b])
    largest = float(np.abs(np.searchsorted(a, values, "right") - np.searchsorted(b, values, "right")).max(initial=0)) / max(n, 1)
    ends = [(a < b[0]).sum(), (b < a[0]).sum(), (a > b[-1]).sum(), (b > a[-1]).sum()] if n else [0]
    half = false_alarm / 2
    return Gap(largest, math.sqrt((1 - math.log(half)) / max(n, 1)), int(max(ends)), math.ceil(math.log2(4 / half)))


def same_values(name: str, ours: np.ndarray, theirs: np.ndarray) -> Quantity:
    """A row for two samples of one quantity."""
    row = Quantity(name, [len(ours)])
    if not len(ours) or not len(theirs):
        return row.fail(f"{len(ours)} values in the port, {len(theirs)} expected to be compared")
    found = gap(ours, theirs)
    if not found.same:
        row.fail(
            f"another distribution: {_range(ours)}, in {len(ours)} draws, expected {_range(theirs)}; the distribution functions "
            f"differ by {found.largest:.3g} (by chance at most {found.allowed:.3g}), {found.beyond} values lie beyond the other's "
            f"(by chance at most {found.allowed_beyond})"
        )
    return row


def _range(values: np.ndarray) -> str:
    return f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"


def divergence(share: float, probability: float) -> float:
    """Kullback and Leibler's divergence of two coins, in nats; infinite where the second excludes what the first has."""
    terms = ((share, probability), (1 - share, 1 - probability))
    if any(s > 0 and p <= 0 for s, p in terms):
        return math.inf
    return sum(s * math.log(s / p) for s, p in terms if s > 0)


def same_shares(name: str, ours: Iterable[Hashable], theirs: Iterable[Hashable], *, least: float = 0.01) -> Quantity:
    """A row for two samples of equal size of a quantity with few values, value by value.

    Of a value that both samples together have k times, one has its part of k by a draw without replacement, which
    Chernoff's bound for a fair coin covers (Hoeffding 1963): P <= 2 exp(-k divergence).

    Args:
        name: of the row.
        ours, theirs: the values.
        least: values with a smaller share of both together are counted as one.
    """
    counted = Counter(ours), Counter(theirs)
    size = sum(counted[0].values())
    row = Quantity(name, [size])
    both = counted[0] + counted[1]
    kept = {value for value, number in both.items() if number >= 2 * size * least}
    cells = [Counter({value: number[value] for value in kept}) + Counter(_others(number, kept)) for number in counted]
    values = [*kept, OTHER]
    allowed = math.log(2 * len(values) / tolerance.DRAWS_FALSE_ALARM)
    for value in values:
        a, b = cells[0][value], cells[1][value]
        if a + b and (a + b) * divergence(a / (a + b), 0.5) > allowed:
            row.fail(f"{value} is drawn {a} times in {size}, expected about {b}")
    return row


def _others(counted: Counter, kept: set) -> dict[str, int]:
    return {OTHER: sum(number for value, number in counted.items() if value not in kept)}


def as_stated(name: str, counted: Mapping[Any, int], size: int, law: Mapping[Any, float]) -> Quantity:
    """A row for events that were counted, against their probabilities.

    By Chernoff's bound an event's share of n independent draws has P <= 2 exp(-n divergence); one that cannot occur must not.

    Args:
        name: of the row.
        counted: how often each event occurred.
        size: the number of draws.
        law: each event's probability in one draw.
    """
    row = Quantity(name, [size])
    allowed = math.log(2 * max(len(law), 1) / tolerance.DRAWS_FALSE_ALARM)
    if not size:
        return row.fail("nothing was drawn")
    impossible = [event for event in counted if not law.get(event)]
    wrong = [event for event, p in law.items() if size * divergence(min(counted.get(event, 0) / size, 1.0), min(p, 1.0)) > allowed]
    found = [*impossible, *wrong]
    if found:
        times, expected = counted.get(found[0], 0), law.get(found[0], 0.0) * size
        row.fail(f"{_event(found[0])}: {times} times in {size}, expected {'never' if not expected else f'about {expected:.0f}'}")
    return row.note(f"{len(found) - 1} more events differ") if len(found) > 1 else row


def _event(event: Any) -> str:
    parts = event if isinstance(event, tuple) else (event,)
    return " ".join(f"{part:.6g}" if isinstance(part, float) else str(part) for part in parts)
