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

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.monotonic() - self._start

    def goes_on(self, where: str) -> bool:
        """Whether there is time to look at a place; a search that has been quiet for long says that it is there."""
        self.ended = self.ended or self.seconds > self.budget
        if not self.ended and self.seconds > self.quiet and time.monotonic() - self._spoken > self.between:
            self._tell(f"  {self.seconds:.0f} s: looking at {where}")
        return not self.ended

    def found(self, line: str) -> None:
        """A finding: a long search prints each as it is found, so that nothing is lost where it is killed."""
        self._found.append(f"  found after {self.seconds:.0f} s: {line}")
        if self.seconds > self.quiet:
            self._tell(*self._found)
            self._found.clear()

    def words(self) -> str:
        """What was left out for want of time; ``""`` where nothing was."""
        if not self.left:
            return ""
        return f"the search ended when the {self.budget:g} seconds of --budget were over; not searched: {', '.join(self.left)}"

    def _tell(self, *lines: str) -> None:
        self._spoken = time.monotonic()
        if self.say is not None:
            self.say("\n" + "\n".join(lines))
