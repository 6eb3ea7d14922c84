"""Modules in plain numpy, for tests of hypotheses: what one is given and gives, in no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alignment import formulas
from alignment.frameworks.base import Call, Layer, leaves
from alignment.localize.blame import Blame, Pair, Subject
from alignment.models.counterparts import Matching
from alignment.models.forms import Adapters
from alignment.models.observe import MaskDraws
from alignment.models.tracing import Answer

RNG = np.random.default_rng(0)


@dataclass
class Plain:
    """A module.

    Attributes:
        layer: what the engine is told of it.
        compute: its outputs from its inputs, its settings and its weights; ``inside(path, x)`` calls a child.
        weights: canonical, by name.
        children: by name.
        stock: whether it is a layer that the framework knows.
        tables: its tables that are no weights, by name.
        drawn: the share of values that each of its draws of random numbers drops.
    """

    layer: Layer
    compute: Callable[..., Any]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    children: Mapping[str, Plain] = field(default_factory=dict)
    stock: bool = True
    tables: dict[str, list[np.ndarray]] = field(default_factory=dict)
    drawn: Sequence[float] = ()


class PlainFramework:
    """What hypotheses ask a framework."""

    repeating = frozenset()

    def layer(self, module):
        return module.layer

    def children(self, module):
        return list(module.children.items())

    def knows(self, module):
        return module.stock

    def attention(self, module):
        return None

    def array(self, tensor):
        return tensor[0]

    def assign(self, tensor, array):
        tensor[0] = array


class PlainNetwork:
    """A ``Network`` of such modules; its outputs, statistics and gradients are given, where a test has them."""

    framework = PlainFramework()
    stored = None
    draws = MaskDraws(0)

    def __init__(self, model: Plain, start: Mapping[str, np.ndarray] | None = None) -> None:
        self.model, self.start = model, dict(start or {})
        self.modules = {"": model, **model.children}
        self.adapters = Adapters()
        self.roles: dict[str, str] = {}  # no buffer here stands for a parameter
        self._calls: list[str] = []
        self._changed: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
        self._given: dict[str, Call] = {}

    def tables(self, path):
        return dict(self.modules[path].tables)

    def below(self, path):
        return {name: name for name in self.start}

    def began(self, path, within):
        return self.start[within]

    def state_of(self, path):
        return dict(self.modules[path].weights)

    def children(self, path, called):
        return list(self.modules[path].children)

    def _run(self, module, args):
        def inside(name, x):
            made = self._run(module.children[name], (x,))[0]
            made = self._changed[name](made) if name in self._changed else made
            self._calls.append(name)
            self._given[name] = Call((x,), {}, made)
            return made

        made = module.compute(*args, s=module.layer.settings, w=module.weights, inside=inside)
        return list(made) if isinstance(made, tuple) else [made]

    def answer(self, path, call, cotangents=None):
        try:
            return Answer(self._run(self.modules[path], call.args))
        except ValueError as error:
            return Answer(error=str(error))

    def answer_with(self, path, call, change):
        held = self.modules[path]
        changed = replace(held, weights={name: change(array) for name, array in held.weights.items()})
        return Answer(self._run(changed, call.args))

    def answer_set(self, path, call, changes):
        module = self.modules[path]
        changed = replace(module, layer=replace(module.layer, settings={**module.layer.settings, **changes}))
        try:
            return Answer(self._run(changed, call.args))
        except ValueError:
            return Answer()

    def answer_changed(self, path, call, inside, change):
        self._changed = {inside: change}
        try:
            return self.answer(path, call)
        finally:
            self._changed = {}

    def called(self, path, call, among):
        self._calls = []
        self.answer(path, call)
        return [name for name in self._calls if name in among]

    def drawn(self, path, call):
        return list(self.modules[path].drawn)

    def given_inside(self, path, call, among):
        self._given = {}
        self.answer(path, call)
        return {name: one for name, one in self._given.items() if name in among}


def subject(port_module: Plain, reference_module: Plain, /, *inputs: np.ndarray, path: str = "", **changes: Any) -> Subject:
    """Two modules that were given the same inputs, as the search would ask about them.

    Args:
        port_module, reference_module: the port's and the reference's.
        inputs: of both.
        path: of the child that is asked about; it is given the inputs itself.
        changes: fields of the pair, or of the blame.
    """
    of_blame = {name: changes.pop(name) for name in list(changes) if name in Blame.__dataclass_fields__}
    start, cotangents, phase = changes.pop("start", {}), changes.pop("gradients", []), changes.pop("phase", "forward")
    port, reference = PlainNetwork(port_module), PlainNetwork(reference_module, start)
    paths = {name: name for name in reference.modules if name in port.modules}
    pair = Pair(port, reference, Matching(paths), inputs, **changes)
    whole = Call(inputs, {}, gradients=list(cotangents))
    answers = [network.answer(path, whole) for network in (port, reference)]
    whole = replace(whole, output=tuple(answers[1].outputs))
    pair.calls = {"": whole, **reference.given_inside("", whole, list(reference.modules)), path: whole}
    blame = Blame(True, "output", ours=answers[0], theirs=answers[1])
    return Subject(pair, path, whole, phase, replace(blame, **of_blame))


# --- layers ----------------------------------------------------------------------------------------------------------------


def weight(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


CONV = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
CONV_WEIGHTS = {"weight": weight(4, 4, 3, 3), "bias": weight(4)}


def conv(weights: Mapping[str, np.ndarray] = CONV_WEIGHTS, told: Mapping[str, Any] | None = None, **changes: Any) -> Plain:
    """A convolution; ``told`` is what the engine is told of the settings, where that is not what is computed."""
    computed = {**CONV, **changes}
    layer = Layer("conv", told if told is not None else {}, "Conv2d")
    return Plain(layer, lambda x, s, w, inside: formulas.conv(x, w["weight"], w.get("bias"), **computed), weights)


def function(kind: str, made: Callable[..., Any], title: str = "", **settings: Any) -> Plain:
    """A layer without weights that computes a function of its inputs."""
    return Plain(Layer(kind, settings, title or kind), lambda *x, s, w, inside: made(*x))


def first_array(value: Any) -> np.ndarray:
    return leaves(value, np.ndarray)[0]
