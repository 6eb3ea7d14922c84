"""Which nodes of an exported graph compute what which modules of the other side compute: by data flow and values.

The graph is computed node by node in float64. A tensor that has the value of a module's output stands for it, and goes on with
the module's own value, so that nothing adds up. The nodes between such tensors are a stretch: one node, or several (a hard swish of
plain operators), for one module or several (a normalisation folded into a convolution). Where the values part, each tensor that
follows is taken for each module that follows in turn: the nearest behind which values agree again is the place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks._onnx_graph import OnnxGraph, OnnxNode, layer_of
from alignment.frameworks.base import Call, Trace, leaves
from alignment.models.tracing import Network
from alignment.strangers import strangers

TRIED_TENSORS, TRIED_VALUES = 14, 8  # behind the place where values part
LOOKED_AHEAD = 40  # nodes, to see which choice lets values agree again
FOLDED = 3  # modules that one node stands for: convolution, normalisation, activation
MOST = 20  # mistakes, after which the two are different networks
FOLDED_AWAY = ("batch_norm", "dropout", "identity")
OPERATION = " :"  # between the key of a call and a function that its module calls
GIVEN = "(input)"  # the key of what the model is given


@dataclass(eq=False)
class Expected:
    """One array that the other side computed.

    Attributes:
        keys: the calls that gave it, as ``Network.trace`` names them; the first is the one that computed it.
        array: in float64.
        place: of the first call in the order of the calls.
        size: L2 norm.
        number: of the array among those that the first call gave.
    """

    keys: list[str]
    array: np.ndarray
    place: int
    size: float
    number: int = 0


@dataclass(eq=False)
class Stretch:
    """Nodes between tensors that are known.

    Attributes:
        nodes: in the order of the graph.
        given: known tensors that they read.
        tensor: what the last one gives.
        stands_for: the other side's value of it.
        ours, right: the tensor as the nodes compute it from right values, and the other side's.
        parted: whether the two are too far apart to be the same: the tensor was chosen by what follows.
    """

    nodes: list[OnnxNode]
    given: list[str]
    tensor: str
    stands_for: Expected
    ours: np.ndarray
    right: np.ndarray
    parted: bool = False

    @property
    def error(self) -> float:
        """Relative L2; infinite for other shapes."""
        if self.ours.shape != self.right.shape or not np.isfinite(self.ours).all():
            return float("inf")
        gap = distance(self.ours, self.right)
        return relative(gap, norm(self.right)) if gap else 0.0


@dataclass
class Walked:
    """How far a walk has come.

    Attributes:
        values: of every tensor so far, right ones where they are known.
        known: tensor -> what it stands for.
        stretches: by tensor.
    """

    values: dict[str, Any]
    known: dict[str, Expected]
    stretches: dict[str, Stretch] = field(default_factory=dict)

    def copy(self) -> Walked:
        return Walked(dict(self.values), dict(self.known), dict(self.stretches))

    @property
    def met(self) -> set[int]:
        """Places of the values that some tensor stands for."""
        return {one.place for one in self.known.values()}


class Pairing:
    """The walk of a graph along the calls of the other side.

    Args:
        graph: in float64.
        inputs: of both, float64.
        calls: of the other side, in exact mode.
        kind_of: the kind of layer that a call is, by key; empty for what is none.
    """

    def __init__(
        self, graph: OnnxGraph, inputs: Sequence[np.ndarray], calls: Mapping[str, Call], kind_of: Callable[[str], str]
    ) -> None:
        self.graph, self.calls, self.kind_of = graph, calls, kind_of
        self.nodes = graph.nodes
        self.read = _read_numbers(graph)
        self.refused: dict[int, str] = {}
        self.expected = _expected(calls)
        self.by_size: dict[int, list[Expected]] = {}
        for one in self.expected:
            self.by_size.setdefault(one.array.size, []).append(one)
        self.makers: dict[tuple, str] = {}
        for key, call in calls.items():
            made = leaves(call.output, np.ndarray)
            given = {_content(one) for one in leaves((call.args, call.kwargs), np.ndarray)}
            if len(made) == 1 and _content(made[0]) not in given:  # what gives its input back has not made it
                self.makers.setdefault(_content(made[0]), key)
        self.maker = {name: node for node in self.nodes for name in node.proto.output if name}
        start = {name: Expected([GIVEN], array, -1, norm(array)) for name, array in zip(graph.given, inputs, strict=True)}
        self.walked = Walked({**graph.constants, **dict(zip(graph.given, inputs, strict=True))}, start)
        self.left: list[OnnxNode] = []

    def run(self) -> list[Stretch]:
        """All stretches in the order of the graph; those that ``parted`` are the mistakes."""
        self._advance(self.walked, 0, len(self.nodes))
        for _ in range(MOST):
            at = self._first_unknown()
            if at is None:
                break
            chosen = self._chosen(at)
            if chosen is None:
                break
            self.walked, position = chosen
            self._advance(self.walked, position + 1, len(self.nodes))
        order = {name: place for place, name in enumerate(self.maker)}
        at = self._first_unknown()
        self.left = [] if at is None else [node for node in self.nodes[at:] if node.number in self.read]
        for stretch in list(self.walked.stretches.values()):
            self._split(stretch)
        read = [one for one in self.walked.stretches.values() if one.nodes[-1].number in self.read]
        return sorted(read, key=lambda one: order[one.tensor])

    def _advance(self, walked: Walked, start: int, end: int) -> None:
        """Compute nodes, and let what stands for a value of the other side be it."""
        for node in self.nodes[start:end]:
            if any(name not in walked.values for name in node.proto.input if name):
                continue  # behind a node that could not be computed
            made: list[Any] = []
            if node.optional:
                node.operator.on = True
            with strangers("onnx", alone=True) as raised:
                made = node.computed(walked.values)
            if raised.error is not None:
                self.refused[node.number] = raised.words
                continue
            if node.optional and self._nearest(made[0], walked) is None:
                node.operator.on, made = False, [walked.values[node.proto.input[0]]]
            for name, value in zip(node.proto.output, made, strict=False):
                walked.values[name] = value
                if name and (found := self._nearest(value, walked)) is not None and self._follows(walked, name, *found):
                    self._settle(walked, name, *found)

    def _follows(self, walked: Walked, name: str, one: Expected, right: np.ndarray) -> bool:
        """Whether a tensor that is not quite a value is made of what that value is made of, by few modules: behind a gate that is
        all but constant a mistake leaves others nearly right."""
        value = walked.values[name]
        if distance(value, right) <= tolerance.SAME * one.size:
            return True
        _, given = self.between(walked, name)
        keys = self.chain([walked.known[read].array for read in given], one.array)
        return keys is not None and len(keys) <= FOLDED

    def chain(self, given: Sequence[np.ndarray], array: np.ndarray) -> list[str] | None:
        """The calls, by key, that lead from some arrays to another, in their order; None where they need others besides."""
        start, found, waiting = {_content(one) for one in given}, set(), [array]
        while waiting:
            content = _content(waiting.pop())
            key = self.makers.get(content)
            if content in start or key in found:
                continue
            if key is None:
                return None
            found.add(key)
            waiting += leaves((self.calls[key].args, self.calls[key].kwargs), np.ndarray)
        return [key for key in self.calls if key in found]

    def _nearest(self, value: Any, walked: Walked) -> tuple[Expected, np.ndarray] | None:
        """The value of the other side that a tensor has, in the tensor's layout."""
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size < 2 or not np.isfinite(value).all():
            return None
        size, met = norm(value), walked.met
        best: tuple[float, bool, float] | None = None
        found: tuple[Expected, np.ndarray] | None = None
        for one in self.by_size.get(value.size, ()):
            if abs(one.size - size) > tolerance.EXPORTED_SAME * max(one.size, tolerance.TINY):
                continue
            for right in laid_out(one.array, value.shape):
                gap = relative(distance(value, right), one.size) if size else 0.0
                rank = gap, one.place in met, one.place
                if gap <= tolerance.EXPORTED_SAME and (best is None or rank < best):
                    best, found = rank, (one, right)
        return found

    def _settle(self, walked: Walked, name: str, one: Expected, right: np.ndarray, parted: bool = False) -> None:
        nodes, given = self.between(walked, name)
        walked.stretches[name] = Stretch(nodes, given, name, one, walked.values[name], right, parted)
        walked.values[name], walked.known[name] = right, one

    def between(self, walked: Walked, name: str) -> tuple[list[OnnxNode], list[str]]:
        """The nodes that make a tensor from known ones, and these."""
        nodes: dict[int, OnnxNode] = {}
        given: dict[str, None] = {}
        waiting = [name]
        while waiting:
            node = self.maker[waiting.pop()]
            if node.number in nodes:
                continue
            nodes[node.number] = node
            for read in node.varying:
                if read in walked.known:
                    given[read] = None
                elif read in self.maker:
                    waiting.append(read)
        return [nodes[number] for number in sorted(nodes)], list(given)

    def _split(self, stretch: Stretch) -> None:
        """Judge nodes in a row one by one where each has its module: the next may hide a mistake, or have one, too."""
        walked, nodes = self.walked, stretch.nodes
        read = [node.varying for node in nodes]
        alone = [len(one) == 1 for one in read]
        if len(nodes) < 2 or len(stretch.given) != 1 or not all(alone):
            return
        if [one[0] for one in read[1:]] != [node.proto.output[0] for node in nodes[:-1]]:
            return
        keys = self.chain([walked.known[stretch.given[0]].array], stretch.stands_for.array) or []
        groups = _one_by_one([layer_of(node).kind for node in nodes], [self.kind_of(key) for key in keys])
        by_key = {key: one for one in self.expected for key in one.keys}
        ends = [by_key.get(keys[end - 1]) for end in groups]
        if not groups or not all(ends):
            return
        for node, one in zip(nodes, ends, strict=True):
            name = node.proto.output[0]
            ours = node.computed(walked.values)[0]
            right = next(laid_out(one.array, ours.shape, other_sizes=True), None) if one is not None else None
            if one is None or right is None:
                return
            walked.stretches[name] = Stretch([node], node.varying, name, one, ours, right, stretch.parted)
            walked.values[name], walked.known[name] = right, one

    def _first_unknown(self) -> int | None:
        """The position of the first node that no known tensor is made of; None where there is none."""
        made = {node.number for one in self.walked.stretches.values() for node in one.nodes}
        for position, node in enumerate(self.nodes):
            if node.number not in made and self._matters(node):
                return position
        return None

    def _matters(self, node: OnnxNode) -> bool:
        """Whether what a node gives are floating numbers that something reads, or that cannot be computed."""
        made = [self.walked.values.get(name) for name in node.proto.output if name]
        return any(value is None or (isinstance(value, np.ndarray) and value.dtype.kind == "f") for value in made)

    def _chosen(self, at: int) -> tuple[Walked, int] | None:
        """The nearest tensor behind a position, and a value to take it for, with which what follows agrees again."""
        best: tuple[tuple[bool, bool, int, bool, int], Walked, int] | None = None
        end = at + LOOKED_AHEAD
        for position, name in self._tensors(at):
            _, given = self.between(self.walked, name)
            value = self.walked.values[name]
            for one, right in self._choices(name, given):
                trial = self.walked.copy()
                self._settle(trial, name, one, right, parted=True)
                self._advance(trial, position + 1, end)
                agrees = any(
                    name in other.given and other.stands_for is not one
                    for tensor, other in trial.stretches.items() if other is not self.walked.stretches.get(tensor)
                )  # fmt: skip
                alike, same = value.ndim == right.ndim == one.array.ndim, value.shape == right.shape
                score = agrees, alike, -len(trial.stretches[name].nodes) if agrees else 0, same, len(trial.met)
                if best is None or score > best[0]:
                    best = score, trial, position
        if best is None:
            return None
        _, trial, position = best
        # of the trial only the choice is kept: the walk goes on from there to the end
        stretch = next(one for name, one in trial.stretches.items() if one is not self.walked.stretches.get(name) and one.parted)
        kept = self.walked.copy()
        self._settle(kept, stretch.tensor, stretch.stands_for, stretch.right, parted=True)
        return kept, position

    def _tensors(self, at: int) -> Iterator[tuple[int, str]]:
        """Floating tensors that are not known, from a position on."""
        made = {node.number for one in self.walked.stretches.values() for node in one.nodes}
        _, given = self.between(self.walked, self.nodes[at].proto.output[0])
        repeated = [
            name for name in given if name in self.walked.stretches and self.repeats(self.walked.stretches[name])
        ]  # a Clip without its lower bound may give its input back
        yield from ((self.nodes.index(self.maker[name]), name) for name in repeated)
        found = (
            (position, name)
            for position, node in enumerate(self.nodes[at:], start=at)
            if node.number not in made and self._matters(node)
            for name in node.proto.output[:1]
            if name in self.walked.values and name not in self.walked.known
        )
        yield from itertools.islice(found, TRIED_TENSORS)

    def repeats(self, stretch: Stretch) -> bool:
        """Whether nodes stand for a value that they were given: they give it back, or were added."""
        return stretch.stands_for in (self.walked.known.get(read) for read in stretch.given)

    def _choices(self, name: str, given: Iterable[str]) -> Iterator[tuple[Expected, np.ndarray]]:
        """Values that a tensor can be taken for: of modules that follow, of the whole model, or that it is made of."""
        value, met = self.walked.values[name], self.walked.met
        before = max((self.walked.known[read].place for read in given), default=-1)
        following = [one for one in self.expected if one.place > before and one.place not in met]
        if name in self.graph.made:
            following = [one for one in following if "" in one.keys] + following
        for one in (*following[:TRIED_VALUES], *(self.walked.known[read] for read in given)):
            for right in laid_out(one.array, value.shape, other_sizes=True):
                yield one, right


