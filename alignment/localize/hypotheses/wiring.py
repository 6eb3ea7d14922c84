"""Mistakes of a container whose children are all right: something between them is missing, extra, or computed otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from alignment import formulas, tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import leaves
from alignment.kinds import Kind
from alignment.localize.blame import Subject, other_weights
from alignment.localize.hypotheses.arrays import HALVES, close
from alignment.localize.hypotheses.hypothesis import Family, Hypotheses, Hypothesis, always, seen
from alignment.localize.hypotheses.passes import of_pass

WIRING = Family("wiring", of_pass)
SIBLINGS = Family("siblings", of_pass)
Array = np.ndarray
OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {"+": np.add, "*": np.multiply, "-": np.subtract}
FUNCTIONS = ("ReLU", "ReLU6", "Hardswish", "Hardsigmoid", "Swish", "GELU", "Sigmoid", "Tanh")
WRAPPED: dict[str, Callable[[Array], Array]] = {"": lambda x: x} | {name: formulas.ACTIVATIONS[name] for name in FUNCTIONS}


@WIRING
def residual(s: Subject) -> Hypotheses:
    """A residual or a scaling that is missing, or extra."""
    given, out, expected = s.input, s.output, s.expected
    if given is None or out is None or expected is None or not out.shape == expected.shape == given.shape:
        return
    for kind, words, made in (
        (Kind.DOES_NOTHING, "it gives its input back", given),
        (Kind.NO_RESIDUAL, "residual missing: the input is not added to the output", expected - given),
        (Kind.RESIDUAL_EXTRA, "residual too much: the input is added to the output", expected + given),
        (Kind.EXTRA_SCALING, "the output is multiplied by the input once more", expected * given),
    ):
        yield Hypothesis(kind, words, always(made))


def _children(s: Subject) -> list[str]:
    """Of the reference's module, those that the port has; either side may call a function in place of a layer."""
    return [path for path in s.pair.reference.children(s.path, s.pair.called) if path in s.pair.matching.paths]


def _complete(s: Subject) -> bool:
    return s.input is not None and s.output is not None and s.expected is not None


def _is_rounding(s: Subject) -> bool:
    """Whether the difference is as small as float32 rounds: no other order of calls gives such a one."""
    return s.pair.truth is None and 0 < s.blame.own < tolerance.FLOAT32_CONSTANT


def _at_once(s: Subject, child: str) -> bool:
    """Whether a child gives as many numbers on both sides, in all its calls: one side may give it a whole sequence at once."""
    sides = (s.pair.port, s.pair.reference)
    calls = [side.given_inside(s.path, s.call, [child]) for side in sides]
    sizes = [sum(array.size for call in made.values() if call for array in leaves(call.output, np.ndarray)) for made in calls]
    return 0 < sizes[0] == sizes[1]


def _used_by_function(s: Subject, child: str, by_port: bool = True) -> bool:
    """Whether a side's forward computes with a child's tensors though it does not call it: a function may do what it does.

    So PyTorch's attention does with the layer behind its heads.
    """
    network, before = (s.pair.port, s.blame.ours.outputs) if by_port else (s.pair.reference, s.blame.theirs.outputs)
    if s.pair.stored or s.output is None or not network.state_of(child):
        return False
    with network.holding(child, other_weights):
        made = network.answer(s.path, s.call).outputs
    return len(made) == len(before) and any(not close(one, other) for one, other in zip(made, before, strict=True))


def _called_inside(s: Subject, child: str) -> bool:
    """Whether the port's forward calls the modules inside a child itself: that computes the same."""
    if child not in s.pair.called:
        return False
    inside = [path for path in s.pair.reference.children(child, s.pair.called) if path in s.pair.matching.paths]
    return bool(inside) and bool(s.pair.port.called(s.path, s.call, inside))


@dataclass(frozen=True)
class Last:
    """How the reference's output is put together: a function of two arrays combined.

    Attributes:
        outer: name of the function, ``""`` for none.
        sign: in ``OPERATIONS``.
        a, b: ``"the input"``, or paths of children.
        atoms: what each of them is.
    """

    outer: str
    sign: str
    a: str
    b: str
    atoms: dict[str, Array]

    @property
    def shown(self) -> str:
        return f"{self.a} {self.sign} {self.b}"


