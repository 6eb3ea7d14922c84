"""How the layers of a port hold eps: as it was given, or rounded to float32 as some kernels do.

In exact mode both sides normalise with eps in float32, since Paddle's kernels hold it so. A port that normalises by hand has it
in float64, which is no mistake: at small variances the two differ by 1e-10 to 1e-8. Each normalisation is therefore compared with
both, fed the reference's own input, and keeps the rounding under which the two sides agree. It is one number of the two: a wrong
eps agrees with neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks.base import Framework, Module, mapped
from alignment.strangers import strangers

Choice = dict[str, dict[bool, bool]]  # own path of a module -> training mode -> whether eps is rounded there
BETTER = 4.0  # times closer than with both rounded, and farther apart with both rounded than the order of summation explains:
SMALL = 0.01  # inputs are scaled by it, so that eps counts beside their variance


@dataclass(frozen=True)
class Model:
    """One side in exact mode."""

    framework: Framework
    network: Module
    choice: Choice = field(default_factory=dict)


@dataclass(frozen=True)
class _RoundedPart:
    """A module that is called, and the normalisations in it for which there is a choice, by path."""

    model: Model
    called: Module
    norms: Mapping[str, Module]

    def answer(self, training: bool, rounded: bool, args: tuple, kwargs: Mapping) -> np.ndarray:
        for module in self.norms.values():
            self.model.framework.round_eps(module, training, rounded)
        return self.model.framework.call(self.called, args, kwargs).outputs[0]


def choose(
    port: tuple[Framework, Module], reference: tuple[Framework, Module], paths: Mapping[str, str], inputs: tuple
) -> tuple[Choice, Choice]:
    """The roundings of the port's and of the reference's normalisations under which the two agree best.

    Args:
        port, reference: framework and model in exact mode, holding the same weights. They take the roundings, and are left in
            evaluation or training mode; their tensors stay as they are.
        paths: the reference's path -> the port's, of the modules that both have.
        inputs: of both models, float64, at least two samples.

    Returns:
        What differs from both being rounded, for ``apply`` to other models of the same modules.
    """
    sides = Model(*port), Model(*reference)
    states = [side.framework.state(side.network) for side in sides]
    modules = [side.framework.modules(side.network, every_path=True) for side in sides]
    norms = [{path: m for path, m in own.items() if s.framework.rounds_eps(m)} for s, own in zip(sides, modules, strict=True)]
    if any(norms):
        pairs = {theirs: ours for theirs, ours in paths.items() if ours in norms[0] or theirs in norms[1]}
        for training in (False, True):
            for side in sides:
                side.framework.set_training(side.network, training)
            for theirs, args, kwargs in _calls(sides[1], {path: modules[1][path] for path in pairs}, inputs):
                places = pairs[theirs], theirs
                parts = [
                    _RoundedPart(side, own[path], {path: own[path]} if path in known else {})
                    for side, own, known, path in zip(sides, modules, norms, places, strict=True)
                ]
                _settle(parts, (training,), args, kwargs)
        alone = [
            {path: module for path, module in known.items() if path not in paired}
            for known, paired in zip(norms, (set(pairs.values()), set(pairs)), strict=True)
        ]
        if any(alone):  # what is a layer here and a function there shows in the whole model alone
            parts = [_RoundedPart(s, s.network, rest) for s, rest in zip(sides, alone, strict=True)]
            for training in (False, True):
                for side, state in zip(sides, states, strict=True):
                    side.framework.load(side.network, state)  # a pass in training mode has moved one side's statistics
                    side.framework.set_training(side.network, training)
                _settle(parts, (training,) if training else (False, True), inputs, {}, surely=training)
    for side, state in zip(sides, states, strict=True):
        side.framework.load(side.network, state)
    return sides[0].choice, sides[1].choice


def apply(framework: Framework, network: Module, choice: Choice) -> None:
    """Give a model in exact mode the roundings that were chosen; layers that it does not have are left out."""
    modules = framework.modules(network, every_path=True) if choice else {}
    for path, modes in choice.items():
        for training, rounded in modes.items():
            if path in modules and framework.rounds_eps(modules[path]):
                framework.round_eps(modules[path], training, rounded)


def _calls(reference: Model, watched: Mapping[str, Module], inputs: tuple) -> list[tuple[str, tuple, dict]]:
    """What each module is first given, scaled down; nothing where the reference cannot run in this mode (one value a channel)."""
    with strangers("reference") as raised:
        calls = reference.framework.call(reference.network, inputs, watched=watched).calls
    if raised.error is not None:
        return []
    smaller = lambda array: array * SMALL if array.dtype.kind == "f" else array  # noqa: E731
    given = {path: mapped((call.args, call.kwargs), np.ndarray, smaller) for path, call in calls.items() if path in watched}
    return [(path, args, kwargs) for path, (args, kwargs) in given.items()]


def _settle(parts: list[_RoundedPart], modes: tuple[bool, ...], args: tuple, kwargs: Mapping, surely: bool = False) -> None:
    """Leave both parts with the roundings under which they agree best, and note those that are not rounded.

    Args:
        parts: of the two sides.
        modes: whether of training; the first is run.
        args, kwargs: of both.
        surely: leave it where they agree under none: they draw numbers, or another mistake shows.
    """
    options = list(itertools.product(*[(True, False) if part.norms else (True,) for part in parts]))
    apart: list[float] = []
    for option in options:
        with strangers("port", alone=True) as raised:  # or it gives another shape; the steps then say so
            ours, theirs = (part.answer(modes[0], rounded, args, kwargs) for part, rounded in zip(parts, option, strict=True))
            apart.append(relative(distance(ours, theirs), norm(theirs)))
        if raised.error is not None:
            apart.append(float("inf"))
    best = int(np.argmin(apart))
    if surely and not apart[best] <= tolerance.EXACT_RTOL:
        return
    chosen = options[best] if apart[0] > max(BETTER * apart[best], tolerance.EPS_SUMMATION) else options[0]
    for part, rounded in zip(parts, chosen, strict=True):
        for path, module in part.norms.items():
            for training in modes:
                part.model.framework.round_eps(module, training, rounded)
                if not rounded:
                    part.model.choice.setdefault(path, {})[training] = False
                elif path in part.model.choice:
                    part.model.choice[path].pop(training, None)