def _read_numbers(graph: OnnxGraph) -> set[int]:
    """The nodes, by number, that an output is made of: what exporters leave besides is no mistake."""
    wanted, found = set(graph.made), set()
    for node in reversed(graph.nodes):
        if wanted & set(node.proto.output):
            wanted |= set(node.varying)
            found.add(node.number)
    return found


def _one_by_one(nodes: Sequence[str], modules: Sequence[str]) -> list[int]:
    """Behind how many of the modules each node stands, by their kinds; empty where they are not the same in the same order.

    A normalisation, a dropout and an identity may have gone into the node before them.
    """
    ends, at = [], 0
    for number, kind in enumerate(nodes):
        if at >= len(modules) or modules[at] != kind:
            return []
        at += 1
        following = nodes[number + 1] if number + 1 < len(nodes) else ""
        while at < len(modules) and modules[at] in FOLDED_AWAY and modules[at] != following:
            at += 1
        ends.append(at)
    return ends if at == len(modules) else []


def _content(array: np.ndarray) -> tuple:
    return array.shape, hash(np.ascontiguousarray(array).tobytes())


def path_of(key: str) -> str:
    """The module's path of a call, or of the module whose forward makes an operation; ``"(model)"`` for the whole."""
    return key.partition(OPERATION)[0].partition("#")[0] or "(model)"


