"""What an attempt at a step has measured, for later attempts of which the port alone is another.

A change of the port that is to undo a mistake is judged first by the comparison that showed it, and everything else is taken from
the attempt that failed; only where that comparison passes, the whole step is worth its time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from alignment.compare import Quantity

ComparisonKey = tuple[str, int]  # class of a comparison, and its number among those of the class


class Measures(Protocol):
    """What is kept of a comparison: this file stands below those."""

    def measure(self, context: Any, role: str) -> Any: ...


class Earlier:
    """Measurements by comparison and role.

    Args:
        made: of an earlier attempt, which is to be used now; None to make a record of this one.
        wrong: which comparisons have failed then, each to be measured anew.
        reference: whether what the reference gave then is what it gives now.
        alone: only the comparisons that failed are measured, and the attempt ends with them; else all of the port's are.

    Attributes:
        passes: whether a comparison that failed passes now; None where none has been judged.
    """

    def __init__(
        self,
        made: dict[tuple[ComparisonKey, str], Any] | None = None,
        wrong: Sequence[ComparisonKey] = (),
        reference: bool = True,
        alone: bool = False,
    ) -> None:
        self.records = made is None
        self.made, self.wrong = {} if made is None else made, list(wrong)
        self.reference, self.alone = reference, alone
        self.passes: bool | None = None
        self._keys: dict[int, tuple[ComparisonKey, Measures]] = {}
        self._count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _key(self, comparison: Measures) -> ComparisonKey:
        with self._lock:
            if id(comparison) not in self._keys:
                name = type(comparison).__name__
                self._count[name] += 1
                self._keys[id(comparison)] = (name, self._count[name]), comparison
            return self._keys[id(comparison)][0]

    def measure(self, context: Any, comparison: Measures, role: str) -> Any:
        """What a comparison measures of one side, now or then."""
        key = self._key(comparison)
        of_then = (role == "reference" and self.reference) or (self.alone and key not in self.wrong)
        if not self.records and of_then and (key, role) in self.made:
            return self.made[key, role]
        measured = comparison.measure(context, role)
        if self.records:
            self.made[key, role] = measured
        return measured

    def judged(self, comparison: Measures, rows: Sequence[Quantity]) -> bool:
        """Whether the attempt is to end with the rows that a comparison has given."""
        key, right = self._key(comparison), all(row.passed for row in rows)
        if self.records and not right:
            self.wrong.append(key)
        if self.records or key not in self.wrong:
            return False
        self.passes = right
        return self.alone