def last_operation(s: Subject) -> Last | None:
    """Which two of the input and the children's outputs the reference combines last; None where it does not."""
    given, expected = s.input, s.expected
    if given is None or expected is None or not np.isfinite(expected).all():
        return None
    atoms = {"the input": given}
    for child in s.pair.reference.children(s.path, s.pair.called):
        made = leaves(s.pair.calls[child].output, np.ndarray) if child in s.pair.calls else []
        if made and made[0].dtype.kind == "f":
            atoms[child] = made[0]
    pairs = [(a, b) for a, b in itertools.combinations(atoms, 2) if _fits(atoms[a], atoms[b], expected)]
    for (a, b), sign, (name, function) in itertools.product(pairs, ("+", "*"), WRAPPED.items()):
        made = function(OPERATIONS[sign](atoms[a], atoms[b]))
        if close(made, expected, tolerance.EXACT_RTOL if s.pair.truth is None else tolerance.CLOSE):
            return Last(name, sign, a, b, atoms)
    return None


def _for_others(s: Subject, child: str) -> bool:
    """Whether one side has layers without weights of a child's kind that the other has none for: it may call the child instead."""
    sides = (s.pair.port, s.pair.reference)  # a second path of a module is in no side's modules
    titles = {side.framework.layer(side.modules[child]).title for side in sides if child in side.modules}
    others = [u for u in s.pair.matching.unmatched if u.kind in ("missing", "extra") and not u.parameters]
    return any(other.module in titles for other in others)


@WIRING
def another_operation(s: Subject) -> Hypotheses:
    """The two arrays that the reference combines last are combined otherwise, or in another order."""
    if (last := last_operation(s)) is None:
        return
    for other, (one, two) in itertools.product(OPERATIONS, ((last.a, last.b), (last.b, last.a))):
        if other != last.sign:
            kind = Kind.GATE_ADDED if (last.sign, other) == ("*", "+") else Kind.COMBINED_OTHERWISE
            made = WRAPPED[last.outer](OPERATIONS[other](last.atoms[one], last.atoms[two]))
            yield Hypothesis(kind, f"it computes {one} {other} {two}, expected {last.shown}", always(made))


@WIRING
def one_part_left_out(s: Subject) -> Hypotheses:
    """One of the two arrays that the reference combines last is not used."""
    out, expected, last = s.output, s.expected, last_operation(s)
    if out is None or expected is None or last is None:
        return
    kind, done = (Kind.NO_RESIDUAL, "added") if last.sign == "+" else (Kind.GATE_MISSING, "multiplied")
    for alone, left in ((last.a, last.b), (last.b, last.a)):
        atom = last.atoms[alone] if last.atoms[alone].shape == out.shape else np.broadcast_to(last.atoms[alone], expected.shape)
        words = f"{left} is not {done}: it computes {alone}, expected {last.shown}"
        yield Hypothesis(kind, words, always(WRAPPED[last.outer](atom)))


@WIRING
def activation_elsewhere(s: Subject) -> Hypotheses:
    """A function is applied before the two arrays are combined, and not after, or the other way round."""
    if (last := last_operation(s)) is None:
        return
    sign, a, b, shown, combine = last.sign, last.a, last.b, last.shown, OPERATIONS[last.sign]
    one, two = last.atoms[a], last.atoms[b]
    expected = f"{last.outer}({shown})" if last.outer else shown
    for name, function in WRAPPED.items():
        if name or last.outer:
            for words, made in (
                (f"{name}({shown})" if name else shown, function(combine(one, two))),
                (f"{name}({a}) {sign} {b}", combine(function(one), two)),
                (f"{a} {sign} {name}({b})", combine(one, function(two))),
            ):
                yield Hypothesis(Kind.ACTIVATION_ORDER, f"it computes {words}, expected {expected}", always(made))


@WIRING
def combined_in_half_precision(s: Subject) -> Hypotheses:
    if (last := last_operation(s)) is None:
        return
    for name, rounded in HALVES.items():
        for what, chosen in ((last.a, {last.a}), (last.b, {last.b}), ("both", {last.a, last.b})):
            x, y = (rounded(last.atoms[n]) if n in chosen else last.atoms[n] for n in (last.a, last.b))
            made = WRAPPED[last.outer](OPERATIONS[last.sign](x, y))
            yield Hypothesis(
                Kind.HALF_PRECISION, f"{what} rounded to {name} in {last.shown}", always(made), tolerance.HALF_OPERATION, 0.2
            )


