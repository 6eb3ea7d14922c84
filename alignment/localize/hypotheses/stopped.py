"""A gradient that one side stops in a module's own forward: at which call, tried by stopping it on the other side, too."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm
from alignment.frameworks._calls import DETACH
from alignment.frameworks._passes import Stops
from alignment.frameworks.base import Operation, Trace
from alignment.kinds import Kind
from alignment.localize.blame import Blame, NamedArrays, Subject, backward_quantities
from alignment.localize.calls import PairedCalls, aligned
from alignment.localize.hypotheses.call_words import described, operand_words
from alignment.localize.hypotheses.proposals import Proposal, of_one_line
from alignment.localize.syntax import SourceTree
from alignment.models.tracing import Network
from alignment.strangers import strangers

SECONDS = 20.0
MOST = 60  # calls of one side that are tried


def stops(s: Subject) -> list[Proposal]:
    """The call through which a gradient flows in the port alone, or in the reference alone; empty where none explains all."""
    if s.pair.truth is not None or s.pair.draws or s.pair.stored:
        return []
    return _within(s, s.in_one_form())


def _within(s: Subject, among: set[str]) -> list[Proposal]:
    """The same, where the calls of some modules are one call each; of one that alone explains all, what is inside it is asked."""
    ours, right = (backward_quantities(answer) for answer in (s.blame.ours, s.blame.theirs))
    traces = [_traced(side, s, among) for side in (s.pair.port, s.pair.reference)]
    if traces[0] is None or traces[1] is None:
        return []
    start = time.perf_counter()
    if (found := _as_in_reference(s, among, traces[0], traces[1])) is not None:
        return found
    for side, trace, given, wanted in (
        (s.pair.port, traces[0], ours, right),
        (s.pair.reference, traces[1], right, ours),
    ):
        bound = _bound(s, wanted)
        for one in _candidates(trace):
            if time.perf_counter() - start > SECONDS:
                return []
            numbers = frozenset(other.number for other in (of_one_line(trace.operations, one) if one.name == DETACH else [one]))
            made = backward_quantities(side.answer(s.path, s.call, _cotangents(s), stopped=(frozenset(among), numbers)))
            if _equal(made, wanted, bound) and not _equal(made, given, bound):
                inside = one.name.removeprefix("call ")
                opened = _within(s, among - {inside}) if side is s.pair.port and inside in among else []
                return opened or _said(s, one, traces[0], traces[1], side is s.pair.port)
    return _at_an_operand(s, among, traces[0], start)


def _as_in_reference(s: Subject, among: set[str], ours: Trace, theirs: Trace) -> list[Proposal] | None:
    """Values that the reference detaches in one line for some of the calls that take them, and the port for none of them."""
    given, wanted = (backward_quantities(answer) for answer in (s.blame.ours, s.blame.theirs))
    bound, pair = _bound(s, wanted), None
    stops = [one for one in theirs.operations if one.name == DETACH and one.file]
    lines = [of_one_line(stops, one) for one in stops]
    for group in (group for one, group in zip(stops, lines, strict=True) if group[0] is one):
        pair = pair or aligned(ours, theirs, s.pair.matching.adapters[s.path].orders)
        edges = [edge for stop in group for edge in _taking(pair, stop)]
        stopped: Stops = frozenset((one.number, place) for one, place in edges)
        made = backward_quantities(s.pair.port.answer(s.path, s.call, _cotangents(s), stopped=(frozenset(among), stopped)))
        if edges and _equal(made, wanted, bound) and not _equal(made, given, bound):
            if (behind := _behind_makers(s, among, pair, group, bound)) is not None:
                return [behind]
            place = _shared(edges, len(group[0].callers))
            if place.function == edges[0][0].function and len(group) == 1:
                return None  # nothing is handed on: what makes the value is shown
            what = " and ".join(dict.fromkeys(operand_words(pair, one.inputs[number]) for one, number in edges))
            words = f"detach is missing: a gradient flows back into {what}, which the reference stops"
            return [Proposal(Kind.CALL_MISSING, words, edges[0][0], {}, place=place, conclusive=True)]
    return None


def _behind_makers(s: Subject, among: set[str], pair: PairedCalls, group: Sequence[Operation], bound: float) -> Proposal | None:
    """Where each of the values is made in several lines that give it one name: the line that takes it by this name.

    So it is where a loop hands a value on to its next turn. None where the reference does not detach it in several turns, or where
    no gradient may flow back from what is made there at all.
    """
    makers = [one for one in (_first_maker(pair, stop) for stop in group) if one is not None]
    lines = {one.line for one in makers}
    if len(makers) < len(group) or len(lines) < 2 or len({(one.file, one.function) for one in makers}) != 1:
        return None
    stopped: Stops = frozenset(one.number for one in makers)
    wanted = backward_quantities(s.blame.theirs)
    made = backward_quantities(s.pair.port.answer(s.path, s.call, _cotangents(s), stopped=(frozenset(among), stopped)))
    named = SourceTree.of(Path(makers[0].file)).handed_on(lines) if _equal(made, wanted, bound) else None
    if named is None:
        return None
    what = " and ".join(dict.fromkeys(f"{described(one)} in line {one.line}" for one in makers))
    words = f"detach is missing: a gradient flows back through {named[0]} into {what}, which the reference stops"
    return Proposal(Kind.CALL_MISSING, words, makers[0], {}, place=replace(makers[0], line=named[1]), conclusive=True)


def _first_maker(pair: PairedCalls, stop: Operation) -> Operation | None:
    """The port's call that makes what the reference detaches, before others that give the same values."""
    held = set(pair.held.get(stop.inputs[0], ()))
    return next((one for one in pair.ours.operations if one.file and held & set(one.outputs)), None)


