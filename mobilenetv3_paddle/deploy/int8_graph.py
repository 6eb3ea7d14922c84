"""An ONNX model with some of its layers in int8, or rounded to bfloat16, and the values inside such a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MIN_STORED = 256  # smaller weights (biases, scales) stay float
LAYERS = ("Conv", "Gemm", "MatMul")


def quantized(
    source: Path, target: Path, nodes: Sequence[str], images: np.ndarray, stored: bool = True, kept: Collection[str] = ()
) -> None:
    """Write a model whose named layers compute in int8, one scale an output channel of the weights.

    Args:
        source: in float32, prepared for the quantiser; the ranges of its values are kept beside it from one call to the next.
        target: the file.
        nodes: names of the layers.
        images: that calibrate.
        stored: whether the weights of the other layers are stored in int8 too.
        kept: layers of which they are not.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self, name: str) -> None:
            self.feeds = iter([{name: image[None]} for image in images])

        def get_next(self) -> dict | None:  # type: ignore[override]
            return next(self.feeds, None)

    if nodes:
        name = onnx.load(str(source)).graph.input[0].name
        quantize_static(
            str(source), str(target), Reader(name), quant_format=QuantFormat.QOperator, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, nodes_to_quantize=list(nodes),
            calibrate_method=CalibrationMethod.MinMax, calibration_cache_path=source.with_name("ranges.json"),
        )  # fmt: skip
        source = target
    if stored or not nodes:
        onnx.save(_stored_in_int8(onnx.load(str(source)), kept) if stored else onnx.load(str(source)), str(target))


def _stored_in_int8(model: Any, kept_layers: Collection[str]) -> Any:
    """Float weights of convolutions and linear layers as int8, one scale an output channel, with a node that scales them back."""
    from onnx import helper, numpy_helper

    users: dict[str, list[tuple[Any, int]]] = {}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            users.setdefault(name, []).append((node, place))
    kept, nodes = [], []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        by = users.get(tensor.name, [])
        fits = by and all(node.op_type in ("Conv", "Gemm") and place == 1 and node.name not in kept_layers for node, place in by)
        if array.dtype != np.float32 or array.size < MIN_STORED or not fits:
            kept.append(tensor)
            continue
        axis = channel_axis(by[0][0])
        others = tuple(i for i in range(array.ndim) if i != axis)
        scale = np.maximum(np.abs(array).max(others) / 127, 1e-12).astype(np.float32)
        levels = np.clip(np.rint(array / np.expand_dims(scale, others)), -127, 127).astype(np.int8)
        kept += [numpy_helper.from_array(levels, f"{tensor.name}_int8"), numpy_helper.from_array(scale, f"{tensor.name}_scale")]
        inputs = [f"{tensor.name}_int8", f"{tensor.name}_scale"]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [tensor.name], name=f"scale_{tensor.name}", axis=axis))
    nodes += list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    return model


def channel_axis(node: Any) -> int:
    """Axis of the output channels in a layer's weights."""
    return 0 if node.op_type == "Conv" or any(a.name == "transB" and a.i for a in node.attribute) else 1


def but_one(everything: Any, plain: Any, layer: str) -> Any:
    """A model with all of its layers in int8, in which one computes in float32 again.

    It is what the quantiser makes if it leaves this layer out, in a hundredth of the time.
    """
    import onnx

    node = next(one for one in plain.graph.node if one.name == layer)
    source, weights, target = node.input[0], node.input[1:], node.output[0]
    made = onnx.ModelProto()
    made.CopyFrom(everything)
    graph, nodes = made.graph, []
    floats = {name for one in graph.node for name in one.output} | {graph.input[0].name}
    for one in everything.graph.node:
        if one.name == f"{layer}_quant":
            if source not in floats:
                nodes.append(_between("DequantizeLinear", source, f"{source}_quantized", source))
            nodes += [node, _between("QuantizeLinear", target, target, f"{target}_quantized")]
        elif target not in one.output:  # that is what scales the layer's output back
            nodes.append(one)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(one for one in plain.graph.initializer if one.name in weights)
    return made


