"""Modules that differ in form alone: what they compute otherwise, the modules around them make up for.

A padding that the reference has in a layer of its own, a sequence that begins with the batch, an activation that the caller
applies: given the reference's own input such a module gives something else, and the model gives the same. It is told from a
mistake by what surrounds it: a call agrees with the reference once its mistakes are put right, and its forms are left as they are.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import Call, leaves
from alignment.localize.blame import Pair
from alignment.models.forms.axes import is_cut, same_numbers
from alignment.models.links import plain
from alignment.models.tracing import Network
from alignment.strangers import strangers

MOST = 12  # suspects that are tried one by one
PASSES = 24  # of one call


def of_another_form(pair: Pair, key: str, phase: str, suspects: Sequence[str]) -> frozenset[str]:
    """Paths of those modules in a call that differ in form alone; none where nothing shows so.

    Args:
        pair: the models.
        key: of a call that is to blame.
        phase: ``"forward"`` or ``"backward"``.
        suspects: the calls in it.
    """
    path = key.partition("#")[0]
    if pair.draws or pair.bare(path) or path not in pair.matching.paths or not pair.takes(key):
        return frozenset()
    if path in pair.mended or pair.truth is not None:
        return frozenset(path for path, one in pair.matching.adapters.items() if one.made_up_for)
    blames = [(one.partition("#")[0], pair.blame(one, phase).guilty, pair.blame(one, "forward")) for one in suspects]
    guilty = {one: first for one, wrong, first in reversed(blames) if wrong and one not in pair.mended}
    paths = [one for one in reversed(guilty) if guilty[one].in_output and not pair.bare(one)]
    others = [one for one in reversed(guilty) if one not in paths]
    if not paths:
        return frozenset()
    whole = pair.blame(key, phase, whole=True)
    more = any(len(guilty[one].ours.outputs) > len(guilty[one].theirs.outputs) for one in paths)
    trial = _FormTrial(pair, key, phase, paths, others, whole=more)
    if whole.guilty and whole.own < tolerance.FLOAT32_CONSTANT:  # a number that one side rounds: no mistake in it is as small,
        apart = [one for one in paths if guilty[one].own > tolerance.FLOAT32_CONSTANT]  # unless the call makes it so by a tiny gain
        for one in (found := frozenset(one for one in apart if not trial.error([one]) < whole.own)):
            pair.matching.adapters.mark(one, made_up_for=True)
        return found
    mistakes = trial.mistakes()
    found = frozenset(_unlike(trial, paths)) if mistakes is None else frozenset(paths) - mistakes
    for one in found:
        pair.matching.adapters.mark(one, made_up_for=True)
    return found


def _unlike(trial: _FormTrial, paths: Sequence[str]) -> Iterator[str]:
    """Those of some modules that differ in form, where what is around them is wrong, too.

    They return something besides; or the port's call gives them more numbers or fewer, which it pads itself; or arrays whose axes
    stand in another order, and gets such arrays, or such without what the reference's caller cuts off; or it fits their shapes, and
    not those of the reference's modules. One that gets such arrays and gives something else is to blame, and cannot be put right;
    so is one whose outputs have other axes of size 1, and other numbers.
    """
    pair, key = trial.pair, trial.key
    samples = (_first(pair.args).shape or (0,))[0]
    ours = pair.port.given_inside(key.partition("#")[0], pair.calls[key], paths)
    for path in paths:
        mine, theirs = ours.get(path), pair.calls.get(path)
        if mine is None or theirs is None:
            continue
        given = [_first((call.args, call.kwargs)) for call in (mine, theirs)]
        if _more_outputs(pair, path):
            yield path
        elif not _equal(*given) and (given[0].size != given[1].size or _same_inside(pair, key, path)):
            yield path  # its caller does before it what the reference's module does by itself, or behind it
        elif not _equal(*given) and same_numbers(*given):
            both = _first(mine.output), _first(theirs.output)
            if same_numbers(*both) or is_cut(*both):  # a caller may cut off what the module pads
                yield path
            else:
                pair.matching.adapters.mark(path, fixed=True)
        elif _other_axes(given[0].shape, given[1].shape, samples) or (_other_shape(pair, path) and trial.fits(path)):
            if _other_numbers(pair, path):
                pair.matching.adapters.mark(path, fixed=True)
            else:
                yield path


def _same_inside(pair: Pair, key: str, path: str) -> bool:
    """Whether in the port's call all layers inside a module get and give what they get and give in the reference's."""
    framework, modules = pair.reference.framework, pair.reference.modules
    layers = [name for name, module in modules.items() if name.startswith(f"{path}.") and not framework.children(module)]
    layers = [name for name in layers if name in pair.port.modules]
    caller = key.partition("#")[0]
    ours, theirs = (network.given_inside(caller, pair.calls[key], layers) for network in (pair.port, pair.reference))
    if not ours or ours.keys() != theirs.keys():
        return False
    both = [
        (_first(part(ours[name])), _first(part(theirs[name]))) for name in ours for part in (_arguments, lambda call: call.output)
    ]
    return all(same_numbers(mine, its) for mine, its in both)


def goes_on_outside(pair: Pair, key: str, caller: str) -> bool:
    """Whether one side's caller does by a call what the other side's module does last, e.g. an activation.

    It may do so in another way, e.g. upsample in another mode: what is wrong is then wrong in the caller.
    """
    path, blame = key.partition("#")[0], pair.blame(key, "forward")
    if pair.stored or not path or caller not in pair.calls or not blame.ours.outputs or not blame.theirs.outputs:
        return False
    ours, theirs = blame.ours.outputs[0], blame.theirs.outputs[0]
    mine = _following(pair.port, pair.calls[caller], caller, path, ours)
    right = _following(pair.reference, pair.calls[caller], caller, path, theirs)
    if any(_equal(made, ours) and name not in mine for name, made in right.items()):
        return True
    if any(_equal(made, theirs) and name not in right for name, made in mine.items()):
        return True
    sides = (pair.port, right.keys() - mine.keys(), theirs), (pair.reference, mine.keys() - right.keys(), ours)
    return any(_ends_with(side, pair.calls[key], path, names, given) for side, names, given in sides if names)


def _ends_with(network: Network, call: Call, path: str, names: Container[str], given: np.ndarray) -> bool:
    """Whether a module makes its output by one of some operations, of what the other side's module gives: in whatever way."""
    with strangers("port"):  # more arrays than can be kept
        if (trace := network.traced(path, call, ())) is not None:
            last = [one for one in trace.operations if one.outputs == trace.results[:1] and one.name in names]
            return any(_equal(trace.values[value], given) for one in last[:1] for value in one.inputs)
    return False


