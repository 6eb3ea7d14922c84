"""Mistakes between the layers, in a module's own forward: which call in which line, and what it should be.

Both forwards are run on the same input, and their calls of functions are aligned by the values that they give. The first call of
the port whose inputs the reference has and whose output it has nowhere is suspected. What is wrong with it is a hypothesis, which
counts where the port's forward, run again with this one call mended, gives what the reference gives.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance
from alignment.frameworks._call_names import COMMUTATIVE, EFFECTS, SYMBOLS, computed
from alignment.frameworks.base import CallChange, Operation, Trace
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.calls import PairedCalls, aligned, equal
from alignment.localize.hypotheses.arrays import close
from alignment.models.forms.axes import Order, turned
from alignment.models.links import plain
from alignment.raised import shown
from alignment.strangers import Refused, strangers

SECONDS = 30.0  # for the hypotheses about one module
RUNS = 120
MISTAKES = 4  # in one module
LAYOUT = frozenset({"transpose", "reshape", "flatten", "unsqueeze", "squeeze"})  # of another form, no mistake by themselves
CHAIN = 3  # calls that are missing at one place


@dataclass
class Proposal:
    """One hypothesis.

    Attributes:
        kind, words: what it is called.
        operation: the call of the port that is wrong.
        changes: number of a call -> what would be right.
        right: what the call gives then, from the reference.
        certain: whether the call alone shows the mistake: the operation is the same, and so are its inputs.
        since: the line from which on something is missing, up to that of the call.

    The line, ``package/file.py:31``, is its ``source``; two, ``package/file.py:30-31``, where a call is missing between them.
    """

    kind: Kind
    words: str
    operation: Operation
    changes: dict[int, CallChange]
    right: list[np.ndarray] = field(default_factory=list)
    certain: bool = False
    since: int | None = None

    @property
    def source(self) -> str:
        one = self.operation
        first = f"{self.since}-" if self.since and self.since < one.line else ""
        return f"{shown(Path(one.file).resolve())}:{first}{one.line}"


def mistakes(s: Subject) -> list[Proposal]:
    """The wrong calls of a module's own forward, in order; empty where none is confirmed."""
    if s.pair.truth is not None or s.phase != "forward" or not s.blame.theirs.outputs:
        return []
    if s.blame.what in s.blame.theirs.buffers:
        return []  # all that is wrong is a statistic, so that no call gives anything else
    return _Search(s).found()


