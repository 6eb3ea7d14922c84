"""What a call is for, told from what is computed with its result: the eps under a root, a mask of attention scores, an angle.

Nothing is told from a name that somebody gave. A role is a pattern of calls that follow, and none is said where it is not seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from alignment.frameworks.base import Operation, Trace
from alignment.localize.calls import equal

LARGEST_EPS = 0.1
SHRINKS = 0.5  # a weight is left at least this share of itself by one step of its decay
LOWEST = -1e3  # what is added to a score to hide it is at most this
LAYOUT = frozenset({
    "reshape", "transpose", "expand", "tile", "repeat_interleave", "concat", "stack", "getitem", "split", "cast",
    "contiguous", "clone", "flip", "roll", "pad", "meshgrid", "unbind",
    "gather", "index_select", "rot90",
})  # fmt: skip
ARITHMETIC = frozenset({"add", "sub", "mul", "div", "pow", "neg", "exp", "log", "floor_divide", "mod", "outer", "einsum"})
HIDING = frozenset({"where", "masked_fill", "add", "clip", "sub", "mul", "div", "tanh", "maximum", "minimum"})
LOGICAL = frozenset({
    "logical_and", "logical_or", "logical_not", "logical_xor", "invert", "and", "or", "xor", "bitwise_and", "bitwise_or",
    "bitwise_not", "not", "tril", "triu", "eq", "ne", "lt", "le", "gt", "ge", "abs", "full", "full_like", "ones", "zeros",
    "ones_like", "zeros_like",
})  # fmt: skip
ROOTS = {0.5: "a square root", -0.5: "one over a square root", 2.0: "a square", -1.0: "one over it", 3.0: "a cube"}
SUMS = {"add": "a sum", "sub": "a difference", "mul": "a product", "div": "a quotient", "pow": "a power"}
LOOKING_UP = {"gather": 1, "take_along_axis": 1, "index_select": 1, "embedding": 0, "take": 1, "gather_nd": 1, "index_sample": 1}
MEANS = frozenset({"mean", "sum"})
CAUSAL = frozenset({"triu", "tril"})


class Roles:
    """The roles of one module's calls.

    Args:
        trace: the calls.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.users: dict[int, list[Operation]] = defaultdict(list)
        self.makers: dict[int, Operation] = {}
        for one in trace.operations:
            for value in one.inputs:
                self.users[value].append(one)
            for value in one.outputs:
                if value not in one.inputs:
                    self.makers.setdefault(value, one)

    def of(self, one: Operation) -> str:
        """In words, what a call is for; empty where no pattern is seen."""
        if not one.outputs:
            return ""
        for role in (_eps, _exponent, _index, _table, _mask_or_scale, _angle, _rotated, _residual, _weight, _update):
            if words := role(self, one):
                return words
        return ""

    def below(self, values: list[int], through: frozenset[str]) -> Iterator[tuple[Operation, int]]:
        """The calls that values go into, themselves or what some operations make of them; and the value that goes in."""
        waiting, seen = list(values), set(values)
        while waiting:
            value = waiting.pop(0)
            for user in self.users[value]:
                yield user, value
                if user.name in through:
                    new = [made for made in user.outputs if made not in seen]
                    seen |= set(new)
                    waiting += new

    def above(self, value: int) -> Iterator[Operation]:
        """The calls that a value is computed from, the last ones first."""
        waiting, seen = [value], {value}
        while waiting:
            maker = self.makers.get(waiting.pop(0))
            if maker is not None:
                yield maker
                new = [given for given in maker.inputs if given not in seen]
                seen |= set(new)
                waiting += new

    def scores(self, values: list[int], through: frozenset[str]) -> list[int]:
        """What a softmax is taken of whose result goes into a matrix product, as far as values go into it."""
        found = []
        for user, value in self.below(values, through):
            behind = self.below(user.outputs[:1], LAYOUT | {"dropout"}) if user.name == "softmax" else ()
            if any(late.name == "matmul" for late, _ in behind):
                found.append(value)
            if user.name == "scaled_dot_product_attention" and user.inputs[3:4] == [value]:
                found.append(value)
        return found


def _constant(one: Operation) -> float | None:
    """The single number in a call of arithmetic."""
    value = next((one.attributes[key] for key in ("constant", "by", "from") if key in one.attributes), None)
    return float(value) if isinstance(value, int | float) else None


