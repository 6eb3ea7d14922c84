"""What int8 costs, layer by layer: each layer alone in int8, all but it, and the noise of its weights and of its values.

A ratio of signal to noise is in dB, 20 log10 of the norm of the right values over that of the difference: 20 dB are a tenth, 40 dB
a hundredth of it. The pictures that calibrate give the ratios, by which the layers are ordered; the others, which the quantiser
has never seen, give the agreement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_paddle.deploy.int8_graph import (
    LAYERS,
    but_one,
    channel_axis,
    float_values,
    in_bfloat16,
    inside,
    int8_weights,
    one_tensor,
    quantized,
)  # fmt: skip
from mobilenetv3_paddle.deploy.predictor import softmax
from mobilenetv3_paddle.deploy.timing import in_batches

BAD = 20.0  # dB of the logits, below which a layer alone in int8 is called bad: its noise is a tenth of them
MOST = 200.0  # dB of values that are equal; float32 has 150
FLOAT32, BFLOAT16 = "float32", "bfloat16, emulated"
TENSORS = ("weights", "input", "output")
WORST = 12  # layers of which the cause is measured
WITHIN = 16  # calibrating pictures on which ratios are measured

Load = Callable[[Path], Callable[[np.ndarray], np.ndarray]]


@dataclass(frozen=True)
class Cost:
    """What a choice of int8 layers does to the logits.

    Attributes:
        ratio: signal to noise in dB, on the calibrating pictures.
        agreement: share of the judging pictures with float32's likeliest class.
        shift: mean distance of a logit from float32's, over the judging pictures.
    """

    ratio: float
    agreement: float
    shift: float


@dataclass(frozen=True)
class LayerCost:
    """A layer in int8.

    Attributes:
        what: in words.
        alone: with no other layer in int8.
        kilobytes: by which the file grows where its weights stay in float32.
        without: with every layer in int8 but this one; None where it was not measured.
        weights, input, output: ratio in dB of these tensors, each rounded by itself; None where they were not measured.
        cause: of one of the worst layers, which of these tensors does the most harm to the logits, and their ratio with it alone.
    """

    what: str
    alone: Cost
    kilobytes: float
    without: Cost | None = None
    weights: float | None = None
    input: float | None = None
    output: float | None = None
    cause: tuple[str, float] | None = None

    @property
    def bad(self) -> bool:
        """Whether the layer alone takes a tenth of the logits or more."""
        return self.alone.ratio < BAD


@dataclass
class Inside:
    """The error along the network: relative L2 at each value, of several models.

    Attributes:
        places: of each value the name of its node, or of its operator, in the order of the network.
        errors: name of a model -> its error at each place, None where it does not have the value, or the right one is zero.
        costs: name of a model -> what it does to the logits.
        bfloat16_size: bytes of the file with weights in bfloat16.
    """

    places: list[str] = field(default_factory=list)
    errors: dict[str, list[float | None]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    bfloat16_size: int = 0


def ratio(right: np.ndarray, made: np.ndarray) -> float:
    """Signal to noise in dB; 200 for values that are equal, or that differ by less than float64 can tell."""
    signal, noise = (float(np.linalg.norm(one.astype(np.float64))) for one in (right, right.astype(np.float64) - made))
    if noise == 0:
        return MOST
    return max(-MOST, min(MOST, 20 * math.log10(signal / noise))) if signal > 0 else -MOST


def relative(right: np.ndarray, made: np.ndarray) -> float | None:
    """Norm of the difference over that of the right values; None where these are zero."""
    return 10 ** (-ratio(right, made) / 20) if right.any() else None


class Judge:
    """Float32's logits, against which those of a model are held.

    Raises:
        UserError: they are not finite.
    """

    def __init__(self, engine: Callable[[np.ndarray], np.ndarray], calibrating: np.ndarray, judging: np.ndarray) -> None:
        self.engine, self.calibrating, self.judging = engine, calibrating[:WITHIN], judging
        self.right, self.truth = (in_batches(engine, images) for images in (self.calibrating, judging))
        self.probabilities = softmax(self.truth)

    def __call__(self, engine: Callable[[np.ndarray], np.ndarray]) -> Cost:
        made, judged = (in_batches(engine, images) for images in (self.calibrating, self.judging))
        same = float((judged.argmax(1) == self.truth.argmax(1)).mean())
        return Cost(round(ratio(self.right, made), 2), same, float(np.abs(judged - self.truth).mean()))


def each_alone(prepared: Path, nodes: Sequence[str], images: np.ndarray, judge: Judge, load: Load) -> dict[str, LayerCost]:
    """Each layer with no other in int8, those whose noise in the logits is largest first.

    Args:
        prepared: the model in float32.
        nodes: names of the layers.
        images: that calibrate.
        judge: of the logits.
        load: makes an engine of a file.
    """
    import onnx

    described = _described(onnx.load(str(prepared)))
    found: dict[str, LayerCost] = {}
    for node in nodes:
        what, kilobytes = described[node]
        found[node] = LayerCost(what, judge(load(_file(prepared, [node], images))), kilobytes)
    return dict(sorted(found.items(), key=lambda one: one[1].alone.ratio))


def _file(prepared: Path, nodes: Sequence[str], images: np.ndarray) -> Path:
    target = prepared.with_name("some.onnx")
    quantized(prepared, target, nodes, images, stored=False)
    return target


def explained(prepared: Path, layers: dict[str, LayerCost], images: np.ndarray, judge: Judge, load: Load) -> dict[str, LayerCost]:
    """The same layers, with what all but one cost, and the noise of each layer's weights, input and output.

    The layers are to be all that int8 may compute.
    """
    import onnx
    from onnx import numpy_helper

    everything, plain = onnx.load(str(_file(prepared, list(layers), images))), onnx.load(str(prepared))
    nodes = {node.name: node for node in plain.graph.node}
    constants = {one.name: numpy_helper.to_array(one) for one in (*everything.graph.initializer, *plain.graph.initializer)}
    ends = dict.fromkeys(name for layer in layers for name in (nodes[layer].input[0], nodes[layer].output[0]))
    values = inside(plain, [*ends], judge.calibrating) | {plain.graph.input[0].name: judge.calibrating}

    def noise(value: str) -> float:
        scale, zero = (constants[f"{value}_{what}"] for what in ("scale", "zero_point"))
        return ratio(values[value], rounded(values[value], scale, zero))

    def cost(model: Any) -> Cost:
        target = prepared.with_name("some.onnx")
        onnx.save(model, str(target))
        return judge(load(target))

    found = {}
    for place, (name, layer) in enumerate(layers.items()):
        node = nodes[name]
        tried = TENSORS if place < WORST or layer.bad else ()
        alone = [(what, cost(one_tensor(everything, plain, name, what)).ratio) for what in tried]
        found[name] = replace(
            layer,
            without=cost(but_one(everything, plain, name)),
            weights=ratio(constants[node.input[1]], int8_weights(everything, node)),
            input=noise(node.input[0]),
            output=noise(node.output[0]),
            cause=min(alone, key=lambda one: one[1], default=None),
        )
    return found


def rounded(values: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Values in int8 or uint8 and back, as QuantizeLinear and DequantizeLinear do."""
    limits = np.iinfo(zero_point.dtype)
    levels = np.clip(np.rint(values / scale) + zero_point, limits.min, limits.max)
    return (levels - zero_point) * scale


