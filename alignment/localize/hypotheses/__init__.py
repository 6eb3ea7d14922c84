"""What mistake a difference looks like.

Each known mistake is tried as a hypothesis: the reference's module is computed again with that mistake in it, and where the port
gives just that in every case that was measured (``hypothesis.confirmed``), the mistake is named with what was measured. A hint is
never a guess from a size.
"""

from __future__ import annotations

from collections.abc import Iterator

from alignment.finding import NO_HINT, Hint
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.activation import GATE
from alignment.localize.hypotheses.attention import ATTENTION_LAYER
from alignment.localize.hypotheses.backward import BACKWARD
from alignment.localize.hypotheses.general import GENERAL, RANDOM
from alignment.localize.hypotheses.hypothesis import Family
from alignment.localize.hypotheses.layers import DROPOUT, OF_KIND, SQUEEZE
from alignment.localize.hypotheses.outputs import ANOTHER_OUTPUT, DETACHED, OUTPUTS
from alignment.localize.hypotheses.settings import OWN_FUNCTION, OWN_SETTING, SETTINGS
from alignment.localize.hypotheses.statistics import STATISTICS
from alignment.localize.hypotheses.tables import TABLES
from alignment.localize.hypotheses.wiring import SIBLINGS, WIRING


def hint(subject: Subject) -> Hint:
    """Kind and words of the likeliest mistake; ``NO_HINT`` where none fits."""
    for family in _families(subject):
        if (found := family.hint(subject)) != NO_HINT:
            return found
    return NO_HINT


def _families(s: Subject) -> Iterator[Family]:
    """The families that are asked about a subject, in order."""
    if s.phase == "backward":
        yield from (DETACHED, BACKWARD)
        return
    yield STATISTICS
    if s.input is not None:
        yield from _of_layer(s)
    yield from (TABLES, RANDOM, OUTPUTS, ANOTHER_OUTPUT, GENERAL)


def _of_layer(s: Subject) -> Iterator[Family]:
    """Those for the kind of layer that the reference has here."""
    kind, network = s.layer.kind, s.pair.reference
    if kind == "dropout":
        yield DROPOUT
    if kind in OF_KIND:
        yield from (OF_KIND[kind], GATE)
    yield from (SETTINGS, OWN_FUNCTION, OWN_SETTING, ATTENTION_LAYER)
    if kind not in OF_KIND:
        yield SQUEEZE
        if "squeeze" not in kind and network.framework.children(network.modules[s.path]):
            yield from (RANDOM, WIRING)
    yield SIBLINGS
