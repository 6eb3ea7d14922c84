"""Which modules of a port draw random numbers from the other end of the interval: the masks differ, their distribution does not.

``rand() < keep`` keeps a value as often as ``floor(keep + rand())`` does, but another one of the same numbers; noise may be added
or subtracted. Such a module of the port is given the mirrored numbers, with which it does what the reference's does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks._dropout import mirror
from alignment.frameworks.base import Call, Framework, Module, Operation, Trace
from alignment.models.tracing import Answer, Network, training_mode
from alignment.strangers import strangers

# Functions of which it is not known what the numbers are for.
DRAWING = frozenset(["rand", "rand_like", "uniform", "uniform_", "randn", "randn_like", "normal", "normal_", "standard_normal"])
EVENTS = frozenset(["bernoulli", "bernoulli_"])  # whose numbers say what occurs
ROUNDS = 8  # draws of a module that are looked at until one tells the two ends apart


def draws(framework: Framework, kind: type, named: frozenset[str] = DRAWING) -> bool:
    """Whether the forward of a class, or a function that it calls, names such a function; a framework's own layers are known."""
    package = framework.module_type.__module__.partition(".")[0]
    seen: set[CodeType] = set()

    def within(function: object) -> bool:
        if not isinstance(function, FunctionType) or function.__module__.partition(".")[0] == package or function.__code__ in seen:
            return False
        seen.add(function.__code__)
        names = set(_names(function.__code__))
        called = (one for name in names for one in (function.__globals__.get(name), getattr(kind, name, None)))
        return bool(names & named) or any(within(one) for one in called)

    return within(getattr(kind, framework.computing, None))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def any_draws(framework: Framework, model: Module, named: frozenset[str] = DRAWING) -> bool:
    """Whether a module of a model does."""
    return any(draws(framework, kind, named) for kind in {type(module) for module in framework.modules(model).values()})


def choose(port: Network, reference: Network, inputs: tuple) -> frozenset[str]:
    """The modules of the port, by its own paths, that do what the reference's do only where their numbers are mirrored.

    Each is given the reference's own input. One that is wrong with either numbers has a mistake besides: what it makes of the
    numbers alone, its masks, says from which end it draws then.

    Args:
        port, reference: in exact mode, with the same weights and the same numbers to draw.
        inputs: of both, float64.
    """
    chosen: set[str] = set()
    with training_mode([port, reference], True), strangers("reference"):  # it may need labels: there is nothing to compare then
        for path, call in reference.trace(inputs).items():
            both = [(side.framework, side.modules.get(path)) for side in (port, reference)]
            if any(module is None for _, module in both) or not any(draws(framework, type(module)) for framework, module in both):
                continue
            own = drawing(port, reference, path)
            found = _from_the_other_end(port, reference, path, call, own)
            mirror(own.values(), found)
            chosen.update(own if found else ())
    return frozenset(chosen)


def _from_the_other_end(port: Network, reference: Network, path: str, call: Call, own: Mapping[str, Module]) -> bool:
    """Whether a module draws mirrored numbers, by the first draw in which that shows."""
    for _ in in_rounds(port, reference):
        made = []
        for on in (False, True):
            mirror(own.values(), on)
            made.append(port.answer(path, call))
        if alike(*made):
            continue
        right = reference.answer(path, call)
        equal = [alike(one, right) for one in made]
        if any(equal):
            return equal == [False, True]
        right_masks, found = [one.array for one in masks(reference, port, path, call)], []
        for on in (False, True):
            mirror(own.values(), on)
            found.append(_same_masks([one.array for one in masks(port, reference, path, call)], right_masks))
        if any(found):
            return found == [False, True]
    return False


def in_rounds(*sides: Network) -> Iterator[int]:
    """Let sides draw other numbers in each round, and their own in the end."""
    before = [side.draws.iteration for side in sides]
    try:
        for number in range(ROUNDS):
            for side, own in zip(sides, before, strict=True):
                side.draws.iteration = own + number
            yield number
    finally:
        for side, own in zip(sides, before, strict=True):
            side.draws.iteration = own


