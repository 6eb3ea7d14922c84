"""What a check is, what it finds, and how a family of checks is run.

A family is a package of small modules; each function in them with ``@check`` is one check. A new check is one new function, and a
new kind of check one new file: nothing else lists them.
"""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mobilenetv3_common.called import as_called
from mobilenetv3_common.counted import agreed

SHOWN = 5  # places of a finding that a table shows; the page shows more, the JSON file all


class Verdict(str, enum.Enum):
    """The three answers of the checklists (seed 002)."""

    FOUND = "problem found"
    NONE = "none found"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Outcome:
    """What a check says of its subject.

    Attributes:
        verdict: one of the three.
        measured: what was measured, or why nothing could be, in one line.
        where: the places of the problem, the worst first; empty where none was found.
        unjudged: what no one may take for sound, as it was not judged, e.g. ``labels``: the last line names it.
    """

    verdict: Verdict
    measured: str
    where: tuple[str, ...] = ()
    unjudged: str = ""


def found(measured: str, where: Sequence[str] = ()) -> Outcome:
    """There is a problem."""
    return Outcome(Verdict.FOUND, agreed(measured), tuple(where))


def nothing(measured: str) -> Outcome:
    """It was looked for and is not there."""
    return Outcome(Verdict.NONE, agreed(measured))


def not_applicable(reason: str) -> Outcome:
    """It could not be looked for, and the reason."""
    return Outcome(Verdict.NOT_APPLICABLE, agreed(reason))


def not_judged(what: str, reason: str) -> Outcome:
    """It should have been looked for, and there was too little to judge it by: what, and the reason."""
    return Outcome(Verdict.NOT_APPLICABLE, agreed(reason), unjudged=what)


def judged(where: Sequence[str], problem: str, sound: str) -> Outcome:
    """A problem where there are places of it, else none.

    Args:
        where: the places.
        problem: what is said where there are some.
        sound: what is said where there are none.
    """
    return found(problem, where) if where else nothing(sound)


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        id: its name, ``family.what``.
        items: the items of the seeds' checklists that it decides, e.g. ``002 ds.01``.
        measures: what it looks at.
        fix: what to do where it finds a problem.
        run: the function; takes the family's subject.
    """

    id: str
    items: tuple[str, ...]
    measures: str
    fix: str
    run: Callable[[Any], Outcome]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check, with what the check says of itself."""

    check: Check
    outcome: Outcome

    @property
    def is_problem(self) -> bool:
        return self.outcome.verdict is Verdict.FOUND

    @property
    def fix(self) -> str:
        """What to do, with commands as the reader calls them."""
        return as_called(self.check.fix)


def check(id: str, *items: str, measures: str, fix: str) -> Callable[[Callable[[Any], Outcome]], Check]:
    """Make a function of a family's subject a check; the arguments are those of ``Check``."""

    def decorate(function: Callable[[Any], Outcome]) -> Check:
        return Check(id, items, measures, fix, function)

    return decorate


def checks_of(family: ModuleType) -> list[Check]:
    """The checks of every module in a package, by module name and then in the order of their definition."""
    found_checks = []
    for entry in sorted(pkgutil.iter_modules(family.__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{family.__name__}.{entry.name}")
        found_checks += [value for value in vars(module).values() if isinstance(value, Check)]
    return found_checks


def examine(family: ModuleType, subject: Any) -> list[Finding]:
    """Run every check of a family on its subject."""
    return [Finding(one, one.run(subject)) for one in checks_of(family)]
