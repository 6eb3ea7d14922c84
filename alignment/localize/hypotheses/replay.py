"""Mistakes of a forward whose form is another than the reference's, so that its calls cannot be held to the reference's one by one.

The port's forward is run again with one place of its source changed: all calls that this place makes, as those of a loop. A change
that gives the reference's values in every case, for the input of the pass and for another one, names the mistake.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from alignment import formulas
from alignment.frameworks._call_names import PAD_MODES, SYMBOLS, computed
from alignment.frameworks._calls import Arrays
from alignment.frameworks.base import Behind, CallChange, Instead, Operation, Trace
from alignment.kinds import Kind
from alignment.localize.calls import LAYOUT, PairedCalls, aligned, equal
from alignment.localize.hypotheses.apart import first_apart, from_right
from alignment.localize.hypotheses.call_words import (
    described,
    difference,
    function_of,
    in_full,
    operand_words,
    same,
    superfluous,
    takes,
    title,
    told_apart,
)
from alignment.localize.hypotheses.proposals import ALONG, Proposal
from alignment.models.forms.axes import Order
from alignment.strangers import Refused

SECONDS = 15.0  # of the processor, for one module
BEFORE = 3  # calls before the one where the computations part, and that one
MOVED = frozenset({"reshape", "transpose", "expand", "cast"})  # behind one is behind what it is given
PARTS = 4  # of a split, of which every order is tried
MOST_SHOWN = 16  # parts that are listed
KEEPING = ALONG | {"flip", "roll"}  # along whatever axis, the shape stays
REDUCING = frozenset({"sum", "mean", "max", "min", "prod", "var", "std", "norm", "logsumexp", "median"})
SCORES = "scaled_dot_product_attention"
# Arguments of functions that have few values, the default first.
USUAL: dict[str, dict[str, tuple[Any, ...]]] = {
    "gelu": {"approximate": ("none", "tanh")},
    **{name: {"unbiased": (True, False)} for name in ("var", "std")},
    **{f"avg_pool{count}d": {"count_include_pad": (True, False), "ceil_mode": (False, True)} for count in (1, 2, 3)},
    **{f"max_pool{count}d": {"ceil_mode": (False, True)} for count in (1, 2, 3)},
    "interpolate": {"align_corners": (False, True)},
}
SUMMED = {"mean": "sum", "sum": "mean"}
NUMBERS = ("constant", "by", "from")
# Calls that put one number into a tensor, or into a part of it.
FILLING = {"full": "fill_value", "full_like": "fill_value", "masked_fill": "value", "setitem": "value"}
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": formulas.ACTIVATIONS["ReLU"], "silu": formulas.ACTIVATIONS["Swish"], "gelu": formulas.ACTIVATIONS["GELU"],
    "softplus": formulas.ACTIVATIONS["Softplus"], "sigmoid": formulas.sigmoid, "tanh": np.tanh, "exp": np.exp, "log": np.log,
    "log10": np.log10, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt, "neg": np.negative, "abs": np.abs,
    "square": np.square, "elu": formulas.ACTIVATIONS["ELU"],
}  # fmt: skip
TWO: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "matmul": np.matmul
}  # fmt: skip
ORDERED: dict[str, Callable[..., np.ndarray]] = {**{name: TWO[name] for name in ("sub", "div", "pow", "matmul")}, "where": np.where}
JOINS: dict[str, Callable[..., np.ndarray]] = {"concat": np.concatenate, "stack": np.stack}
Site = list[Operation]


@dataclass
class Rerun:
    """One input of a module.

    Attributes:
        theirs: the reference's pass.
        traced: the port's pass, with calls that are changed; None where it does not take the change.
        right: whether a pass of the port gives what the reference gives, far nearer than the port as it is.
    """

    theirs: Trace
    traced: Callable[[Mapping[int, CallChange]], Trace | None]
    right: Callable[[Trace], bool]


def replayed(cases: Sequence[Rerun], orders: Sequence[Order], rtol: float) -> Proposal | None:
    """The first change under which the port gives the reference's values in every case; None where there are fewer than two."""
    passes, start = [case.traced({}) for case in cases], time.thread_time()
    pairs = [aligned(ours, case.theirs, orders, rtol) for ours, case in zip(passes, cases, strict=True) if ours is not None]
    if not 1 < len(pairs) == len(cases):
        return None
    others: list[dict[tuple[int, str], Proposal]] = []
    for one in _changes(pairs[0]):
        if time.thread_time() - start > SECONDS:
            break
        if not _mends(cases[0], one):
            continue
        others = others or [{(p.operation.number, p.words): p for p in _changes(pair)} for pair in pairs[1:]]
        again = [known.get((one.operation.number, one.words)) for known in others]
        if all(p is not None and _mends(case, p) for p, case in zip(again, cases[1:], strict=True)):
            return one
    return None


def _mends(case: Rerun, one: Proposal) -> bool:
    with np.errstate(all="ignore"):  # many a change gives infinities
        trace = case.traced(one.changes)
    if trace is None or trace.error or not case.right(trace):
        return False
    reached = {value for call in trace.operations if call.number in one.changes for value in call.outputs}
    laid = one.operation.name == "reshape" or one.kind is Kind.OPERAND  # of a mask, it says where and not what
    kinds = (
        "fiu" if one.operation.name in FILLING else "fb" if laid else "f"
    )  # of a token that is filled in, the number is looked up
    for call in trace.operations:
        if reached & set(call.inputs):
            reached |= {value for value in call.outputs if trace.values[value].dtype.kind in kinds}
    return bool(reached & set(trace.results))  # where it only picks among numbers, many a change picks the same