@dataclass(frozen=True)
class Mask:
    """What a module makes of random numbers alone, as it goes into something else.

    Attributes:
        steps: the call that drew the numbers, and those that made it of them.
        numbers: what was drawn.
        array: what was made of them.
    """

    steps: tuple[Operation, ...]
    numbers: np.ndarray
    array: np.ndarray

    @property
    def drawn(self) -> Operation:
        return self.steps[0]

    @property
    def made(self) -> Operation:
        return self.steps[-1]


def masks(side: Network, other: Network, path: str, call: Call) -> list[Mask]:
    """What a module of a side makes of random numbers, in order; nothing where that cannot be seen."""
    both = set(side.modules) & set(other.modules)
    closed = {one for one in both if not any(draws(network.framework, type(network.modules[one])) for network in (side, other))}
    with strangers("port"):  # its arrays are too many to be kept
        trace = side.traced(path, call, closed)
        return [] if trace is None else masks_of(trace)
    return []


def masks_of(trace: Trace) -> list[Mask]:
    """The same in one pass."""
    drawn: dict[int, tuple[Operation, ...]] = {}
    fixed: set[int] = set()  # made of nothing
    used: list[int] = []
    for one in trace.operations:
        if one.name in DRAWING | EVENTS or one.title in DRAWING | EVENTS:
            drawn |= dict.fromkeys(one.outputs, (one,))
            continue
        inside = [value for value in one.inputs if value in drawn]
        if not all(value in drawn or value in fixed for value in one.inputs):
            used += inside
        elif inside:
            drawn |= {value: (*drawn[inside[0]], one) for value in one.outputs if value not in drawn}
        else:
            fixed.update(one.outputs)
    return [Mask(drawn[one], trace.values[drawn[one][0].outputs[0]], trace.values[one]) for one in dict.fromkeys(used)]


def _same_masks(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    """Whether masks are the same but for a positive factor: what is kept may be divided by the share of it before or behind."""
    return len(ours) == len(theirs) > 0 and all(map(same_mask, ours, theirs))


def same_mask(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two masks are the same but for a positive factor."""
    a, b = (array.astype(np.float64).ravel() / (np.abs(array.astype(np.float64)).max(initial=0.0) or 1.0) for array in (one, other))
    return a.size == b.size and bool(np.allclose(a, b, rtol=0.0, atol=tolerance.FLOAT32_CONSTANT))


def apply(framework: Framework, model: Module, paths: frozenset[str]) -> None:
    """Let these modules of a model draw mirrored numbers."""
    modules = framework.modules(model, every_path=True) if paths else {}
    mirror(modules[path] for path in paths)


def drawing(port: Network, reference: Network, path: str) -> dict[str, Module]:
    """A module of the port with the dropout layers in it that the reference has none for, by the port's own paths."""
    framework, module, own = port.framework, port.modules[path], (port.paths or {}).get(path, path)
    layers = {theirs for theirs, one in reference.modules.items() if reference.framework.layer(one).kind == "dropout"}
    paired = {id(port.modules[theirs]) for theirs in layers if theirs in port.modules}
    found = {own: module}
    for name, one in framework.modules(module).items():
        if name and framework.layer(one).kind == "dropout" and id(one) not in paired:
            found[f"{own}.{name}" if own else name] = one
    return found


def alike(ours: Answer, theirs: Answer) -> bool:
    """Whether two sides give the same but for rounding."""
    pairs = zip(ours.outputs, theirs.outputs, strict=False)
    return len(ours.outputs) == len(theirs.outputs) > 0 and all(
        a.shape == b.shape and relative(distance(a, b), norm(b)) < tolerance.FLOAT32_CONSTANT for a, b in pairs
    )