class _Search:
    """The hypotheses about one module."""

    def __init__(self, s: Subject) -> None:
        self.s = s
        adapters = s.pair.matching.adapters
        other_form = {key.partition("#")[0] for key in s.pair.calls if not s.pair.takes(key)}
        both = set(s.pair.port.modules) & set(s.pair.reference.modules)
        self.among = {path for path in both - other_form if not adapters[path].bare}
        self.expected = s.blame.theirs.outputs
        self.orders = adapters[s.path].orders
        with strangers("reference") as raised:  # its arrays are too large to be kept
            self.theirs = s.pair.reference.traced(s.path, s.call, self.among) or Trace(error="not traced")
        if raised.error is not None:
            self.theirs = Trace(error=raised.words)
        self.runs, self.start = 0, time.perf_counter()
        self.layouts = False  # whether a call was met that only lays its numbers out otherwise

    def found(self) -> list[Proposal]:
        """The mistakes; a call that lays its numbers out otherwise is one only together with those that then mend the module."""
        if self.theirs.error:
            return []
        return self._followed(False) or (self._followed(True) if self.layouts else [])

    def _followed(self, layouts: bool) -> list[Proposal]:
        fixes: dict[int, CallChange] = {}
        made: list[Proposal] = []
        for _ in range(MISTAKES):
            ours = self._traced(fixes)
            if ours is None or (not made and self._right(ours)):
                return []
            pair = aligned(ours, self.theirs, self.orders)
            whole, part = self._next(pair, fixes, layouts)
            if whole is not None:
                return self._needed([*made, whole])
            if part is None:
                break
            made.append(part)
            fixes |= part.changes
        return [one for one in made[:1] if one.certain]

    def _needed(self, made: list[Proposal]) -> list[Proposal]:
        """Those without which the module is wrong, as far as that is seen: what the reference gave hides all before it."""
        for one in made[:-1]:
            others = [other for other in made if other is not one]
            if any(isinstance(change, list) for other in others for change in other.changes.values()):
                continue
            trace = self._traced({number: change for other in others for number, change in other.changes.items()})
            made = others if trace is not None and self._right(trace) else made
        return made

    def _goes_on(self, trace: Trace, proposal: Proposal) -> bool:
        """Whether all that is computed from a mended call is the reference's again."""
        again = next((one for one in trace.operations if one.number == proposal.operation.number), None)
        following = [one for one in trace.operations if again and set(again.outputs) & set(one.inputs) and one is not again]
        pair = aligned(trace, self.theirs, self.orders)
        return bool(following) and not any(pair.other_numbers(one) for one in following)

    def _next(self, pair: PairedCalls, fixes: Mapping[int, CallChange], layouts: bool) -> tuple[Proposal | None, Proposal | None]:
        """The first hypothesis that mends the module, and the first that mends its own call alone.

        Args:
            pair: the calls of both sides.
            fixes: what is changed already.
            layouts: whether a call that lays its numbers out otherwise is changed, too, and the search goes on behind it.
        """
        part: Proposal | None = None
        for operation in pair.candidates():
            for proposal in (_in_own_shapes(pair, one) for one in proposals(pair, operation)):
                if self.runs >= RUNS or time.perf_counter() - self.start > SECONDS:
                    return None, part
                trace = self._traced({**fixes, **proposal.changes})
                if trace is None:
                    continue
                if not _gives(trace, proposal, self.orders):
                    continue
                if self._right(trace):
                    return proposal, None
                better = part is None or (part.operation is operation and part.kind is Kind.CALL_EXTRA is not proposal.kind)
                layout = proposal.kind is Kind.CALL_ARGUMENT and operation.name in LAYOUT
                self.layouts = self.layouts or layout
                if better and (proposal.certain or (layout and layouts) or self._goes_on(trace, proposal)):
                    part = proposal
        for proposal in _inserted(pair):
            if self.runs >= RUNS or time.perf_counter() - self.start > SECONDS:
                break
            trace = self._traced({**fixes, **proposal.changes})
            if trace is not None and self._right(trace):
                return proposal, None
        return next(_at_the_end(pair), None), part

    def _traced(self, changes: Mapping[int, CallChange]) -> Trace | None:
        self.runs += 1
        with strangers("port"):  # a change that the call cannot take
            return self.s.pair.port.traced(self.s.path, self.s.call, self.among, changes)
        return None

    def _right(self, trace: Trace) -> bool:
        """Whether a run of the port gives what the reference gives, far nearer than the port as it is."""
        adapter = self.s.pair.matching.adapters[self.s.path]
        outputs = adapter.outputs([trace.values[value] for value in trace.results])
        if trace.error or len(outputs) != len(self.expected):
            return False
        before = self.s.blame.ours.outputs
        for number, (made, right) in enumerate(zip(outputs, self.expected, strict=True)):
            if adapter.fixed and plain(made.shape) == plain(right.shape):
                made = made.reshape(right.shape)
            if made.shape != right.shape or made.dtype.kind != right.dtype.kind:
                return False
            if made.dtype.kind != "f":
                if not np.array_equal(made, right):
                    return False
            elif not close(made, right, tolerance.SAME) and not equal(made, right):
                return False
            elif (
                number < len(before)
                and before[number].shape == right.shape
                and not equal(before[number], right, tolerance.EXACT_RTOL)
            ):
                gap = distance(before[number].astype(np.float64), right.astype(np.float64))
                if np.isfinite(gap) and distance(made, right) > 0.02 * gap:
                    return False
        return True


def _in_own_shapes(pair: PairedCalls, proposal: Proposal) -> Proposal:
    """The same, where what is put in the place of a call's outputs has other axes of size 1: in the shapes of the port's."""
    made = {one.number: [pair.ours.values[value] for value in one.outputs] for one in pair.ours.operations}
    changes = dict(proposal.changes)
    for number, change in changes.items():
        if isinstance(change, list) and len(change) == len(made.get(number, [])):
            both = zip(change, made[number], strict=True)
            changes[number] = [_in_shape(new, old.shape, pair.orders) for new, old in both]
    return replace(proposal, changes=changes)


def _in_shape(array: np.ndarray, shape: tuple[int, ...], orders: Sequence[Order]) -> np.ndarray:
    if plain(array.shape) == plain(shape):
        return array.reshape(shape)
    back = [tuple(int(axis) for axis in np.argsort(order)) for order in orders]
    return next((other for other in turned(array, back) if other.shape == shape), array)