def _following(network: Network, call: Call, caller: str, path: str, given: np.ndarray) -> dict[str, np.ndarray]:
    """By operation, what a caller's next calls make of an array alone, where the module at a path gives it."""
    with strangers("port"):  # an array that does not fit, or more of them than can be kept
        first = network.traced(caller, call, {path})
        number = next((one.number for one in first.operations if one.name == f"call {path}"), -1) if first else -1
        trace = network.traced(caller, call, {path}, {number: [given]}) if number >= 0 else None
        if trace is not None:
            made = next(one.outputs[:1] for one in trace.operations if one.number == number)
            found = {one.name: trace.values[one.outputs[0]] for one in trace.operations if one.inputs == made and one.outputs}
            return {
                name: array for name, array in found.items() if not _equal(array, given)
            }  # a sum that begins at 0. goes on nowhere
    return {}


def _arguments(call: Call) -> tuple:
    return call.args, call.kwargs


def _more_outputs(pair: Pair, path: str) -> bool:
    """Whether a module is wrong in outputs alone that one side has besides: a state that is returned twice."""
    blame = pair.blame(path, "forward")
    both = min(len(blame.ours.outputs), len(blame.theirs.outputs))
    names = {"output" if number == 0 else f"output {number + 1}" for number in range(both)}
    return both > 0 and all(name.startswith("output") and name not in names for name in blame.every)


