"""Is a module itself to blame? It is fed the reference's own input, so that no earlier mistake counts against it.

A wrong output says little: every module after the first mistake has one. So each suspect gets the reference's own input (and,
backward, the reference's own gradient of its output), and is to blame where it then still differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative, strict_problem
from alignment.frameworks.base import Call, Layer, leaves, mapped
from alignment.localize.matching import Matching
from alignment.localize.tracing import Answer, Network

Named = dict[str, "np.ndarray | None"]


@dataclass
class Blame:
    """How a module answers the reference's own input.

    Attributes:
        guilty: whether it differs by more than its bound.
        what: the first quantity that does, e.g. ``"output"`` or ``"gradient of weight"``.
        own: largest relative L2 of any quantity.
        measured: that difference in words.
        ours, theirs: what the port's and the reference's module gave.
    """

    guilty: bool
    what: str = ""
    own: float = 0.0
    measured: str = ""
    ours: Answer = field(default_factory=Answer)
    theirs: Answer = field(default_factory=Answer)


@dataclass
class Pair:
    """Two models in one mode, and the reference's pass through its own.

    Attributes:
        port, reference: the models.
        matching: which module is which.
        args: input of the models.
        cotangents: gradient of each tensor of the output, for the backward search; None for none.
        training: whether in training mode.
        rtol: relative L2 at which two modules count as equal in float64.
        truth: the reference in float64, where the other two are in float32; the floor is then measured against it.
        calls: of the reference, made by the search.
        blames: by call and phase, as far as they were looked at.
    """

    port: Network
    reference: Network
    matching: Matching
    args: tuple
    cotangents: Sequence[np.ndarray | None] | None = None
    training: bool = False
    rtol: float = tolerance.EXACT_RTOL
    truth: Network | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    blames: dict[tuple[str, str], Blame] = field(default_factory=dict)

    @property
    def networks(self) -> list[Network]:
        return [network for network in (self.port, self.reference, self.truth) if network is not None]

    @property
    def called(self) -> set[str]:
        """Paths of the modules that the reference's pass called."""
        return {key.partition("#")[0] for key in self.calls}

    def blame(self, key: str, phase: str) -> Blame:
        """Feed one call of a module of the port with the reference's input; ``key`` is a path, or ``path#2`` for a later call."""
        if (key, phase) not in self.blames:
            self.blames[key, phase] = self._blame(key, phase)
        return self.blames[key, phase]

    def _blame(self, key: str, phase: str) -> Blame:
        path, call = key.split("#")[0], self.calls[key]
        if path not in self.matching.paths:
            return Blame(False)
        cotangents: list[np.ndarray | None] | None = None
        if phase == "backward":
            cotangents = list(self.cotangents or ()) if path == "" else list(call.gradients)
            if all(c is None for c in cotangents):
                return Blame(False)
        ours = self.port.answer(path, call, cotangents)
        theirs = self.reference.answer(path, call, cotangents)
        if ours.error:
            return Blame(True, "output", float("inf"), f"the port raised {ours.error}", ours, theirs)
        if self.truth is not None:
            truth = self.truth.answer(path, _in_float64(call), _all_in_float64(cotangents))
            noisy, expected = theirs, truth
        else:
            noisy, expected = self.reference.answer(path, _one_ulp(call), cotangents), theirs
        named = _backward_quantities if phase == "backward" else _forward_quantities
        found, right, shaken = named(ours), named(expected), named(noisy)
        blame = Blame(False, ours=ours, theirs=theirs)
        largest = max((norm(v) for v in right.values() if v is not None), default=0.0)
        for name in dict.fromkeys([*right, *found]):
            wrong, own, words = self._differs(found.get(name), right.get(name), shaken.get(name), largest)
            blame.own = max(blame.own, own)
            if wrong and not blame.guilty:
                blame.guilty, blame.what, blame.measured = True, name, f"{name}: {words}"
        return blame

    def _differs(self, a: Any, b: Any, noisy: Any, largest: float) -> tuple[bool, float, str]:
        if a is None and b is None:
            return False, 0.0, ""
        if a is not None and b is not None and a.dtype.kind == b.dtype.kind == "f":
            b = b.astype(np.float64)
            problem = strict_problem(a.astype(np.float64), b, finite=False)
        else:
            problem = strict_problem(a, b, finite=False)
        if problem:
            return True, float("inf"), problem
        if b.size == 0:
            return False, 0.0, ""
        with np.errstate(invalid="ignore", over="ignore"):
            error, scale = distance(a, b), norm(b)
            floor = distance(noisy, b) if noisy is not None and noisy.shape == b.shape else 0.0
        if self.truth is not None:
            bound = tolerance.FLOOR_FACTOR * max(floor, tolerance.BASE_FLOOR_32 * scale)
        else:
            bound = max(self.rtol * max(scale, largest * 1e-3), tolerance.TRAJECTORY_FACTOR * floor)
        own = relative(error, scale) if np.isfinite(error) else float("inf")
        return not error <= bound, own, f"relative L2 {own:.1e} (bound {relative(bound, scale):.0e})"