def _taking(pair: PairedCalls, stop: Operation) -> list[tuple[Operation, int]]:
    """The port's calls that take what the reference detaches, as there they take what is detached; and which operand it is."""
    takers = [one for one in pair.theirs.operations if stop.outputs[0] in one.inputs and one.outputs]
    alike = {value for one in takers for value in pair.held.get(one.outputs[0], ())}
    held = set(pair.held.get(stop.inputs[0], ()))
    users = [one for one in pair.ours.operations if one.file and alike & set(one.outputs)]
    return [(one, place) for one in users for place, value in enumerate(one.inputs) if value in held]


def _shared(edges: Sequence[tuple[Operation, int]], outwards: int) -> Operation:
    """The innermost line that leads to all of some calls, as far outwards as the line where the reference stops the gradient."""
    chains = [[(one.file, one.line, one.function, one.site), *one.callers] for one, _ in edges]
    shared = [site for site in chains[0] if all(site in other for other in chains)]
    first = edges[0][0]
    if not shared:
        return first
    file, line, function, site = next((one for one in shared if len(chains[0]) - 1 - chains[0].index(one) <= outwards), shared[-1])
    return replace(first, file=file, line=line, function=function, site=site)


def _at_an_operand(s: Subject, among: set[str], trace: Trace, start: float) -> list[Proposal]:
    """What of a call of the port's should be detached, which the port detaches elsewhere, or nowhere."""
    given, wanted = (backward_quantities(answer) for answer in (s.blame.ours, s.blame.theirs))
    bound = _bound(s, wanted)
    detaches = [one for one in trace.operations if one.name == DETACH]
    edges = [(one, place) for one in trace.operations if one.file and one.name != DETACH and not one.name.startswith("call ")
             for place, value in enumerate(one.inputs) if _carries(trace, value)]  # fmt: skip
    lines = {(one.file, one.line) for one in detaches}
    edges.sort(key=lambda edge: (edge[0].file, edge[0].line) not in lines)
    for count in (0, 1, 2):
        for passed in itertools.combinations(detaches, count):
            for some in itertools.combinations(edges, max(count, 1)):
                if time.perf_counter() - start > SECONDS:
                    return []
                stopped: Stops = frozenset([*(one.number for one in passed), *((one.number, place) for one, place in some)])
                made = backward_quantities(s.pair.port.answer(s.path, s.call, _cotangents(s), stopped=(frozenset(among), stopped)))
                if _equal(made, wanted, bound) and not _equal(made, given, bound):
                    return _told(trace, some, passed)
    return []


def _carries(trace: Trace, value: int) -> bool:
    """Whether a value is computed from what the module is given, or from a weight."""
    return trace.values[value].dtype.kind == "f" and trace.values[value].size > 1


def _told(trace: Trace, some: Sequence[tuple[Operation, int]], instead: Sequence[Operation]) -> list[Proposal]:
    made = {value: one for one in reversed(trace.operations) for value in one.outputs}
    words = []
    for one, place in some:
        value = one.inputs[place]
        maker = made.get(value)
        what = described(maker) if maker is not None else "what the module is given" if value in trace.given else "the weight"
        words.append(f"what {described(one)} in line {one.line} takes from {what} should be detached")
    wrong = instead[0] if instead else some[0][0]
    others = " and ".join(f"line {line}" for line in dict.fromkeys(one.line for one in instead))
    said = f"{' and '.join(words)}, not what is detached in {others}" if instead else " and ".join(words)
    return [Proposal(Kind.DETACHED, said, wrong, {}, conclusive=True)]


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


def beyond_rounding(blame: Blame) -> bool:
    """Whether gradients that differ do so by more than what the rounding of float32 in the outputs makes of them."""
    ours, right = (backward_quantities(answer) for answer in (blame.ours, blame.theirs))
    made, wanted = ({name: one.get(name) for name in blame.every} for one in (ours, right))
    return not _equal(made, wanted, tolerance.BESIDE_ROUNDING * _scale(right))


def _bound(s: Subject, wanted: NamedArrays) -> float:
    """How far gradients that agree may be apart: by more where the module's outputs are apart by the rounding of float32."""
    return (tolerance.BESIDE_ROUNDING if s.path in s.pair.rounded else tolerance.CLOSE) * _scale(wanted)


def _scale(gradients: NamedArrays) -> float:
    return max((norm(array) for array in gradients.values() if array is not None), default=0.0)


def _equal(made: NamedArrays, wanted: NamedArrays, bound: float) -> bool:
    """Whether all gradients agree to rounding; none is one of zeros."""
    for name in {*made, *wanted}:
        a, b = made.get(name), wanted.get(name)
        if a is None or b is None:
            if any(array is not None and array.any() for array in (a, b)):
                return False
        elif a.shape != b.shape or not distance(a, b) <= bound:
            return False
    return True