def along(prepared: Path, models: dict[str, Path], judge: Judge, load: Load) -> Inside:
    """The error along the network of float32, of these models and of bfloat16.

    The error of float32 is what its rounding alone makes: the same model with its sums in another order.

    Args:
        prepared: the model in float32.
        models: name -> file.
        judge: of the logits.
        load: makes an engine of a file.
    """
    import onnx

    plain = onnx.load(str(prepared))
    values = float_values(plain)
    by = {value: node.name or node.op_type for node in plain.graph.node for value in node.output}
    right = inside(plain, values, judge.calibrating, optimised=False)
    low = prepared.with_name("bfloat16.onnx")
    onnx.save(in_bfloat16(onnx.load(str(prepared))), str(low))
    found = Inside([by[value] for value in values], bfloat16_size=low.stat().st_size)
    for name, path in {FLOAT32: prepared, **models, BFLOAT16: low}.items():
        made = inside(onnx.load(str(path)), values, judge.calibrating)
        found.errors[name] = [relative(right[value], made[value]) if value in made else None for value in values]
        found.costs[name] = judge(load(path))
    return found


def _described(model: Any) -> dict[str, tuple[str, float]]:
    """Layer -> what it is, and by how many kilobytes float32 weights are larger than int8."""
    shapes = {one.name: list(one.dims) for one in model.graph.initializer}
    found = {}
    for node in (one for one in model.graph.node if one.op_type in LAYERS and one.input[1] in shapes):
        shape = shapes[node.input[1]]
        if node.op_type == "Conv":
            groups = next((a.i for a in node.attribute if a.name == "group"), 1)
            size = "x".join(map(str, shape[2:]))
            depthwise = groups > 1 and shape[1] == 1
            what = f"{size} depthwise, {shape[0]}" if depthwise else f"{size}, {shape[1] * groups} to {shape[0]}"
        else:
            axis = channel_axis(node)
            what = f"linear, {shape[1 - axis]} to {shape[axis]}"
        found[node.name] = what, 3 * math.prod(shape) / 1024
    return found
