"""What an exported graph rounds to few bits, and the same graph without that.

QuantizeLinear and DequantizeLinear are taken out. A constant that was quantised is replaced by the other side's own tensor, which
is found by its values. So the walk over the graph (``alignment.models.exported``) sees what was quantised, and every quantiser is
held against the right values of what it rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

from alignment import tolerance
from alignment.compare import distance, norm, relative
from alignment.frameworks._onnx_exact import along
from alignment.frameworks._onnx_graph import OnnxGraph, OnnxNode, layer_of
from alignment.frameworks.base import Call, leaves
from alignment.models.tracing import Network

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FEWEST = 4  # numbers of a channel that can be told from another's


@dataclass(eq=False)
class Quantiser:
    """A tensor that a file holds, or makes, in few bits.

    Attributes:
        name: of the floating tensor.
        node: the DequantizeLinear of a constant, the QuantizeLinear of an activation.
        scale, zero: in the tensor's own type of numbers: float64 and int64.
        axis: along which scale and zero point lie, where they are more than one number.
        ends: the lowest and the highest level.
        levels: of a constant, int64.
        reader, slot: the node that reads the tensor, and as which of its inputs.
        back: of an activation: the nodes that make it floating again.
        earlier: of a constant: scales with which it was quantised before, inside the file.
        right: the other side's value; None where it is not known.
        key: of the other side's call whose tensor it is, or that makes it; empty where none is known.
        path: of the module.
    """

    name: str
    node: OnnxNode
    scale: np.ndarray
    zero: np.ndarray
    axis: int
    ends: tuple[int, int]
    levels: np.ndarray | None = None
    reader: OnnxNode | None = None
    slot: int = 0
    back: list[OnnxNode] = field(default_factory=list)
    earlier: list[np.ndarray] = field(default_factory=list)
    right: np.ndarray | None = None
    key: str = ""
    path: str = ""

    @property
    def is_bias(self) -> bool:
        return self.slot == 2 and self.reader is not None and self.reader.proto.op_type in LAYERS

    def along(self, numbers: np.ndarray, shape: Sequence[int], axis: int | None = None) -> np.ndarray:
        """Scale or zero points so that they go with an array."""
        return along(numbers, shape, self.axis if axis is None else axis)

    def rounded(self, array: np.ndarray, scale: np.ndarray | None = None, axis: int | None = None) -> np.ndarray:
        """Levels less the zero point that quantising an array gives, with another scale or along another axis than its own."""
        zero = self.along(self.zero, array.shape, axis)
        step = self.along(self.scale if scale is None else scale, array.shape, axis)
        return np.clip(np.rint(array / step), self.ends[0] - zero, self.ends[1] - zero)

    def read_back(self, rounded: np.ndarray) -> np.ndarray:
        """What the file makes of levels less the zero point."""
        return rounded * self.along(self.scale, rounded.shape)

    @property
    def value(self) -> np.ndarray:
        """The constant as the file has it."""
        assert self.levels is not None
        return self.read_back(self.levels - self.along(self.zero, self.levels.shape))

    @property
    def limits(self) -> tuple[float, float]:
        """The range that an activation's one scale leaves."""
        scale, zero = float(self.scale.ravel()[0]), float(self.zero.ravel()[0])
        return (self.ends[0] - zero) * scale, (self.ends[1] - zero) * scale

    @property
    def needed(self) -> np.ndarray:
        """Of a constant: the scale of each channel with which its levels are the right values, where they are."""
        assert self.levels is not None and self.right is not None
        levels = self.levels - self.along(self.zero, self.levels.shape)
        axes = tuple(place for place in range(levels.ndim) if place != self.axis % levels.ndim) if self.scale.size > 1 else None
        size = (levels * levels).sum(axes)
        return np.where(size > 0, (levels * self.right).sum(axes) / np.maximum(size, 1), self.scale.ravel())