def one_tensor(everything: Any, plain: Any, layer: str, what: str) -> Any:
    """A model in float32, in which one tensor of one layer is rounded to int8: its ``weights``, ``input`` or ``output``."""
    import onnx
    from onnx import numpy_helper

    made = onnx.ModelProto()
    made.CopyFrom(plain)
    node = next(one for one in made.graph.node if one.name == layer)
    name = {"weights": node.input[1], "input": node.input[0], "output": node.output[0]}[what]
    constants = {one.name: one for one in everything.graph.initializer}
    if what == "weights":
        right = next(one for one in made.graph.initializer if one.name == name)
        right.CopyFrom(numpy_helper.from_array(int8_weights(everything, node), name))
        return made
    place = list(made.graph.node).index(node)
    if what == "output":
        source, target, node.output[0] = f"{name}_exact", name, f"{name}_exact"
    else:
        source, target, node.input[0] = name, f"{name}_rounded", f"{name}_rounded"
    levels = f"{name}_levels"
    between = [_between("QuantizeLinear", name, source, levels), _between("DequantizeLinear", name, levels, target)]
    nodes = list(made.graph.node)
    nodes[place : place + 1] = [node, *between] if what == "output" else [*between, node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(constants[f"{name}_{part}"] for part in ("scale", "zero_point"))
    return made


def int8_weights(everything: Any, node: Any) -> np.ndarray:
    """A layer's weights as a model with all of its layers in int8 has them, scaled back."""
    from onnx import numpy_helper

    constants = {one.name: one for one in everything.graph.initializer}
    levels, scale = (numpy_helper.to_array(constants[f"{node.input[1]}_{part}"]) for part in ("quantized", "scale"))
    others = [axis for axis in range(levels.ndim) if axis != channel_axis(node)]
    return levels.astype(np.float32) * (np.expand_dims(scale, others) if scale.ndim else scale)


def _between(kind: str, value: str, before: str, after: str) -> Any:
    """A node from a value to its int8 levels, or back."""
    from onnx import helper

    return helper.make_node(kind, [before, f"{value}_scale", f"{value}_zero_point"], [after])


def bfloat16_bits(array: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, of two equally near ones to the even one, as uint16."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def in_bfloat16(model: Any) -> Any:
    """A model whose weights are stored in bfloat16, and whose values are rounded to it; it still computes in float32.

    ONNX Runtime has no kernels of bfloat16 on a CPU. A processor that has them sums the products of bfloat16 numbers in float32,
    too, so that this is what it would give, but for the order of its sums.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph, nodes, kept = model.graph, [], []
    weights = {name for node in graph.node if node.op_type in LAYERS for name in node.input[1:]}
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or tensor.name not in weights:
            kept.append(tensor)
            continue
        raw = bfloat16_bits(array).astype("<u2").tobytes()
        kept.append(helper.make_tensor(f"{tensor.name}_bfloat16", TensorProto.BFLOAT16, array.shape, raw, raw=True))
        nodes.append(helper.make_node("Cast", [f"{tensor.name}_bfloat16"], [tensor.name], to=TensorProto.FLOAT))

    def rounded(source: str, target: str) -> list[Any]:
        return [
            helper.make_node("Cast", [source], [f"{target}_bfloat16"], to=TensorProto.BFLOAT16),
            helper.make_node("Cast", [f"{target}_bfloat16"], [target], to=TensorProto.FLOAT),
        ]

    floats, given = float_values(model), graph.input[0].name
    nodes += rounded(given, f"{given}_rounded")
    for node in graph.node:
        node.input[:] = [f"{given}_rounded" if name == given else name for name in node.input]
        found = [name for name in node.output if name in floats]
        node.output[:] = [f"{name}_exact" if name in found else name for name in node.output]
        nodes += [node, *(cast for name in found for cast in rounded(f"{name}_exact", name))]
    del graph.initializer[:], graph.node[:], graph.value_info[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    return model


def float_values(model: Any) -> list[str]:
    """Names of the float32 values that a model's nodes compute, in their order."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    floats = {v.name for v in (*graph.value_info, *graph.output) if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    return [name for node in graph.node for name in node.output if name in floats]


def inside(model: Any, names: Sequence[str], images: np.ndarray, optimised: bool = True) -> dict[str, np.ndarray]:
    """Values inside a model, those that are int8 there scaled back; a name that it does not have is left out.

    Args:
        model: in float32, quantised or rounded; it is left as it is.
        names: of values in the model in float32.
        images: that it computes.
        optimised: whether ONNX Runtime may compute sums in another order than the plain one.
    """
    import onnx
    import onnxruntime

    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    graph = seen.graph
    made = {name for node in graph.node for name in node.output}
    for name in names:
        if name not in made and f"{name}_quantized" in made:
            graph.node.append(_between("DequantizeLinear", name, f"{name}_quantized", name))
            made.add(name)
    found = [name for name in names if name in made]
    del graph.output[:]
    graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in found)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(seen.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(found, session.run(found, {graph.input[0].name: images}), strict=True))