def _gives(trace: Trace, proposal: Proposal, orders: Sequence[Order]) -> bool:
    """Whether the changed call gives what the reference's gives; always so where its output was put there."""
    change = proposal.changes.get(proposal.operation.number)
    if not (isinstance(change, Mapping) or callable(change)) or not proposal.right:
        return True
    again = next((one for one in trace.operations if one.number == proposal.operation.number), None)
    if again is None or not again.outputs:
        return False
    return all(
        any(plain(made.shape) == plain(right.shape) and equal(made, right) for made in turned(trace.values[value], orders))
        for value, right in zip(again.outputs, proposal.right, strict=False)
    )


# --- hypotheses ------------------------------------------------------------------------------------------------------------


def proposals(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """What may be wrong with a call of the port whose inputs are right."""
    for hypotheses in (_attributes, _from_nothing, _swapped, _extra, _other_operation, _parts_swapped, _operand, _missing, _order):
        yield from hypotheses(pair, one)


def _waiting(pair: PairedCalls) -> Iterator[Operation]:
    """The reference's calls that no call of the port does."""
    return (other for other in pair.theirs.operations if pair.lacking(other))


def _matched(pair: PairedCalls, one: Operation, other: Operation, any_order: bool) -> bool:
    """Whether two calls got the same values."""
    if len(one.inputs) != len(other.inputs):
        return False
    if all(_agree(pair, one, a, b) for a, b in zip(one.inputs, other.inputs, strict=True)):
        return True
    orders = itertools.permutations(other.inputs) if any_order and len(one.inputs) <= 4 else ()
    return any(all(_agree(pair, one, a, b) for a, b in zip(one.inputs, order, strict=True)) for order in orders)


def _agree(pair: PairedCalls, one: Operation, mine: int, theirs: int) -> bool:
    """Whether two calls got the same value; a product may turn its matrices itself (``transpose_y=True``)."""
    if pair.agree(mine, theirs):
        return True
    a, b = pair.ours.values[mine], pair.theirs.values[theirs]
    return one.name == "matmul" and min(a.ndim, b.ndim) > 1 and equal(a.swapaxes(-1, -2), b) and a.shape[-2:] == b.shape[-2:][::-1]


def _arrays(pair: PairedCalls, other: Operation) -> list[np.ndarray]:
    return [pair.theirs.values[value] for value in other.outputs]


def _attributes(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation on the same values, with other arguments."""
    for other in _waiting(pair):
        if other.name != one.name or not _matched(pair, one, other, one.name in COMMUTATIVE):
            continue
        differing = [k for k, v in one.attributes.items() if k in other.attributes and not _same(v, other.attributes[k])]
        right = _arrays(pair, other)
        certain = one.name not in LAYOUT
        for keys in [*([k] for k in differing), *([differing] if len(differing) > 1 else [])]:
            words = f"{_title(one)} {', '.join(_difference(one, other, key) for key in keys)}"
            of_classes = one.name in ("softmax", "log_softmax", "cross_entropy") and keys == ["axis"]
            kind = Kind.SOFTMAX_AXIS if of_classes else Kind.CALL_ARGUMENT
            if one.name in EFFECTS:
                attributes = {**one.attributes, **{key: other.attributes[key] for key in keys}}
                change = functools.partial(_computed, one.name, attributes)
                yield Proposal(kind, words, one, {one.number: change}, right, certain)
            else:
                changes: dict[int, CallChange] = {one.number: {key: other.spelled.get(key, other.attributes[key]) for key in keys}}
                yield Proposal(kind, words, one, changes, right, certain)
        if differing and one.name not in EFFECTS:  # where the port's function cannot be called so
            words = f"{_title(one)} {', '.join(_difference(one, other, key) for key in differing)}"
            yield Proposal(Kind.CALL_ARGUMENT, words, one, {one.number: right}, right)


def _computed(name: str, attributes: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    made = computed(name, attributes, arrays[0])
    if made is None:
        raise Refused(f"{name} cannot be called with {attributes}")
    return made


def _from_nothing(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """As many numbers in a row, from another one on: positions that begin at 1."""
    if one.inputs or one.name not in ("arange", "linspace") or not one.outputs:
        return
    mine = pair.ours.values[one.outputs[0]]
    for other in _waiting(pair):
        right = _arrays(pair, other)
        if other.name == one.name and not other.inputs and right[0].size == mine.size > 0:
            ends = [f"{array.flat[0]:g} to {array.flat[-1]:g}" for array in (mine, right[0])]
            yield Proposal(
                Kind.CALL_ARGUMENT, f"{_title(one)} from {ends[0]}, expected from {ends[1]}", one, {one.number: right}, right
            )


def _swapped(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation on the same values in another order."""
    if one.name in COMMUTATIVE or len(one.inputs) < 2:
        return
    for other in _waiting(pair):
        if other.name == one.name and not _matched(pair, one, other, False) and _matched(pair, one, other, True):
            right = _arrays(pair, other)
            theirs = [next(v for v in one.inputs if _agree(pair, one, v, value)) for value in other.inputs]
            words = f"{_title(one)} of {_listed(pair, one.inputs)} in this order, expected {_listed(pair, theirs)}"
            if len({_operand_words(pair, value) for value in theirs}) < len(theirs):  # all from one line
                order = ", ".join(str(one.inputs.index(value) + 1) for value in theirs)
                words = f"{_title(one)} of {len(theirs)} tensors, expected in the order {order}"
            yield Proposal(Kind.OPERAND, words, one, {one.number: right}, right)


def _other_operation(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """Another operation on the same values."""
    for other in _waiting(pair):
        if other.name != one.name and _matched(pair, one, other, True):
            right, words = _arrays(pair, other), f"{_in_full(one)}, expected {_in_full(other)}"
            if len(right) > len(one.outputs) == 1:  # torch's max gives the largest and where they stand
                kind = pair.ours.values[one.outputs[0]].dtype.kind
                place = next((number for number, array in enumerate(right) if array.dtype.kind == kind), 0)
                right, words = [right[place]], f"{words}, output {place + 1}"
            yield Proposal(Kind.OTHER_FUNCTION, words, one, {one.number: right}, right)


def _parts_swapped(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The parts of what was split before are taken for one another."""
    for value in one.inputs:
        maker = pair.own_maker(value)
        if maker is None or not 2 <= len(maker.outputs) <= 4 or not maker.file:
            continue
        parts = [pair.ours.values[part] for part in maker.outputs]
        for order in list(itertools.permutations(range(len(parts))))[1:]:
            used = f"for {_title(one)} in line {one.line}"
            words = f"the parts of {_title(maker)} are taken in another order {used}, expected {list(order)}"
            yield Proposal(Kind.OPERAND, words, maker, {maker.number: [parts[n] for n in order]})


def _operand(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation, on one other value than the port's; the port has that value, too."""
    for other in _waiting(pair):
        wrong = _unlike(pair, one, other)
        if wrong is None or len(wrong) != 1:
            continue
        (mine, theirs), right = wrong[0], _arrays(pair, other)
        before = [v for v in pair.held.get(theirs, []) if (m := pair.own_maker(v)) is None or m.number < one.number]
        if before:
            words = f"{_title(one)} of {_operand_words(pair, mine)}, expected of {_operand_words(pair, before[0])}"
            yield Proposal(Kind.OPERAND, words, one, {one.number: right}, right)


def _missing(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation, on what further calls make of the value first."""
    for other in _waiting(pair):
        wrong = _but_for_turned(pair, one, _unlike(pair, one, other) or [])
        if not wrong:
            continue
        chains = [_chain(pair, theirs) for _, theirs in wrong]
        if not all(chains):
            continue
        lacking = list({step.number: step for chain in chains for step in chain}.values())
        right = _arrays(pair, other)
        maker = pair.own_maker(wrong[0][0])
        words = f"{_steps(pair, lacking)} missing before {_title(one)}"
        if maker is not None and maker.file == one.file and maker.line < one.line:
            words = f"{_steps(pair, lacking)} missing between {_title(maker)} and {_title(one)}"
        else:
            maker = maker if maker is not None and maker.line == one.line else None
        since = maker.line if maker else None
        yield Proposal(Kind.CALL_MISSING, words, one, {one.number: right}, right, since=since)
        if maker is not None and len(wrong) == 1:  # where more than this call goes on with it
            changes: dict[int, CallChange] = {maker.number: [pair.theirs.values[wrong[0][1]]]}
            yield Proposal(Kind.CALL_MISSING, words, one, changes, since=maker.line)


def _extra(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """A call too much: what follows wants one of its inputs."""
    for value in one.inputs:
        array = pair.ours.values[value]
        words = f"{described(one)} is too much: expected {_operand_words(pair, value)} as it is"
        if one.outputs and one.name not in ("getitem", "split"):
            yield Proposal(Kind.CALL_EXTRA, words, one, {one.number: [array]})


def _order(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """Two calls in the wrong order; taking a part of a tensor may stand on either side of most calls."""
    if one.name in ("getitem", "split"):
        return
    for later in pair.ours.operations:
        if later.number <= one.number or later.name == one.name or not set(one.outputs) & set(later.inputs):
            continue
        for other in _waiting(pair):
            if other.name != one.name:
                continue
            before = next((m for v in other.inputs if (m := pair.maker(v)) and m.name == later.name), None)
            if before is not None and any(pair.agree(a, b) for a in one.inputs for b in before.inputs):
                words = f"{described(one)} before {described(later)}, expected after it"
                right = [pair.theirs.values[value] for value in other.outputs]
                yield Proposal(Kind.ACTIVATION_ORDER, words, one, {later.number: right})


def _inserted(pair: PairedCalls) -> Iterator[Proposal]:
    """A call that is missing behind one whose result the reference has, whatever the port goes on with."""
    for step in _waiting(pair):
        own = [pair.held[v][0] for v in step.inputs if v in pair.held]
        if len(own) != len([v for v in step.inputs if not _constant(pair, v)]):
            continue
        makers = [maker for value in own if (maker := pair.own_maker(value)) is not None and maker.file]
        if makers and len(step.outputs) == 1:
            last = max(makers, key=lambda maker: maker.number)
            words = f"{_steps(pair, [step])} missing after {_title(last)}"
            yield Proposal(Kind.CALL_MISSING, words, last, {last.number: _arrays(pair, step)})


def _at_the_end(pair: PairedCalls) -> Iterator[Proposal]:
    """Calls that are missing behind the last one: the port returns what the reference goes on with."""
    for mine, theirs in zip(pair.ours.results, pair.theirs.results, strict=False):
        maker, chain = pair.own_maker(mine), _chain(pair, theirs)
        same = len(pair.ours.results) == len(pair.theirs.results)
        used = {v for step in chain for v in step.inputs}
        if same and maker is not None and maker.file and chain and not pair.exact[mine] & {theirs} and pair.exact[mine] & used:
            others = [
                n for n, pairs in enumerate(zip(pair.ours.results, pair.theirs.results, strict=True)) if not _held(pair, *pairs)
            ]
            if len(others) == 1:
                yield Proposal(Kind.CALL_MISSING, f"{_steps(pair, chain)} missing after {_title(maker)}", maker, {})


def _held(pair: PairedCalls, mine: int, theirs: int) -> bool:
    return theirs in pair.exact[mine]


def _unlike(pair: PairedCalls, one: Operation, other: Operation) -> list[tuple[int, int]] | None:
    """Where two calls of one operation, with the same arguments, got other values: (the port's, the reference's); else None."""
    if other.name != one.name or len(one.inputs) != len(other.inputs):
        return None
    if any(not _same(v, other.attributes[k]) for k, v in one.attributes.items() if k in other.attributes and k != "shape"):
        return None
    best: list[tuple[int, int]] | None = None
    orders = itertools.permutations(other.inputs) if one.name in COMMUTATIVE and len(one.inputs) <= 3 else [other.inputs]
    for order in orders:
        wrong = [(a, b) for a, b in zip(one.inputs, order, strict=True) if not pair.agree(a, b)]
        best = wrong if best is None or len(wrong) < len(best) else best
    return best


def _but_for_turned(pair: PairedCalls, one: Operation, wrong: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without the matrices that the product turns itself (``transpose_y=True``), and that the reference has turned before."""
    if one.name != "matmul" or len(one.inputs) != 2:
        return wrong
    given = [pair.ours.values[value] for value in one.inputs]
    made = pair.ours.values[one.outputs[0]]
    for turns in ((False, True), (True, False), (True, True)):
        first, second = (
            array.swapaxes(-1, -2) if turn and array.ndim > 1 else array for array, turn in zip(given, turns, strict=True)
        )
        if first.shape[-1] != second.shape[max(second.ndim - 2, 0)]:
            continue
        product = np.matmul(first, second)
        if equal(product, made):
            turned = {value for value, turn in zip(one.inputs, turns, strict=True) if turn}
            return [
                (mine, theirs)
                for mine, theirs in wrong
                if mine not in turned or not equal(pair.ours.values[mine].swapaxes(-1, -2), pair.theirs.values[theirs])
            ]
    return wrong


def _chain(pair: PairedCalls, value: int) -> list[Operation]:
    """The reference's calls, at most ``CHAIN``, that make a value from values that the port has; empty where it is not so."""
    steps: list[Operation] = []
    wanted = [] if value in pair.held else [value]
    while wanted:
        maker = pair.maker(wanted.pop())
        if maker is None or maker in steps or len(steps) == CHAIN:
            return []
        steps.insert(0, maker)
        wanted += [v for v in maker.inputs if v not in pair.held and not _constant(pair, v)]
    return steps


def _constant(pair: PairedCalls, value: int) -> bool:
    """Whether the reference holds a value, as a weight or a table, and no call makes it."""
    return pair.maker(value) is None and value not in pair.theirs.given


# --- words -----------------------------------------------------------------------------------------------------------------


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= tolerance.EXACT_RTOL * max(abs(a), abs(b))
    return bool(a == b)


def _title(one: Operation) -> str:
    return SYMBOLS.get(one.name, one.name.removeprefix("call ") if one.name.startswith("call ") else one.title.strip("_"))


def _number(value: Any) -> str:
    if isinstance(value, slice):
        return f"{'' if value.start is None else value.start}:{'' if value.stop is None else value.stop}"
    if isinstance(value, tuple) and any(isinstance(part, slice) for part in value):
        return f"[{', '.join(map(_number, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(list(value) if isinstance(value, tuple) else value)


def described(one: Operation) -> str:
    """A call in words: ``/ 8.0``, ``mean(axis=1)``, ``transpose to [0, 2, 3, 1]``."""
    if one.name in SYMBOLS:
        for key, value in one.spelled.items():
            return f"{_number(value)} {SYMBOLS[one.name]}" if key == "from" else f"{SYMBOLS[one.name]} {_number(value)}"
        return SYMBOLS[one.name]
    if one.name in ("reshape", "transpose"):
        return f"{one.name} to {_number(next(iter(one.attributes.values()), ''))}"
    if "axis" in one.spelled:
        return f"{_title(one)}(axis={_number(one.spelled['axis'])})"
    return _title(one)


def _in_full(one: Operation) -> str:
    """A call in words; a pooling or another call with settings of its own with them, a layer as such."""
    words = described(one)
    if one.name.startswith("call "):
        return f"the layer {words}"
    if words != _title(one) or one.name in SYMBOLS or not one.attributes:
        return words
    return f"{words}({', '.join(f'{key}={_number(value)}' for key, value in one.attributes.items() if value is not None)})"


def _difference(one: Operation, other: Operation, key: str) -> str:
    mine, theirs = (_number(side.spelled.get(key, side.attributes[key])) for side in (one, other))
    return f"{mine}, expected {theirs}" if key in ("constant", "by", "from") else f"{key} {mine}, expected {theirs}"


def _steps(pair: PairedCalls, steps: list[Operation]) -> str:
    """Calls of the reference that the port lacks, with what they are given besides."""
    words = []
    for step in steps:
        more = [pair.held[v][0] for v in step.inputs if v in pair.held] if len(step.inputs) > 1 else []
        said, given = described(step), [_operand_words(pair, value) for value in more]
        if more and len(step.inputs) > len(more):
            own = [pair.theirs.values[v].shape for v in step.inputs if v not in pair.held and _constant(pair, v)]
            given += [f"a tensor of the reference of shape {list(shape)}" for shape in own]
        words.append(f"{said} ({', '.join(given)})" if given else said)
    return f"{', '.join(words)} {'is' if len(words) == 1 else 'are'}"


def _listed(pair: PairedCalls, values: list[int]) -> str:
    return ", ".join(_operand_words(pair, value) for value in values)


def _operand_words(pair: PairedCalls, value: int) -> str:
    """What a value of the port's is: the input, or what a call in some line gave."""
    if value in pair.ours.given:
        place = pair.ours.given.index(value)
        return "the input" if len(pair.ours.given) == 1 else f"input {place + 1}"
    maker = pair.own_maker(value)
    if maker is None:
        return f"a tensor of shape {list(pair.ours.values[value].shape)}"
    part = f"part {maker.outputs.index(value)} of " if len(maker.outputs) > 1 else ""
    return f"{part}{_title(maker)}{f' in line {maker.line}' if maker.line else ''}"