def _eps(roles: Roles, one: Operation) -> str:
    number = _constant(one)
    if one.name != "add" or number is None or not 0 < number <= LARGEST_EPS:
        return ""
    roots = [user for user, _ in roles.below(one.outputs, LAYOUT) if _is_root(user)]
    if roots:
        return "eps under the root"
    spread = any(_is_root(maker) or maker.name in ("std", "norm") for value in one.inputs for maker in list(roles.above(value))[:2])
    divides = any(user.name == "div" and value in user.inputs[-1:] for user, value in roles.below(one.outputs, LAYOUT))
    return "eps in a denominator" if spread and divides else ""


def _is_root(one: Operation) -> bool:
    return one.name in ("sqrt", "rsqrt") or (one.name == "pow" and one.attributes.get("by") in (0.5, -0.5))


def _exponent(roles: Roles, one: Operation) -> str:
    number = one.attributes.get("by") if one.name == "pow" else None
    return ROOTS.get(number, "an exponent") if isinstance(number, float) else ""


def _mask_or_scale(roles: Roles, one: Operation) -> str:
    """What is done with the scores of an attention on their way from the product of queries and keys to the softmax."""
    makes_scores = any(maker.name == "matmul" for value in one.inputs for maker in roles.above(value))
    if one.name in ("mul", "div") and _constant(one) is not None and roles.scores(one.outputs, HIDING | LAYOUT | {"matmul"}):
        return "the scale of the attention scores"
    if one.name in ("where", "masked_fill") and makes_scores and roles.scores(one.outputs, HIDING | LAYOUT):
        return "the mask of the attention scores"
    if makes_scores or not roles.scores(one.outputs, HIDING | LAYOUT | LOGICAL):
        return ""
    return "the mask of the attention scores" if _hides(roles, one) else "the bias of the attention scores"


def _hides(roles: Roles, one: Operation) -> bool:
    """Whether something that a call goes into on the way to the scores is a condition, or hides a score."""
    values = [one.outputs[0], *(made for user, _ in roles.below(one.outputs, LAYOUT | LOGICAL) for made in user.outputs)]
    arrays = [roles.trace.values[value] for value in values]
    return any(array.dtype.kind == "b" or (array.dtype.kind == "f" and (array <= LOWEST).any()) for array in arrays)


def _angle(roles: Roles, one: Operation) -> str:
    into = {user.name for user, _ in roles.below(one.outputs, LAYOUT | ARITHMETIC)}
    return "the angles of sine and cosine" if {"sin", "cos"} <= into else ""


def _table(roles: Roles, one: Operation) -> str:
    """A call on sines and cosines alone."""
    made = [_of_sines(roles, value) for value in one.inputs]
    return "on the table of sines and cosines: its scale" if made and all(made) and _constant(one) is not None else ""


def _of_sines(roles: Roles, value: int) -> bool:
    for _ in range(4):
        maker = roles.makers.get(value)
        if maker is None or maker.name in ("sin", "cos"):
            return maker is not None
        if maker.name not in LAYOUT | {"mul", "div"} or not maker.inputs:
            return False
        value = maker.inputs[0]
    return False


def _rotated(roles: Roles, one: Operation) -> str:
    """What is multiplied by a cosine or a sine, beside the same by the other."""
    factors = set()
    for user, value in roles.below(one.outputs, LAYOUT | {"neg"}):
        others = [other for other in user.inputs if other != value] if user.name == "mul" else []
        factors |= {maker.name for other in others for maker in list(roles.above(other))[:4] if maker.name in ("sin", "cos")}
    return "what is rotated by sine and cosine: neighbouring values or halves" if factors and one.name in LAYOUT | {"neg"} else ""


def _index(roles: Roles, one: Operation) -> str:
    through = LAYOUT | ARITHMETIC | {"clip", "cumsum", "arange", "maximum", "minimum", "abs", "where"}
    for user, value in roles.below(one.outputs, through):
        place = LOOKING_UP.get(user.name)
        if place is not None and user.inputs[place : place + 1] == [value]:
            return f"the index of {user.title}"
        if user.name.startswith("call ") and roles.trace.values[value].dtype.kind in "iu":
            return f"positions or numbers that {user.title} looks up"
    return ""


def _residual(roles: Roles, one: Operation) -> str:
    if one.name != "add" or len(one.inputs) != 2:
        return ""
    for place, value in enumerate(one.inputs):
        other, maker = one.inputs[1 - place], roles.makers.get(value)
        if maker is not None and maker.name.startswith("call ") and other not in maker.outputs:
            before = [maker, *(above for given in maker.inputs for above in roles.above(given))]
            if any(other in step.inputs for step in before):
                return "a residual connection"
    return ""


