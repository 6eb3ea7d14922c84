"""A hypothesis about one module, and the one place where hypotheses are confirmed.

A hypothesis is the reference's module with one mistake in it. It counts where it gives what the port gives and the right
module does not, for the input of the pass and, for a layer without children, for a second input over a wider range: a
mistake that shows beyond 6 alone is not taken for its neighbour that shows nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from alignment.finding import Hint
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import close, explains

PROBE = 4.0  # standard deviation of the second input: kinks lie at -3, 3 and 6


@dataclass(frozen=True)
class Hypothesis:
    """One mistake.

    Attributes:
        kind, words: what it is called where it is confirmed.
        made: what the reference's module with this mistake gives for an input; None where the mistake cannot be made.
    """

    kind: Kind
    words: str
    made: Callable[[np.ndarray], np.ndarray | None]


def confirmed(s: Subject, hypotheses: Iterable[Hypothesis]) -> Iterator[Hint]:
    """The hypotheses that explain what the port's module gives, for the input of the pass and for the second one."""
    tried = [one for one in (s, s.probe(PROBE)) if one is not None]
    trials = [(one.input, one.output, one.expected) for one in tried if one is s or not close(one.output, one.expected, 1e-12)]
    for hypothesis in hypotheses:
        if all(given is not None and explains(hypothesis.made(given), ours, right) for given, ours, right in trials):
            yield hypothesis.kind, hypothesis.words