def _changes(pair: PairedCalls) -> Iterator[Proposal]:
    found: dict[tuple, Site] = {}
    for one in pair.ours.operations:
        if one.file and one.outputs and pair.ours.values[one.outputs[0]].size:
            found.setdefault((one.file, one.line, one.function, one.site, one.name, len(one.inputs)), []).append(one)
    sites = sorted(found.values(), key=lambda site: (any(map(pair.carries, site)), not any(map(pair.diverges, site))))
    near = _near(pair, sites)
    twins = _twins(near)
    wrong = [site for site in sites if site not in near and not any(map(pair.carries, site))]
    others = [site for site in sites if site not in near and site not in wrong]
    for some, tried in ((near, (*NEAR, *CHANGES)), (twins, (*NEAR, *CHANGES)), (wrong, CHANGES), (others, CHANGES)):
        also = ", and likewise in the line's other calls" if some is twins else ""
        made = (changes(pair, site, sites) for changes in tried for site in some)
        beside = (_beside(pair, site, sites, symbol) for symbol, site in itertools.product(BESIDE, some))
        for proposal in itertools.chain.from_iterable(itertools.chain(made, beside)):
            yield replace(proposal, words=f"{proposal.words}{also}")


def _near(pair: PairedCalls, sites: Sequence[Site]) -> list[Site]:
    """The places where the calls part, and those that make what is taken there."""
    found: list[Site] = []
    waiting = [one for one in (first_apart(pair), from_right(pair)) if one is not None]
    for _ in range(BEFORE):
        lines = {(one.file, one.line, one.function) for one in waiting}
        some = [site for site in sites if site not in found and (site[0].file, site[0].line, site[0].function) in lines]
        found += some
        makers = (pair.own_maker(value) for site in some for value in site[0].inputs)
        waiting = [maker for maker in makers if maker is not None and maker.file]
    return found


def _twins(sites: Sequence[Site]) -> list[Site]:
    """The same calls of one line as one place: of both sides of a comparison, or of a helper in several layers."""
    alike: dict[tuple, Site] = {}
    for site in sites:
        one = site[0]
        same_call = (len(one.inputs), str(one.attributes), "call" if one.name.startswith("call ") else one.name)
        alike.setdefault((one.file, one.line, one.function, *same_call), []).extend(site)
    return [twins for twins in alike.values() if twins not in sites]


def _at(site: Site, kind: Kind, words: str, *changes: CallChange) -> Proposal:
    """One change of all calls of a place, or one of each."""
    safe = [_safe(change) for change in changes]
    wanted = changes[0] if isinstance(changes[0], Mapping) and len(changes) == 1 else {}
    made = {one.number: safe[number % len(safe)] for number, one in enumerate(site)}
    return Proposal(kind, words, site[0], made, wanted=wanted)


def _safe(change: CallChange) -> CallChange:
    if isinstance(change, Instead):
        return replace(change, function=partial(_refusing, change.function))
    return partial(_refusing, change) if callable(change) else change


def _refusing(change: Callable[[Arrays], Arrays], arrays: Arrays) -> Arrays:
    """What a change makes, which cannot be made of some shapes."""
    try:
        return change(arrays)
    except (ValueError, IndexError) as error:
        raise Refused(str(error)) from error


