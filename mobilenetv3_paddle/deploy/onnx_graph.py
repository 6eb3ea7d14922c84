"""An exported ONNX model as ONNX Runtime computes it fastest on a CPU; its results stay, to the last bit."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

LEAST_OPSET = 13  # before it, Resize is another operator
MOST_PIXELS = 14 * 14  # of a map; on larger ones the repeated factors take as long as they save


def for_cpu(path: Path) -> bytes | str:
    """The model of a file, changed; or its path, where there is nothing to change, or no model that can be read."""
    try:
        model = onnx.load(str(path))
        changed = repeat_channel_factors(model) + flatten_maps(model)
        return model.SerializeToString() if changed else str(path)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, ONNX Runtime says it
        return str(path)


def repeat_channel_factors(model: onnx.ModelProto) -> int:
    """Repeat the factors of squeeze-and-excitation over the map that they scale, where it has at most 14 x 14 pixels.

    ONNX Runtime keeps maps in blocks of channels on a CPU. It multiplies two such maps of one shape as they are, but for one
    factor a channel, (N, C, 1, 1), it converts the map to the plain layout and back, which takes longer than the repetition.

    Returns:
        How many products were changed.
    """
    if not any(opset.domain == "" and opset.version >= LEAST_OPSET for opset in model.opset_import):
        return 0
    graph, shapes = model.graph, _shapes(model)
    nodes, changed = [], 0
    for node in graph.node:
        for factor, large in ((0, 1), (1, 0)) if node.op_type == "Mul" else ():
            small, shape = (shapes.get(node.input[index], []) for index in (factor, large))
            if small[2:] == [1, 1] and small[:2] == shape[:2] and all(shape) and 1 < _pixels(shape) <= MOST_PIXELS:
                repeated, scales = f"repeated.{changed}", f"repeated.{changed}.scales"
                graph.initializer.append(numpy_helper.from_array(np.array([1, 1, *shape[2:]], np.float32), scales))
                graph.value_info.append(helper.make_tensor_value_info(repeated, onnx.TensorProto.FLOAT, shape))
                nodes.append(_nearest(node.input[factor], scales, repeated))
                node.input[factor] = repeated
                changed += 1
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return changed


def flatten_maps(model: onnx.ModelProto) -> int:
    """Turn maps into rows by one operator, where a converter computes the new shape in every run.

    Returns:
        How many operators were replaced.
    """
    graph, shapes, changed = model.graph, _shapes(model), 0
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return 0  # a graph within the graph may use what seems unused
    for node in graph.node:
        before, after = (shapes.get(name, []) for name in (node.input[0] if node.input else "", node.output[0]))
        sizes = [size for size in before[1:] if isinstance(size, int) and size]
        if node.op_type == "Reshape" and len(sizes) == 3 and before[0] and after == [before[0], math.prod(sizes)]:
            node.CopyFrom(helper.make_node("Flatten", [node.input[0]], list(node.output), node.name, axis=1))
            changed += 1
    while changed:  # nobody asks for the computed shape any more
        used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        idle = [node for node in graph.node if not used & set(node.output)]
        for node in idle:
            graph.node.remove(node)
        if not idle:
            break
    return changed


def _pixels(shape: list[int | str]) -> int:
    """Of a map, (N, C, H, W); 0 where it is none, or they are not known."""
    if len(shape) != 4:
        return 0
    height, width = shape[2:]
    return height * width if isinstance(height, int) and isinstance(width, int) else 0


def _nearest(source: str, scales: str, target: str) -> onnx.NodeProto:
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return helper.make_node("Resize", [source, "", scales], [target], target, **how)


def _shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    """Each float32 value's size in each dimension, or its symbol; 0 where neither is known."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    return {
        value.name: [size.dim_value or size.dim_param or 0 for size in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
