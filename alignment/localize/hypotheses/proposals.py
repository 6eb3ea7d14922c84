"""What may be wrong with a call in a module's own forward: each hypothesis is a call that is changed, and its words.

``calls.py`` finds the calls that are suspected, and tries what is proposed here.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from alignment.finding import Argument
from alignment.frameworks._call_names import CAST, COMMUTATIVE, EFFECTS, SYMBOLS, computed
from alignment.frameworks.base import CallChange, Module, Operation, Trace
from alignment.kinds import Kind
from alignment.localize.calls import LAYOUT, PairedCalls, constant, equal
from alignment.localize.hypotheses.call_words import (
    SQUARE,
    described,
    difference,
    function_of,
    in_full,
    listed,
    listed_steps,
    operand_words,
    same,
    steps_lacking,
    superfluous,
    takes,
    title,
    told_apart,
    without_common_ends,
)
from alignment.localize.roles import LOOKING_UP
from alignment.localize.syntax import SourceTree
from alignment.models.links import plain
from alignment.raised import shown
from alignment.strangers import Refused

CHAIN = 3  # calls that are missing at one place
THROUGH = 3  # calls between a part of what was split and the call that takes it
ALONG = frozenset({"softmax", "log_softmax", "cumsum", "normalize"})  # of the values along an axis each depends on the others
MOST_PARTS = 4  # of which every order is tried
GIVEN = -1  # and less: keys of changes that are made to what the module is given, by its place
SPREAD = LAYOUT | {"expand"}  # calls that keep the numbers, some of them several times
MEANS = frozenset({"mean", "var", "std"})
SEGMENT = 5  # calls of each side between values that both have


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
        theirs: the calls of the reference that the port lacks, or has otherwise, the last one last.
        ours: the calls of the port in whose place they are, where these are several.
        place: the call in whose line they are to be changed, where it is not ``operation``.
        conclusive: whether it was shown by itself, so that nothing else is said of the module.
        wanted: attributes of the call -> what they should be, where these alone are wrong.
        taken: what the call is given and what it should be given, in words, where this one operand is wrong.

    The line, ``package/file.py:31``, is its ``source``; two, ``package/file.py:30-31``, where a call is missing between them.
    """

    kind: Kind
    words: str
    operation: Operation
    changes: dict[int, CallChange]
    right: list[np.ndarray] = field(default_factory=list)
    certain: bool = False
    since: int | None = None
    theirs: Sequence[Operation] = ()
    ours: Sequence[Operation] = ()
    place: Operation | None = None
    conclusive: bool = False
    wanted: Mapping[str, Any] = field(default_factory=dict)
    taken: tuple[str, str] | None = None

    @property
    def source(self) -> str:
        one = self.place or self.operation
        first = f"{self.since}-" if self.since and self.since < one.line else ""
        return f"{shown(Path(one.file).resolve())}:{first}{one.line}"

    @property
    def layer(self) -> Module | None:
        """The framework's layer that makes the call, where it is to be another layer or to have other settings."""
        alone = self.kind in (Kind.OTHER_FUNCTION, Kind.CALL_ARGUMENT) and self.place is None and len(self.ours) < 2
        return self.operation.layer if alone else None

    @property
    def arguments(self) -> list[Argument]:
        """What the source has to give the call; empty where it is not known, or more than arguments is wrong."""
        call, found, line = self.operation.call, list[Argument](), self.source
        for key, value in self.wanted.items() if call is not None else ():
            assert call is not None
            try:
                name, expected = call.written(key, value)
            except Refused:
                return []
            held = call.constants.get(key, call.bound.get(name))
            given = key in call.operands or name in call.given
            found.append(Argument(source=line, function=call.own, name=name, given=given, found=held, expected=expected))
        return found


