"""The small network quantised by ONNX Runtime, and mistakes made in its quantised graph."""

from __future__ import annotations

import logging

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from tests.exported_net import node


class Numbers(CalibrationDataReader):
    """Normal numbers of a size."""

    def __init__(self, size=1.0, count=6, shape=(2, 3, 45, 35), name="x"):
        self.feeds = iter(
            [{name: (size * np.random.default_rng(n).standard_normal(shape)).astype(np.float32)} for n in range(count)]
        )

    def get_next(self):
        return next(self.feeds, None)


def quantised(
    source, target, reader=None, form="QDQ", activation="QUInt8", weight="QInt8", method="MinMax", per_channel=True, **more
):
    """Quantise a file statically, as ONNX Runtime's own documents do it."""
    prepared = target.with_name(f"prepared_{target.name}")
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared), str(target), Numbers() if reader is None else reader, quant_format=QuantFormat[form],
            per_channel=per_channel, activation_type=QuantType[activation], weight_type=QuantType[weight],
            calibrate_method=CalibrationMethod[method], **more,
        )  # fmt: skip
    finally:
        root.setLevel(level)
    return onnx.load(str(target))


def held(model, name):
    return numpy_helper.to_array(next(one for one in model.graph.initializer if one.name == name))


def put(model, name, array):
    """Another value of a constant, of its own type."""
    one = next(one for one in model.graph.initializer if one.name == name)
    one.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))


def weight_of(model, op, number=0, slot=1):
    """The DequantizeLinear of a layer's weight, or of its bias."""
    layer = node(model, op, number)
    return next(one for one in model.graph.node if one.output[0] == layer.input[slot])


def activation_of(model, op, number=0):
    """QuantizeLinear and DequantizeLinear before a layer."""
    layer = node(model, op, number)
    back = next(one for one in model.graph.node if one.output[0] == layer.input[0])
    return next(one for one in model.graph.node if one.output[0] == back.input[0]), back


def own(model, one, **arrays):
    """A node's own scale or zero point, which no other node reads then."""
    for name, array in arrays.items():
        place = {"scale": 1, "zero": 2}[name]
        made = f"{one.output[0]}_{name}_own"
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), made))
        one.input[place] = made