def is_operation(key: str) -> bool:
    """Whether a key is that of a function that a module's own forward calls."""
    return OPERATION in key


def with_operations(network: Network, calls: Mapping[str, Call]) -> dict[str, Call]:
    """Calls, and among them what the functions give that modules' own forwards call (a sum), where that can be traced.

    Args:
        network: whose calls they are.
        calls: by key, in the order in which they ended.
    """
    framework, called = network.framework, {key.partition("#")[0] for key in calls}
    held = {_content(array) for array in framework.state(network.model).values()}
    before: dict[str, dict[str, Call]] = {}
    behind: dict[str, dict[str, Call]] = {}
    for key, call in calls.items():
        path = key.partition("#")[0]
        module = network.modules[path]
        inside = [name for name, _ in framework.children(module)]
        if framework.knows(module):  # a layer, but one of a class that calls others inside: a normalisation with its activation
            inside = [name for name in inside if (f"{path}.{name}" if path else name) in called]
        if not inside:
            continue
        trace, last = network.traced(path, call, called) or Trace(), ""
        calling = [one.name.removeprefix("call ") for one in trace.operations if one.name.startswith("call ")]
        for operation in trace.operations:
            if operation.name.startswith("call "):
                last = operation.name.removeprefix("call ")
                continue
            made = [trace.values[number] for number in operation.outputs]
            given = tuple(one for number in operation.inputs if _content(one := trace.values[number]) not in held)
            name = f"{key}{OPERATION}{operation.number} {operation.name}"
            at = behind.setdefault(last, {}) if last else before.setdefault(_first_within(calls, [*calling, key][0]), {})
            at[name] = Call(given, {}, made[0] if len(made) == 1 else made)
    found: dict[str, Call] = {}
    for key, call in calls.items():
        found |= before.pop(key, {})
        found[key] = call
        found |= behind.pop(key, {})
    return found