class Saturating:
    """The operator of a quantiser whose lowest level is zero: a ReLU or ReLU6 before it may have been left to it."""

    def __init__(self, highest: float) -> None:
        whole = round(highest)
        self.highest = float(whole) if abs(highest - whole) <= tolerance.CLOSE * abs(highest) else np.inf
        self.on = True

    def need_context(self) -> bool:
        return False

    def run(self, x: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray]:
        return (np.clip(x, 0, self.highest) if self.on else x,)


class Unquantised:
    """A graph without its quantisers.

    Args:
        graph: in float64.
        other: the network that it is held against, in exact mode.
        calls: of the other.

    Attributes:
        graph: the graph without them; the one that was given where it has none, or where the other side is quantised, too.
        quantisers: in the order of the graph.
        readers: of each tensor: nodes, and as which of their inputs.
        unmatched: constants that were quantised, of which the other side has none: name -> half of a step.
    """

    def __init__(self, graph: OnnxGraph, other: Network, calls: Mapping[str, Call]) -> None:
        self.given, self.graph = graph, graph
        self.quantisers: list[Quantiser] = []
        self.unmatched: dict[str, np.ndarray] = {}
        self.readers: dict[str, list[tuple[OnnxNode, int]]] = {}
        if not graph.quantised or (isinstance(other.model, OnnxGraph) and other.model.quantised):
            return
        self.originals = Originals(other, calls)
        self.alias: dict[str, str] = {}
        self.nodes = [made for node in graph.nodes if (made := self._without(node)) is not None]
        for node in (*graph.folded, *self.nodes):
            for slot, name in enumerate(node.proto.input):
                self.readers.setdefault(name, []).append((node, slot))
        constants = self._replaced()
        for node in self.nodes:
            node.constants = constants
        outputs = [self.alias.get(name, name) for name in graph.made]
        self.graph = OnnxGraph(self.nodes, graph.given, outputs, constants)
        self.graph.dtype = graph.dtype
        places = {node.number: place for place, node in enumerate(self.nodes)}
        self.quantisers.sort(key=lambda one: places.get(self.at(one).number, one.node.number))

    def at(self, one: Quantiser) -> OnnxNode:
        """The node whose module a quantiser belongs to."""
        return one.reader if one.levels is not None and one.reader is not None else one.node

    # --- activations -------------------------------------------------------------------------------------------------------

    def _without(self, node: OnnxNode) -> OnnxNode | None:
        """A node that reads what was quantised as if it were not; None for a quantiser."""
        op, made = node.proto.op_type, node.proto.output[0]
        given = [self.alias.get(name, name) for name in node.proto.input]
        if op == "DequantizeLinear":
            self.alias[made] = given[0]
            whose = next((one for one in self.quantisers if given[0] in (one.name, self._behind(one))), None)
            if whose is not None and made not in whose.back:
                whose.back.append(node)
            return None
        if op == "QuantizeLinear":
            found = _quantiser(given[0], node, self.given.constants)
            if found is None:
                return None
            self.quantisers.append(found)
            if found.limits[0] != 0 or found.scale.size > 1:
                self.alias[made] = given[0]
                return None
            return _copy(node, [given[0]], Saturating(found.limits[1]), optional=True)
        return _copy(node, given, node.operator)

    def _behind(self, one: Quantiser) -> str:
        return one.node.proto.output[0]

    # --- constants ---------------------------------------------------------------------------------------------------------

    def _replaced(self) -> dict[str, np.ndarray]:
        """The constants, the other side's in the place of those that were quantised."""
        constants, changed = dict(self.given.constants), set()
        found = {one.name: one for one in map(self._of_constant, self.given.folded) if one is not None}
        for one in sorted(found.values(), key=lambda one: one.is_bias):
            self._match(one, [other for other in found.values() if other.reader is one.reader])
        for node in self.given.folded:
            if node.proto.output[0] in found:
                one = found[node.proto.output[0]]
                self.quantisers.append(one)
                if one.right is not None:
                    constants[one.name] = one.right
                    changed.add(one.name)
                else:
                    self.unmatched[one.name] = np.broadcast_to(one.along(one.scale, one.value.shape) / 2, one.value.shape)
            elif changed & set(node.proto.input):
                changed |= set(node.proto.output)
                constants |= dict(zip(node.proto.output, node.computed(constants), strict=False))
        return constants

    def _of_constant(self, node: OnnxNode) -> Quantiser | None:
        """A constant that is dequantised for good: it is not quantised again."""
        readers = self.readers.get(node.proto.output[0], [])
        if node.proto.op_type != "DequantizeLinear" or any(one.proto.op_type == "QuantizeLinear" for one, _ in readers):
            return None
        found = _quantiser(node.proto.output[0], node, self.given.constants)
        if found is not None:
            found.levels = np.asarray(self.given.constants[node.proto.input[0]], np.int64)
            while len(readers) == 1 and readers[0][0] in self.given.folded:  # turned, say
                readers = self.readers.get(readers[0][0].proto.output[0], [])
            found.reader, found.slot = readers[0] if readers else (None, 0)
            found.earlier = list(self._earlier(node))
        return found

    def _earlier(self, node: OnnxNode) -> Iterator[np.ndarray]:
        makers = {one.proto.output[0]: one for one in self.given.folded}
        while (node := makers.get(node.proto.input[0])) is not None:  # type: ignore[assignment]
            if node.proto.op_type == "DequantizeLinear":
                yield np.asarray(self.given.constants[node.proto.input[1]], np.float64)

    def _match(self, one: Quantiser, beside: Sequence[Quantiser]) -> None:
        """Find the other side's tensor of a quantised constant: a bias is that of the layer whose weight is known."""
        if one.is_bias:
            weight = next((other for other in beside if other.slot == 1 and other.key), None)
            if weight is not None and one.reader is not None:
                held = self.originals.of(weight.key, self._normalised(one.reader))
                one.key, one.path = weight.key, weight.path
                one.right = held.get("bias", np.zeros(one.value.shape)).reshape(one.value.shape)
            return
        norm_behind = one.reader is not None and self._normalised(one.reader)
        best: tuple[float, float] = (0.0, 0.0)
        for key, path, array in self.originals.arrays(norm_behind):
            for right in dict.fromkeys((0, 1) if array.ndim == 2 else (0,)):
                other = array.T if right else array
                if other.shape == one.value.shape:
                    rank = round(_likeness(one, other), 3), -relative(distance(one.value, other), norm(other))
                    if rank[0] >= tolerance.QUANTISED_ALIKE and (one.right is None or rank > best):
                        best, one.right, one.key, one.path = rank, other, key, path

    def _normalised(self, node: OnnxNode) -> bool:
        """Whether the file has a normalisation of its own behind a node."""
        return any(reader.proto.op_type == "BatchNormalization" for reader, _ in self.readers.get(node.proto.output[0], []))


