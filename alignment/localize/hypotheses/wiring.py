"""Mistakes of a container whose children are all right: something between them is missing, extra, or computed otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from alignment import formulas
from alignment.compare import distance, norm, relative
from alignment.finding import Hint
from alignment.frameworks.base import leaves
from alignment.kinds import Kind
from alignment.localize.blame import Subject
from alignment.localize.hypotheses.arrays import HALVES, close, explains

Array = np.ndarray
OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {"+": np.add, "*": np.multiply, "-": np.subtract}
FUNCTIONS = ("ReLU", "ReLU6", "Hardswish", "Hardsigmoid", "Swish", "GELU", "Sigmoid", "Tanh")
WRAPPED: dict[str, Callable[[Array], Array]] = {"": lambda x: x} | {name: formulas.ACTIVATIONS[name] for name in FUNCTIONS}


def wiring(s: Subject) -> Iterator[Hint]:
    """A residual or a scaling that is missing, extra or computed otherwise; children that forward leaves out or calls in
    another order."""
    given, out, expected = s.input, s.output, s.expected
    if given is None or out is None or expected is None:
        return
    if out.shape == expected.shape == given.shape:
        for kind, words, made in (
            (Kind.DOES_NOTHING, "it gives its input back", given),
            (Kind.NO_RESIDUAL, "residual missing: the input is not added to the output", expected - given),
            (Kind.RESIDUAL_EXTRA, "residual too much: the input is added to the output", expected + given),
            (Kind.EXTRA_SCALING, "the output is multiplied by the input once more", expected * given),
        ):
            if explains(made, out, expected):
                yield kind, words
    matched = s.pair.matching.paths  # either side may call a function in place of a layer
    children = [path for path in s.pair.reference.children(s.path, s.pair.called) if path in matched]
    ours, theirs = (side.called(s.path, s.call, children) for side in (s.pair.port, s.pair.reference))
    yield from _combined(s)
    yield from _halved(s, out, expected, children)
    for child in children:
        if ours.count(child) == theirs.count(child) or _at_once(s, child):
            continue
        if not _called_inside(s, child) and not _for_others(s, child):
            yield (
                Kind.LAYER_NOT_CALLED,
                f"{child} is called {ours.count(child)} times in the port's forward, expected {theirs.count(child)}",
            )
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other and _depends(s, mine, other, children):
            layer = s.pair.reference.framework.layer
            mine, other = (f"{path} ({layer(s.pair.reference.modules[path]).title})" for path in (mine, other))
            yield Kind.CALL_ORDER, f"the port's forward calls the reference's {mine} where the reference calls {other}"


def _at_once(s: Subject, child: str) -> bool:
    """Whether a child gives as many numbers on both sides, in all its calls: one side may give it a whole sequence at once."""
    sides = (s.pair.port, s.pair.reference)
    calls = [side.given_inside(s.path, s.call, [child]) for side in sides]
    sizes = [sum(array.size for call in made.values() if call for array in leaves(call.output, np.ndarray)) for made in calls]
    return 0 < sizes[0] == sizes[1]


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
        if close(made, expected, 1e-12 if s.pair.truth is None else 1e-6):
            return Last(name, sign, a, b, atoms)
    return None


def _for_others(s: Subject, child: str) -> bool:
    """Whether one side has layers without weights of a child's kind that the other has none for: it may call the child instead."""
    sides = (s.pair.port, s.pair.reference)  # a second path of a module is in no side's modules
    titles = {side.framework.layer(side.modules[child]).title for side in sides if child in side.modules}
    others = [u for u in s.pair.matching.unmatched if u.kind in ("missing", "extra") and not u.parameters]
    return any(other.module in titles for other in others)


