"""Calls of functions in words, for people."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from alignment import tolerance
from alignment.frameworks._call_names import APPROXIMATE, SYMBOLS
from alignment.frameworks.base import Operation
from alignment.localize.calls import PairedCalls, constant

SHOWN = 4  # numbers of a vector in words
SQUARE = "square"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= tolerance.EXACT_RTOL * max(abs(a), abs(b))
    return bool(a == b)


def function_of(one: Operation) -> str:
    """The name of what a call computes; of a power of 2 as of a square."""
    return SQUARE if one.name == "pow" and one.attributes.get("by") == 2 else one.name


def title(one: Operation) -> str:
    own = one.title.strip("_").removeprefix("fft_")  # torch's functions of torch.fft
    return SYMBOLS.get(one.name, one.name.removeprefix("call ") if one.name.startswith("call ") else own)


def _number(value: Any) -> str:
    if isinstance(value, slice):
        start, stop, step = ("" if one is None else one for one in (value.start, value.stop, value.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if isinstance(value, tuple) and any(isinstance(part, slice) for part in value):
        return f"[{', '.join(map(_number, value))}]"
    if isinstance(value, tuple | list) and len(value) > SHOWN and isinstance(value[0], float):
        return f"[{', '.join(map(_number, value[:SHOWN]))}, ...]"
    return f"{value:.6g}" if isinstance(value, float) else str(list(value) if isinstance(value, tuple) else value)


def described(one: Operation) -> str:
    """A call in words: ``/ 8.0``, ``mean(axis=1)``, ``transpose to [0, 2, 3, 1]``."""
    if one.name in SYMBOLS:
        for key, value in one.spelled.items():
            return f"{_number(value)} {SYMBOLS[one.name]}" if key == "from" else f"{SYMBOLS[one.name]} {_number(value)}"
        return SYMBOLS[one.name]
    if one.name in ("reshape", "transpose", "cast"):
        return f"{one.name} to {_number(next(iter(one.attributes.values()), ''))}"
    if "axis" in one.spelled:
        return f"{title(one)}(axis={_number(one.spelled['axis'])})"
    return title(one)


def in_full(one: Operation) -> str:
    """A call in words; a pooling or another call with settings of its own with them, a layer as such."""
    words = described(one)
    if one.name.startswith("call "):
        return f"the layer {words}"
    if words != title(one) or one.name in SYMBOLS or not one.attributes:
        return words
    if isinstance(index := one.spelled.get("index"), slice | tuple):
        return f"{words} {_number(index) if isinstance(index, tuple) else f'[{_number(index)}]'}"
    return f"{words}({', '.join(f'{key}={_number(value)}' for key, value in one.attributes.items() if value is not None)})"


def difference(one: Operation, other: Operation, key: str) -> str:
    mine, theirs = (_number(side.spelled.get(key, side.attributes[key])) for side in (one, other))
    if key == "approximate" and mine in map(str, APPROXIMATE.values()):
        theirs = str(APPROXIMATE.get(theirs, theirs))  # in the port's own words: torch's "none" reads as if nothing were expected
    return f"{mine}, expected {theirs}" if key in ("constant", "by", "from") else f"{key} {mine}, expected {theirs}"


def steps_lacking(pair: PairedCalls, steps: list[Operation]) -> str:
    """Calls of the reference that the port lacks, with what they are given besides."""
    words = []
    for step in steps:
        more = [pair.held[v][0] for v in step.inputs if v in pair.held] if len(step.inputs) > 1 else []
        said, given = described(step), [operand_words(pair, value) for value in more]
        if more and len(step.inputs) > len(more):
            own = [pair.theirs.values[v].shape for v in step.inputs if v not in pair.held and constant(pair, v)]
            given += [f"a tensor of the reference of shape {list(shape)}" for shape in own]
        words.append(f"{said} ({', '.join(given)})" if given else said)
    return f"{', '.join(words)} {'is' if len(words) == 1 else 'are'}"


def listed(pair: PairedCalls, values: list[int]) -> str:
    return ", ".join(operand_words(pair, value) for value in values)


def operand_words(pair: PairedCalls, value: int) -> str:
    """What a value of the port's is: the input, or what a call in some line gave."""
    if value in pair.ours.given:
        place = pair.ours.given.index(value)
        return "the input" if len(pair.ours.given) == 1 else f"input {place + 1}"
    maker = pair.own_maker(value)
    if maker is None:
        return f"a tensor of shape {list(pair.ours.values[value].shape)}"
    part = f"part {maker.outputs.index(value) + 1}/{len(maker.outputs)} of " if len(maker.outputs) > 1 else ""
    return f"{part}{title(maker)}{f' in line {maker.line}' if maker.line else ''}"