def _parts(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """The parts of what is split lie in another order."""
    sizes = site[0].attributes.get("sizes", ())
    if site[0].name != "split" or not 1 < len(sizes) <= PARTS:
        return
    for order in list(itertools.permutations(range(len(sizes))))[1:]:
        sized = f", with the sizes {[sizes[part] for part in order]}" if len(set(sizes)) > 1 else ""
        words = f"the parts of {title(site[0])} lie in another order, expected {list(order)}{sized}"
        yield _at(site, Kind.OPERAND, words, partial(_laid, site[0].attributes["axis"], sizes, order))


def _laid(axis: int, sizes: Sequence[int], order: Sequence[int], arrays: Arrays) -> Arrays:
    """The parts of an array in which they lie in another order."""
    pieces = computed("split", {"axis": axis, "sizes": [sizes[part] for part in order]}, arrays[0]) or []
    return [pieces[int(place)] for place in np.argsort(order)]


def _halves(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Two parts of one tensor are taken for each other."""
    one = site[0]
    for other in sites:
        beside = other[0].name == one.name == "getitem" and other[0].number > one.number and len(other) == len(site)
        if beside and all(a.inputs == b.inputs and _shape(pair, a) == _shape(pair, b) for a, b in zip(site, other, strict=True)):
            made = [
                (a, pair.ours.values[b.outputs[0]]) for x, y in ((site, other), (other, site)) for a, b in zip(x, y, strict=True)
            ]
            words = f"the part in line {one.line} and that in line {other[0].line} are taken for each other"
            yield Proposal(Kind.OPERAND, words, one, {a.number: [array] for a, array in made})


def _alternate(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Two parts of a tensor are every other value along an axis, and should be its halves, or the other way round."""
    one, given = site[0], pair.ours.values[site[0].inputs[0]] if site[0].inputs else None
    if one.name not in ("split", "getitem") or given is None:
        return
    parts = [one] if one.name == "split" else [
        one, *(other[0] for other in sites if other[0].name == one.name and other[0].number > one.number
               and other[0].inputs == one.inputs and len(other) == len(site))
    ]  # fmt: skip
    made = [pair.ours.values[value] for step in parts for value in step.outputs]
    for axis in (axis for axis in range(given.ndim) if given.shape[axis] % 2 == 0):
        ways = {name: [_every(given, axis, name, place) for place in (0, 1)] for name in EVERY}
        for name, other in (tuple(EVERY), tuple(EVERY)[::-1]):
            if len(made) < 2 or not equal(made[0], ways[name][0]) or np.array_equal(ways[name][0], ways[other][0]):
                continue
            second = next((step for step in parts if equal(pair.ours.values[step.outputs[-1]], ways[name][1])), None)
            if second is None or any(a.shape != w.shape for a, w in zip(made[:1], ways[name], strict=False)):
                continue
            words = f"the parts along axis {axis} are {EVERY[name]}, expected {EVERY[other]}"
            if second is one:
                yield _at(site, Kind.OPERAND, words, partial(_parted, axis, other, (0, 1)))
                return
            group = next(other_site for other_site in sites if other_site[0] is second)
            first, last = (partial(_parted, axis, other, (place,)) for place in (0, 1))
            both = {step.number: _safe(first) for step in site} | {step.number: _safe(last) for step in group}
            yield Proposal(Kind.OPERAND, words, one, both)
            return


EVERY = {"alternate": "every other value", "halves": "halves"}


def _every(array: np.ndarray, axis: int, way: str, place: int) -> np.ndarray:
    size = array.shape[axis]
    places = range(place, size, 2) if way == "alternate" else range(place * size // 2, (place + 1) * size // 2)
    return np.take(array, places, axis)


def _parted(axis: int, way: str, places: Sequence[int], arrays: Arrays) -> Arrays:
    return [_every(arrays[0], axis, way, place) for place in places]


def _repeats(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Parts of a tensor are repeated all in turn, and should be each beside itself, or the other way round; keys with values."""
    one, ways = site[0], ("all in turn (0, 1, 0, 1)", "each beside itself (0, 0, 1, 1)")
    if one.name not in ("tile", "repeat_interleave") or not one.inputs:
        return
    given, made = pair.ours.values[one.inputs[0]].shape, _shape(pair, one)
    axes = [axis for axis, sizes in enumerate(zip(given, made, strict=False)) if sizes[0] != sizes[1]]
    if len(given) != len(made) or len(axes) != 1 or given[axes[0]] == 1 or made[axes[0]] % given[axes[0]]:
        return
    alike = [other for other in sites if other[0].name == one.name and other[0].attributes == one.attributes]
    if alike[0] is site:
        repeated = partial(_repeated, one.name, axes[0], made[axes[0]] // given[axes[0]])
        own, right = ways if one.name == "tile" else ways[::-1]
        words = f"{title(one)} repeats the {given[axes[0]]} parts along axis {axes[0]} {own}, expected {right}"
        yield _at([step for other in alike for step in other], Kind.OTHER_FUNCTION, words, repeated)


def _repeated(name: str, axis: int, times: int, arrays: Arrays) -> Arrays:
    """What the other function gives."""
    array = arrays[0]
    if name == "tile":
        return [np.repeat(array, times, axis)]
    return [np.tile(array, [times if place == axis else 1 for place in range(array.ndim)])]


def _heads(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """An axis that is split into other numbers of heads and of values of each; a scale by the root of the latter goes with them."""
    one, given = site[0], pair.ours.values[site[0].inputs[0]].shape if site[0].inputs else ()
    shape = _shape(pair, one)
    places = [n for n in range(len(given)) if len(shape) == len(given) + 1 and shape[n] * shape[n + 1] == given[n]]
    place = next((n for n in places if shape[:n] == given[:n] and shape[n + 2 :] == given[n + 1 :]), None)
    if one.name != "reshape" or place is None or 1 in shape[place : place + 2]:
        return
    heads, width = shape[place : place + 2]
    for other in (n for n in range(2, given[place]) if given[place] % n == 0 and n != width):
        changes = {step.number: _safe(partial(_split, place, (given[place] // other, other))) for step in site}
        for step in (step for scaled in sites for step in scaled if step.name in ("mul", "div")):
            key, power = ("constant", -0.5) if step.name == "mul" else ("by", 0.5)
            if same(step.attributes.get(key), width**power):
                changes[step.number] = {key: other**power}
        words = f"{title(one)} makes {heads} heads of {width} values, expected {given[place] // other} of {other}"
        yield Proposal(Kind.HEADS, words, one, changes)


def _split(place: int, sizes: tuple[int, int], arrays: Arrays) -> Arrays:
    shape = arrays[0].shape
    return [arrays[0].reshape(*shape[:place], *sizes, *shape[place + 1 :])]


def _positions(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Positions that are counted from another one, or backwards."""
    one = site[0]
    made = pair.ours.values[one.outputs[0]]
    if one.name == "arange" and not one.inputs and made.size > 1:
        for words, right in (("1 too large", made - 1), ("1 too small", made + 1), ("in reverse order", made[::-1])):
            yield _at(site, Kind.CALL_ARGUMENT, f"the values of {in_full(one)} are {words}", [right.astype(made.dtype)])


def _usual(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """The other value of an argument that has two: the tanh form of GELU, a variance over n or n - 1 numbers."""
    one = site[0]
    if one.outputs == pair.ours.results:
        return  # the module is this function: its family says what it computes
    for key, values in USUAL.get(one.name, {}).items():
        for value in (other for other in values if not same(one.attributes.get(key, values[0]), other)):
            held = {key: one.attributes.get(key, values[0])}
            ways = [replace(one, attributes={**one.attributes, **each}, spelled={}) for each in (held, {key: value})]
            ways[0].spelled |= one.spelled
            yield _at(site, Kind.CALL_ARGUMENT, f"{title(one)} {difference(ways[0], ways[1], key)}", {key: value})


def _diagonal(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A triangle that begins at another diagonal."""
    one = site[0]
    if one.name not in ("triu", "tril") or "diagonal" not in one.attributes:
        return
    diagonal = int(one.attributes["diagonal"])
    rows, columns = _shape(pair, one)[-2:]
    ahead = columns - rows
    for other in dict.fromkeys((ahead + diagonal, diagonal - ahead, diagonal + 1, diagonal - 1, ahead, ahead + 1, ahead - 1)):
        if other != diagonal and -rows < other < columns:
            words = f"{title(one)} diagonal {diagonal}, expected {other}, for {rows} rows and {columns} columns"
            yield _at(site, Kind.CALL_ARGUMENT, words, {"diagonal": other})


def _reduced(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A sum or a mean over other axes: over those of one of the reference's, or of another one of the port's."""
    one = site[0]
    if one.name not in REDUCING or not isinstance(one.attributes.get("axis"), tuple):
        return
    own = one.attributes["axis"]
    for axes in dict.fromkeys(other.attributes.get("axis") for other in pair.theirs.operations if other.name in REDUCING):
        if isinstance(axes, tuple) and axes != own:
            words = f"{title(one)} axis {_axes(own)}, expected {_axes(axes)}"
            yield _at(site, Kind.CALL_ARGUMENT, words, {"axis": list(axes)})
    for other in (other for other in sites if other[0].number > one.number and other[0].name in REDUCING):
        axes = other[0].attributes.get("axis")
        if isinstance(axes, tuple) and axes != own:
            changes: dict[int, CallChange] = {step.number: {"axis": list(axes)} for step in site}
            changes |= {step.number: {"axis": list(own)} for step in other}
            words = f"{title(one)} over axis {_axes(own)} and {title(other[0])} over {_axes(axes)}, expected the other way round"
            yield Proposal(Kind.CALL_ARGUMENT, words, one, changes)

    if one.name in SUMMED and any(other.name == SUMMED[one.name] and pair.lacking(other) for other in pair.theirs.operations):
        counts = [pair.ours.values[step.inputs[0]].size / max(pair.ours.values[step.outputs[0]].size, 1) for step in site]
        shares = [count if one.name == "mean" else 1 / count for count in counts]
        words = f"{title(one)} over axis {_axes(own)}, expected {SUMMED[one.name]}"
        yield _at(site, Kind.OTHER_FUNCTION, words, *(Behind(partial(_through, partial(np.multiply, share))) for share in shares))


def _axes(axes: tuple[int, ...]) -> str:
    return str(axes[0] if len(axes) == 1 else list(axes))


def _scale(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A factor of the scores of an attention that is not the reference's: of a function, of a call, or missing behind a product."""
    one, key = site[0], next((key for key in ("constant", "by") if key in site[0].attributes), None)
    widths, constants = _head_widths(pair.theirs), _factors(pair.theirs)
    if one.name == SCORES:
        own = one.attributes.get("scale") or pair.ours.values[one.inputs[0]].shape[-1] ** -0.5
        for factor in (one for one in (*(width**-0.5 for width in widths), 1.0, *constants) if not same(one, own)):
            expected = "as they are" if factor == 1.0 else f"times {factor:.6g}"
            words = f"{title(one)} takes the scores times {own:.6g}, expected {expected}"
            yield _at(site, Kind.ATTENTION_SCALE, words, {"scale": factor})
    elif key is not None and one.name in ("mul", "div"):
        for width in widths:
            right = width**-0.5 if one.name == "mul" else width**0.5
            if not same(one.attributes[key], right):
                words = f"{title(one)} {one.attributes[key]:.6g}, expected {right:.6g}, of the root of {width}, the width of a head"
                yield _at(site, Kind.ATTENTION_SCALE, words, {key: right})
    elif one.name == "matmul" and _floating(pair, one):
        held = _factors(pair.ours)
        for factor in (one for one in (*(width**-0.5 for width in widths), *constants) if not any(same(one, own) for own in held)):
            words = f"* {factor:.6g} is missing behind {described(one)}"
            yield _at(site, Kind.CALL_MISSING, words, Behind(partial(_through, partial(np.multiply, factor))))


def _head_widths(trace: Trace) -> list[int]:
    """The widths of the heads in the attentions that a function computes."""
    return sorted({trace.values[one.inputs[0]].shape[-1] for one in trace.operations if one.name == SCORES})


def _factors(trace: Trace) -> list[float]:
    """The constants by which something is multiplied."""
    numbers = [(one.name, one.attributes.get("constant" if one.name == "mul" else "by")) for one in trace.operations]
    found = [
        value if name == "mul" else 1 / value
        for name, value in numbers
        if name in ("mul", "div") and isinstance(value, float) and value
    ]
    return list(dict.fromkeys(found))


def _filled(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Another number that the reference puts into a tensor, or into a part of one."""
    one = site[0]
    held = [(other, FILLING[other.name]) for other in pair.theirs.operations if other.name in FILLING]
    numbers = [other.spelled.get(key, other.attributes.get(key)) for other, key in held]
    numbers += [float(other.name.endswith("ones")) for other in pair.theirs.operations if other.name.endswith(("zeros", "ones"))]
    key = FILLING.get(one.name, "")
    own = one.attributes.get(key)
    tried = [own]
    for number in numbers if isinstance(own, int | float) else ():
        if isinstance(number, int | float) and not any(same(float(number), known) for known in tried):
            tried.append(float(number))
            given = one.spelled.get(key, own)
            right = int(number) if isinstance(given, int) and float(number).is_integer() else float(number)
            words = f"{title(one)} {key.replace('_', ' ')} {given}, expected {right}"
            yield _at(site, Kind.CALL_ARGUMENT, words, {key: right})


def _shape(pair: PairedCalls, one: Operation) -> tuple[int, ...]:
    return pair.ours.values[one.outputs[0]].shape


def _along(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Another axis of the same size, another place, or margins that lie otherwise."""
    one = site[0]
    given = pair.ours.values[one.inputs[0]].shape if one.inputs else ()
    axis = one.attributes.get("axis")
    if isinstance(axis, tuple) and len(axis) == 1 and one.name not in ("concat", "stack") and axis[0] < len(given):
        for other in range(len(given)):
            if other != axis[0] and (one.name in KEEPING or given[other] == given[axis[0]]):
                yield _at(site, Kind.CALL_ARGUMENT, f"{title(one)} axis {axis[0]}, expected {other}", {"axis": other})
    if one.name == "pad" and len(one.attributes.get("pad", ())) == len(given):
        for place, step in itertools.product(range(len(given)), (1, -1)):
            margins = [list(sides) for sides in one.attributes["pad"]]
            margins[place] = [margins[place][0] + step, margins[place][1] - step]
            if min(margins[place]) >= 0:
                attributes = {**one.attributes, "pad": tuple(map(tuple, margins))}
                words = f"{title(one)} {one.attributes['pad'][place]} on axis {place}, expected {tuple(margins[place])}"
                yield replace(_at(site, Kind.CALL_ARGUMENT, words, partial(_padded, attributes)), wanted={"pad": attributes["pad"]})
        for mode in (mode for mode in PAD_MODES if mode != one.attributes.get("mode")):
            words = f"{title(one)} mode {one.attributes.get('mode')}, expected {mode}"
            made = _at(site, Kind.CALL_ARGUMENT, words, *(partial(_padded, {**step.attributes, "mode": mode}) for step in site))
            yield replace(made, wanted={"mode": mode})
    if one.name == "getitem" and (index := one.spelled.get("index")) is not None:
        known = frozenset[tuple]().union(*(_parts_of(other.spelled.get("index")) for other in pair.theirs.operations))
        known -= _parts_of(index)
        alike = [step for other in sites for step in other if step.name == one.name and same(step.spelled.get("index"), index)]
        for key, other in sorted(_indices(index).items(), key=lambda item: not _parts_of(item[1]) & known):
            shown = [in_full(Operation(0, one.name, one.title, [], [], {"index": i}, {"index": i})) for i in (index, other)]
            for changed in (site, alike) if len(alike) > len(site) and alike[0] is one else (site,):
                others = [_indices(step.spelled.get("index")) for step in changed]
                if all(key in each for each in others):  # of a loop each in its own place
                    words = f"{shown[0]}, expected {shown[1]}" + f", {len(alike)} times" * (changed is alike)
                    right = [each[key] for each in others]
                    right = right[:1] if all(same(index, right[0]) for index in right) else right
                    yield _at(changed, Kind.CALL_ARGUMENT, words, *({"index": index} for index in right))


def _padded(attributes: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return computed("pad", attributes, arrays[0]) or []


def _indices(index: Any) -> dict[tuple, Any]:
    """Other indices that give the same shape: the one beside it, the first, the last; by the place and what is changed there."""
    parts = list(index) if isinstance(index, tuple) else [index]
    found: dict[tuple, Any] = {}
    for place, part in enumerate(parts):
        others: list[tuple[str, Any]] = []
        if isinstance(part, int) and not isinstance(part, bool):
            others = [("first", 0), ("last", -1), ("after", part + 1), ("before", part - 1)]
            others = [(what, n) for what, n in others if n != part]
        elif isinstance(part, slice) and isinstance(part.step or 1, int) and part.stop != 0:
            step = part.step or 1
            ways = (("after", 1), ("before", -1), ("a step after", step), ("a step before", -step))
            others = [(what, other) for what, by in ways if (other := _further(part, by)) is not None]
        for what, other in others:
            new = [*parts[:place], other, *parts[place + 1 :]]
            whole = tuple(new) if isinstance(index, tuple) else new[0]
            if not any(same(whole, known) for known in found.values()):
                found[place, what] = whole
    return found


def _parts_of(index: Any) -> frozenset[tuple]:
    """The slices of an index."""
    parts = index if isinstance(index, tuple) else (index,)
    return frozenset((one.start or 0, one.stop, one.step) for one in parts if isinstance(one, slice))


def _further(part: slice, by: int) -> slice | None:
    """A slice that begins and ends some places further on, of as many values; None where there is none."""
    start, stop = part.start or 0, part.stop
    if not isinstance(start, int) or not isinstance(stop, int | None) or start < 0 or start + by < 0:
        return None
    if stop is None:
        return slice(start + by, by, part.step) if by < 0 else None
    if stop < 0:
        return slice(start + by, stop + by or None, part.step) if stop + by <= 0 else None
    return slice(start + by, stop + by, part.step) if stop + by > 0 else None


def _numbers(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A constant of the reference's in the place of the port's."""
    one = site[0]
    for key in (key for key in one.attributes if key in NUMBERS or isinstance(one.attributes[key], float)):
        tried = [one.attributes[key]]
        for other in pair.theirs.operations:
            value = other.attributes.get(key)
            if other.name == one.name and isinstance(value, float) and not any(same(value, known) for known in tried):
                tried.append(value)
                words = f"{title(one)} {difference(one, other, key)}"
                yield _at(site, Kind.CALL_ARGUMENT, words, {key: other.spelled.get(key, value)})


def _swapped(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Two operands are taken for each other."""
    one = site[0]
    places = [n for n, value in enumerate(one.inputs) if pair.ours.values[value].dtype.kind == "f"]
    for a, b in itertools.combinations(places, 2):
        order = list(range(len(one.inputs)))
        order[a], order[b] = b, a
        alike = len({pair.ours.values[one.inputs[n]].shape for n in (a, b)}) == 1
        if alike and (one.name in ORDERED or (one.name in JOINS and one.attributes.get("axis"))) and _computes(pair, one):
            words = f"{title(one)}: operands {a + 1} and {b + 1} are taken for each other"
            yield _at(site, Kind.OPERAND, words, partial(_in_order, one, order))


def _computes(pair: PairedCalls, one: Operation) -> bool:
    """Whether a call is what numpy computes: a product may turn a matrix, or a constant be among the operands."""
    with contextlib.suppress(ValueError, TypeError):
        made = _in_order(one, range(len(one.inputs)), [pair.ours.values[value] for value in one.inputs])
        return equal(made[0], pair.ours.values[one.outputs[0]])
    return False


def _in_order(one: Operation, order: Sequence[int], arrays: Arrays) -> Arrays:
    """What a call gives for its operands in another order."""
    given = [arrays[place] for place in order]
    return [JOINS[one.name](given, axis=one.attributes["axis"][0]) if one.name in JOINS else {**TWO, **ORDERED}[one.name](*given)]


def _other_operand(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A call of two operands takes one for another that the same function has by then."""
    one = site[0]
    if one.name not in TWO or len(one.inputs) != 2 or not _computes(pair, one):
        return
    beside = [
        group for group in sites if len(group) == len(site) and (group[0].file, group[0].function) == (one.file, one.function)
    ]
    before = [
        [step.outputs[n] for step in group]
        for group in beside
        for n in range(len(group[0].outputs))
        if group[0].number < one.number
    ]
    before += [[step.inputs[n] for step in group if n < len(step.inputs)] for group in beside for n in range(len(group[0].inputs))]
    made = {value: step.number for step in pair.ours.operations for value in reversed(step.outputs)}
    known = [values for values in before if len(values) == len(site)]  # a loop may make one of them behind the call of its round
    known = [values for values in known if all(made.get(v, -1) < step.number for v, step in zip(values, site, strict=True))]
    for place, mine in enumerate(one.inputs):
        own = pair.ours.values[mine]
        tried = {own.tobytes()}
        for values in known:
            array = pair.ours.values[values[0]]
            if array.dtype.kind == own.dtype.kind == "f" and array.shape == own.shape and array.tobytes() not in tried:
                tried.add(array.tobytes())
                words = takes(title(one), *told_apart(pair, mine, values[0]))
                others = [_given(Instead, partial(_with_operand, one, place), pair, value) for value in values]
                yield _at(site, Kind.OPERAND, words, *others)


def _with_operand(one: Operation, place: int, arrays: Arrays) -> Arrays:
    """What a call gives with another operand, which stands last."""
    *own, other = arrays
    return _in_order(one, range(len(own)), [*own[:place], other, *own[place + 1 :]])


def _given(change: type[Instead], function: Callable[[Arrays], Arrays], pair: PairedCalls, value: int) -> Instead:
    """A change that is handed a value, as the pass in which it is made has it: in a loop it may be another one by then."""
    maker = pair.own_maker(value)
    if maker is None:
        return change(lambda arrays: function([*arrays, pair.ours.values[value]]))
    return change(function, ((maker.number, maker.outputs.index(value)),))


def _exchanged(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """Two functions of one value, of which each should be applied where the other is."""
    one, first = site[0], _alone(site[0])
    for other in (other for other in sites if first and len(other) == len(site)):
        second = _alone(other[0])
        follows = all(b.inputs[:1] == a.outputs[:1] for a, b in zip(site, other, strict=True))
        if first and second and follows and described(one) != described(other[0]):
            words = f"{described(one)} before {described(other[0])}, expected after it"
            ways = (site, second), (other, first)
            changes = {step.number: _safe(partial(_through, function)) for group, function in ways for step in group}
            yield Proposal(Kind.ACTIVATION_ORDER, words, one, changes)


def _alone(one: Operation) -> Callable[[np.ndarray], np.ndarray] | None:
    """What a call makes of its only operand; None where it has others, or is no such function."""
    number = next((one.attributes[key] for key in NUMBERS if key in one.attributes), None)
    if len(one.inputs) != 1 or one.name not in TWO or not isinstance(number, int | float):
        return FUNCTIONS.get(one.name) if len(one.inputs) == 1 else None
    if "from" in one.attributes:
        return partial(TWO[one.name], number)
    return lambda array: TWO[one.name](array, number)


def _left_out(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A call too much."""
    one = site[0]
    for place, value in enumerate(one.inputs):
        if one.name not in LAYOUT and len(one.outputs) == 1 and pair.ours.values[value].shape == _shape(pair, one):
            words = superfluous(pair, one, value)
            yield _at(site, Kind.CALL_EXTRA, words, partial(_one_of, place))


def _one_of(place: int, arrays: Arrays) -> Arrays:
    return [arrays[place]]


def _functions(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A function that the reference calls more often, in the place of a call or behind one."""
    counts = [list(map(function_of, side.operations)) for side in (pair.ours, pair.theirs)]
    one, own = site[0], FUNCTIONS.get(site[0].name)
    for name in dict.fromkeys(counts[1]):
        if name in FUNCTIONS and counts[0].count(name) < counts[1].count(name) and _floating(pair, one):
            function = FUNCTIONS[name]
            if own is not None and name != one.name:
                words = f"{described(one)}, expected {name}"
                yield _at(site, Kind.OTHER_FUNCTION, words, partial(_through, function))
            words = f"{name} is missing behind {described(one)}"
            yield _at(site, Kind.CALL_MISSING, words, Behind(partial(_through, function)))


def _through(function: Callable[[np.ndarray], np.ndarray], arrays: Arrays) -> Arrays:
    return [function(arrays[0])]


def _floating(pair: PairedCalls, one: Operation) -> bool:
    """Whether something may be missing behind a call: it makes one array of numbers of others."""
    layer = one.name.startswith("call ")  # of a recurrence the first one counts
    single = len(one.outputs) == 1 or (layer and bool(one.outputs))
    behind = bool(one.inputs) and single and (one.name not in MOVED) and not one.name.endswith("_like")
    return behind and pair.ours.values[one.outputs[0]].dtype.kind == "f"


def _means(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A mean over everything, where a mask says what counts."""
    one = site[0]
    if one.name != "mean" or _shape(pair, one) != () or len(site) > 1:
        return
    array = pair.ours.values[one.inputs[0]]
    for value, mask in enumerate(pair.ours.values):
        kept = (mask == 1) | (mask == 0)
        if mask.ndim and mask.shape == array.shape[: mask.ndim] and kept.all() and mask.any() and not mask.all():
            share = mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)) + np.zeros_like(array)
            words = (
                f"{title(one)} over all values, expected over those that {operand_words(pair, value)} keeps: what is ignored counts"
            )
            yield _at(site, Kind.OPERAND, words, partial(_through, partial(np.average, weights=share)))


def _of_means(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """A mean of means of different numbers of values, or one over values that are ignored, too; Paddle's cross entropy is such."""
    counts = [_counted(pair, one) for one in site]
    if not all(counted[1] for counted in counts):
        return
    for divided in (0, 1):
        own, total = [counted[divided] for counted in counts], sum(counted[1] for counted in counts)
        shares = [number * len(own) / total for number in own]
        if set(shares) != {1.0}:
            means = (
                f"mean of {len(own)} means ({title(site[0])}) of {own}" if len(own) > 1 else f"{title(site[0])}: mean of {own[0]}"
            )
            ignored = " that are not ignored" if total < sum(counted[0] for counted in counts) else ""
            words = f"{means} values, expected one mean over the {total}{ignored}"
            yield _at(
                site, Kind.OTHER_FUNCTION, words, *(Behind(partial(_through, partial(np.multiply, share))) for share in shares)
            )


def _counted(pair: PairedCalls, one: Operation) -> tuple[int, int]:
    """Of how many values a call gives the mean, and how many of them are not ignored; 0 where it gives none."""
    arrays = [pair.ours.values[value] for value in one.inputs]
    if one.name == "mean" and _shape(pair, one) == ():
        return arrays[0].size, arrays[0].size
    loss = one.name in ("cross_entropy", "nll_loss") and len(arrays) == 2 and one.attributes.get("reduction", "mean") == "mean"
    if not loss or arrays[1].dtype.kind not in "iu":
        return 0, 0
    return arrays[1].size, int((arrays[1] != one.attributes.get("ignore_index", -100)).sum())


BESIDE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"mul": np.multiply, "add": np.add, "div": np.divide}


def _beside(pair: PairedCalls, site: Site, sites: Sequence[Site], symbol: str) -> Iterator[Proposal]:
    """A factor, a summand or a divisor is missing that the port holds elsewhere; of a loop the one of the same round."""
    one, function, shape = site[0], BESIDE[symbol], _shape(pair, site[0])
    if not _floating(pair, one):
        return
    given = [[value] for value in pair.ours.given]
    made = [
        [other.outputs[part] for other in group] for group in sites if group is not site for part in range(len(group[0].outputs))
    ]
    inside = [
        group for group in sites if len(group) == len(site) and (group[0].file, group[0].function) == (one.file, one.function)
    ]
    taken = [[step.inputs[part] for step in group] for group in inside for part in range(len(group[0].inputs))]
    tried: set[bytes] = set()
    for values in [*given, *made, *taken]:
        if len(values) not in (1, len(site)):
            continue
        makers = [pair.own_maker(value) for value in values]
        if any(maker is not None and maker.number >= step.number for maker, step in zip(makers, site, strict=False)):
            continue
        arrays = [_raised(pair.ours.values[value], shape) for value in values]
        if symbol == "div" and not all(array.all() for array in arrays):
            continue  # an infinity behind it hides what it is divided by
        fits = all(a.ndim == len(shape) and all(n in (1, m) for n, m in zip(a.shape, shape, strict=True)) for a in arrays)
        if (
            fits
            and arrays[0].dtype.kind == "f"
            and arrays[0].size > 1
            and np.ptp(arrays[0])
            and (mark := arrays[0].tobytes()) not in tried
            and not (symbol == "add" and equal(arrays[0], pair.ours.values[one.outputs[0]]))  # that is a factor
        ):
            tried.add(mark)
            words = f"{SYMBOLS[symbol]} {operand_words(pair, _origin(pair, values[0]))} is missing behind {described(one)}"
            yield _at(
                site, Kind.CALL_MISSING, words, *(_given(Behind, partial(_combined, function), pair, value) for value in values)
            )


def _combined(function: Callable[..., np.ndarray], arrays: Arrays) -> Arrays:
    return [function(arrays[0], _raised(arrays[-1], arrays[0].shape))]


def _origin(pair: PairedCalls, value: int) -> int:
    """The value before it was laid out otherwise."""
    while (maker := pair.own_maker(value)) is not None and maker.name in MOVED and len(maker.inputs) == 1:
        value = maker.inputs[0]
    return value


def _raised(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """With as many axes as a shape: as the frameworks do it where that fits, else the new ones last."""
    more = (1,) * max(len(shape) - array.ndim, 0)
    fits = array.ndim and array.ndim <= len(shape) and array.shape == shape[len(more) :]
    return array.reshape(more + array.shape if fits else array.shape + more)


def _exchanged_axes(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """What a call gives lies along another axis: rows and columns are exchanged, or an axis of size 1 stands elsewhere."""
    one = site[0]
    shape = _shape(pair, one) if len(one.outputs) == 1 and one.name not in ("transpose", "expand") else ()
    for a, b in itertools.combinations(range(len(shape)), 2):
        if shape[a] == shape[b] == 1 or ((shape[a] != shape[b]) is not (one.name == "reshape" and 1 in (shape[a], shape[b]))):
            continue
        made = _at(site, Kind.CALL_ARGUMENT, "", Behind(partial(_turned, a, b)))
        if shape[a] == shape[b]:
            yield replace(made, kind=Kind.OPERAND, words=f"{described(one)}: axes {a} and {b} of the result are exchanged")
            continue
        right = [shape[{a: b, b: a}.get(n, n)] for n in range(len(shape))]
        places = (b, a) if shape[b] == 1 else (a, b)
        words = f"reshape to {list(shape)}, expected {right}: along axis {places[0]}, not {places[1]}"
        yield replace(made, words=words, wanted={"shape": tuple(right)})


def _turned(a: int, b: int, arrays: Arrays) -> Arrays:
    return [arrays[0].swapaxes(a, b)]


def _grouped(pair: PairedCalls, site: Site, sites: Sequence[Site]) -> Iterator[Proposal]:
    """An axis is split into groups of which each takes every other part, and should take parts that lie side by side, or the other
    way round; by a call, by one that joins such groups again, or by both."""
    one = site[0]
    if one.name != "reshape":
        return
    for split, place, sizes in _regrouped(pair, one):
        changes = _regrouping(pair, site, split, place)
        count = sizes[0] * sizes[1]
        ways = [np.arange(count).reshape(sizes).tolist(), np.arange(count).reshape(sizes[::-1]).T.tolist()]
        shown = [str(way) if count <= MOST_SHOWN else f"{str(way[0][:3])[:-1]}, ...], ..." for way in ways]
        words = f"{described(one)} {'splits' if split else 'joins'} {count} parts as {shown[0]}, expected {shown[1]}"
        yield Proposal(Kind.HEADS, words, one, changes)
        for other in sites if split else ():
            back = other[0].name == "reshape" and other[0].number > one.number and len(other) == len(site)
            for _, at, _ in [w for w in _regrouped(pair, other[0]) if not w[0] and w[2] == sizes] if back else ():
                both = changes | _regrouping(pair, other, False, at)
                yield Proposal(Kind.HEADS, f"{words}, and joined likewise in line {other[0].line}", one, both)


def _regrouped(pair: PairedCalls, one: Operation) -> list[tuple[bool, int, tuple[int, int]]]:
    """Where another shape splits an axis in two, or makes one of two: whether it splits, the first of the two, and their sizes."""
    found = []
    shapes = pair.ours.values[one.inputs[0]].shape if one.inputs else (), _shape(pair, one)
    ends = [list(itertools.accumulate(shape, int.__mul__)) for shape in shapes]
    for split, shape, own, others in ((True, shapes[1], ends[1], ends[0]), (False, shapes[0], ends[0], ends[1])):
        places = range(len(shape) - 1)
        found += [(split, n, (shape[n], shape[n + 1])) for n in places if 1 not in shape[n : n + 2] and own[n] not in others]
    return found


def _regrouping(pair: PairedCalls, site: Site, split: bool, place: int) -> dict[int, CallChange]:
    return {step.number: _safe(partial(_in_groups, split, place, _shape(pair, step))) for step in site}


def _in_groups(split: bool, place: int, shape: tuple[int, ...], arrays: Arrays) -> Arrays:
    """The array of another shape, of which two axes are taken in the other order."""
    array = arrays[0]
    if not split:
        return [array.swapaxes(place, place + 1).reshape(shape)]
    turned = [*shape[:place], shape[place + 1], shape[place], *shape[place + 2 :]]
    return [array.reshape(turned).swapaxes(place, place + 1)]


NEAR = (_exchanged_axes, _grouped)  # what is tried only where the calls part, before all else
CHANGES = (
    _usual,
    _scale,
    _filled,
    _parts,
    _halves,
    _alternate,
    _repeats,
    _heads,
    _positions,
    _diagonal,
    _along,
    _reduced,
    _numbers,
    _swapped,
    _exchanged,
    _left_out,
    _functions,
    _means,
    _of_means,
    _other_operand,
)  # in the order in which they are tried