@dataclass
class Subject:
    """One module that is to blame, with what it was given and what both sides made of it: what a hint is found for."""

    pair: Pair
    path: str
    call: Call
    phase: str
    blame: Blame

    @property
    def layer(self) -> Layer:
        """What the reference's module computes."""
        network = self.pair.reference
        return network.framework.layer(network.modules[self.path])

    @property
    def expected_class(self) -> str:
        """The class of the reference's module."""
        return self.layer.title

    def weights(self) -> dict[str, np.ndarray]:
        """The reference's parameters and statistics by name within the module, in float64."""
        state = self.pair.reference.state_of(self.path)
        return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in state.items()}

    @property
    def input(self) -> np.ndarray | None:
        """The first array that the module was given."""
        arrays = leaves((self.call.args, self.call.kwargs), np.ndarray)
        return arrays[0] if arrays else None

    @property
    def output(self) -> np.ndarray | None:
        """The first array that the port's module gave."""
        return self.blame.ours.outputs[0] if self.blame.ours.outputs else None

    @property
    def expected(self) -> np.ndarray | None:
        """The first array that the reference's module gave."""
        return self.blame.theirs.outputs[0] if self.blame.theirs.outputs else None


def _forward_quantities(answer: Answer) -> Named:
    outputs: Named = {"output" if i == 0 else f"output {i + 1}": a for i, a in enumerate(answer.outputs)}
    return outputs | answer.buffers


def _backward_quantities(answer: Answer) -> Named:
    inputs: Named = {"gradient of its input" + (f" {i + 1}" if i else ""): g for i, g in enumerate(answer.input_gradients)}
    return inputs | {f"gradient of {name}": g for name, g in answer.gradients.items()}


def one_ulp(array: np.ndarray) -> np.ndarray:
    """Every floating element but zeros moved by one unit in the last place, up or down at random."""
    if array.dtype.kind != "f":
        return array
    up = np.random.default_rng(array.size).random(array.shape) < 0.5
    return np.where(array == 0, array, np.nextafter(array, np.where(up, np.inf, -np.inf).astype(array.dtype)))


def _one_ulp(call: Call) -> Call:
    return Call(mapped(call.args, np.ndarray, one_ulp), mapped(call.kwargs, np.ndarray, one_ulp))


def _in_float64(call: Call) -> Call:
    cast = lambda array: array.astype(np.float64) if array.dtype.kind == "f" else array  # noqa: E731
    return Call(mapped(call.args, np.ndarray, cast), mapped(call.kwargs, np.ndarray, cast))


def _all_in_float64(arrays: list[np.ndarray | None] | None) -> list[np.ndarray | None] | None:
    return None if arrays is None else [None if a is None else a.astype(np.float64) for a in arrays]