def _first_within(calls: Mapping[str, Call], key: str) -> str:
    """The call that ended first within another, which ends last of all in it."""
    path = key.partition("#")[0]
    return next((one for one in calls if one.startswith(f"{path}.") or one == key), key) if path else next(iter(calls), key)


def _expected(calls: Mapping[str, Call]) -> list[Expected]:
    """The floating arrays that the calls gave, each once."""
    found: list[Expected] = []
    for place, (key, call) in enumerate(calls.items()):
        for number, array in enumerate(leaves(call.output, np.ndarray)):
            if array.dtype.kind != "f":
                continue
            same = next((one for one in found if one.array.shape == array.shape and np.array_equal(one.array, array)), None)
            if same is None:
                found.append(Expected([key], array.astype(np.float64), place, norm(array), number))
            elif key not in same.keys:
                same.keys.append(key)
    return found


def laid_out(array: np.ndarray, shape: tuple[int, ...], other_sizes: bool = False) -> Iterator[np.ndarray]:
    """An array in a tensor's layout: reshaped, or with the channels first or last; with other sizes as it is."""
    if array.shape == shape:
        yield array
    elif array.size == int(np.prod(shape)):
        yield array.reshape(shape)
        if array.ndim == len(shape) == 4:
            for axes in ((0, 2, 3, 1), (0, 3, 1, 2)):
                if (turned := array.transpose(axes)).shape == shape:
                    yield turned
    elif other_sizes and array.ndim == len(shape) and (array.shape[:2] == shape[:2] or (1, *array.shape[1:]) == shape):
        yield array