def _other_shape(pair: Pair, path: str) -> bool:
    """Whether a module gives an array of another shape than the reference's for the same input."""
    blame = pair.blame(path, "forward")
    both = zip(blame.ours.outputs, blame.theirs.outputs, strict=False)
    return any(mine.shape != theirs.shape for mine, theirs in both)


def _other_numbers(pair: Pair, path: str) -> bool:
    """Whether what a module gives differs from the reference's in its numbers, too, where the shapes differ in axes of 1 alone."""
    blame = pair.blame(path, "forward")
    both = list(zip(blame.ours.outputs, blame.theirs.outputs, strict=False))
    if not _other_shape(pair, path) or any(plain(mine.shape) != plain(theirs.shape) for mine, theirs in both):
        return False
    return not all(_equal(mine.reshape(theirs.shape), theirs) for mine, theirs in both)


def _other_axes(a: tuple[int, ...], b: tuple[int, ...], samples: int) -> bool:
    """Whether shapes are the same sizes in another order, or have the samples along another axis."""
    if a != b and sorted(a) == sorted(b):
        return True
    return a.count(samples) == b.count(samples) == 1 and a.index(samples) != b.index(samples)


def _first(given: object) -> np.ndarray:
    return next(iter(leaves(given, np.ndarray)), np.zeros(0))


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype.kind == b.dtype.kind and bool(relative(distance(a, b), norm(b)) <= tolerance.SAME)


@dataclass
class _FormTrial:
    """Which modules of a call make it right when they are put right.

    Attributes:
        pair, key, phase: of the call.
        paths: modules whose outputs are wrong.
        others: modules whose outputs are right, and whose statistics or gradients are not.
        whole: whether the call is run to its end although a module in it gives far more numbers: a second output, a state.
    """

    pair: Pair
    key: str
    phase: str
    paths: list[str]
    others: list[str]
    whole: bool

    def mistakes(self) -> frozenset[str] | None:
        """The fewest of ``paths`` with which the call is right; None where there are none such."""
        if self.error([]) == 0:
            return frozenset()
        if len(self.paths) == 1:
            return None
        errors = {path: self.error([path]) for path in self.paths[:MOST]}
        nearest = sorted(errors, key=lambda path: (np.isnan(errors[path]), errors[path]))
        if errors[nearest[0]] == 0:
            return frozenset(nearest[:1])
        if self.error(self.paths) == 0:
            return frozenset(self.paths)
        chosen, least = nearest[:1], errors[nearest[0]]
        for path in nearest[1 : PASSES - len(errors)]:
            error = self.error([*chosen, path])
            if error < least:
                chosen, least = [*chosen, path], error
            if error == 0:
                return frozenset(chosen)
        return None

    def fits(self, path: str) -> bool:
        """Whether the call gives the reference's shapes with a module of the port, and not with the reference's in its place."""
        return self.error([]) < np.inf == self.error([path])

    def error(self, mended: list[str]) -> float:
        """How wrong the call is with some modules put right: largest relative L2; 0 where it is right, NaN where they cannot be.

        Forward, statistics inside of modules that are looked at by themselves are left out.
        """
        backward = self.phase == "backward"
        putting = [*self.others, *mended] if backward else mended
        if putting:
            blame = self.pair.with_mended(self.key, self.phase, putting, self.whole)
        else:
            blame = self.pair.blame(self.key, self.phase, self.whole)
        if blame is None:
            return float("nan")
        path = self.key.partition("#")[0]
        inside = tuple(f"{one}." for one in (*self.paths, *self.others) if not backward and one not in mended)
        names = [f"{path}.{name}" if path else name for name in blame.every]
        if not blame.guilty or (names and all(name.startswith(inside) for name in names)):
            return 0.0
        return blame.own
