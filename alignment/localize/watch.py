"""How long a search of modules may last, and what is said while a long one goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

QUIET = 10.0  # seconds: a shorter search says nothing before its end
BETWEEN = 30.0  # seconds between two lines on where a search is


class Watch:
    """The time of one search.

    Args:
        budget: seconds that it may last; what it is doing then is ended at the next module.
        quiet: seconds after which it begins to say what it has found, and where it is.
        between: seconds between two lines on where it is.
        say: prints a line.

    Attributes:
        ended: whether the budget was used up while there was something left to look at.
        left: what was not searched because of that, in the words of the verdict.
    """

    def __init__(
        self, budget: float = math.inf, quiet: float = QUIET, between: float = BETWEEN, say: Callable[[str], None] | None = None
    ) -> None:
        self.budget, self.quiet, self.between, self.say = budget, quiet, between, say
        self.ended, self.left = False, list[str]()
        self._start = self._spoken = time.monotonic()
        self._found: list[str] = []
        self._again: dict[str, list[str]] = {}  # further places of what was found, by how it reads

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.monotonic() - self._start

    def goes_on(self, where: str) -> bool:
        """Whether there is time to look at a place; a search that has been quiet for long says that it is there."""
        self.ended = self.ended or self.seconds > self.budget
        if not self.ended and self.seconds > self.quiet and time.monotonic() - self._spoken > self.between:
            self._repeat()
            self._tell(*self._found, f"  {self.seconds:.0f} s: looking at {where}")
            self._found.clear()
        return not self.ended

    def found(self, line: str, alike: str = "", place: str = "") -> None:
        """A finding: a long search prints each as it is found, so that nothing is lost where it is killed.

        Of findings that are alike the first has a line; the places of the others are said together, with what comes next.
        """
        if alike and alike in self._again:
            self._again[alike].append(place)
            return
        self._repeat()
        self._again[alike] = []
        self._found.append(f"  found after {self.seconds:.0f} s: {line}")
        if self.seconds > self.quiet:
            self._tell(*self._found)
            self._found.clear()

    def words(self) -> str:
        """What was left out for want of time; ``""`` where nothing was."""
        if not self.left:
            return ""
        return f"the search ended when the {self.budget:g} seconds of --budget were over; not searched: {', '.join(self.left)}"

    def _repeat(self) -> None:
        """Say where else the findings so far were seen."""
        for places in self._again.values():
            if places:
                self._found.append(f"    and also at {', '.join(places)}")
                places.clear()

    def _tell(self, *lines: str) -> None:
        first, self._spoken = self._spoken == self._start, time.monotonic()  # the line before the first has no end
        if self.say is not None:
            self.say("\n" * first + "\n".join(lines))
