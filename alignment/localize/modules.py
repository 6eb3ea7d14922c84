"""The first module whose own mistake makes two models part, forward or backward.

A wrong output says little: every module after the first mistake has one. So each suspect is fed the reference's own
input (and, backward, the reference's own gradient of its output), and is to blame where it then still differs. From the
whole model downwards the search takes the first child, in the order of computation, that is to blame; where a module is
and none of its children, the mistake lies in how it wires them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative, strict_problem
from alignment.localize import hints
from alignment.localize.finding import Finding, LayerRow, Localization
from alignment.localize.matching import Matching
from alignment.localize.tracing import Answer, Call, Network, PaddleNetwork, TorchNetwork, leaves, mapped, training_mode
from alignment.localize.weight_hints import weight_hint

Named = dict[str, "np.ndarray | None"]
STOCK_STATISTICS_RTOL = 1e-6


@dataclass
class Blame:
    """How a module answers the reference's own input.

    Attributes:
        guilty: whether it differs by more than its bound.
        what: the first quantity that does, e.g. ``"output"`` or ``"gradient of weight"``.
        own: largest relative L2 of any quantity.
        measured: that difference in words.
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
        paddle, ref: the models.
        truth: the reference in float64, where ``ref`` and ``paddle`` are in float32; the floor is then measured against it.
        matching: which module is which.
        args: input of the models.
        cotangent: gradient of the output, for the backward search.
        rtol: relative L2 at which two modules count as equal in float64.
    """

    paddle: PaddleNetwork
    ref: TorchNetwork
    matching: Matching
    args: tuple
    cotangent: np.ndarray | None = None
    training: bool = False
    rtol: float = tolerance.EXACT_RTOL
    truth: TorchNetwork | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    blames: dict[tuple[str, str], Blame] = field(default_factory=dict)

    def search(self) -> Finding | None:
        """The first own mistake, forward, then backward where a cotangent is given."""
        with training_mode([n for n in (self.paddle, self.ref, self.truth) if n is not None], self.training):
            self.calls = self.ref.trace(self.args, self.cotangent)
            for phase in ("forward", "backward") if self.cotangent is not None else ("forward",):
                if self.blame("", phase).guilty:
                    return self._descend("", phase)
        return None

    def blame(self, key: str, phase: str) -> Blame:
        """Feed one call of a Paddle module with the reference's input; ``key`` is a path, or ``path#2`` for a later call."""
        if (key, phase) not in self.blames:
            self.blames[key, phase] = self._blame(key, phase)
        return self.blames[key, phase]

    def _blame(self, key: str, phase: str) -> Blame:
        path, call = key.split("#")[0], self.calls[key]
        if path not in self.matching.paths:
            return Blame(False)
        cotangents: list[np.ndarray | None] | None = None
        if phase == "backward":
            cotangents = [self.cotangent] if path == "" else list(call.gradients)
            if all(c is None for c in cotangents):
                return Blame(False)
        ours = self.paddle.answer(path, call, cotangents)
        theirs = self.ref.answer(path, call, cotangents)
        if ours.error:
            return Blame(True, "output", float("inf"), f"Paddle raised {ours.error}", ours, theirs)
        if self.truth is not None:
            truth = self.truth.answer(path, _in_type(call, np.float64), _in_float64(cotangents))
            noisy, expected = theirs, truth
        else:
            moved = _one_ulp(call)
            noisy, expected = self.ref.answer(path, moved, cotangents), theirs
        named = _backward_quantities if phase == "backward" else _forward_quantities
        found, right, shaken = named(ours), named(expected), named(noisy)
        blame = Blame(False, ours=ours, theirs=theirs)
        largest = max((norm(v) for v in right.values() if v is not None), default=0.0)
        for name in dict.fromkeys([*right, *found]):
            a, b = found.get(name), right.get(name)
            rtol = max(self.rtol, STOCK_STATISTICS_RTOL) if self._stock_statistic(path, name) else self.rtol
            wrong, own, words = self._differs(a, b, shaken.get(name), largest, rtol)
            blame.own = max(blame.own, own)
            if wrong and not blame.guilty:
                blame.guilty, blame.what, blame.measured = True, name, f"{name}: {words}"
        return blame

    def _stock_statistic(self, path: str, name: str) -> bool:
        """Whether a quantity is a statistic of Paddle's own BatchNorm, whose kernel has the momentum in float32."""
        full = self.ref.below(path).get(name)
        if full is None:
            return False
        layer = self.paddle.modules.get(full.rpartition(".")[0])
        return type(layer).__module__.startswith("paddle.")

    def _differs(self, a: Any, b: Any, noisy: Any, largest: float, rtol: float) -> tuple[bool, float, str]:
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
            bound = max(rtol * max(scale, largest * 1e-3), tolerance.TRAJECTORY_FACTOR * floor)
        own = relative(error, scale) if np.isfinite(error) else float("inf")
        return not error <= bound, own, f"relative L2 {own:.1e} (bound {relative(bound, scale):.0e})"

    def _descend(self, key: str, phase: str) -> Finding:
        path = key.split("#")[0]
        children = self._children(path)
        for child in reversed(children) if phase == "backward" else children:
            if child in self.calls and self.blame(child, phase).guilty:
                return self._descend(child, phase)
        return self._finding(key, phase)

    def _children(self, path: str) -> list[str]:
        """Keys of the calls of a module's children, in the order in which the reference made them."""
        names = {f"{path}.{name}" if path else name for name, _ in self.ref.modules[path].named_children()}
        return [key for key in self.calls if key.split("#")[0] in names]

    def _finding(self, key: str, phase: str) -> Finding:
        path, blame = key.split("#")[0], self.blame(key, phase)
        module = self.ref.modules[path]
        for other in self.matching.unmatched:
            if other.kind != "renamed" and other.path.rsplit(".", 1)[0] == (path or other.path):
                side = "Paddle lacks it" if other.kind == "missing" else "torch has no such layer"
                return Finding(phase, other.path, f"layer_{other.kind}", f"{other.module}: {side}", blame.measured)
        subject = hints.Subject(self, path, self.calls[key], phase, blame)
        kind, hint = hints.hint(subject)
        where = path or f"{type(module).__name__}.forward"
        return Finding(phase, where, kind, hint, f"{blame.measured}, given the reference's own input")


