"""The quantisers of an exported graph, each held against the right values of what it rounds."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alignment import tolerance
from alignment.finding import Finding
from alignment.frameworks._onnx_graph import OnnxNode
from alignment.kinds import Kind
from alignment.localize.hypotheses.quantised import LAYERED, QUANTISED, Layered
from alignment.localize.quantised import QuantisedTensor, snr
from alignment.models.exported import GIVEN, Pairing, path_of
from alignment.models.quantised import LAYERS, Quantiser, Unquantised

ACCUMULATED = 2**16  # levels of a bias that is added to an accumulator


@dataclass
class Judged:
    """What is wrong with the quantisation of a graph.

    Attributes:
        plain: the graph without it.
        pairing: of that graph, walked to its end.
        kept: names of modules or nodes that were meant to stay in float32.
        drawn: whether the inputs are drawn, and no pictures such as the file was calibrated on.
    """

    plain: Unquantised
    pairing: Pairing
    kept: Sequence[str] = ()
    drawn: bool = False

    def __post_init__(self) -> None:
        for one in self.plain.quantisers:
            if one.levels is None:
                self._fill(one)

    def _fill(self, one: Quantiser) -> None:
        """The right values of an activation, and the module that makes it."""
        walked = self.pairing.walked
        name = next((name for name in (one.node.proto.output[0], one.name) if name in walked.values), "")
        if name:
            one.right = np.asarray(walked.values[name], np.float64)
            readers = [node for node, _ in self.plain.readers.get(name, [])]
            if readers and all(node.proto.op_type == "Relu" for node in readers):  # what it cuts off below zero is cut off anyway
                one.right = np.maximum(one.right, 0)
        known = walked.known.get(one.name) or walked.known.get(one.node.proto.output[0])
        if known is None:  # part of what several nodes make
            stretches = (
                stretch for stretch in walked.stretches.values() if any(one.name in node.proto.output for node in stretch.nodes)
            )
            known = next((stretch.stands_for for stretch in stretches), None)
        one.key = known.keys[0] if known is not None else ""
        one.path = path_of(one.key) if one.key and one.key != GIVEN else GIVEN if one.name in self.plain.graph.given else ""

    # --- mistakes ----------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def findings(self) -> list[tuple[OnnxNode, str, Finding]]:
        """Each mistake with the node that it belongs to and the key of the other side's call."""
        return [*self._tensors(), *self._layers()]

    def _tensors(self) -> Iterator[tuple[OnnxNode, str, Finding]]:
        """Quantisers that are wrong."""
        weights = [one for one in self.plain.quantisers if one.levels is not None and not one.is_bias]
        titled = [(one.path or one.node.title, one) for one in self.plain.quantisers if not one.is_bias]
        found: list[Quantiser] = []
        for one in sorted(self.plain.quantisers, key=lambda one: one.is_bias):
            s = self._subject(one, titled)
            if s is None or not (words := self._problem(s, weights, found)):
                continue
            kind, hint = QUANTISED.hint(s)
            if kind is Kind.UNKNOWN and words is HALF:
                continue
            found.append(one)
            node = self.plain.at(one)
            about = f"node {node.title}: {one.name.removesuffix('_DequantizeLinear_Output')}, {words}"
            yield node, one.key, Finding("forward", one.path or node.title, kind, hint, about)

    def _subject(self, one: Quantiser, titled: Sequence[tuple[str, Quantiser]]) -> QuantisedTensor | None:
        if one.right is None or not np.isfinite(one.right).all() or (one.levels is None and one.scale.size > 1):
            return None
        return QuantisedTensor(one, [pair for pair in titled if pair[1] is not one], self._product(one), self._meant_axis(one))

    def _product(self, one: Quantiser) -> np.ndarray | None:
        """Of the bias of an integer layer, the scale that its accumulator has."""
        if not one.is_bias or one.reader is None or one.ends[1] < ACCUMULATED:
            return None
        given = next(node for node in self.plain.given.nodes if node.number == one.reader.number).proto.input[0]
        maker = next((node for node in self.plain.given.nodes if given in node.proto.output), None)
        weight = self._weight(one.reader)
        if maker is None or maker.proto.op_type != "DequantizeLinear" or weight is None:
            return None
        scale = maker.constants.get(maker.proto.input[1])
        return None if scale is None or scale.size > 1 else np.asarray(float(scale.ravel()[0]) * weight.scale.squeeze())

    def _weight(self, reader: OnnxNode) -> Quantiser | None:
        return next(
            (one for one in self.plain.quantisers if one.reader is reader and one.levels is not None and one.slot == 1), None
        )

    @staticmethod
    def _meant_axis(one: Quantiser) -> int | None:
        """Along which the output channels of a weight lie, where its layer reads it as it is."""
        if one.levels is None or one.reader is None or one.slot != 1 or one.name not in one.reader.proto.input:
            return None
        turned = bool(one.reader.attributes.get("transB", 0))
        return {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if turned else 1, "MatMul": one.levels.ndim - 1}.get(
            one.reader.proto.op_type
        )

    def _problem(self, s: QuantisedTensor, weights: Sequence[Quantiser], found: Sequence[Quantiser]) -> str:
        """What is seen of a mistake, in words; empty where nothing is."""
        one = s.one
        if one.levels is None:
            return self._problem_of_activation(s)
        if one.is_bias:
            return self._problem_of_bias(s, found)
        off = s.steps * s.inside
        if (off > tolerance.QUANTISED_STEP).any():
            share = (off > tolerance.QUANTISED_STEP).mean()
            return f"{share:.1%} of the values are off by more than a step, the farthest by {off.max():.3g} steps"
        if s.lost > tolerance.QUANTISED_LOST:
            return f"{1 - s.inside.mean():.1%} of the levels are at the ends of the range"
        if s.axis is not None and one.scale.ndim == 1 and one.scale.size > 1 and one.axis % one.levels.ndim != s.axis:
            return f"{one.scale.size} scales along axis {one.axis}"
        same = [other for other in weights if other.reader is not None and one.reader is not None and other is not one
                and other.reader.proto.op_type == one.reader.proto.op_type]  # fmt: skip
        if np.ptp(one.scale) == 0 and any(np.ptp(other.scale) for other in same) and s.right.ndim > 1:
            made, apart = s.per_channel_cost
            if apart - made > tolerance.QUANTISED_COST:
                return f"signal-to-noise ratio {made:.1f} dB"
        return HALF if (off > tolerance.QUANTISED_HALF).any() else ""

    @staticmethod
    def _problem_of_bias(s: QuantisedTensor, found: Sequence[Quantiser]) -> str:
        beside = [one for one in found if one.reader is s.one.reader]
        scale = s.one.scale.squeeze()
        far = np.abs(s.made - s.right).max(initial=0.0) > 2 * np.abs(scale).max() and snr(s.made, s.right) < -20 * np.log10(
            tolerance.QUANTISED_LOST
        )
        if far:
            return f"signal-to-noise ratio {snr(s.made, s.right):.1f} dB"
        if (
            s.product is not None
            and not beside
            and (np.abs(scale - s.product) > tolerance.QUANTISED_SCALE * np.abs(s.product)).any()
        ):
            return f"scale {float(np.ravel(scale)[0]):.3g}"
        return ""

    def _problem_of_activation(self, s: QuantisedTensor) -> str:
        one = s.one
        own = float(one.scale.ravel()[0]), int(one.zero.ravel()[0])
        if any(pair != own for pair in s.back):
            return f"scale and zero point {own[0]:.3g} and {own[1]}, read back with {s.back[0][0]:.3g} and {s.back[0][1]}"
        if s.lost > tolerance.QUANTISED_LOST and s.beyond.mean() > tolerance.QUANTISED_SATURATED and not self._other_inputs:
            return f"signal-to-noise ratio {snr(s.made, s.right):.1f} dB"
        return COARSE if QUANTISED.hint(s)[0] is Kind.QUANTISED_SCALE else ""

    @property
    def _other_inputs(self) -> bool:
        """Whether the inputs are drawn, and the file was calibrated on others: then nothing is known of its ranges."""
        given = [one for one in self.plain.quantisers if one.name in self.plain.graph.given and one.right is not None]
        return self.drawn and any(QuantisedTensor(one).beyond.mean() > tolerance.QUANTISED_SATURATED for one in given)

    def _layers(self) -> Iterator[tuple[OnnxNode, str, Finding]]:
        """Layers that are not quantised, and such as ought not to be."""
        quantised = {id(one.reader): one for one in self.plain.quantisers if one.levels is not None and one.slot == 1}
        layers = [node for node in self.plain.graph.nodes if node.proto.op_type in LAYERS
                  and len(node.proto.input) > 1 and node.proto.input[1] in self.plain.graph.constants]  # fmt: skip
        for node in layers:
            one = quantised.get(id(node))
            key, path = (one.key, one.path) if one is not None and one.path else self._of_node(node)
            count = sum(
                id(other) in quantised for other in layers if other.proto.op_type == node.proto.op_type and other is not node
            )
            kept = bool({path, node.proto.name} & set(self.kept))
            kind, hint = LAYERED.hint(Layered(node.proto.op_type, one is not None, kept, count))
            if kind is not Kind.UNKNOWN:
                yield node, key, Finding("forward", path, kind, hint, f"node {node.title}")

    def _of_node(self, node: OnnxNode) -> tuple[str, str]:
        for stretch in self.pairing.walked.stretches.values():
            if node in stretch.nodes:
                given = [self.pairing.walked.known[name].array for name in stretch.given]
                key = next(iter(self.pairing.chain(given, stretch.stands_for.array) or []), stretch.stands_for.keys[0])
                return key, path_of(key)
        return "", node.title

    # --- what it costs -----------------------------------------------------------------------------------------------------

    def words(self, ours: np.ndarray, right: np.ndarray) -> str:
        """What quantisation itself costs, for people."""
        constants = sum(one.levels is not None for one in self.plain.quantisers)
        return (
            f"quantised graph ({constants} constants and {len(self.plain.quantisers) - constants} activations): the output has "
            f"a signal-to-noise ratio of {snr(ours, right):.1f} dB against float32; that rounding is a known difference"
        )


HALF = "values lie between the two nearest levels"
COARSE = "a range that is not its own"
