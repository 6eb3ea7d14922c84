"""What is measured of one module that is to blame: the cases in which hypotheses about it must hold."""

from __future__ import annotations

from alignment.localize.blame import Subject
from alignment.localize.hypotheses.hypothesis import Observed

PROBE = 4.0  # standard deviation of the second input: kinks lie at -3, 3 and 6


def of_pass(s: Subject) -> list[Observed]:
    """The module's first output in the pass; predictions are given the subject."""
    return [Observed(s, s.output, s.expected)]


def by_input(s: Subject) -> list[Observed]:
    """The first output for the input of the pass and, of a layer without children, for a second input over a wider range.

    A mistake that shows beyond 6 alone is then not taken for its neighbour that shows nowhere. Predictions are given the input.
    """
    return [Observed(one.input, one.output, one.expected) for one in _tried(s) if one.input is not None]


def by_call(s: Subject) -> list[Observed]:
    """Of both inputs the first output that differs; predictions are given the subject."""
    return [Observed(one, one.ours_at_first, one.right_at_first) for one in _tried(s)]


def by_repair(s: Subject) -> list[Observed]:
    """As ``by_call``, the other way round: a prediction puts the port right, and must give what the reference gives."""
    return [Observed(one, one.expected, one.output) for one in _tried(s)]


def by_repair_of_pass(s: Subject) -> list[Observed]:
    """As ``by_repair``, in the pass alone, of the first output that differs."""
    return [Observed(s, s.right_at_first, s.ours_at_first)]


def _tried(s: Subject) -> list[Subject]:
    second = s.probe(PROBE)
    return [s] if second is None else [s, second]
