"""Where two runs part, in one line."""

from __future__ import annotations

import math

from alignment_doctor.compare.entries import Entry
from alignment_doctor.compare.subject import ABOVE_THE_SPREAD, SECOND_LOSS, RunsSubject, relative, rounding


def verdict(subject: RunsSubject) -> str:
    """One line: the first update at which the runs part, or that they are equal but for rounding, or how far that is known.

    Losses of runs that begin alike may differ by rounding in the first two updates; later ones by what repeated runs do.
    """
    unit = "epoch" if subject.whole else "update"
    if not subject.losses:
        return f"no {unit} has a loss in both logs"
    rates = other_rates(subject)
    at = min((place for place in (first_apart(subject), rates[0][0].update if rates else None) if place is not None), default=None)
    if at is not None:
        what = "the learning rate" if rates and rates[0][0].update == at else "the loss"
        return f"the runs part at {unit} {at}, by {what}"
    if not subject.same_start:
        return f"the runs do not begin alike as far as their settings tell: no {unit} is said to be the first"
    equal = equal_until(subject)
    last = subject.losses[-1][0].update
    if equal == last:
        return f"equal but for rounding up to {unit} {last}, the last one of both"
    rest = "within the spread of repeated runs" if subject.spread else "further apart, which --repeats can judge"
    return f"equal but for rounding up to {unit} {equal}, then {rest}" if equal else f"from the first {unit} on {rest}"


def first_apart(subject: RunsSubject) -> int | None:
    """The first update whose losses differ by more than they may; None where none does, or none is judged."""
    for a, b in subject.losses:
        allowed = _allowed(subject, a, b)
        if allowed is not None and relative(a.loss, b.loss) > allowed:
            return a.update
    return None


def _allowed(subject: RunsSubject, a: Entry, b: Entry) -> float | None:
    if subject.same_start and a.update == 1 and not subject.whole:
        return subject.limit + rounding(a, b)
    if subject.same_start and a.update == 2 and not subject.whole:
        return SECOND_LOSS * subject.limit + 2 * rounding(a, b)
    if a.update in subject.spread:
        return ABOVE_THE_SPREAD * subject.spread[a.update] + rounding(a, b) + subject.limit
    return None


def equal_until(subject: RunsSubject) -> int:
    """The last update until which all losses agree but for rounding; 0 where the first does not."""
    until = 0
    for a, b in subject.losses:
        allowed = subject.limit + rounding(a, b) if a.update == 1 else SECOND_LOSS * subject.limit + 2 * rounding(a, b)
        if relative(a.loss, b.loss) > allowed:
            break
        until = a.update
    return until


def other_rates(subject: RunsSubject) -> list[tuple[Entry, Entry]]:
    """The lines at whose update the learning rate differs by more than its digits."""
    return [(a, b) for a, b in subject.rates if not _same_rate(a, b)]


def _same_rate(a: Entry, b: Entry) -> bool:
    assert a.lr is not None and b.lr is not None
    if math.isnan(a.lr) and math.isnan(b.lr):
        return True
    allowed = a.lr_rounding + b.lr_rounding + 1e-6 * max(abs(a.lr), abs(b.lr))
    return math.isclose(a.lr, b.lr, rel_tol=0, abs_tol=allowed + 1e-12)