def told_apart(pair: PairedCalls, mine: int, right: int) -> tuple[str, str]:
    """Two values of the port in words.

    Where one line of a helper made both, also what it was given; where that is the same, which of the calls in the line made each.
    """
    values, words = [mine, right], [operand_words(pair, mine), operand_words(pair, right)]
    made = {value for one in pair.ours.operations for value in one.outputs} | set(pair.ours.given)
    while words[0] == words[1]:
        makers = [pair.own_maker(value) for value in values]
        given = [[value for value in one.inputs if value in made] if one is not None else [] for one in makers]
        if any(len(one) != 1 for one in given) or given[0] == given[1]:
            words = [f"{said}{_which(pair, maker)}" for said, maker in zip(words, makers, strict=True)]
            break
        values = [one[0] for one in given]
        words = [f"{said} of {operand_words(pair, value)}" for said, value in zip(words, values, strict=True)]
    return words[0], words[1]


def _which(pair: PairedCalls, maker: Operation | None) -> str:
    """Which of several equal calls that a line writes one is, in the order of the pass; ``""`` where it is the only one."""
    if maker is None:
        return ""
    where = lambda one: (one.title, one.file, one.line, one.function)  # noqa: E731
    sites = list(dict.fromkeys(one.site for one in pair.ours.operations if where(one) == where(maker)))
    return f" (call {sites.index(maker.site) + 1} of {len(sites)} there)" if len(sites) > 1 else ""


def superfluous(pair: PairedCalls, one: Operation, value: int) -> str:
    """That a call of the port should be left out, which is given a value that the reference uses unchanged."""
    maker = pair.own_maker(value)
    made = "the result of " if value not in pair.ours.given and maker is not None and len(maker.outputs) == 1 else ""
    said = in_full(one) if one.name == "getitem" else described(one)
    return f"{said} is superfluous: expected {made}{operand_words(pair, value)} unchanged"


def takes(one: str, mine: str, expected: str) -> str:
    """That a call is given something else than in the reference."""
    return f"{one} takes {mine}, expected {expected}"


def listed_steps(steps: Sequence[Operation]) -> str:
    """Calls in words, in order; one that is made several times in a row stands once, with the number of times."""
    words = [(said, len(list(group))) for said, group in itertools.groupby(map(in_full, steps))]
    *first, last = [said if count == 1 else f"{count} x {said}" for said, count in words]
    return " and ".join(filter(None, [", ".join(first), last]))


def without_common_ends(mine: Sequence[Operation], theirs: Sequence[Operation]) -> tuple[Sequence[Operation], Sequence[Operation]]:
    """Two rows of calls without those at their ends that are the same on both sides; as they are where one would be empty."""

    def same_call(one: Operation, other: Operation) -> bool:
        return one.name == other.name and one.attributes == other.attributes

    begin = len(list(itertools.takewhile(lambda both: same_call(*both), zip(mine, theirs, strict=False))))
    ours, right = mine[begin:], theirs[begin:]
    end = len(list(itertools.takewhile(lambda both: same_call(*both), zip(reversed(ours), reversed(right), strict=False))))
    ours, right = ours[: len(ours) - end], right[: len(right) - end]
    return (ours, right) if ours and right else (mine, theirs)
