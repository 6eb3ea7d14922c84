"""Mistakes between the layers, in a module's own forward: which call in which line, and what it should be.

Both forwards are run on the same input, and their calls of functions are aligned by the values that they give. The first call of
the port whose inputs the reference has and whose output it has nowhere is suspected. What is wrong with it is a hypothesis, which
counts where the port's forward, run again with this one call mended, gives what the reference gives.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from alignment import tolerance
from alignment.compare import distance
from alignment.frameworks.base import Call, CallChange, Operation, Trace
from alignment.kinds import Kind
from alignment.localize.blame import Subject, other_weights
from alignment.localize.calls import LAYOUT, PairedCalls, aligned, equal, main
from alignment.localize.hypotheses.apart import first_apart
from alignment.localize.hypotheses.arrays import close
from alignment.localize.hypotheses.call_words import described, in_full, title
from alignment.localize.hypotheses.draws import of_draws
from alignment.localize.hypotheses.proposals import (
    GIVEN,
    Proposal,
    at_the_end,
    behind_an_input,
    elsewhere,
    exchanged,
    in_another_order,
    inserted,
    proposals,
    segments,
)
from alignment.localize.hypotheses.replay import Rerun, replayed
from alignment.localize.roles import CAUSAL, Roles, between, reordered, shifted
from alignment.localize.source import set_by
from alignment.models.forms.axes import Order, turned
from alignment.models.links import plain
from alignment.strangers import strangers

SECONDS = 30.0  # of the processor, for the hypotheses about one module
RUNS = 120
MISTAKES = 4  # in one module
AGAIN = 24  # calls of these places
DROPOUT = "dropout"  # the function's name, and a layer's kind
VAGUER = (Kind.CALL_MISSING, Kind.CALL_EXTRA, Kind.OTHER_FUNCTION)


def mistakes(s: Subject) -> list[Proposal]:
    """The wrong calls of a module's own forward, in order; empty where none is confirmed."""
    if s.pair.truth is not None or s.phase != "forward" or not s.blame.theirs.outputs:
        return []
    if s.blame.what in s.blame.theirs.buffers:
        return []  # all that is wrong is a statistic, so that no call gives anything else
    return _search(s).found() or _with_other_weights(s) or _with_rounded_constants(s)


def _with_rounded_constants(s: Subject) -> list[Proposal]:
    """The same where a right table or constant of the port is one rounding of float32 from the reference's, beside the mistake."""
    if s.blame.own < tolerance.BESIDE_ROUNDING:
        return []
    loose = _search(s, tolerance.FLOAT32_CONSTANT)
    return loose.found() if loose.first() != _search(s).first() else []


def _with_other_weights(s: Subject) -> list[Proposal]:
    """The same where weights are all ones or zeros, so that many values are equal by chance: with other ones on both sides."""
    held = s.weights()
    if not any(array.dtype.kind == "f" and array.size > 1 and (array == array.flat[0]).all() for array in held.values()):
        return []
    sides = [s.pair.port, s.pair.reference]
    with sides[0].holding(s.path, other_weights), sides[1].holding(s.path, other_weights):
        ours, theirs = s.pair.both_answers(s.path, s.call)
        if ours.error or theirs.error:
            return []
        return _Search(replace(s, blame=replace(s.blame, ours=ours, theirs=theirs), _probes={})).found()


def parting(s: Subject) -> Proposal | None:
    """Where a module's own forward leaves the reference's, where no hypothesis says how: the call, and what it is for."""
    if s.pair.truth is not None or s.phase != "forward" or not s.blame.in_output or not s.blame.theirs.outputs:
        return None
    return _search(s, tolerance.OPERATION_RTOL if s.blame.own < tolerance.BESIDE_ROUNDING else tolerance.FLOAT32_CONSTANT).parting()


def _search(s: Subject, rtol: float = tolerance.OPERATION_RTOL) -> _Search:
    """The search of a module, where those inside are opened that give several outputs and are right in the first alone."""
    search = _Search(s, rtol=rtol)
    while (inside := search.partly_right()) is not None:
        search = _Search(s, search.opened | {inside}, rtol)
    return search


