"""An exported graph against the modules that it was exported from: every stretch of nodes on its own, and the whole in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from alignment import tolerance
from alignment.compare import Lanes, Quantity, distance, judge_measured, norm, relative
from alignment.comparisons.model import other_weights
from alignment.comparisons.model.quantised import Judged
from alignment.finding import NO_HINT, Finding, Hint
from alignment.frameworks._onnx_graph import OnnxGraph, OnnxModule, OnnxNode, OnnxParts, layer_of
from alignment.frameworks.base import Call, leaves
from alignment.frameworks.onnx import Onnx
from alignment.kinds import Kind
from alignment.localize.blame import Pair, Subject, one_ulp
from alignment.localize.hypotheses import hint
from alignment.localize.hypotheses.changed import CHANGED
from alignment.localize.hypotheses.exported import FOLDED, Folded
from alignment.localize.quantised import snr
from alignment.localize.source import source_line
from alignment.models.counterparts import Matching
from alignment.models.exported import GIVEN, Expected, Pairing, Stretch, is_operation, laid_out, path_of
from alignment.models.quantised import Unquantised
from alignment.models.tracing import Network
from alignment.strangers import strangers

ONNX = Onnx()
PROBE = 4.0  # standard deviation of the second input of some nodes


@dataclass
class Exported:
    """What an exported graph and its modules computed.

    Attributes:
        plain: the graph in exact mode, without what it quantises.
        modules: of the other side, in exact mode.
        inputs: of both, float32.
        calls: of the modules in exact mode, in float32, and in float32 with everything moved by one ulp.
        tensors: of the graph as ONNX Runtime computes it.
        outputs: of the graph as it is deployed: by ONNX Runtime with all of its optimisations.
        refused: why ONNX Runtime does not compute it on these inputs; empty where it does.
        kept: of a quantised graph: modules or nodes that are meant to stay in float32.
        drawn: whether the inputs are drawn numbers.
    """

    plain: Unquantised
    modules: Network
    inputs: tuple[np.ndarray, ...]
    calls: dict[str, dict[str, Call]]
    tensors: dict[str, Any]
    outputs: list[np.ndarray]
    refused: str = ""
    kept: Sequence[str] = ()
    drawn: bool = True
    _probed: dict[int, bool] = field(default_factory=dict)

    @property
    def graph(self) -> OnnxGraph:
        return self.plain.graph

    @cached_property
    def quantised(self) -> Judged | None:
        """What is wrong with the quantisation; None of a graph that has none."""
        return Judged(self.plain, self.pairing, self.kept, self.drawn) if self.plain.quantisers and self.stretches else None

    @cached_property
    def pairing(self) -> Pairing:
        wide = [one.astype(np.float64) if one.dtype.kind == "f" else one for one in self.inputs]
        return Pairing(self.graph, wide, self.calls["reference64"], self._kind_of)

    @cached_property
    def stretches(self) -> list[Stretch]:
        return self.pairing.run()

    @cached_property
    def held(self) -> set[bytes]:
        """What tensors the modules hold, whatever way they lie."""
        state = self.modules.framework.state(self.modules.model)
        return {_content(array) for array in state.values()}

    @cached_property
    def others(self) -> Finding | None:
        """The one mistake to be said where the outputs differ and most layers have other weights: then no node can be judged."""
        if self.quantised is not None or all(row.passed for row in self._output_rows()):
            return None  # of a quantised graph each weight is judged by itself
        return other_weights.finding(self.graph, self.modules.framework.state(self.modules.model))

    # --- verdict -----------------------------------------------------------------------------------------------------------

    def bound(self, stretch: Stretch) -> float:
        """Relative L2 by which a stretch may differ in exact mode.

        The exporter computes constants in float32 (a normalisation folded into a convolution), and float attributes are float32:
        one-ulp changes of these say what that does. Where all constants are the modules' own there is nothing of the kind.
        """
        constants = {name for node in stretch.nodes for name in node.read if name in self.graph.constants}
        own = {name for name in constants if self._is_folded(self.graph.constants[name])}
        rounded = any(isinstance(value, float) for node in stretch.nodes for value in _numbers(node))
        least = tolerance.FLOAT32_CONSTANT if rounded else tolerance.EXACT_RTOL
        rough = {name: self.plain.unmatched[name] for name in constants if name in self.plain.unmatched}
        if not own or stretch.error <= least or not np.isfinite(stretch.error):
            return least
        moved = dict(self.graph.constants)
        moved |= {name: one_ulp(moved[name].astype(np.float32)).astype(np.float64) for name in own}
        moved |= {name: moved[name] + half for name, half in rough.items()}
        values = self.pairing.walked.values
        for node in stretch.nodes:
            given = {**moved, **{name: moved.get(name, values.get(name)) for name in node.varying}}
            made = node.computed(given)
            moved |= dict(zip(node.proto.output, made, strict=False))
        other = moved[stretch.tensor]
        far = relative(distance(other, stretch.ours), norm(stretch.ours)) if other.shape == stretch.ours.shape else 0.0
        if rough:
            return max(least, far)
        rounding = tolerance.FLOOR_FACTOR * max(far, tolerance.BASE_FLOOR_32 / tolerance.FLOOR_FACTOR)
        return max(least, min(rounding, tolerance.PAIRED_AGREE))  # nodes that draw numbers move by themselves

    def _is_folded(self, constant: np.ndarray) -> bool:
        return constant.dtype.kind == "f" and _content(constant) not in self.held and not _small_whole(constant)

    def wrong(self) -> list[Stretch]:
        """The stretches that differ, in the order of the graph."""
        return [one for one in self.stretches if not one.error <= self.bound(one) or self.probed(one)]

    def probed(self, stretch: Stretch) -> bool:
        """Whether a stretch differs on larger numbers alone: the bound of a clip that the pass has not reached."""
        if id(stretch) not in self._probed:
            folded = self._folded(stretch)
            differs = False
            if folded is not None and folded.calls and not any(node.optional for node in stretch.nodes):
                with strangers("onnx"):
                    ours, right = folded.nodes(folded.cases[1]), folded.right(folded.cases[1])
                    if ours is not None and right is not None and ours.size == right.size:
                        gap = distance(ours.reshape(right.shape), right)
                        differs = bool(gap) and not relative(gap, norm(right)) <= max(self.bound(stretch), tolerance.CLOSE)
            self._probed[id(stretch)] = differs
        return self._probed[id(stretch)]

    def rows(self) -> Iterator[Quantity]:
        """A row for each tensor that stands for a module's output, and for each output."""
        wrong = set(map(id, self.wrong() if self.others is None else ()))
        judged = self._row if self.quantised is None else self._rounded_row
        for stretch in self.stretches if self.others is None else ():
            name = self.place(stretch)
            row = judged(f"nodes.{name or 'output'}.{stretch.tensor}", stretch.stands_for, self.tensors.get(stretch.tensor))
            row.float64_diff = stretch.error if np.isfinite(stretch.error) else None
            if id(stretch) in wrong:
                row.fail(f"{self.nodes(stretch)} by itself: relative L2 {stretch.error:.1e} (bound {self.bound(stretch):.0e})")
            yield row
        if self.quantised is not None:
            yield from (
                Quantity(f"quantised.{one.location}", []).fail(one.hint or one.measured) for *_, one in self.quantised.findings
            )
        yield from self._output_rows()

    def _row(self, name: str, expected: Expected, ours: Any) -> Quantity:
        if not isinstance(ours, np.ndarray):
            return Quantity(name, list(expected.array.shape))
        lanes = {
            lane: self._like(self.calls[lane], expected, ours).astype("float32" if lane.endswith("32") else "float64")
            for lane in self.calls
        }
        return _in_float32(name, ours, lanes)

    def _rounded_row(self, name: str, expected: Expected, ours: Any) -> Quantity:
        """Of a quantised graph: what it costs is known, and what is wrong is told by its quantisers."""
        row = Quantity(name, list(expected.array.shape))
        right = next(laid_out(expected.array, ours.shape), None) if isinstance(ours, np.ndarray) else None
        if right is None:
            return row
        row.port_error = relative(distance(ours, right), norm(right))
        return row.note(f"signal-to-noise ratio {snr(ours, right):.1f} dB: quantisation")

    def _like(self, calls: Mapping[str, Call], expected: Expected, ours: np.ndarray) -> np.ndarray:
        """An array of a lane in the layout of a tensor."""
        if expected.keys[0] == GIVEN:
            array = np.asarray(expected.array)
        else:
            array = leaves(calls[expected.keys[0]].output, np.ndarray)[expected.number]
        ways = list(laid_out(array, ours.shape))
        return min(ways, key=lambda one: distance(one, ours)) if ways else array

    def _output_rows(self) -> Iterator[Quantity]:
        expected = {lane: leaves(calls[""].output, np.ndarray) for lane, calls in self.calls.items()}
        for number, (name, ours) in enumerate(zip(self.graph.made, self.outputs, strict=not self.refused)):
            title = f"eval.deployed.{'logits' if number == 0 else f'output{number + 1}'}"
            lanes = {lane: arrays[number] for lane, arrays in expected.items()}
            if self.quantised is not None:
                array = lanes["reference64"]
                yield self._rounded_row(title, Expected([""], array, 0, norm(array)), ours if ours.dtype.kind == "f" else None)
            elif ours.dtype.kind == "f":
                yield _in_float32(title, ours, lanes)
            elif not np.array_equal(ours, lanes["reference32"]):
                yield Quantity(title, list(ours.shape)).fail(f"{name}: whole numbers that are not the same")

    def cost(self) -> list[str]:
        """Of a quantised graph, a line that says what quantisation itself costs."""
        if self.quantised is None or not self.outputs:
            return []
        return [self.quantised.words(self.outputs[0], leaves(self.calls["reference64"][""].output, np.ndarray)[0])]

    # --- places ------------------------------------------------------------------------------------------------------------

    def place(self, stretch: Stretch) -> str:
        """Path of the module that a stretch stands for."""
        return path_of(stretch.stands_for.keys[0])

    def nodes(self, stretch: Stretch) -> str:
        """For people."""
        titles = [node.title for node in stretch.nodes]
        shown = ", ".join(titles[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else "")
        return f"node{'s' if len(titles) > 1 else ''} {shown}"

    def findings(self) -> list[Finding]:
        """Every mistake that the graph has, with node, module, source line and cause as far as they are known."""
        if self.others is not None:
            return [self.others]
        found: list[tuple[int, Finding]] = []
        for stretch in self.wrong():
            kind, words, at = self.cause(stretch)
            place, scopes = self.place(stretch), [node.noted() for node in stretch.nodes]
            added = self.pairing.repeats(stretch) and not at
            location = path_of(at) if at else f"behind {place}" if added and place != GIVEN else place
            others = [path_of(key) for key in self.chain(stretch)]
            source = next((line for _, line in scopes if line), "") or self._line(at or stretch.stands_for.keys[0])
            also = [path for path in dict.fromkeys(others) if path not in (location, place)]
            one = Finding("forward", location, kind, words, f"{self.nodes(stretch)}: {_far(stretch)}", source, also)
            found.append((stretch.nodes[-1].number, one))
        for node, key, one in self.quantised.findings if self.quantised is not None else ():
            one.source = node.noted()[1] or (self._line(key) if key else "")
            found.append((node.number, one))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])] + self._one_sample()

    def _one_sample(self) -> list[Finding]:
        """The node that makes one sample of all: a shape in which the batch is 1, behind which a node cannot be computed."""
        count, pairing = len(self.inputs[0]), self.pairing
        if not any(node.number in pairing.refused for node in pairing.left) or count == 1:
            return []
        for stretch in self.stretches:
            node, ours, right = stretch.nodes[-1], stretch.ours, stretch.stands_for.array
            if len(ours) == 1 and len(right) == count:
                key = stretch.stands_for.keys[0]
                words = f"the batch is fixed at 1: {node.title} makes shape {ours.shape}, expected {right.shape}"
                return [
                    Finding("forward", path_of(key), Kind.BATCH, words, self.nodes(stretch), node.noted()[1] or self._line(key))
                ]
        return []

    def _line(self, key: str) -> str:
        """The source line of the exported model that makes a module, or whose forward computes what is no module's."""
        path = "" if key == GIVEN else path_of(key)
        return source_line(self.modules.framework, self.modules.model, "" if path == "(model)" else path)

    # --- causes ------------------------------------------------------------------------------------------------------------

    def cause(self, stretch: Stretch) -> tuple[Kind, str, str]:
        """The mistake that a stretch has, by the registry of hypotheses: kind, words, and the module's key where they say one."""
        for key in () if self.pairing.repeats(stretch) else stretch.stands_for.keys:
            found = self._by_module(key, stretch)
            if found != NO_HINT:
                return (*found, "")
        folded = self._folded(stretch)
        one = next(FOLDED.confirmed(folded), None) if folded is not None else None
        if one is not None:
            return one.kind, one.words, one.about or ""
        if stretch.ours.shape != stretch.right.shape:
            return Kind.SHAPE, f"shape {stretch.ours.shape}, expected {stretch.right.shape}", ""
        return (*(CHANGED.hint(stretch.ours, stretch.right) if np.isfinite(stretch.ours).all() else NO_HINT), "")

    def _by_module(self, key: str, stretch: Stretch) -> Hint:
        """By the hypotheses about one module, where the nodes stand for one and take what it takes."""
        path, call = path_of(key), self.calls["reference64"].get(key)
        names = self._tensors_of(call) if call is not None else None
        if call is None or names is None or is_operation(key) or path not in self.modules.modules:
            return NO_HINT
        part = self._part(stretch, names)
        if part is None:
            return NO_HINT
        port = Network(ONNX, OnnxParts({"part": part}), {path: "part"})
        pair = Pair(port, self.modules, Matching(paths={path: "part"}), call.args, calls=dict(self.calls["reference64"]))
        blame = pair.blame(key, "forward")
        return hint(Subject(pair, path, call, "forward", blame)) if blame.guilty else NO_HINT

    def _tensors_of(self, call: Call) -> list[str] | None:
        """The known tensors that hold what a call was given; None where one is not there."""
        found = []
        for array in leaves((call.args, call.kwargs), np.ndarray):
            same = (
                name for name, one in self.pairing.walked.known.items()
                if one.array.shape == array.shape == self.pairing.walked.values[name].shape and np.array_equal(one.array, array)
            )  # fmt: skip
            name = next(same, None)
            if name is None:
                return None
            found.append(name)
        return found

    def _part(self, stretch: Stretch, given: Sequence[str]) -> OnnxModule | None:
        """The nodes that make a stretch's tensor from given ones; None where they read others."""
        walked = self.pairing.walked
        known = {name: walked.known[name] for name in given}
        nodes, _ = self.pairing.between(type(walked)(walked.values, known), stretch.tensor)
        outside = {name for node in nodes for name in node.varying} - {name for node in nodes for name in node.proto.output}
        if not nodes or outside - set(given):
            return None
        if len(nodes) == 1 and nodes[0].varying == list(given) and len(nodes[0].proto.output) == 1:
            return nodes[0]
        part = OnnxGraph(nodes, given, [stretch.tensor], self.graph.constants)
        part.dtype = "float64"
        return part

    def chain(self, stretch: Stretch) -> list[str]:
        """The modules, by key, that lead from what a stretch is given to what it stands for, in the order of their calls."""
        known = self.pairing.walked.known
        keys = self.pairing.chain([known[name].array for name in stretch.given], stretch.stands_for.array) or []
        return keys if len(stretch.given) == 1 and all(self._is_leaf(key) for key in keys) else []

    def _kind_of(self, key: str) -> str:
        return self.modules.framework.layer(self.modules.modules[path_of(key)]).kind if self._is_leaf(key) else ""

    def _is_leaf(self, key: str) -> bool:
        module, framework = self.modules.modules.get(path_of(key)), self.modules.framework
        if module is None or not is_operation(key):
            return module is not None and (not framework.children(module) or framework.knows(module))
        return framework.layer(module).kind == "batch_norm" and key.endswith("batch_norm")  # of a class with more inside

    def _folded(self, stretch: Stretch) -> Folded | None:
        """The modules in a row that a stretch of one input stands for."""
        keys = self.chain(stretch)
        if len(stretch.given) != 1:
            return None
        walked = self.pairing.walked
        start = walked.known[stretch.given[0]]
        if not keys and start is not stretch.stands_for:
            return None
        part = self._part(stretch, stretch.given)
        if part is None:
            return None
        first = self.calls["reference64"][keys[0]].args[0] if keys else start.array
        laid = walked.values[stretch.given[0]]
        if first.size != laid.size:
            return None  # modules that are called besides, of which none takes what the nodes take
        nodes = lambda x: _as(stretch.stands_for.array, stretch.right, part(_like(first, laid, x)))  # noqa: E731
        rng = np.random.default_rng(0)
        drawn = PROBE * rng.standard_normal(first.shape) if first.dtype.kind == "f" else rng.permutation(first.ravel())
        drawn = drawn.reshape(first.shape)
        conv = [node for node in stretch.nodes if layer_of(node).kind in ("conv", "linear")]
        weights: tuple[np.ndarray, ...] = ()
        if len(conv) == 1:
            weights = tuple(one for name in list(conv[0].proto.input)[1:] if (one := self.graph.constants.get(name)) is not None)
        calls = {key: self.calls["reference64"][key] for key in keys}
        layer = layer_of(conv[0]) if len(conv) == 1 else None
        return Folded(self.modules, calls, nodes, [first, drawn], layer, weights)