class Originals:
    """The tensors that the other side's modules hold, and those that an exporter folds of them.

    Args:
        network: in exact mode.
        calls: of it.
    """

    def __init__(self, network: Network, calls: Mapping[str, Call]) -> None:
        self.network, framework = network, network.framework
        self.layers: dict[str, str] = {}  # key of a convolution or linear layer -> of the normalisation behind it
        norms: dict[tuple, str] = {}
        kinds = {path: framework.layer(module).kind for path, module in network.modules.items()}
        for key, call in calls.items():
            kind, given = kinds.get(_path(key), ""), leaves(call.args, np.ndarray)
            if kind in ("conv", "linear"):
                self.layers.setdefault(key, "")
            elif kind == "batch_norm" and given:
                norms.setdefault(_content(given[0]), key)
        for key in self.layers:
            made = leaves(calls[key].output, np.ndarray)
            self.layers[key] = norms.get(_content(made[0]), "") if made else ""
        self._held: dict[tuple[str, bool], dict[str, np.ndarray]] = {}

    def of(self, key: str, apart: bool) -> dict[str, np.ndarray]:
        """Weight and bias of a layer, with the normalisation behind it folded in where it is no node of its own."""
        if (key, apart) not in self._held:
            held = {name: one.astype(np.float64) for name, one in self.network.state_of(_path(key)).items()}
            behind = self.layers[key]
            if behind and not apart and "weight" in held:
                own = {name: one.astype(np.float64) for name, one in self.network.state_of(_path(behind)).items()}
                layer = self.network.framework.layer(self.network.modules[_path(behind)])
                gain = own.get("weight", 1.0) / np.sqrt(own["running_var"] + float(layer.settings["eps"]))
                weight = held["weight"] * gain.reshape(-1, *(1,) * (held["weight"].ndim - 1))
                held = {"weight": weight, "bias": (held.get("bias", 0.0) - own["running_mean"]) * gain + own.get("bias", 0.0)}
            self._held[key, apart] = held
        return self._held[key, apart]

    def arrays(self, apart: bool) -> Iterator[tuple[str, str, np.ndarray]]:
        """Key of the layer (empty for what is no layer's), path of the module, and array."""
        for key in self.layers:
            if (weight := self.of(key, apart).get("weight")) is not None:
                yield key, _path(key), weight
        for name, array in self.network.framework.state(self.network.model).items():
            if array.dtype.kind == "f":
                yield "", name.rpartition(".")[0] or name, array.astype(np.float64)
        for path, node in self.network.modules.items():
            if isinstance(node, OnnxNode) and layer_of(node).kind not in ("conv", "linear"):
                held = (node.constants.get(name) for name in node.proto.input if name)
                yield from (("", path, one) for one in held if one is not None and one.dtype.kind == "f" and one.size > 1)


