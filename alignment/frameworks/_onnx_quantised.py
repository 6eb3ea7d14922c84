"""Files whose operators compute in int8 (``quant_format=QOperator``), written out with DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FUSED = "com.microsoft"
# Operator -> the plain one; where its operands begin, each with scale and zero point behind it; its bias; the scale of its output.
FORMS: dict[str, tuple[str, tuple[int, ...], int | None, int]] = {
    "QLinearConv": ("Conv", (0, 3), 8, 6), "QLinearMatMul": ("MatMul", (0, 3), None, 6), "QGemm": ("Gemm", (0, 3), 6, 7),
    "QLinearAdd": ("Add", (0, 3), None, 6), "QLinearMul": ("Mul", (0, 3), None, 6), "QLinearConcat": ("Concat", (), None, 0),
} | {
    f"QLinear{name}": (name, (0,), None, 3)
    for name in ("Sigmoid", "LeakyRelu", "Softmax", "GlobalAveragePool", "AveragePool", "ReduceMean")
}  # fmt: skip
KNOWN = {(FUSED, name) for name in FORMS if name not in ("QLinearConv", "QLinearMatMul")}


def written_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model without operators that compute in int8; itself where it has none."""
    if not any(node.op_type in FORMS for node in model.graph.node):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    held = {one.name: one for one in made.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes += _plain(node, made, held) if node.op_type in FORMS else [node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    del made.graph.value_info[:]
    return made


def _plain(node: onnx.NodeProto, model: onnx.ModelProto, held: dict[str, onnx.TensorProto]) -> Iterator[onnx.NodeProto]:
    op, starts, bias, out = FORMS[node.op_type]
    given, name, operands = [*node.input], node.name or node.output[0], []
    for place in starts or range(2, len(given), 3):
        axis = _axis(node, op) if place else 0
        operands.append(f"{name}/operand{place}")
        yield _node("DequantizeLinear", given[place : place + 3], operands[-1], axis=axis)
    if bias is not None and len(given) > bias and given[bias]:
        scale = f"{name}/bias_scale"
        factors = [numpy_helper.to_array(held[given[place]]) for place in (1, 4)]
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(factors[0] * factors[1], np.float32), scale))
        operands.append(f"{name}/bias")
        yield _node("DequantizeLinear", [given[bias], scale], operands[-1], axis=0)
    rounded = len(given) > out and given[out]  # without a scale of its own a QGemm gives floating numbers
    result = f"{name}/result" if rounded else node.output[0]
    plain = helper.make_node(op, operands, [result], name=name)
    plain.attribute.extend(one for one in node.attribute if one.name not in ("channels_last", "opset"))
    yield plain
    if rounded:
        yield _node("QuantizeLinear", [result, *given[out : out + 2]], node.output[0])


def _node(op: str, given: list[str], made: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, given, [made], name=f"{made} of {op}", **attributes)


def _axis(node: onnx.NodeProto, op: str) -> int:
    """Along which the second operand may have a scale a channel."""
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    return {"Gemm": 0 if turned else 1, "MatMul": 1}.get(op, 0)
