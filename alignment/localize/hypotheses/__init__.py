"""What mistake a difference looks like.

Each known mistake is tried as a hypothesis: the reference's module is computed again with that mistake in it, and where the
port's result is that to rounding and the right module's is not (``arrays.explains``), the mistake is named with what was
measured. A hint is never a guess from a size.
"""

from __future__ import annotations

from alignment.finding import NO_HINT, Hint
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.backward import backward
from alignment.localize.hypotheses.general import general, random
from alignment.localize.hypotheses.layers import layers
from alignment.localize.hypotheses.outputs import another_output, detached_outputs, exchanged
from alignment.localize.hypotheses.statistics import statistics
from alignment.localize.hypotheses.tables import tables


def hint(subject: Subject) -> Hint:
    """Kind and words of the likeliest mistake; ``NO_HINT`` where none fits."""
    backwards, forwards = (detached_outputs, backward), (statistics, layers, tables, random, exchanged, another_output, general)
    for hypotheses in backwards if subject.phase == "backward" else forwards:
        for found in hypotheses(subject):
            return found
    return NO_HINT