def _combined(s: Subject) -> Iterator[Hint]:
    """How else the port puts the output together, where the reference combines two arrays last."""
    out, expected, last = s.output, s.expected, last_operation(s)
    if out is None or expected is None or last is None:
        return
    outer, sign, a, b, atoms, shown, functions = last.outer, last.sign, last.a, last.b, last.atoms, last.shown, WRAPPED
    for other, (one, two) in itertools.product(OPERATIONS, ((a, b), (b, a))):
        if other != sign and explains(functions[outer](OPERATIONS[other](atoms[one], atoms[two])), out, expected):
            kind = Kind.GATE_ADDED if (sign, other) == ("*", "+") else Kind.COMBINED_OTHERWISE
            yield kind, f"it computes {one} {other} {two}, expected {shown}"
    for alone, left in ((a, b), (b, a)):
        left_over = atoms[alone] if atoms[alone].shape == out.shape else np.broadcast_to(atoms[alone], expected.shape)
        if explains(functions[outer](left_over), out, expected):
            kind = Kind.NO_RESIDUAL if sign == "+" else Kind.GATE_MISSING
            yield kind, f"{left} is not {'added' if sign == '+' else 'multiplied'}: it computes {alone}, expected {shown}"
    for name, function in functions.items():
        if not (name or outer):
            continue
        variants = {
            f"{name}({shown})" if name else shown: lambda f=function: f(OPERATIONS[sign](atoms[a], atoms[b])),
            f"{name}({a}) {sign} {b}": lambda f=function: OPERATIONS[sign](f(atoms[a]), atoms[b]),
            f"{a} {sign} {name}({b})": lambda f=function: OPERATIONS[sign](atoms[a], f(atoms[b])),
        }
        for words, made in variants.items():
            if explains(made(), out, expected):
                expected_words = f"{outer}({shown})" if outer else shown
                yield Kind.ACTIVATION_ORDER, f"it computes {words}, expected {expected_words}"
    for name, rounded in HALVES.items():
        for what, chosen in ((a, {a}), (b, {b}), ("both", {a, b})):
            x, y = (rounded(atoms[n]) if n in chosen else atoms[n] for n in (a, b))
            if explains(functions[outer](OPERATIONS[sign](x, y)), out, expected, 3e-4, 0.2):
                yield Kind.HALF_PRECISION, f"{what} rounded to {name} in {shown}"


def _halved(s: Subject, out: Array, expected: Array, children: list[str]) -> Iterator[Hint]:
    """What a child gives is rounded to half precision before it goes on."""
    if out.shape != expected.shape or not 1e-6 < relative(distance(out, expected), norm(expected)) < 3e-2:
        return
    called = [child for child in children if child in s.pair.called]  # a module that has two names is called by one
    for child, (name, rounded) in itertools.product(called, HALVES.items()):
        half = lambda a, r=rounded: r(a).astype(a.dtype) if a.dtype.kind == "f" else a  # noqa: E731
        answer = s.pair.reference.answer_changed(s.path, s.call, child, half)
        if answer.outputs and explains(answer.outputs[0], out, expected, 1e-2, 0.2):
            yield Kind.HALF_PRECISION, f"the output of {child} is rounded to {name}"


def _fits(a: Array, b: Array, expected: Array) -> bool:
    try:
        return np.broadcast_shapes(a.shape, b.shape) == expected.shape
    except ValueError:
        return False


def siblings(s: Subject) -> Iterator[Hint]:
    """The port has here a layer that the reference has in another place of the same part."""
    pair, path = s.pair, s.path
    network = pair.reference
    if not path or s.input is None or pair.truth is not None or network.framework.children(network.modules[path]):
        return
    mine = pair.port.framework.layer(pair.port.modules[path]).kind
    for other in network.children(path.rpartition(".")[0], pair.called):
        if other == path or other not in pair.called or mine == s.layer.kind:
            continue
        layer = network.framework.layer(network.modules[other])
        if layer.kind != mine:
            continue
        answer = network.answer(other, s.call)
        if answer.outputs and explains(answer.outputs[0], s.output, s.expected) and not close(answer.outputs[0], s.input):
            yield (
                Kind.CALL_ORDER,
                f"another order: it computes the reference's {other} ({layer.title}), expected {s.expected_class}",
            )


def _depends(s: Subject, later: str, earlier: str, children: list[str]) -> bool:
    """Whether a child is given what another one made, through other children or not: only then does their order matter."""
    calls = s.pair.calls

    def outputs(path: str) -> list[np.ndarray]:
        return leaves(calls[path].output, np.ndarray) if path in calls else []

    made, reached = outputs(earlier), {earlier}
    for child in [key for key in calls if key in children]:  # in the order of computation
        given = leaves((calls[child].args, calls[child].kwargs), np.ndarray)
        if child not in reached and any(close(one, other, 1e-12) for one in given for other in made):
            reached.add(child)
            made += outputs(child)
    return later in reached