def _path(key: str) -> str:
    return key.partition(" :")[0].partition("#")[0]


def _content(array: np.ndarray) -> tuple:
    return array.shape, hash(np.ascontiguousarray(array).tobytes())


def _copy(node: OnnxNode, given: Sequence[str], operator: object, optional: bool = False) -> OnnxNode:
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    proto.input[:] = given
    made = OnnxNode(proto, node.number, operator, node.constants)
    made.optional = optional
    return made


def _quantiser(name: str, node: OnnxNode, constants: Mapping[str, np.ndarray]) -> Quantiser | None:
    """Of a node whose scale and zero point are constants; None for others."""
    given = [constants.get(one) for one in node.proto.input[1:3]]
    if not given or given[0] is None:
        return None
    zero = given[1] if len(given) > 1 and given[1] is not None else np.zeros_like(given[0], np.uint8)
    levels = constants.get(node.proto.input[0])
    dtype = zero.dtype if levels is None or levels.dtype.kind not in "iu" else levels.dtype
    try:
        info = np.iinfo(dtype)
        ends = int(info.min), int(info.max)
    except ValueError:  # four bits, or a floating type of eight
        return None
    axis = int(node.attributes.get("axis", 1))
    return Quantiser(name, node, np.asarray(given[0], np.float64), np.asarray(zero, np.int64), axis, ends)


def _likeness(one: Quantiser, array: np.ndarray) -> float:
    """How much levels are like an array, channel by channel, whatever the scale and the zero point: 1 where they are its own."""
    assert one.levels is not None
    found = 0.0
    for levels in (one.levels, (one.levels + 128) % 256 - 128, one.levels % 256):
        for axis in {0, 1 % levels.ndim, levels.ndim - 1}:
            a, b = (np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1).astype(np.float64) for x in (levels, array))
            if a.shape[1] < FEWEST:
                a, b = a.reshape(1, -1), b.reshape(1, -1)
            a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
            size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
            if (size > 0).any():
                found = max(found, float(np.median(np.abs((a * b).sum(1)[size > 0]) / size[size > 0])))
    return found