def _weight(roles: Roles, one: Operation) -> str:
    """A constant factor in what is summed up to a loss."""
    result = [value for value in roles.trace.results if roles.trace.values[value].size == 1]
    if one.name not in ("mul", "div") or _constant(one) is None or not result or roles.trace.values[one.outputs[0]].size == 1:
        return ""
    ends = {made for user, _ in roles.below(one.outputs, LAYOUT | ARITHMETIC | MEANS | {"where"}) for made in user.outputs}
    return "the weight of a term of the loss" if ends & set(result) else ""


def _update(roles: Roles, one: Operation) -> str:
    """A constant factor in an optimizer's formula, which gives what it is given back after some steps."""
    if any(step.name.startswith("call ") for step in roles.trace.operations):
        return ""  # a residual connection of a network adds likewise to what it is given
    results = [value for value in roles.trace.results if any(_is_state(roles, value, given) for given in roles.trace.given)]
    number = _constant(one)
    if one.name not in ("mul", "div") or number is None or not results:
        return ""
    states = [given for given in roles.trace.given if any(_is_state(roles, value, given) for value in results)]
    in_state = lambda value: any(_is_state(roles, value, given) for given in states)  # noqa: E731
    if any(in_state(value) for value in one.inputs):
        return "weight decay: a share of what is updated"
    after = [user for user in roles.users[one.outputs[0]] if user.name in ("sub", "add")]
    return "the scale of an update: a learning rate" if any(in_state(user.outputs[0]) for user in after) else ""


def _is_state(roles: Roles, value: int, given: int) -> bool:
    """Whether a value is a given one after some steps, each of which adds, subtracts or shrinks."""
    for _ in range(len(roles.trace.operations)):
        maker = roles.makers.get(value)
        if value == given or maker is None or not maker.inputs:
            break
        number = _constant(maker)
        if maker.name not in ("sub", "add") and not (maker.name == "mul" and number is not None and SHRINKS < number < 1):
            break
        value = maker.inputs[0]
    return value == given


def shifted(mine: Sequence[Operation], theirs: Sequence[Operation]) -> str:
    """All but the last beside all but the first: each output is held to what comes next."""
    if _shifts(mine) is _shifts(theirs):
        return ""
    return "labels are shifted by one position" + ("" if _shifts(theirs) else " too far")


def _shifts(steps: Sequence[Operation]) -> bool:
    indices = [str(step.attributes.get("index", "")) for step in steps if step.name == "getitem"]
    return all(any(part in index for index in indices) for part in ("slice(None, -1, None)", "slice(1, None, None)"))


def between(mine: Operation, theirs: Operation) -> str:
    """What two calls of arithmetic are, one in the other's place."""
    words = SUMS.get(mine.name), SUMS.get(theirs.name)
    return f"{words[0]}, expected {words[1]}" if None not in words and mine.name != theirs.name else ""


def reordered(mine: np.ndarray, theirs: np.ndarray) -> str:
    """What two arrays of the same numbers in another order are."""
    if mine.size != theirs.size or mine.size < 2 or np.array_equal(mine.ravel(), theirs.ravel()):
        return ""
    if not equal(np.sort(mine, None), np.sort(theirs, None)):
        return ""
    return f"the same numbers in another order{_repeated(mine, theirs)}"


def _repeated(mine: np.ndarray, theirs: np.ndarray) -> str:
    """How parts of an array are repeated along an axis: all in turn, or each beside itself."""
    ways = ("repeated in turn (0, 1, 0, 1)", "each beside itself (0, 0, 1, 1)")
    for axis, size in enumerate(mine.shape if mine.shape == theirs.shape else ()):
        for parts in (parts for parts in range(2, size // 2 + 1) if size % parts == 0):
            places = np.tile(np.arange(parts), size // parts), np.repeat(np.arange(parts), size // parts)
            for (own, other), (one, right) in zip((ways, ways[::-1]), (places, places[::-1]), strict=True):
                block = mine.take([int(np.argmax(one == part)) for part in range(parts)], axis)
                if equal(mine, block.take(one, axis)) and equal(theirs, block.take(right, axis)):
                    return f": {parts} parts along axis {axis} are {own}, expected {other}"
    return ""
