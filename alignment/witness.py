"""What is known of code that both sides share: a comparison of the sides proves nothing of it, a value from outside does.

A project declares its witnesses (``Project.witnesses``). Each names what it speaks for, computes it by the code under test, and
holds it against a value from elsewhere: a closed formula, a literal table, or another library. No expected value is taken from the
run that it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from alignment.kinds import Kind


@dataclass(frozen=True)
class Told:
    """One value of the code under test, and what it must be.

    Attributes:
        case: the circumstances in words.
        computed: a number, an array, a text, or a list or dict of them.
        expected: the same from elsewhere.
        place: the function to blame, where it is not the witness's own.
        kind: of the mistake, where it is not the witness's own.
        features: how many settings the case has beyond a plain run; of several cases that fail, the plainest is said.
        alone: whether the case calls its ``place`` alone, so that one that passes shows the function to be right.
        instead: the function to blame where cases show that ``place`` is right.
    """

    case: str
    computed: Any
    expected: Any
    place: str = ""
    kind: Kind | None = None
    features: int = 0
    alone: bool = False
    instead: str = ""


@dataclass(frozen=True)
class Witness:
    """What one part of shared code must give.

    Attributes:
        place: the function or class that decides, e.g. ``"run.training_plan"``; it is unique in a project.
        topics: what it speaks for, in the words of ``alignment.comparisons.topics``.
        source: where the expected values come from.
        tell: computes the values, smallest circumstances first; what it raises is the shared code's mistake.
        step: of the step in which it runs.
        kind: of the mistake that it shows.
    """

    place: str
    topics: tuple[str, ...]
    source: str
    tell: Callable[[], Iterable[Told]]
    step: int = 6
    kind: Kind = Kind.SHARED