class _Search:
    """The hypotheses about one module.

    Args:
        s: the module.
        opened: modules inside whose own calls are looked at, and not the module's as one.
        rtol: within which two values are the same.
    """

    def __init__(self, s: Subject, opened: frozenset[str] = frozenset(), rtol: float = tolerance.OPERATION_RTOL) -> None:
        self.s, self.opened, self.rtol = s, opened, rtol
        adapters = s.pair.matching.adapters
        self.among = s.in_one_form() - opened
        self.expected = s.blame.theirs.outputs
        self.orders = adapters[s.path].orders
        with strangers("reference") as raised:  # its arrays are too large to be kept
            self.theirs = s.pair.reference.traced(s.path, s.call, self.among) or Trace(error="not traced")
        if raised.error is not None:
            self.theirs = Trace(error=raised.words)
        for one in self.theirs.operations:
            if (inside := one.name.removeprefix("call ")) in self.among:
                one.inputs = adapters[inside].taken(one.inputs)
        self.runs, self.start = 0, time.thread_time()
        self.layouts = False  # whether a call was met that only lays its numbers out otherwise
        self.constants: dict[int, CallChange] = {}
        self.constants = self._rounded_constants()

    def _rounded_constants(self) -> dict[int, CallChange]:
        """The port's constants that are one rounding of float32 from a table of the reference's: this in their place.

        They are no mistake, and hide by as much what is made of them.
        """
        ours = None if self.theirs.error else self._traced({})
        if ours is None:
            return {}
        made = {value for one in self.theirs.operations if one.inputs for value in one.outputs}
        tables = [one for n, one in enumerate(self.theirs.values) if one.dtype.kind == "f" and n not in {*made, *self.theirs.given}]
        changes: dict[int, CallChange] = {}
        for one in (one for one in ours.operations if not one.inputs and len(one.outputs) == 1):
            own = ours.values[one.outputs[0]]
            near = [other for other in tables if own.dtype == other.dtype and equal(own, other, tolerance.FLOAT32_CONSTANT)]
            if near and not any(np.array_equal(own.ravel(), other.ravel()) for other in near):
                changes[one.number] = [near[0].reshape(own.shape)]
        return changes

    def found(self) -> list[Proposal]:
        """The mistakes; a call that lays its numbers out otherwise is one only together with those that then mend the module."""
        if self.theirs.error or (self._before is not None and self._right(self._before)):
            return []  # with these weights nothing is wrong, as where all is saturated: then any change would be right
        s = self.s
        theirs = lambda: s.pair.reference.traced(s.path, s.call, self.among)  # noqa: E731
        if s.pair.training and (drawn := of_draws(s, self._traced, theirs, self._right)) is not None:
            return [drawn]
        made = self._followed(False)
        if len({one.words for one in made}) > 1:
            # One change that explains all is likelier; several are none where float32 rounds as much.
            order = [one for one in self._segment() if one.kind is Kind.CALL_ORDER]
            made = order or self._replayed() or ([] if self.s.blame.own < tolerance.FLOAT32_CONSTANT else made)
        made = made or (self._followed(True) if self.layouts else []) or self._segment()
        if not made or len(made[0].ours) > 1 or not self._mend(made):
            # An argument or an operand of one call says more than several that are not the reference's.
            made = [one for one in self._replayed() if not made or one.kind not in VAGUER] or made
        return [self._told(one) for one in exchanged(made)]

    def _mend(self, made: Sequence[Proposal]) -> bool:
        """Whether some changes together make the module right: one that is sure of its call alone need not."""
        trace = self._traced({number: change for one in made for number, change in one.changes.items()})
        return trace is not None and self._right(trace)

    def _segment(self) -> list[Proposal]:
        """Calls for which the reference has some others, where these alone mend the module.

        Nothing where the difference is as small as float32 rounds: what holds a rounded number is no other formula.
        """
        ours = None if self.s.blame.own < tolerance.FLOAT32_CONSTANT else self._traced({})
        alike: dict[str, Proposal] = {}  # the same mistake in several lines
        most = max(RUNS, self.runs + RUNS // 2)
        pair = None if ours is None else aligned(ours, self.theirs, self.orders, self.rtol)
        for proposal in itertools.chain(inserted(pair, several=True), segments(pair)) if pair is not None else ():
            several = [proposal]
            if proposal.certain:
                several.append(first := alike.setdefault(proposal.words, replace(proposal, changes={})))
                first.changes |= proposal.changes
            for one in several if len(several[-1].changes) > len(proposal.changes) else several[:1]:
                if self.runs >= most or time.thread_time() - self.start > SECONDS:
                    return []
                trace = self._traced(one.changes)
                if trace is not None and self._right(trace):
                    return [one]
        return []

    def _replayed(self) -> list[Proposal]:
        """One change of the port's own forward that gives the reference's values, for the input of the pass and for another one.

        Nothing where the difference is as small as float32 rounds: changes that no eye would tell apart give the values then.
        """
        if self.s.blame.own < tolerance.FLOAT32_CONSTANT:
            return []
        s, call = self.s, self.s.call.changed(_moved_on)
        ours, theirs = s.pair.both_answers(s.path, call)
        if ours.error or theirs.error:
            return []
        other = _Search(replace(s, call=call, blame=replace(s.blame, ours=ours, theirs=theirs), _probes={}), self.opened, self.rtol)
        if other.theirs.error:
            return []
        made = replayed([Rerun(one.theirs, one._traced, one._right) for one in (self, other)], self.orders, self.rtol)
        return [] if made is None else [made]

    def parting(self) -> Proposal | None:
        """The first call of the port whose result the reference has nowhere, and neither has it what is computed from that."""
        ours = None if self.theirs.error else self._traced({})
        one = None if ours is None else first_apart(aligned(ours, self.theirs, self.orders, self.rtol))
        return None if one is None else self._told(Proposal(Kind.UNKNOWN, in_full(one), one, {}))

    def first(self) -> list[int | None]:
        """The numbers of the first suspected call, and of the one where the calls part; None for none."""
        pair = None if self.theirs.error or self._before is None else aligned(self._before, self.theirs, self.orders, self.rtol)
        found = [] if pair is None else [next(pair.candidates(), None), first_apart(pair)]
        return [None if one is None else one.number for one in found]

    def partly_right(self) -> str | None:
        """The first module inside that gets what the reference's does, and gives a further output that is nowhere there."""
        if self.theirs.error or self._before is None:
            return None
        pair = aligned(self._before, self.theirs, self.orders, self.rtol)
        inside = [one for one in pair.ours.operations if one.name.removeprefix("call ") in self.among and one.outputs]
        for one in (one for one in inside if pair.known(one) and pair.flat[one.outputs[0]]):
            others = [value for value in one.outputs[1:] if not pair.flat[value] and pair.ours.values[value].size]
            users = [user for user in pair.ours.operations if set(others) & set(user.inputs)]
            if users and not any(user.outputs and not pair.diverges(user) for user in users):
                return one.name.removeprefix("call ")
        return None

    def _told(self, made: Proposal) -> Proposal:
        """With what the call is for, as far as that is seen."""
        ours = self._traced({})
        if ours is None:
            return made
        if made.kind is Kind.CALL_EXTRA and self._dropped_in_evaluation(made.operation):
            words = f"{title(made.operation)} is on in evaluation mode, expected training=self.training"
            return replace(made, kind=Kind.DROPOUT_ON, words=words, conclusive=True)
        one, other = made.operation, made.theirs[-1] if made.theirs else None
        made = _where_set(made, one, other) if made.kind is Kind.CALL_ARGUMENT and other is not None else made
        made = self._of_caller(made, ours)
        values = [side.values[op.outputs[0]] for side, op in ((ours, one), (self.theirs, other)) if op is not None and op.outputs]
        known, own = Roles(self.theirs), {described(step) for step in made.ours}
        others = [step for step in reversed(made.theirs) if described(step) not in own]
        role = next(filter(None, map(known.of, others)), "") or Roles(ours).of(made.place or one)
        steps = {step.name for step in made.theirs}
        said = [
            between(one, other) if other is not None and len(made.theirs) == 1 and made.kind is Kind.OTHER_FUNCTION else "",
            reordered(*values) if len(values) == 2 and made.kind is Kind.OTHER_FUNCTION else "",
            shifted(made.ours, made.theirs) or (role.replace("the mask", "the causal mask") if CAUSAL & steps else role),
        ]
        return replace(made, words=f"{made.words} ({'; '.join(filter(None, said))})") if any(said) else made

    def _of_caller(self, made: Proposal, ours: Trace) -> Proposal:
        """At the call of the helper in which a call is made, where calls of the helper in other lines are right."""
        one, pair = made.place or made.operation, aligned(ours, self.theirs, self.orders, self.rtol)
        alike = [step for step in ours.operations if _site(step) == _site(one) and step.number != one.number]
        right = [step.callers for step in alike if step.outputs and all(pair.flat[value] for value in main(step))]
        if not right or not one.callers:
            return made
        for outwards, (file, line, function, site) in enumerate(one.callers, start=1):
            if not any(callers[:outwards] == one.callers[:outwards] for callers in right):
                place = replace(one, file=file, line=line, function=function, site=site)
                return replace(made, place=place, since=None, words=f"{made.words}, in {one.function} (line {one.line})")
        return made

    def _dropped_in_evaluation(self, one: Operation) -> bool:
        """Whether a call is a dropout in evaluation mode, and the reference drops as often as the port in training mode."""
        sides = [self.s.pair.port, self.s.pair.reference]
        if one.name != DROPOUT or self.s.pair.training or not all(hasattr(side, "draws") for side in sides):
            return False
        drawn = []
        for side in sides:
            side.train_mode(True)
            try:
                drawn.append(len(side.drawn(self.s.path, self.s.call)))
            finally:
                side.train_mode(False)
        return drawn[0] <= drawn[1]

    def _followed(self, layouts: bool) -> list[Proposal]:
        fixes: dict[int, CallChange] = {}
        made: list[Proposal] = []
        for _ in range(AGAIN):
            if len(set(map(_place_of, made))) > MISTAKES:
                break
            ours = self._traced(fixes)
            if ours is None or (not made and self._right(ours)):
                return []
            pair = aligned(ours, self.theirs, self.orders, self.rtol)
            whole, part = self._next(pair, fixes, layouts)
            if whole is not None:
                return sorted(self._needed([*made, whole]), key=lambda one: one.operation.number)
            if part is None:
                break
            made.append(part)
            fixes |= part.changes
            if (again := self._again(part, fixes, _of_suspects)) is not None:
                return sorted(self._needed([*made, *again]), key=lambda one: one.operation.number)
        rounded = self.s.blame.own < tolerance.FLOAT32_CONSTANT  # beside what is rounded, a call that mends nothing says nothing
        return [one for one in made[:1] if one.certain and not rounded]

    def _again(
        self, part: Proposal, fixes: Mapping[int, CallChange], alike: Callable[[PairedCalls, Proposal], list[Proposal]]
    ) -> list[Proposal] | None:
        """The same mistake in further calls of its line, where these together mend the module: of a loop, of layers of a class."""
        found: list[Proposal] = []
        for _ in range(AGAIN):
            if (ours := self._traced({**fixes, **{n: change for one in found for n, change in one.changes.items()}})) is None:
                return None
            if self._right(ours):
                return found
            pair = aligned(ours, self.theirs, self.orders, self.rtol)
            more = [_in_own_shapes(pair, one) for one in alike(pair, part)]
            if not more or time.thread_time() - self.start > SECONDS:
                return None
            found += more
        return None

    def _needed(self, made: list[Proposal]) -> list[Proposal]:
        """The fewest that mend the module, as far as that is seen: what the reference gave hides all before it."""
        places: dict[tuple, list[Proposal]] = {}
        for one in made:
            places.setdefault(_place_of(one), []).append(one)
        for count in range(1, len(places)):
            for some in itertools.combinations(places.values(), count):
                chosen = [one for alike in some for one in alike]
                changes = {number: change for one in chosen for number, change in one.changes.items()}
                if any(isinstance(change, list) for change in changes.values()):
                    continue
                if (trace := self._traced(changes)) is not None and self._right(trace):
                    return chosen
        return made

    def _goes_on(self, trace: Trace, proposal: Proposal) -> bool:
        """Whether all that is computed from a mended call is the reference's again, but for the same mistake that is made there."""
        again = next((one for one in trace.operations if one.number == proposal.operation.number), None)
        following = [one for one in trace.operations if again and set(again.outputs) & set(one.inputs) and one is not again]
        pair = aligned(trace, self.theirs, self.orders, self.rtol)
        apart = [one for one in following if pair.other_numbers(one)]
        lacks = proposal.kind is Kind.CALL_MISSING
        steps = lambda one: [described(step) for step in one.theirs]  # noqa: E731
        alike = lambda one: one.kind is proposal.kind and steps(one) == steps(proposal)  # noqa: E731
        again_so = (lacks and any(map(alike, proposals(pair, one))) for one in apart)
        return bool(following) and len(apart) < len(following) and all(again_so)

    def _next(self, pair: PairedCalls, fixes: Mapping[int, CallChange], layouts: bool) -> tuple[Proposal | None, Proposal | None]:
        """The first hypothesis that mends the module, and the first that mends its own call alone.

        Args:
            pair: the calls of both sides.
            fixes: what is changed already.
            layouts: whether a call that lays its numbers out otherwise is changed, too, and the search goes on behind it.
        """
        part: Proposal | None = None
        if not fixes and (last := next(at_the_end(pair), None)) is not None:
            return last, None
        tables = [one for one in pair.ours.operations if one.file and any(in_another_order(pair, one))]
        for operation in itertools.chain(tables, (one for one in pair.candidates() if one not in tables)):
            for proposal in (_in_own_shapes(pair, one) for one in proposals(pair, operation)):
                if self.runs >= RUNS or time.thread_time() - self.start > SECONDS:
                    return None, part
                trace = self._traced({**fixes, **proposal.changes})
                if trace is None:
                    continue
                if not _gives(trace, proposal, self.orders, self.rtol):
                    continue
                if self._right(trace):
                    return proposal, None
                if not self._moves(trace) or (trace.error and not pair.ours.error and operation.name not in LAYOUT):
                    continue  # nor is one that the rest of the forward cannot take, but for a form that another one undoes
                better = part is None or (part.operation is operation and part.kind is Kind.CALL_EXTRA is not proposal.kind)
                surer = proposal.certain and proposal.kind is not Kind.CALL_ARGUMENT  # of numbers one may fit by chance
                better = better or (surer and part is not None and not part.certain)
                layout = proposal.kind is Kind.CALL_ARGUMENT and operation.name in LAYOUT
                self.layouts = self.layouts or layout
                if operation in tables and self._goes_on(trace, proposal):
                    return None, proposal  # others of the kind follow, as of each level
                if better and (proposal.certain or (layout and layouts) or self._goes_on(trace, proposal)):
                    part = proposal
        for proposal in inserted(pair):
            if self.runs >= RUNS or time.thread_time() - self.start > SECONDS:
                break
            if (trace := self._traced({**fixes, **proposal.changes})) is None:
                continue
            condition = not all(pair.theirs.values[value].dtype.kind == "f" for step in proposal.theirs for value in step.outputs)
            if self._right(trace) and (not condition or self._goes_on(trace, proposal)):
                return proposal, None  # where numbers are picked, many a condition picks the same
            loop = len([one for one in pair.ours.operations if _site(one) == _site(proposal.operation)]) > 1
            if loop and (again := self._again(proposal, {**fixes, **proposal.changes}, _inserted_again)):
                return replace(proposal, changes={n: one for some in (proposal, *again) for n, one in some.changes.items()}), None
        for proposal in behind_an_input(pair) if not fixes else ():
            if self.runs < RUNS and (trace := self._traced(proposal.changes)) is not None and self._right(trace):
                return proposal, None
        return next(itertools.chain(at_the_end(pair), elsewhere(pair)), None), part

    def _traced(self, changes: Mapping[int, CallChange]) -> Trace | None:
        self.runs += 1
        given = {number: change for number, change in changes.items() if number <= GIVEN}
        call = self._given_others(given) if given else self.s.call
        with strangers("port"):  # a change that the call cannot take
            others = {number: change for number, change in changes.items() if number not in given}
            return self.s.pair.port.traced(self.s.path, call, self.among, {**self.constants, **others})
        return None

    def _given_others(self, changes: Mapping[int, CallChange]) -> Call:
        """The call with other arrays in the place of some that the module is given."""
        before = self._before
        assert before is not None  # the changes are to its values
        pairs = [(before.values[before.given[GIVEN - n]], change[0]) for n, change in changes.items() if isinstance(change, list)]
        return self.s.call.changed(lambda array: next((new for old, new in pairs if np.array_equal(old, array)), array))

    @functools.cached_property
    def _before(self) -> Trace | None:
        return self._traced({})

    def _moves(self, trace: Trace) -> bool:
        """Whether a run with a change gives other numbers than the port as it is: else the change explains nothing (a mask of -1e9
        in place of one of -inf)."""
        before = self._before
        if before is None or trace.error or len(before.results) != len(trace.results):
            return True
        both = zip(before.results, trace.results, strict=True)
        return not all(equal(before.values[a], trace.values[b], tolerance.SAME) for a, b in both)

    def _right(self, trace: Trace) -> bool:
        """Whether a run of the port gives what the reference gives, far nearer than the port as it is."""
        adapter = self.s.pair.matching.adapters[self.s.path]
        outputs = adapter.outputs([trace.values[value] for value in trace.results])
        if trace.error or len(outputs) != len(self.expected):
            return False
        before = self.s.blame.ours.outputs
        right_already = tolerance.EXACT_RTOL if self.rtol <= tolerance.OPERATION_RTOL else self.rtol
        for number, (made, right) in enumerate(zip(outputs, self.expected, strict=True)):
            if adapter.fixed and plain(made.shape) == plain(right.shape):
                made = made.reshape(right.shape)
            if made.shape != right.shape or made.dtype.kind != right.dtype.kind:
                return False
            if made.dtype.kind != "f":
                if not np.array_equal(made, right):
                    return False
            elif not close(made, right, max(tolerance.SAME, self.rtol)) and not equal(made, right, self.rtol):
                return False
            elif (
                number < len(before)
                and before[number].shape == right.shape
                and not close(before[number], right, right_already)  # but for rounding
            ):
                gap = distance(before[number].astype(np.float64), right.astype(np.float64))
                if np.isfinite(gap) and distance(made, right) > 0.02 * gap:
                    return False
        return True


def _moved_on(array: np.ndarray) -> np.ndarray:
    """Another input of the numbers of one; a mask remains one that somebody would give: it is another sample's."""
    mask = array.ndim > 1 and bool(((array == 0) | (array == 1)).all())
    return np.roll(array, 1, axis=0 if mask else None)


def _site(one: Operation) -> tuple:
    """The place of the source that makes a call."""
    return one.file, one.line, one.function, one.site


def _of_suspects(pair: PairedCalls, part: Proposal) -> list[Proposal]:
    """The hypothesis in the other suspected calls of its place, in the same words."""
    suspects = [one for one in pair.candidates() if _site(one) == _site(part.operation)]
    return [found for one in suspects if (found := next((p for p in proposals(pair, one) if p.words == part.words), None))]


def _inserted_again(pair: PairedCalls, part: Proposal) -> list[Proposal]:
    """What is missing behind a call, behind the first further call of its place."""
    alike = (one for one in inserted(pair) if one.words == part.words and _site(one.operation) == _site(part.operation))
    return list(itertools.islice((one for one in alike if one.operation.number > part.operation.number), 1))


def _place_of(proposal: Proposal) -> tuple:
    """What calls have in common that one place of the source makes."""
    return _site(proposal.operation)


def _where_set(made: Proposal, one: Operation, other: Operation) -> Proposal:
    """At the line of the constructor that sets an attribute to a wrong number, where that is sure."""
    wrong = [value for key, value in one.spelled.items() if other.spelled.get(key, value) != value]
    if made.place is not None or len(wrong) != 1 or isinstance(wrong[0], bool) or not isinstance(wrong[0], int | float):
        return made
    line = set_by(Path(one.file), one.line, wrong[0])
    return made if line is None else replace(made, place=replace(one, line=line))


def _in_own_shapes(pair: PairedCalls, proposal: Proposal) -> Proposal:
    """The same, where what is put in the place of a call's outputs has another shape: in the shapes of the port's."""
    made = {one.number: [pair.ours.values[value] for value in one.outputs] for one in pair.ours.operations}
    changes, as_laid = dict(proposal.changes), _as_laid(proposal)
    for number, change in changes.items():
        if isinstance(change, list) and len(change) == len(made.get(number, [])):
            both = zip(change, made[number], strict=True)
            changes[number] = [_in_shape(new, old.shape, pair.orders, as_laid) for new, old in both]
    return replace(proposal, changes=changes)


def _as_laid(proposal: Proposal) -> bool:
    """Whether equal numbers in one order are the same although the shape is another: the call lays nothing out otherwise."""
    return proposal.operation.name not in LAYOUT


def _in_shape(array: np.ndarray, shape: tuple[int, ...], orders: Sequence[Order], as_laid: bool) -> np.ndarray:
    if plain(array.shape) == plain(shape):
        return array.reshape(shape)
    back = [tuple(int(axis) for axis in np.argsort(order)) for order in orders]
    size = int(np.prod(shape))
    return next(
        (other for other in turned(array, back) if other.shape == shape),
        array.reshape(shape) if as_laid and size == array.size else array,
    )


def _gives(trace: Trace, proposal: Proposal, orders: Sequence[Order], rtol: float) -> bool:
    """Whether the changed call gives what the reference's gives; always so where its output was put there."""
    change, as_laid = proposal.changes.get(proposal.operation.number), _as_laid(proposal)
    if not (isinstance(change, Mapping) or callable(change)) or not proposal.right:
        return True
    again = next((one for one in trace.operations if one.number == proposal.operation.number), None)
    if again is None or not again.outputs:
        return False
    return all(
        any(
            (as_laid or plain(made.shape) == plain(right.shape)) and equal(made, right, rtol)
            for made in turned(trace.values[value], orders)
        )
        for value, right in zip(again.outputs, proposal.right, strict=False)
    )
