"""A correction for each mistake: known from a layer's settings, or the first of the candidates with which the port is right."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import alignment.repair.forgotten  # noqa: F401 (registers its makers)
from alignment.comparisons.context import Context
from alignment.finding import Finding
from alignment.repair.candidates import FIRST_OF_ALL, MAKERS, Candidate, Region, candidates
from alignment.repair.edits import Fix
from alignment.repair.regions import regions_of

MOST = 150  # candidates of one mistake
QUICK, SEARCHED = "outputs", "search"  # how a candidate is tried
Where = tuple[str, str]  # location and kind of a mistake


class Passes(Protocol):
    """Whether the port is right with some corrections, but for the mistakes at some places."""

    def __call__(self, fixes: Sequence[Fix], how: str, left: frozenset[Where] = frozenset()) -> bool: ...


def corrections(
    known: Sequence[Fix],
    places: Sequence[Where],
    tried: Sequence[Iterable[Candidate]],
    passes: Passes,
    budget: float,
    said: Callable[[str], None] = lambda text: None,
) -> list[Fix]:
    """The corrections that are known, and for the other mistakes those that are found.

    Args:
        known: a correction of each mistake, empty where there is none.
        places: of the mistakes.
        tried: candidates of each mistake.
        passes: tries one.
        budget: seconds for all mistakes.
        said: is told what came of each.
    """
    fixes, end = list(known), time.monotonic() + budget
    missing = [number for number, fix in enumerate(fixes) if not fix]
    for number in missing:
        others = [fix for fix in fixes if fix]
        how = SEARCHED if passes(others, QUICK) else QUICK  # the outputs may not tell
        if how == SEARCHED and others and passes(others, SEARCHED):
            break  # what is left is a consequence of what is corrected
        left = frozenset(places[one] for one in missing if one > number)
        found = _first(tried[number], others, lambda fixes, how=how: passes(fixes, how), end)  # type: ignore[misc]
        if found is None and left:
            found = _first(tried[number], others, lambda fixes, left=left: passes(fixes, SEARCHED, left), end)  # type: ignore[misc]
        said(f"{places[number][0]}: {f'corrected ({found.kind})' if found else 'no correction found'}")
        fixes[number] = found.fix if found else ()
    return fixes


def _first(
    tried: Iterable[Candidate], others: Sequence[Fix], passes: Callable[[Sequence[Fix]], bool], end: float
) -> Candidate | None:
    for one in tried:
        if time.monotonic() > end:
            return None
        if passes([*others, one.fix]):
            return one
    return None


def likely(
    context: Context, finding: Finding, most: int = MOST, sources: Callable[[Path], bool] = lambda file: True
) -> list[Candidate]:
    """The candidates of a finding, those of the functions that it names first.

    Args:
        context, finding: the two sides, and what was found.
        most: candidates.
        sources: which files may be changed, of the port's own.
    """
    regions = regions_of(context, finding, sources)
    named, others = ([one for one in regions if one.named == so] for so in (True, False))
    behind = list(itertools.islice(_of(named), most - most // 3 if others else most))
    return list(itertools.islice(itertools.chain(behind, _of(others)), most))


def _of(regions: Sequence[Region]) -> Iterator[Candidate]:
    """Candidates of the blamed lines, those that read as the reference, then of the functions in turn."""
    blamed = (one for region in regions for one in candidates(region, MAKERS, near=True))
    first = (one for region in regions for one in candidates(region, FIRST_OF_ALL, near=False))
    rest = [candidates(region, [name for name in MAKERS if name not in FIRST_OF_ALL], near=False) for region in regions]
    in_turn = (one for row in itertools.zip_longest(*rest) for one in row if one is not None)
    return itertools.chain(blamed, first, in_turn)