def proposals(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """What may be wrong with a call of the port whose inputs are right."""
    for hypotheses in (
        _attributes, _averaged, _from_nothing, _looked_up, _swapped, _extra, _order, _other_operation, _parts_swapped, _operand,
        _missing,
    ):  # fmt: skip
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
    casts = (other for other in pair.theirs.operations if other.name == one.name == CAST)  # what one gives is what it is given
    for other in itertools.chain(_waiting(pair), casts):
        if other.name == one.name and _matched(pair, one, other, one.name in COMMUTATIVE):
            yield from _of_arguments(pair, one, other)


def _of_arguments(pair: PairedCalls, one: Operation, other: Operation) -> Iterator[Proposal]:
    """What differs in the arguments of two calls, each by itself and all together."""
    differing = [key for key in one.attributes if key in other.attributes and _differs(one, other, key)]
    right = _arrays(pair, other)
    certain = one.name not in LAYOUT and one.name != "getitem"  # which may take another part for another purpose
    for keys in [*([k] for k in differing), *([differing] if len(differing) > 1 else [])]:
        words = f"{title(one)} {', '.join(difference(one, other, key) for key in keys)}"
        of_classes = one.name in ("softmax", "log_softmax", "cross_entropy") and keys == ["axis"]
        kind = Kind.SOFTMAX_AXIS if of_classes else Kind.CALL_ARGUMENT
        if one.name in EFFECTS:
            attributes = {**one.attributes, **{key: other.attributes[key] for key in keys}}
            change = functools.partial(_computed, one.name, attributes)
            wanted = {key: other.attributes[key] for key in keys}
            yield Proposal(kind, words, one, {one.number: change}, right, certain, theirs=[other], wanted=wanted)
        else:
            wanted = {key: other.spelled.get(key, other.attributes[key]) for key in keys}
            yield Proposal(kind, words, one, {one.number: wanted}, right, certain, theirs=[other], wanted=wanted)
    if differing and one.name not in EFFECTS:  # where the port's function cannot be called so
        words = f"{title(one)} {', '.join(difference(one, other, key) for key in differing)}"
        yield Proposal(Kind.CALL_ARGUMENT, words, one, {one.number: right}, right, theirs=[other])


def _averaged(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation on the same values with the same arguments, whose mean counts labels that are ignored, too."""
    ignored = one.attributes.get("ignore_index")
    labels = [array for value in one.inputs if (array := pair.ours.values[value]).dtype.kind in "iu"]
    for other in _waiting(pair) if ignored is not None and len(labels) == 1 and labels[0].size and len(one.outputs) == 1 else ():
        right, counted = _arrays(pair, other), int((labels[0] != ignored).sum())
        if _unlike(pair, one, other) == [] and right[0].size == 1 and 0 < counted < labels[0].size:
            mine, share = pair.ours.values[one.outputs[0]], counted / labels[0].size
            if equal(mine, right[0] * share):
                words = f"is over all {labels[0].size} labels, expected over the {counted} that are not ignored"
                words = f"the mean of {title(one)} {words}"
                yield Proposal(Kind.OTHER_FUNCTION, words, one, {one.number: right}, right, True, theirs=[other])


def _differs(one: Operation, other: Operation, key: str) -> bool:
    """Whether an argument is another one; the last axis is the last one of any number of axes."""
    if same(one.attributes[key], other.attributes[key]):
        return False
    return not (key in one.spelled and key in other.spelled and same(one.spelled[key], other.spelled[key]))


def _computed(name: str, attributes: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    made = computed(name, attributes, arrays[0])
    if made is None:
        raise Refused(f"{name} cannot be called with {attributes}")
    return made


def _from_nothing(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """As many numbers in a row, from another one on: positions that begin at 1; or a table's numbers in another order."""
    if one.inputs or not one.outputs:
        return
    mine = pair.ours.values[one.outputs[0]]
    if one.name not in ("arange", "linspace"):
        yield from in_another_order(pair, one)
        return
    for other in _waiting(pair):
        right = _arrays(pair, other)
        if other.name == one.name and not other.inputs and right[0].size == mine.size > 0:
            ends = [f"{array.flat[0]:g} to {array.flat[-1]:g}" for array in (mine, right[0])]
            yield Proposal(
                Kind.CALL_ARGUMENT, f"{title(one)} from {ends[0]}, expected from {ends[1]}", one, {one.number: right}, right
            )


def in_another_order(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The rows or the columns of a table that the source gives stand in another order than in one of the reference's."""
    mine = pair.ours.values[one.outputs[0]] if one.outputs and not one.inputs else np.empty(0)
    if mine.ndim != 2 or mine.dtype.kind not in "if":
        return
    known = [n for n, array in enumerate(pair.theirs.values) if array.shape == mine.shape and n not in pair.held]
    for (axis, what), right in itertools.product(((0, "rows"), (1, "columns")), [pair.theirs.values[n] for n in known]):
        if right.dtype.kind in "if" and (order := _order_along(mine, right, axis)) is not None:
            words = f"the {what} of {title(one)} stand in another order, expected {order}"
            made = [right.astype(mine.dtype)]
            yield Proposal(Kind.OPERAND, words, one, {one.number: made}, made)


def _order_along(mine: np.ndarray, right: np.ndarray, axis: int) -> list[int] | None:
    """Which rows or columns of an array are those of another one, which has the same in another order; None where it has not."""
    rows, wanted = np.moveaxis(mine, axis, 0), np.moveaxis(right, axis, 0)
    order = [next((n for n, row in enumerate(rows) if equal(row, one)), -1) for one in wanted]
    return order if sorted(order) == list(range(len(rows))) != order else None


def _looked_up(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """Positions that no call has computed, in whose place the reference looks up others in the same table."""
    if one.inputs or len(one.outputs) != 1 or pair.ours.values[one.outputs[0]].dtype.kind not in "iu":
        return
    for user in (user for user in pair.ours.operations if user.name in LOOKING_UP and one.outputs[0] in user.inputs):
        for other in (other for other in _waiting(pair) if other.name in LOOKING_UP):
            tables = [[v for v in step.inputs if v != step.inputs[LOOKING_UP[step.name]]] for step in (user, other)]
            index = other.inputs[LOOKING_UP[other.name]]
            right = pair.theirs.values[index]
            mine = pair.ours.values[one.outputs[0]]
            if (
                right.dtype.kind not in "iu"
                or right.size != mine.size
                or not any(pair.agree(*v) for v in zip(*tables, strict=False))
            ):
                continue
            if np.array_equal(mine := mine.reshape(right.shape), right):
                continue
            place = None
            if mine.ndim == 2 and np.array_equal(mine, right.T):
                words = "the reference's with rows and columns exchanged (a difference of positions taken the other way round)"
                place = _of_difference(one)
            else:
                first = tuple(int(n) for n in np.argwhere(mine != right)[0])
                words = f"not the reference's: at {list(first)} {mine[first]}, expected {right[first]}"
            words = f"the positions that {title(user)} looks up are {words}"
            yield Proposal(Kind.OPERAND, words, one, {one.number: [right]}, [right], certain=True, place=place)


def _of_difference(one: Operation) -> Operation | None:
    """A call as if made where the difference of positions stands from which its value comes; None where that is not sure."""
    with contextlib.suppress(OSError, SyntaxError):
        lines = {found.lineno for found in SourceTree.of(Path(one.file)).differences_behind(one.line)}
        return replace(one, line=lines.pop(), site=-1) if len(lines) == 1 else None
    return None


def _swapped(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation on the same values in another order."""
    if one.name in COMMUTATIVE or len(one.inputs) < 2:
        return
    for other in _waiting(pair):
        if other.name == one.name and not _matched(pair, one, other, False) and _matched(pair, one, other, True):
            right = _arrays(pair, other)
            theirs = [next(v for v in one.inputs if _agree(pair, one, v, value)) for value in other.inputs]
            words = takes(title(one), f"{listed(pair, one.inputs)} in this order", listed(pair, theirs))
            if len({operand_words(pair, value) for value in theirs}) < len(theirs):  # all from one line
                apart = [both for both in zip(one.inputs, theirs, strict=True) if both[0] != both[1]]
                said = [operand_words(pair, _laid_out(pair, value)) for value in apart[0]]
                if len(apart) == 2 and said[0] != said[1]:
                    words = takes(title(one), f"{said[0]}, {said[1]} in this order", f"{said[1]}, {said[0]}")
                else:
                    order = ", then ".join(f"number {one.inputs.index(value) + 1}" for value in theirs)
                    words = takes(title(one), f"its {len(theirs)} tensors in another order", f"first {order}")
            yield Proposal(Kind.OPERAND, words, one, {one.number: right}, right)


def _other_operation(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """Another operation on the same values."""
    for other in _waiting(pair):
        again = any(user.name == one.name and set(other.outputs) & set(user.inputs) for user in pair.theirs.operations)
        if other.name != one.name and _matched(pair, one, other, True) and not (one.name == CAST and again):
            right, words = _arrays(pair, other), f"{in_full(one)}, expected {in_full(other)}"
            if len(right) > len(one.outputs) == 1:  # torch's max gives the largest and where they stand
                kind = pair.ours.values[one.outputs[0]].dtype.kind
                place = next((number for number, array in enumerate(right) if array.dtype.kind == kind), 0)
                right, words = [right[place]], f"{words}, output {place + 1}"
            yield Proposal(Kind.OTHER_FUNCTION, words, one, {one.number: right}, right, theirs=[other])


def _parts_swapped(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The parts of what was split before are taken for one another."""
    for value in one.inputs:
        maker = _split_behind(pair, value)
        if maker is None or len(maker.outputs) > MOST_PARTS or not maker.file:
            continue
        parts = [pair.ours.values[part] for part in maker.outputs]
        right = {n for n, part in enumerate(maker.outputs) if _taken_rightly(pair, part)}
        for order in list(itertools.permutations(range(len(parts))))[1:]:
            if any(order[n] != n for n in right):
                continue
            used = f"for {title(one)} in line {one.line}"
            words = f"the parts of {title(maker)} are taken in another order {used}, expected {list(order)}"
            yield Proposal(Kind.OPERAND, words, maker, {maker.number: [parts[n] for n in order]})


def _taken_rightly(pair: PairedCalls, value: int) -> bool:
    """Whether a call of the port that computes with a value gives something that the reference has."""
    takers = (one for one in pair.ours.operations if value in one.inputs and one.name not in (*LAYOUT, "getitem"))
    return any(one.outputs and not pair.diverges(one) for one in takers)


def _split_behind(pair: PairedCalls, value: int) -> Operation | None:
    """The call of several outputs that a value is one of, or is made of by a few calls of one value each."""
    for _ in range(THROUGH + 1):
        maker = pair.own_maker(value)
        if maker is None or len(maker.outputs) > 1:
            return maker
        inside = [one for one in maker.inputs if one in pair.ours.given or pair.own_maker(one) is not None]
        if len(inside) != 1:
            return None
        value = inside[0]
    return None


def _operand(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """The same operation, on one other value than the port's; the port has that value, too."""
    for other in _waiting(pair):
        wrong = _unlike(pair, one, other)
        if wrong is None or len(wrong) != 1:
            continue
        mine, theirs = wrong[0]
        before = [v for v in pair.held.get(theirs, []) if (m := pair.own_maker(v)) is None or m.number < one.number]
        later = [v for v in pair.held.get(theirs, []) if (m := pair.own_maker(v)) is not None and m.number > one.number]
        if before or later:
            yield _takes_another(pair, one, mine, (before or later)[0], other, early=not before)


def _takes_another(pair: PairedCalls, one: Operation, mine: int, expected: int, other: Operation, early: bool = False) -> Proposal:
    """A call of the port's that takes one of its values in place of another one, which it has made; or makes only later."""
    taken, right, place = told_apart(pair, mine, expected), _arrays(pair, other), None
    words = takes(title(one), *taken)
    if early:
        words += ", which the port computes only after it"
    elif (place := _handed_over(one, [pair.own_maker(value) for value in (mine, expected)])) is not None:
        words += f", in {one.function} (line {one.line})"
    kind = Kind.CALL_ORDER if early else Kind.OPERAND
    return Proposal(kind, words, one, {one.number: right}, right, theirs=[other], place=place, taken=taken)


def exchanged(made: Sequence[Proposal]) -> list[Proposal]:
    """The same mistakes, two as one where in one line each of two calls is given what the other one should be given."""
    kept: list[Proposal] = []
    for one in made:
        reverse = (one.taken[1], one.taken[0]) if one.taken and one.taken[0] != one.taken[1] else None
        twin = next((n for n, other in enumerate(kept) if reverse and (other.taken, other.source) == (reverse, one.source)), None)
        if twin is None or one.taken is None:
            kept.append(one)
            continue
        first, parts = kept[twin], [words.split(" of ") for words in one.taken[::-1]]
        same_begin = len(list(itertools.takewhile(lambda both: both[0] == both[1], zip(*parts, strict=False))))
        names = [" of ".join(words[same_begin:]) for words in parts]
        inside = f", in {one.operation.function} (line {one.operation.line})" if one.place is not None else ""
        words = f"{' and '.join(names)} are taken for each other{inside}"
        kept[twin] = replace(
            first, kind=Kind.OPERAND, words=words, changes=first.changes | one.changes, place=one.place, taken=None
        )
    return kept


def _handed_over(one: Operation, makers: Sequence[Operation | None]) -> Operation | None:
    """A call at the line that hands its operand over, where both that and the right one are made in the function of that line."""
    chains = [
        [*reversed(step.outer), *reversed(step.callers), (step.file, step.line, step.function, step.site)]
        for step in (one, *makers)
        if step
    ]
    apart = next((frames for frames in zip(*chains, strict=False) if len(set(frames)) > 1), None)
    if None in makers or apart is None or apart[0] == chains[0][-1] or len({(file, name) for file, _, name, _ in apart}) > 1:
        return None
    if apart[0] == apart[1]:
        return None  # what it takes is made in the call itself, and is not handed over
    file, line, function, site = apart[0]
    return replace(one, file=file, line=line, function=function, site=site)


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
        if len(wrong) == len(lacking) == 1:
            yield from _operand_before(pair, one, wrong[0][0], lacking[0], right)
        if len(wrong) == 1 and (another := _made_of_another(pair, one, wrong[0][0], lacking, other)) is not None:
            yield another
            continue
        maker = pair.own_maker(wrong[0][0])
        words = f"{steps_lacking(pair, lacking)} missing before {title(one)}"
        if maker is not None and maker.file == one.file and maker.line < one.line:
            words = f"{steps_lacking(pair, lacking)} missing between {title(maker)} and {title(one)}"
        else:
            maker = maker if maker is not None and maker.line == one.line else None
        since = maker.line if maker else None
        place = maker if maker is not None and maker.function != one.function else None  # a helper returns too early
        yield Proposal(Kind.CALL_MISSING, words, one, {one.number: right}, right, since=since, theirs=lacking, place=place)
        if maker is not None and len(wrong) == 1:  # where more than this call goes on with it
            changes: dict[int, CallChange] = {maker.number: [pair.theirs.values[wrong[0][1]]]}
            yield Proposal(Kind.CALL_MISSING, words, one, changes, since=maker.line, theirs=lacking)


def _made_of_another(
    pair: PairedCalls, one: Operation, mine: int, lacking: Sequence[Operation], other: Operation
) -> Proposal | None:
    """Nothing is missing behind what a call takes: the reference makes what it takes from another value, that the port has, too."""
    begun = [v for v in _begun(lacking) if not constant(pair, v)]
    sources = [v for v in pair.held.get(begun[0], []) if (m := pair.own_maker(v)) is None or m.number < one.number] if begun else []
    if len(begun) > 1 or not sources or pair.agree(mine, begun[0]) or any(step.name not in SPREAD for step in lacking):
        return None
    mine = _laid_out(pair, mine)
    return None if mine in sources else _takes_another(pair, one, mine, sources[0], other)


def _laid_out(pair: PairedCalls, value: int) -> int:
    """The value of the port's that some calls lay out in another shape, as a value."""
    while (maker := pair.own_maker(value)) is not None and maker.name in SPREAD and maker.inputs:
        value = maker.inputs[0]
    return value


def _operand_before(pair: PairedCalls, one: Operation, value: int, step: Operation, right: list[np.ndarray]) -> Iterator[Proposal]:
    """The port does what seems to be missing before a call, on one other value than the reference; the port has that, too."""
    maker = pair.own_maker(value)
    if maker is None or maker.file != one.file:
        return
    if maker.name == step.name and in_full(maker) != in_full(step) and _matched(pair, maker, step, maker.name in COMMUTATIVE):
        yield from _of_arguments(pair, maker, step)
        words = takes(title(one), in_full(maker), in_full(step))
        yield Proposal(Kind.OPERAND, words, one, {one.number: right}, right, theirs=[step])
        return
    wrong = _unlike(pair, maker, step)
    if wrong is None or len(wrong) != 1 or wrong[0][1] not in pair.held:
        return
    made = [v for v in pair.held[wrong[0][1]] if (m := pair.own_maker(v)) is None or m.number < maker.number]
    if not made:
        return
    before, alone = pair.own_maker(wrong[0][0]), _used(pair, value) == 1
    mine, theirs = told_apart(pair, wrong[0][0], made[-1])
    words = takes(described(maker), mine, theirs)
    if not alone:
        words = takes(title(one), f"{described(maker)} of {mine}", f"{described(step)} of {theirs}")
    since = before.line if before is not None and before.file == maker.file and alone and _used(pair, wrong[0][0]) == 1 else None
    place = maker if alone else None
    yield Proposal(Kind.OPERAND, words, one, {one.number: right}, right, since=since, theirs=[step], place=place)


def _used(pair: PairedCalls, value: int) -> int:
    """How many calls of the port get a value."""
    return sum(value in one.inputs for one in pair.ours.operations)


def _extra(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """A call too much: what follows wants one of its inputs."""
    for value in one.inputs if one.outputs else ():  # one without any has raised
        array = pair.ours.values[value]
        words = superfluous(pair, one, value)
        turned = one.name == "getitem" and pair.ours.values[one.outputs[0]].shape == array.shape  # ``x[::-1]`` takes no part
        if turned or one.name not in ("getitem", "split"):
            yield Proposal(Kind.CALL_EXTRA, words, one, {one.number: [array]})


def _order(pair: PairedCalls, one: Operation) -> Iterator[Proposal]:
    """Two calls in the wrong order; taking a part of a tensor may stand on either side of most calls."""
    part = one.name in ("getitem", "split")
    for later in pair.ours.operations:
        if later.number <= one.number or function_of(later) == function_of(one) or not set(one.outputs) & set(later.inputs):
            continue
        if any(v not in one.outputs and not pair.flat[v] and pair.own_maker(v) is not None for v in later.inputs):
            continue  # what it takes besides is wrong itself
        if one.name in LAYOUT and later.name in SYMBOLS:
            continue  # either order gives the same numbers
        if part and later.name not in ALONG:
            continue
        for other in _waiting(pair):
            if function_of(other) != function_of(one):
                continue
            before = next((m for v in other.inputs if (m := pair.maker(v)) and function_of(m) == function_of(later)), None)
            if before is not None and any(pair.agree(a, b) for a in one.inputs for b in before.inputs):
                right = [pair.theirs.values[value] for value in other.outputs]
                if described(one) == described(other) or function_of(one) == SQUARE or (part and same_shape(pair, later, other)):
                    words = f"{described(one)} before {described(later)}, expected after it"
                    yield Proposal(Kind.ACTIVATION_ORDER, words, one, {later.number: right}, theirs=[other])
                elif one.name in ("mul", "div") and later.name == "matmul":  # which may stand on either side
                    words = f"{described(one)}, expected {described(other)}"
                    yield Proposal(Kind.CALL_ARGUMENT, words, one, {later.number: right}, theirs=[other])


def same_shape(pair: PairedCalls, mine: Operation, theirs: Operation) -> bool:
    """Whether two calls gave arrays of one shape, but for axes of size 1."""
    sides = (mine, pair.ours), (theirs, pair.theirs)
    return len({plain(side.values[one.outputs[0]].shape) if one.outputs else None for one, side in sides}) == 1


def inserted(pair: PairedCalls, several: bool = False) -> Iterator[Proposal]:
    """A call, or several, that are missing behind one whose result the reference has, whatever the port goes on with."""
    for step in _waiting(pair):
        steps = _chain(pair, step.outputs[0]) if len(step.outputs) == 1 else []
        begun = {v for v in _begun(steps) if not constant(pair, v)}
        if not steps or not begun <= pair.held.keys() or several is not (len(steps) > 1) or (several and len(begun) > 1):
            continue
        makers = [maker for v in begun if (maker := pair.own_maker(pair.held[v][0])) is not None and maker.file]
        if makers:
            last = max(makers, key=lambda maker: maker.number)
            words = f"{steps_lacking(pair, steps)} missing after {title(last)}"
            yield Proposal(Kind.CALL_MISSING, words, last, {last.number: _arrays(pair, step)}, theirs=steps)


def behind_an_input(pair: PairedCalls) -> Iterator[Proposal]:
    """Calls that are missing where the port goes on with what it is given, also where it returns that."""
    for step in (one for one in _waiting(pair) if len(one.outputs) == 1):
        steps, right = _chain(pair, step.outputs[0], SEGMENT), pair.theirs.values[step.outputs[0]]
        held = [pair.held[value][0] for value in _begun(steps) if value in pair.held]
        alike = [value for value in held if value in pair.ours.given and pair.ours.values[value].dtype.kind == right.dtype.kind]
        for value in (value for value in alike if pair.ours.values[value].shape == right.shape):
            user = next((one for one in pair.ours.operations if one.file and value in one.inputs), None)
            if user is not None:
                makers = [
                    maker
                    for other in held
                    if (maker := pair.own_maker(other)) and (maker.file, maker.function) == (user.file, user.function)
                ]
                since = max((one.line for one in makers if one.line < user.line), default=None)
                computing = [one for one in steps if one.name not in LAYOUT | {"getitem"}]
                words = f"{steps_lacking(pair, computing or steps)} missing before {title(user)}"
                changes: dict[int, CallChange] = {GIVEN - pair.ours.given.index(value): [right]}
                yield Proposal(Kind.CALL_MISSING, words, user, changes, since=since, theirs=steps)


def at_the_end(pair: PairedCalls) -> Iterator[Proposal]:
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
                words = f"{steps_lacking(pair, chain)} missing after {title(maker)}"
                yield Proposal(Kind.CALL_MISSING, words, maker, {maker.number: [pair.theirs.values[theirs]]}, theirs=chain)


def elsewhere(pair: PairedCalls) -> Iterator[Proposal]:
    """The port returns other values than the reference, of which it has all that are expected: taken too early, or too late."""
    both = list(zip(pair.ours.results, pair.theirs.results, strict=False))
    wrong = [(number, *values) for number, values in enumerate(both, start=1) if not _held(pair, *values)]
    if not wrong or len(pair.ours.results) != len(pair.theirs.results) or not all(theirs in pair.held for _, _, theirs in wrong):
        return
    found = [(number, mine, pair.held[theirs][0]) for number, mine, theirs in wrong]
    words = [f"output {n} is {operand_words(pair, mine)}, expected {operand_words(pair, right)}" for n, mine, right in found]
    makers = [maker for value in found[-1][1:] if (maker := pair.own_maker(value)) is not None and maker.file]
    if makers and len({maker.file for maker in makers}) == 1:
        last = max(makers, key=lambda maker: maker.line)
        yield Proposal(Kind.OPERAND, "; ".join(words), last, {}, since=min(maker.line for maker in makers))


def _held(pair: PairedCalls, mine: int, theirs: int) -> bool:
    return theirs in pair.exact[mine]


def _unlike(pair: PairedCalls, one: Operation, other: Operation) -> list[tuple[int, int]] | None:
    """Where two calls of one operation, with the same arguments, got other values: (the port's, the reference's); else None."""
    if other.name != one.name or len(one.inputs) != len(other.inputs):
        return None
    if any(not same(v, other.attributes[k]) for k, v in one.attributes.items() if k in other.attributes and k != "shape"):
        return None
    best: list[tuple[int, int]] | None = None
    orders = itertools.permutations(other.inputs) if one.name in COMMUTATIVE and len(one.inputs) <= 3 else [other.inputs]
    for order in orders:
        wrong = [(a, b) for a, b in zip(one.inputs, order, strict=True) if not pair.agree(a, b)]
        best = wrong if best is None or len(wrong) < len(best) else best
    return best


def _but_for_turned(pair: PairedCalls, one: Operation, wrong: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without the matrices that the product turns itself (``transpose_y=True``), and that the reference has turned before."""
    if one.name != "matmul" or len(one.inputs) != 2 or not one.outputs:  # it raised
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


def _chain(pair: PairedCalls, value: int, most: int = CHAIN) -> list[Operation]:
    """The reference's calls, at most so many, that make a value from values that the port has; empty where it is not so."""
    steps: list[Operation] = []
    wanted = [] if value in pair.held else [value]
    while wanted:
        maker = pair.maker(wanted.pop())
        if maker is None or len(steps) == most:
            return []
        if maker in steps:
            if most == CHAIN:
                return []
            continue
        steps.insert(0, maker)
        wanted += [v for v in maker.inputs if v not in pair.held and v not in pair.reshaped and not constant(pair, v)]
    return sorted(steps, key=lambda step: step.number) if most != CHAIN else steps


def _own_chain(pair: PairedCalls, one: Operation) -> list[Operation]:
    """The port's calls, at most ``SEGMENT``, that make what a call gives from values that the reference has; empty for none."""
    steps, wanted = [one], [v for v in one.inputs if not pair.flat[v]]
    while wanted:
        maker = pair.own_maker(wanted.pop())
        if maker in steps:
            continue
        if maker is None or len(steps) == SEGMENT:
            return []
        steps.append(maker)
        wanted += [v for v in maker.inputs if not pair.flat[v]]
    return sorted(steps, key=lambda step: step.number)


def segments(pair: PairedCalls) -> Iterator[Proposal]:
    """Some calls of the port, from values that both sides have, for which the reference has some others."""
    calls = [one for one in pair.ours.operations if one.file and one.outputs]
    apart = [one for one in calls if pair.diverges(one) and not pair.flat[one.outputs[0]]]
    waiting = [other for other in _waiting(pair) if len(other.outputs) == 1]
    lines = [{one.number: of_one_line(side, one) for one in side} for side in (apart, waiting)]
    for last, other in itertools.product(apart, waiting):
        twins, others = lines[0][last.number], lines[1][other.number]
        several = len(twins) == len(others)  # else one side calls a function twice, and the other has two lines
        if several and (twins[0] is not last or others[0] is not other):
            continue
        both = list(zip(twins, others, strict=True)) if several else [(last, other)]
        if not all(_alike(pair, *one) for one in both) or not (steps := _own_chain(pair, last)):
            continue
        chain = _chain(pair, other.outputs[0], SEGMENT)
        certain = all(any(pair.agree(a, b) for a in _begun(steps)) for b in _begun(chain) if not constant(pair, b))
        if not chain or not (several or certain):
            continue
        kind, words = _said(pair, last, steps, chain)
        changes: dict[int, CallChange] = {one.number: _arrays(pair, right) for one, right in both}
        since, place = _place([step for step in steps if kind is not Kind.CALL_ORDER or step.name not in LAYOUT])
        yield Proposal(kind, words, last, changes, [], certain, since=since, theirs=chain, ours=steps, place=place)


def _begun(steps: Sequence[Operation]) -> set[int]:
    """The values that some calls begin from."""
    return {v for step in steps for v in step.inputs} - {v for step in steps for v in step.outputs}


def _in_a_row(steps: Sequence[Operation]) -> bool:
    """Whether each of some calls is given what the one before it gave."""
    return all(set(before.outputs) & set(after.inputs) for before, after in itertools.pairwise(steps))


def _said(pair: PairedCalls, last: Operation, steps: list[Operation], chain: list[Operation]) -> tuple[Kind, str]:
    wrong = _unlike(pair, last, chain[-1]) or []
    held = pair.held.get(wrong[0][1], []) if len(wrong) == 1 < len(steps) else []
    if held and not {value for step in steps for value in step.inputs} & set(held):  # else what stands between is too much
        words = told_apart(pair, wrong[0][0], held[0])
        return Kind.OPERAND, takes(title(last), *words)
    both = [[step for step in side if step.name not in LAYOUT] for side in (steps, chain)]
    names = [[step.name for step in side] for side in both]
    if names[0] != names[1] and sorted(names[0]) == sorted(names[1]) and _in_a_row(steps) and _in_a_row(chain):
        return Kind.CALL_ORDER, f"{listed_steps(both[0])} in this order, expected {listed_steps(both[1])}"
    if len(steps) == len(chain) == 1 and last.name not in SYMBOLS and wrong == [] == _unlike(pair, last, chain[0]):
        return Kind.OTHER_FUNCTION, f"{title(last)} gives other numbers than in the reference, for the same values and arguments"
    if len(steps) == len(chain) == 1 and last.name == chain[0].name and last.attributes == chain[0].attributes:
        lacking = [
            pair.held[value][0]
            for value in chain[0].inputs
            if value in pair.held and not any(pair.agree(v, value) for v in last.inputs)
        ]
        if len(chain[0].inputs) == len(last.inputs) + 1 and len(lacking) == 1 and last.name.startswith("call "):
            given, also = listed(pair, last.inputs), operand_words(pair, lacking[0])
            return Kind.OPERAND, takes(title(last), given, f"also {also}")
        return Kind.OPERAND, f"{title(last)} takes other values than in the reference, or in another order"
    if (own := listed_steps(steps)) == listed_steps(chain):
        return Kind.OPERAND, f"{own}: the same calls as in the reference, but on other values or in another order"
    reduced = [[step for step in side if step.name in MEANS] for side in (steps, chain)]
    counts = [[_count(trace, step) for step in side] for trace, side in zip((pair.ours, pair.theirs), reduced, strict=True)]
    if len(counts[0]) == len(counts[1]) == 1 and reduced[0][0].name == reduced[1][0].name and counts[0] != counts[1]:
        return Kind.OTHER_FUNCTION, f"{title(reduced[0][0])} over {counts[0][0]} values, expected over {counts[1][0]}"
    mine, theirs = without_common_ends(steps, chain)
    formula = "another formula: " if len({in_full(one) for one in mine}) > 1 < len({in_full(one) for one in theirs}) else ""
    return Kind.OTHER_FUNCTION, f"{formula}{listed_steps(mine)}, expected {listed_steps(theirs)}"


def _count(trace: Trace, one: Operation) -> int:
    """Of how many values a call makes one."""
    return trace.values[one.inputs[0]].size // max(trace.values[one.outputs[0]].size, 1)


def _place(steps: Sequence[Operation]) -> tuple[int | None, Operation]:
    """The first line of some calls, and the call in the last one; of those in several functions the one that begins."""
    inside = [step for step in steps if step.file]
    if len({(step.file, step.function) for step in inside}) > 1:
        return None, inside[0]
    return min(step.line for step in inside), max(inside, key=lambda step: step.line)


def of_one_line(among: Sequence[Operation], one: Operation) -> list[Operation]:
    """The calls of one function in one line of the source, as a helper is called for queries and for keys."""
    return [other for other in among if (other.file, other.line, other.title) == (one.file, one.line, one.title)]


def _alike(pair: PairedCalls, mine: Operation, theirs: Operation) -> bool:
    """Whether what two calls give has one type and shape, but for axes of size 1."""
    a, b = pair.ours.values[mine.outputs[0]], pair.theirs.values[theirs.outputs[0]]
    return a.dtype.kind == b.dtype.kind and plain(a.shape) == plain(b.shape)
