"""Which numbers a setting may have, written as mathematicians write intervals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """An interval of numbers; neither NaN nor infinity is ever in it.

    Attributes:
        low, high: ends; ``high`` may be infinite.
        above, below: whether ``low`` and ``high`` themselves are left out.
    """

    low: float
    high: float
    above: bool
    below: bool

    @classmethod
    def parse(cls, text: str) -> Range:
        """From ``"[0, 1)"``, ``"(0, inf)"`` and the like.

        Raises:
            ValueError: the text is no interval.
        """
        found = re.fullmatch(r"([\[(])([^,]+), ([^,]+)([\])])", text)
        if found is None:
            raise ValueError(f"no interval: {text!r}")
        return cls(float(found[2]), float(found[3]), found[1] == "(", found[4] == ")")

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (value > self.low if self.above else value >= self.low) and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        """As a message says it: ``"at least 1"``, ``"above 0"``, ``"from 0 to below 1"``."""
        low, high = (f"{number:,.0f}" if abs(number) >= 1000 else f"{number:g}" for number in (self.low, self.high))
        if math.isinf(self.high):
            return f"above {low}" if self.above else f"at least {low}"
        return f"{'above' if self.above else 'from'} {low} to {'below ' if self.below else ''}{high}"
