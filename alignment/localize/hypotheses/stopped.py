"""A gradient that one side stops in a module's own forward: at which call, tried by stopping it on the other side, too."""

from __future__ import annotations

import time

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.frameworks._calls import DETACH
from alignment.frameworks.base import Operation, Trace
from alignment.kinds import Kind
from alignment.localize.blame import NamedArrays, Subject, backward_quantities
from alignment.localize.calls import aligned
from alignment.localize.hypotheses.call_words import described
from alignment.localize.hypotheses.proposals import Proposal, of_one_line
from alignment.models.tracing import Network
from alignment.strangers import strangers

SECONDS = 20.0
MOST = 60  # calls of one side that are tried


def stops(s: Subject) -> list[Proposal]:
    """The call through which a gradient flows in the port alone, or in the reference alone; empty where none explains all."""
    if s.pair.truth is not None or s.pair.draws or s.pair.stored:
        return []
    ours, right = (backward_quantities(answer) for answer in (s.blame.ours, s.blame.theirs))
    among = s.in_one_form()
    traces = [_traced(side, s, among) for side in (s.pair.port, s.pair.reference)]
    if traces[0] is None or traces[1] is None:
        return []
    start = time.perf_counter()
    for side, trace, given, wanted in (
        (s.pair.port, traces[0], ours, right),
        (s.pair.reference, traces[1], right, ours),
    ):
        scale = max((norm(array) for array in wanted.values() if array is not None), default=0.0)
        for one in _candidates(trace):
            if time.perf_counter() - start > SECONDS:
                return []
            numbers = frozenset(other.number for other in (of_one_line(trace.operations, one) if one.name == DETACH else [one]))
            made = backward_quantities(side.answer(s.path, s.call, _cotangents(s), stopped=(frozenset(among), numbers)))
            if _equal(made, wanted, scale) and not _equal(made, given, scale):
                return _said(s, one, traces[0], traces[1], side is s.pair.port)
    return []


def _said(s: Subject, one: Operation, ours: Trace, theirs: Trace, passes: bool) -> list[Proposal]:
    """The finding, at the port's own call."""
    if one.name == DETACH:
        if not passes:
            return []  # the port detaches elsewhere what the reference detaches, too
        words = "detach: no gradient flows back through it, which the reference lets through"
        return [Proposal(Kind.DETACHED, words, one, {})]
    if passes:
        words = f"detach is missing behind {described(one)}: a gradient flows back through it, which the reference stops"
        return [Proposal(Kind.CALL_MISSING, words, one, {})]
    pair = aligned(ours, theirs, s.pair.matching.adapters[s.path].orders)
    maker = next((m for value in one.outputs for mine in pair.held.get(value, ()) if (m := pair.own_maker(mine)) and m.file), None)
    words = f"no gradient flows back through {described(maker or one)} in the port: detached, or computed without a graph"
    return [Proposal(Kind.DETACHED, words, maker, {})] if maker is not None else []


def _traced(side: Network, s: Subject, among: set[str]) -> Trace | None:
    with strangers("port"):  # its arrays are too many to be kept
        return side.traced(s.path, s.call, among)
    return None


def _candidates(trace: Trace) -> list[Operation]:
    """Calls in the model's source that give floating numbers; the output of the module itself is no place to stop at."""
    floating = lambda one: one.outputs and all(trace.values[value].dtype.kind == "f" for value in one.outputs)  # noqa: E731
    found = [one for one in trace.operations if one.file and floating(one) and not set(one.outputs) & set(trace.results)]
    return sorted(found, key=lambda one: one.name != DETACH)[:MOST]  # the likeliest first, however deep in a whole model


def _cotangents(s: Subject) -> list[np.ndarray | None]:
    return list(s.pair.cotangents or ()) if s.path == "" else list(s.call.gradients)


def _equal(made: NamedArrays, wanted: NamedArrays, scale: float) -> bool:
    """Whether all gradients agree to rounding; none is one of zeros."""
    for name in {*made, *wanted}:
        a, b = made.get(name), wanted.get(name)
        if a is None or b is None:
            if any(array is not None and array.any() for array in (a, b)):
                return False
        elif a.shape != b.shape or not distance(a, b) <= tolerance.CLOSE * scale:
            return False
    return True