@WIRING
def child_in_half_precision(s: Subject) -> Hypotheses:
    """What a child gives is rounded to half precision before it goes on."""
    out, expected = s.output, s.expected
    if not _complete(s) or out is None or expected is None or out.shape != expected.shape:
        return
    if not tolerance.HALF_LEAST_OUTPUT < relative(distance(out, expected), norm(expected)) < tolerance.HALF_MOST:
        return
    called = [child for child in _children(s) if child in s.pair.called]  # a module that has two names is called by one
    for child, (name, rounded) in itertools.product(called, HALVES.items()):
        half = lambda a, r=rounded: r(a).astype(a.dtype) if a.dtype.kind == "f" else a  # noqa: E731
        made = s.pair.reference.answer_changed(s.path, s.call, child, half).outputs
        if made:
            yield Hypothesis(
                Kind.HALF_PRECISION, f"the output of {child} is rounded to {name}", always(made[0]), tolerance.HALF_CHILD, 0.2
            )


@WIRING
def called_another_number_of_times(s: Subject) -> Hypotheses:
    if not _complete(s) or _is_rounding(s):
        return
    children = _children(s)
    ours, theirs = (side.called(s.path, s.call, children) for side in (s.pair.port, s.pair.reference))
    for child in children:
        if ours.count(child) == theirs.count(child) or _at_once(s, child):
            continue
        by_function = [_used_by_function(s, child, side is ours) for side in (ours, theirs) if child not in side]
        if not _called_inside(s, child) and not _for_others(s, child) and not any(by_function):
            words = f"{child} is called {ours.count(child)} times in the port's forward, expected {theirs.count(child)}"
            yield seen(Kind.LAYER_NOT_CALLED, words)


@WIRING
def call_order(s: Subject) -> Hypotheses:
    if not _complete(s) or _is_rounding(s):
        return
    children, layer = _children(s), s.pair.reference.framework.layer
    ours, theirs = (side.called(s.path, s.call, children) for side in (s.pair.port, s.pair.reference))
    alike = [child for child in children if 0 < ours.count(child) == theirs.count(child)]  # a function may stand for a layer
    for both in itertools.combinations(alike, 2):  # the order of these two alone: what else is called may stand anywhere between
        mine, other = next((pair for pair in zip(*_among(both, ours, theirs), strict=True) if len(set(pair)) == 2), ("", ""))
        if mine and _depends(s, mine, other, children):
            mine, other = (f"{path} ({layer(s.pair.reference.modules[path]).title})" for path in (mine, other))
            yield seen(Kind.CALL_ORDER, f"the port's forward calls the reference's {mine} where the reference calls {other}")


def _among(both: Sequence[str], *sides: Sequence[str]) -> list[list[str]]:
    """Of the calls of each side, those of two children."""
    return [[child for child in side if child in both] for side in sides]


def _fits(a: Array, b: Array, expected: Array) -> bool:
    try:
        return np.broadcast_shapes(a.shape, b.shape) == expected.shape
    except ValueError:
        return False


@SIBLINGS
def sibling(s: Subject) -> Hypotheses:
    """The port has here a layer that the reference has in another place of the same part."""
    pair, path = s.pair, s.path
    network = pair.reference
    if not path or s.input is None or pair.truth is not None or network.framework.children(network.modules[path]):
        return
    mine = s.own_layer.kind
    for other in network.children(path.rpartition(".")[0], pair.called):
        if other not in network.modules:  # the same layer under another name
            continue
        layer = network.framework.layer(network.modules[other])
        if other == path or other not in pair.called or mine == s.layer.kind or layer.kind != mine:
            continue
        made = network.answer(other, s.call).outputs
        if made and not close(made[0], s.input):
            words = f"another order: it computes the reference's {other} ({layer.title}), expected {s.expected_class}"
            yield Hypothesis(Kind.CALL_ORDER, words, always(made[0]))


def _depends(s: Subject, later: str, earlier: str, children: list[str]) -> bool:
    """Whether a child is given what another one made, through other children or not: only then does their order matter."""
    calls = s.pair.calls

    def outputs(path: str) -> list[np.ndarray]:
        return leaves(calls[path].output, np.ndarray) if path in calls else []

    made, reached = outputs(earlier), {earlier}
    for child in [key for key in calls if key in children]:  # in the order of computation
        given = leaves((calls[child].args, calls[child].kwargs), np.ndarray)
        if child not in reached and any(close(one, other, tolerance.EXACT_RTOL) for one in given for other in made):
            reached.add(child)
            made += outputs(child)
    return later in reached