def table(pair: Pair) -> list[LayerRow]:
    """Every module as both models ran through: difference, noise floor, and its own mistake where that was looked at."""
    with training_mode([pair.paddle, pair.ref], pair.training):
        ours = _traced(pair.paddle, pair.args, pair.cotangent)
        theirs = pair.calls or pair.ref.trace(pair.args, pair.cotangent)
        moved = _moved_weights(pair.ref)
        try:
            shaken = pair.ref.trace(tuple(_ulp(a) for a in pair.args), pair.cotangent)
        finally:
            moved()
    rows = []
    for phase in ("forward", "backward"):
        keys = list(theirs) if phase == "forward" else list(reversed(theirs))
        for key in keys:
            path = key.split("#")[0]
            truth = _first(theirs[key], phase)
            if truth is None or truth.dtype.kind != "f":
                continue
            mine = _first(ours[key], phase) if key in ours else None
            noise = _first(shaken[key], phase) if key in shaken else None
            blame = pair.blames.get((key, phase))
            rows.append(_row(key, type(pair.ref.modules[path]).__name__, phase, mine, truth, noise, blame))
    return rows


def _row(key: str, kind: str, phase: str, ours: Any, truth: np.ndarray, noise: Any, blame: Blame | None) -> LayerRow:
    scale = norm(truth)
    own = blame.own if blame else None
    if ours is None or ours.shape != truth.shape:
        return LayerRow(key, kind, phase, float("inf"), 0.0, float("inf"), 0.0, own)
    with np.errstate(invalid="ignore", over="ignore"):
        product = float(ours.reshape(-1).astype(np.float64) @ truth.reshape(-1).astype(np.float64))
        cosine = product / (norm(ours) * scale) if norm(ours) * scale > 0 else float(norm(ours) == scale)
        largest = float(np.abs(ours - truth).max(initial=0.0))
        difference = relative(distance(ours, truth), scale)
    floor = relative(distance(noise, truth), scale) if noise is not None else 0.0
    return LayerRow(key, kind, phase, difference, cosine, largest, floor, own)


def _traced(network: Network, args: tuple, cotangent: np.ndarray | None) -> dict[str, Call]:
    try:
        return network.trace(args, cotangent)
    except Exception:  # a port that cannot run has no rows; the search has said why
        return {}