def _as(array: np.ndarray, laid: np.ndarray, made: Any) -> Any:
    """What nodes make, in the layout that the other side has: where the right tensor has its channels last, they are put first."""
    if array.shape == laid.shape or laid.shape != np.shape(made) or array.size != laid.size:
        return made
    return made.transpose(np.argsort(axes)) if (axes := _turn(array, laid)) else made.reshape(array.shape)


def _like(array: np.ndarray, laid: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Another array in the layout that a tensor has an array in."""
    return other.transpose(axes) if (axes := _turn(array, laid)) else other.reshape(laid.shape)


def _turn(array: np.ndarray, laid: np.ndarray) -> tuple[int, ...]:
    """The transposition that puts the channels of an array last, or first, as a tensor has it; empty for none."""
    both = ((0, 2, 3, 1), (0, 3, 1, 2)) if array.ndim == laid.ndim == 4 and array.shape != laid.shape else ()
    return next((axes for axes in both if np.array_equal(array.transpose(axes), laid)), ())


def _in_float32(name: str, ours: np.ndarray, lanes: Mapping[str, np.ndarray]) -> Quantity:
    """A row of float32 alone: in exact mode a graph is judged stretch by stretch, and its folded constants are float32."""
    row = judge_measured(name, Lanes(port32=np.asarray(ours, np.float32), port64=lanes["reference64"], **lanes))
    row.float64_diff = None
    return row


def _far(stretch: Stretch) -> str:
    if stretch.ours.shape != stretch.right.shape:
        return f"shape {stretch.ours.shape}, expected {stretch.right.shape}"
    return f"relative L2 {stretch.error:.1e}"


def _content(array: np.ndarray) -> bytes:
    """An array's values in float32, whatever way they lie."""
    return np.sort(np.asarray(array, np.float32), axis=None).tobytes()


def _small_whole(array: np.ndarray) -> bool:
    """Whether a constant is exact in any type: few whole numbers, such as a shape or the 6 of a hard swish."""
    return array.size <= 8 and bool((array == np.round(array)).all())


def _numbers(node: OnnxNode) -> Iterator[Any]:
    """Numbers of the attributes but eps, which exact mode rounds likewise on the other side, and those that are exact."""
    for name, value in node.attributes.items():
        numbers = value if isinstance(value, list | tuple) else [value]
        yield from (one for one in numbers if name != "epsilon" and one not in (0.0, 0.5, 1.0))
