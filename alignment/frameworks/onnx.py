"""Exported models: an ``.onnx`` file is a side, whose modules are the nodes of its graph.

In float32 ONNX Runtime computes it, with every tensor inside exposed. In exact mode the same nodes are computed in float64 by the
reference evaluator of the package ``onnx`` (``_onnx_exact.py`` has what that one lacks). It has inference alone: no gradients, no
training mode, and its own weights, which are the constants of the file.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alignment.frameworks._onnx_graph import HELD, OnnxGraph, OnnxModule, OnnxNode, OnnxParts, layer_of
from alignment.frameworks._taped import Taped
from alignment.frameworks.base import Layer, Layout
from alignment.strangers import Refused
from mobilenetv3_common.errors import UserError

# Settings of a layer under torch's names -> attributes of an operator.
ATTRIBUTES = {
    "stride": "strides", "padding": "pads", "dilation": "dilations", "kernel_size": "kernel_shape", "ceil_mode": "ceil_mode",
    "count_include_pad": "count_include_pad", "eps": "epsilon", "dim": "axis", "slope": "alpha", "alpha": "alpha",
}  # fmt: skip


class Onnx(Taped):
    """ONNX graphs behind the engine's interface: what belongs to training is not there."""

    name = "onnx"
    title = "ONNX"
    tensor_type = np.ndarray
    module_type = OnnxModule
    suffixes = (".onnx",)
    layout = Layout(statistics={"running_mean": "running_mean", "running_var": "running_var"})

    def use(self, device: str) -> None:
        if device != "cpu":
            raise UserError(f"an .onnx file is computed on the CPU: use --device cpu, not {device}")

    def seed(self, number: int) -> None:
        pass

    def threads(self, count: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def default_dtype(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def tensor(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def array(self, tensor: np.ndarray) -> np.ndarray:
        return np.array(tensor)

    def times(self, tensor: np.ndarray, factors: np.ndarray) -> np.ndarray:
        return tensor * factors.astype(tensor.dtype)

    def assign(self, tensor: np.ndarray, array: np.ndarray) -> None:
        tensor[...] = array

    def children(self, module: OnnxModule) -> list[tuple[str, OnnxModule]]:
        if isinstance(module, OnnxParts):
            return list(module.parts.items())
        if not isinstance(module, OnnxGraph) or not module.session:
            return []
        return [(re.sub(r"[.#]", "_", node.proto.name or node.proto.output[0]), node) for node in module.nodes]

    def own_tensors(self, module: OnnxModule) -> dict[str, np.ndarray]:
        if not isinstance(module, OnnxNode):
            return {}
        names = HELD.get(module.proto.op_type, ())
        return {
            name: module.constants[given]
            for name, given in zip(names, list(module.proto.input)[1:], strict=False)
            if given in module.constants
        }

    def is_parameter(self, tensor: np.ndarray) -> bool:
        return True

    def trainable(self, tensor: np.ndarray) -> bool:
        return False

    def _stock(self, module: OnnxModule) -> Layer | None:
        return layer_of(module) if isinstance(module, OnnxNode) else None

    def load(self, model: OnnxModule, state: Mapping[str, np.ndarray], source: str = "the weights") -> None:
        """Nothing: a file has its own weights."""

    def training(self, model: OnnxModule) -> bool:
        return False

    def set_training(self, model: OnnxModule, on: bool) -> None:
        pass

    def place(self, model: OnnxModule) -> OnnxModule:
        return model

    def hook(self, module: OnnxModule, before: Callable | None = None, after: Callable | None = None) -> _Hooked:
        entry = ("before", before) if before is not None else ("after", after)
        module.hooks.append(entry)  # type: ignore[arg-type]
        return _Hooked(module, entry)

    def set_settings(self, module: OnnxModule, changes: Mapping[str, Any]) -> bool:
        if not isinstance(module, OnnxNode) or not changes.keys() <= ATTRIBUTES.keys():
            return False
        operator = copy.copy(module.operator)
        for name, value in changes.items():
            value = [*value, *value] if name == "padding" else list(value) if isinstance(value, tuple) else value
            setattr(operator, ATTRIBUTES[name], int(value) if isinstance(value, bool) else value)
        operator.attributes_names_ = {*operator.attributes_names_, *(ATTRIBUTES[name] for name in changes)}
        module.operator = operator
        return True

    def copy(self, model: OnnxModule) -> OnnxModule:
        if isinstance(model, OnnxNode):
            return OnnxNode(model.proto, model.number, model.operator, model.constants)
        assert isinstance(model, OnnxGraph)
        nodes = [OnnxNode(node.proto, node.number, node.operator, node.constants) for node in model.nodes]
        made = OnnxGraph(nodes, model.given, model.made, model.constants, model.session)
        made.dtype, made.inputs, made.deployed, made.folded = model.dtype, model.inputs, model.deployed, model.folded
        return made

    def in_float64(self, model: OnnxModule) -> OnnxModule:
        if isinstance(model, OnnxGraph):
            model.dtype = "float64"
        return model

    def exact_functions(self) -> list:
        return []

    def _no_graph(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def _leaf(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def _pull(self, outputs: list, cotangents: list, wanted: list) -> list:
        raise Refused("an exported model has no gradients")

    def gradients(self, model: OnnxModule) -> dict[str, np.ndarray]:
        return {}

    def add_gradients(self, model: OnnxModule, gradients: Mapping[str, np.ndarray]) -> None:
        raise Refused("an exported model has no gradients")

    def clear_gradients(self, model: OnnxModule) -> None:
        pass

    def learning_rate(self, optimizer: Any) -> float:
        raise Refused("an exported model has no optimizer")


class _Hooked:
    def __init__(self, module: OnnxModule, entry: tuple) -> None:
        self.module, self.entry = module, entry

    def remove(self) -> None:
        self.module.hooks.remove(self.entry)


FRAMEWORK = Onnx