def _first(call: Call, phase: str) -> np.ndarray | None:
    arrays = call.gradients if phase == "backward" else leaves(call.output, np.ndarray)
    return arrays[0] if arrays else None


def _forward_quantities(answer: Answer) -> Named:
    outputs: Named = {"output" if i == 0 else f"output {i + 1}": a for i, a in enumerate(answer.outputs)}
    return outputs | answer.buffers


def _backward_quantities(answer: Answer) -> Named:
    inputs: Named = {"gradient of its input" + (f" {i + 1}" if i else ""): g for i, g in enumerate(answer.input_gradients)}
    return inputs | {f"gradient of {name}": g for name, g in answer.gradients.items()}


def _ulp(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    up = np.random.default_rng(array.size).random(array.shape) < 0.5
    return np.nextafter(array, np.where(up, np.inf, -np.inf).astype(array.dtype))


def _one_ulp(call: Call) -> Call:
    return Call(mapped(call.args, np.ndarray, _ulp), mapped(call.kwargs, np.ndarray, _ulp))


def _in_type(call: Call, dtype: Any) -> Call:
    cast = lambda array: array.astype(dtype) if array.dtype.kind == "f" else array  # noqa: E731
    return Call(mapped(call.args, np.ndarray, cast), mapped(call.kwargs, np.ndarray, cast))


def _in_float64(arrays: list[np.ndarray | None] | None) -> list[np.ndarray | None] | None:
    return None if arrays is None else [None if a is None else a.astype(np.float64) for a in arrays]


def _moved_weights(network: TorchNetwork) -> Any:
    """Move every weight by one ulp; returns what puts them back."""
    before = {name: network.array(p) for name, p in network.model.named_parameters()}
    parameters = dict(network.model.named_parameters())
    for name, array in before.items():
        network.assign(parameters[name], _ulp(array))

    def restore() -> None:
        for name, array in before.items():
            network.assign(parameters[name], array)

    return restore


def locate_in_models(pair: Pair, with_table: bool = True) -> Localization:
    """Search one pair, and make the table over all its modules."""
    start = time.perf_counter()
    first = pair.search()
    layers = table(pair) if with_table else []
    return Localization(first, layers, time.perf_counter() - start)


def structure_finding(matching: Matching) -> Finding | None:
    """A layer with weights that only one side has, or that has another name."""
    for unmatched in matching.unmatched:
        if unmatched.parameters or unmatched.kind == "renamed":
            words = {
                "missing": f"the layer {unmatched.module} is missing in Paddle",
                "extra": f"Paddle has a layer {unmatched.module} that torch does not have",
                "renamed": f"the layer {unmatched.module} is {unmatched.detail}",
            }[unmatched.kind]
            return Finding("structure", unmatched.path, f"layer_{unmatched.kind}", words, f"{unmatched.parameters:,} parameters")
    return None


def weights_finding(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], tied: list[list[str]]) -> Finding | None:
    """The first weight or statistic that is not the reference's.

    Args:
        ours, theirs: by torch's names, in torch's layout.
        tied: groups of names that are one tensor in Paddle alone.
    """
    wrong = [n for n, value in theirs.items() if n not in ours or ours[n].shape != value.shape or (ours[n] != value).any()]
    extra = [n for n in ours if n not in theirs]
    if tied:
        group = tied[0]
        return Finding("weights", group[-1], "parameters_shared", f"the same tensor as {group[0]} in Paddle", f"{len(group)} names")
    if not wrong and not extra:
        return None
    name = (wrong or extra)[0]
    if name not in ours or name not in theirs:
        side = "Paddle" if name not in ours else "torch"
        return Finding("weights", name, "weights_missing", f"{side} has no such tensor", f"{len(wrong)} + {len(extra)} tensors")
    kind, hint = weight_hint(name, wrong, ours, theirs)
    if ours[name].shape != theirs[name].shape:
        return Finding("weights", name, kind, hint, f"shape {ours[name].shape} in paddle, {theirs[name].shape} in ref")
    size = relative(distance(ours[name], theirs[name]), norm(theirs[name]))
    return Finding("weights", name, kind, hint, f"relative L2 {size:.1e}; {len(wrong)} of {len(theirs)} tensors differ")
