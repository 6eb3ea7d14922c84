"""A correction for each mistake: known from a layer's settings, or the first of the candidates with which the port is right."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import alignment.repair.forgotten
import alignment.repair.siblings  # noqa: F401 (both register their makers)
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.repair.candidates import Candidate, distinct, proposed
from alignment.repair.edits import Fix
from alignment.repair.regions import regions_of
from mobilenetv3_common.counted import counted

MOST = 150  # candidates of one mistake
AT_ONCE = 8  # of the likeliest, which are tried in one way and then in another
FOLLOWS = "it follows from a mistake that is corrected, and goes with it"
UNSEEN = "a trial gives both sides the same weights, and does not tell how fresh ones are drawn"
WRONG = "the one that its settings tell does not make the port right"
QUICK, SEARCHED = "outputs", "search"  # how a candidate is tried
Where = tuple[str, str]  # location and kind of a mistake


class Passes(Protocol):
    """Whether the port is right with some corrections, but for the mistakes at some places."""

    def __call__(self, fixes: Sequence[Fix], how: str, left: frozenset[Where] = frozenset()) -> bool: ...


@dataclass(frozen=True)
class Outcome:
    """What came of the search for one mistake.

    Attributes:
        place: of the mistake.
        found: its correction; None where there is none.
        why: no correction was found, for people.
    """

    place: str
    found: Candidate | None
    why: str = ""

    def line(self) -> str:
        """For people."""
        if self.found is None:
            return f"{self.place}: no correction found: {self.why}"
        edit = self.found.fix[0]
        return f"{self.place}: corrected in {edit.file.name}:{edit.line}"


def corrections(
    known: Sequence[Fix],
    places: Sequence[Where],
    tried: Sequence[Sequence[Candidate]],
    passes: Passes,
    budget: float,
    said: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Fix]:
    """The corrections that are known, and for the other mistakes those that are found.

    One that is known and with which the port is not right is replaced by one that is found; where none is, it stays.

    Args:
        known: a correction of each mistake, empty where there is none.
        places: of the mistakes.
        tried: candidates of each mistake.
        passes: tries one.
        budget: seconds for all mistakes.
        said: is told what came of each.
    """
    end = time.monotonic() + budget
    refused = _refused(known, places, passes) if budget > 0 else set()
    fixes = [() if number in refused else fix for number, fix in enumerate(known)]
    missing = [number for number, fix in enumerate(fixes) if not fix]
    for place, number in enumerate(missing):
        now = time.monotonic()
        until = now + max(end - now, 0.0) / (len(missing) - place)  # what one leaves over is for those that follow
        others = [fix for fix in fixes if fix]
        how = SEARCHED if passes(others, QUICK) else QUICK  # the outputs may not tell
        if how == SEARCHED and others and passes(others, SEARCHED):
            said(Outcome(places[number][0], None, UNSEEN if places[number][1] == Kind.INITIALISATION else FOLLOWS))
            continue
        left = frozenset(places[one] for one in missing if one != number and not fixes[one])  # also those that nothing corrected
        ways: list[Callable[[Sequence[Fix]], bool]] = [functools.partial(passes, how=how)]
        ways += [functools.partial(passes, how=SEARCHED, left=left)] if left else []
        found, count = _first(tried[number], others, ways, until)
        trials = len(tried[number]) * len(ways)
        why = (f"{WRONG}; " if number in refused else "") + _why(len(tried[number]), count, trials, until - now)
        said(Outcome(places[number][0], found, "" if found else why))
        fixes[number] = found.fix if found else ()
    return [fix or (known[number] if number in refused else ()) for number, fix in enumerate(fixes)]


def _refused(known: Sequence[Fix], places: Sequence[Where], passes: Passes) -> set[int]:
    """Which of the known corrections do not make the port right, but for the mistakes that have none."""
    given = [number for number, fix in enumerate(known) if fix]
    fixes, left = [known[number] for number in given], frozenset(place for place, fix in zip(places, known, strict=True) if not fix)
    if not given or (not left and passes(fixes, QUICK)) or passes(fixes, SEARCHED, left):
        return set()
    if len(given) == 1:
        return {*given}
    others = [frozenset(places) - {places[number]} for number in given]
    return {number for number, rest in zip(given, others, strict=True) if not passes([known[number]], SEARCHED, rest)}


def _first(
    tried: Sequence[Candidate], others: Sequence[Fix], ways: Sequence[Callable[[Sequence[Fix]], bool]], end: float
) -> tuple[Candidate | None, int]:
    """The first candidate that passes in one of the ways, and how many trials were made in the time that there is.

    A few of the likeliest are tried in every way before the next few are.
    """
    count = 0
    for start in range(0, len(tried), AT_ONCE):
        for passes, one in itertools.product(ways, tried[start : start + AT_ONCE]):
            if time.monotonic() > end:
                return None, count
            count += 1
            if passes([*others, one.fix]):
                return one, count
    return None, count


def _why(candidates: int, count: int, trials: int, share: float) -> str:
    """Why nothing was found, after so many of the trials, in its share of the seconds."""
    if not candidates:
        return "no candidate: the lines to blame are not known, or hold nothing that one small change could correct"
    over = f"its share of --patch-budget, {round(share, 1):g} seconds, was over"
    if not count:
        return f"not searched: {over}; with more, {counted(candidates, 'candidate')}, each one small change, can be tried"
    if count < trials:
        rest = counted(math.ceil(share * (trials - count) / count), "second")
        made = f"{count} of {counted(trials, 'trial')} made, the likeliest changes first, and none made the port right: {over}"
        return f"{made}; the other trials take about {rest} more, or correct the lines by hand"
    return f"none of {counted(candidates, 'candidate')} makes the port right: it may take several changes at once, or another place"


def likely(
    context: Context, finding: Finding, most: int = MOST, sources: Callable[[Path], bool] = lambda file: True
) -> list[Candidate]:
    """The candidates of a finding, the likeliest first.

    Args:
        context, finding: the two sides, and what was found.
        most: candidates.
        sources: which files may be changed, of the port's own.
    """
    made = [(one, region) for place, region in enumerate(regions_of(context, finding, sources)) for one in proposed(region, place)]
    return list(itertools.islice(distinct(sorted(made, key=lambda one: -one[0].weight)), most))
