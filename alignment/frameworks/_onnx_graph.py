"""The nodes of an exported graph as modules that are called with arrays, and what each of them computes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, helper

from alignment.frameworks.base import Layer
from alignment.strangers import Refused

KINDS = {
    "Conv": "conv", "FusedConv": "conv", "Gemm": "linear", "MatMul": "linear", "BatchNormalization": "batch_norm",
    "Relu": "relu", "HardSwish": "hardswish", "HardSigmoid": "hardsigmoid", "Sigmoid": "sigmoid", "Tanh": "tanh", "Gelu": "gelu",
    "LeakyRelu": "leaky_relu", "Elu": "elu", "Selu": "selu", "Mish": "mish", "Softplus": "softplus", "Softsign": "softsign",
    "MaxPool": "max_pool", "AveragePool": "avg_pool", "GlobalAveragePool": "adaptive_avg_pool",
    "GlobalMaxPool": "adaptive_max_pool", "Dropout": "dropout", "Softmax": "softmax", "LogSoftmax": "logsoftmax",
    "LayerNormalization": "layernorm", "InstanceNormalization": "instancenorm", "Identity": "identity", "Resize": "upsample",
    "Pad": "pad", "Flatten": "flatten",
}  # fmt: skip
HELD = {"Conv": ("weight", "bias"), "Gemm": ("weight", "bias"), "MatMul": ("weight",),
        "BatchNormalization": ("weight", "bias", "running_mean", "running_var")}  # fmt: skip


class OnnxModule:
    """A node, or a graph of nodes, that is called with arrays."""

    def __init__(self) -> None:
        self.hooks: list[tuple[str, Callable]] = []

    def __call__(self, *args: Any) -> Any:
        for when, hook in list(self.hooks):
            if when == "before":
                hook(self, args)
        return self.told(args, self.forward(*args))

    def told(self, args: tuple, output: Any) -> Any:
        """What hooks make of an output."""
        for when, hook in list(self.hooks):
            if when == "after":
                changed = hook(self, args, {}, output)
                output = output if changed is None else changed
        return output

    def forward(self, *args: Any) -> Any:
        raise NotImplementedError


class OnnxNode(OnnxModule):
    """One node.

    Args:
        proto: of the file.
        number: its place in the graph.
        operator: what computes it in float64.
        constants: of the graph, by name.

    Attributes:
        optional: whether it may give its input back: it was left to it to do what the other side does, or nothing was.
    """

    def __init__(self, proto: NodeProto, number: int, operator: Any, constants: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.proto, self.number, self.operator, self.constants = proto, number, operator, constants
        self.attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
        self.optional = False

    @property
    def varying(self) -> list[str]:
        """The inputs that are no constants, each once."""
        return list(dict.fromkeys(name for name in self.read if name and name not in self.constants))

    @functools.cached_property
    def read(self) -> list[str]:
        """The tensors that it reads, those that graphs inside it read, too."""
        return [*self.proto.input, *_read_inside(self.proto)]

    def forward(self, *args: np.ndarray) -> Any:
        made = self.computed({**self.constants, **dict(zip(self.varying, args, strict=True))})
        return made[0] if len(made) == 1 else tuple(made)

    def computed(self, values: Mapping[str, Any]) -> list[Any]:
        """Its outputs, of which float32 ones are widened: what an operator makes of no float32 are constants, or whole numbers."""
        given = [values[name] if name else None for name in self.proto.input]
        narrow = any(isinstance(one, np.ndarray) and one.dtype == np.float32 for one in given)
        context = {"context": {"": None, **values}} if self.operator.need_context() else {}
        with np.errstate(all="ignore"):
            made = self.operator.run(*given, **context)
        return [one if narrow else widened(one) for one in made][: len(self.proto.output)]  # it may give more

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.proto.name or self.proto.output[0]} ({self.proto.op_type})"

    def noted(self) -> tuple[str, str]:
        """The module and the source line of the exported model that the exporter noted; empty where it noted none."""
        notes = {one.key: one.value for one in getattr(self.proto, "metadata_props", ())}
        scopes = re.findall(r"'([^']*)'", notes.get("pkg.torch.onnx.name_scopes", ""))
        trace = notes.get("pkg.torch.onnx.stack_trace", "") or self.proto.doc_string
        frames = re.findall(r'File "([^"]+)", line (\d+)', trace) or re.findall(r"(\S+\.py)\((\d+)\)", trace)
        own = [(file, line) for file, line in frames if "/torch/" not in file.replace("\\", "/")]
        return scopes[-2] if len(scopes) > 1 else "", f"{own[-1][0]}:{own[-1][1]}" if own else ""


def _read_inside(proto: NodeProto) -> Iterable[str]:
    """Names that the graphs within a node (If, Loop) read from outside of them."""
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.GRAPH:
            own = {one.name for one in (*attribute.g.input, *attribute.g.initializer)}
            for node in attribute.g.node:
                yield from (name for name in (*node.input, *_read_inside(node)) if name and name not in own)
                own |= set(node.output)


def widened(value: Any) -> Any:
    """A float32 array or number in float64; everything else as it is."""
    return np.asarray(value, np.float64) if isinstance(value, np.ndarray | np.float32) and value.dtype == np.float32 else value


class OnnxGraph(OnnxModule):
    """Some nodes of a file in its order, as a function of tensors; all of them for the whole model.

    Args:
        nodes: in the file's order.
        given, made: names of the tensors that it takes and returns.
        constants: of the file, by name, in float64 where they are floating.
        session: computes the whole graph in float32: inputs by name -> every tensor by name.

    Attributes:
        dtype: ``"float32"`` or ``"float64"``.
        inputs: of a file: type and shape of each input, None for a size that varies, and for a shape that is not given.
        deployed: of a file: inputs -> outputs in float32, with all of ONNX Runtime's optimisations.
        folded: of a file: the nodes that make constants of constants, in order.
    """

    deployed: Callable[[Sequence[np.ndarray]], list[np.ndarray]]

    def __init__(
        self, nodes: Sequence[OnnxNode], given: Sequence[str], made: Sequence[str], constants: dict[str, np.ndarray],
        session: Callable[[Mapping[str, np.ndarray]], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.nodes, self.given, self.made, self.constants, self.session = list(nodes), list(given), list(made), constants, session
        self.dtype = "float32"
        self.inputs: dict[str, tuple[str, list[int | None] | None]] = {}
        self.folded: list[OnnxNode] = []

    def forward(self, *arrays: np.ndarray) -> Any:
        if len(arrays) != len(self.given):
            raise Refused(f"{len(arrays)} inputs, the graph has {len(self.given)}: {', '.join(self.given)}")
        values: dict[str, Any] = {**self.constants, **dict(zip(self.given, arrays, strict=True))}
        known = self.session(dict(zip(self.given, arrays, strict=True))) if self.session and self.dtype == "float32" else None
        for node in self.nodes:
            args = tuple(values.get(name) for name in node.varying)
            if known is None:
                made = node(*args)
            else:
                outputs = tuple(known.get(name) for name in node.proto.output)
                made = node.told(args, outputs[0] if len(outputs) == 1 else outputs)
            values |= dict(zip(node.proto.output, made if isinstance(made, tuple) else (made,), strict=False))
        results = [values[name] for name in self.made]
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def quantised(self) -> bool:
        """Whether something in it is rounded to few bits."""
        return any(node.proto.op_type == "DequantizeLinear" for node in (*self.nodes, *self.folded))

    def values(self, arrays: Sequence[np.ndarray]) -> dict[str, Any]:
        """Every tensor inside by name, computed by ONNX Runtime in float32."""
        assert self.session is not None
        return self.session(dict(zip(self.given, arrays, strict=True)))


class OnnxParts(OnnxModule):
    """Parts of a graph by name, each of which is called by itself.

    Args:
        parts: by name.
    """

    def __init__(self, parts: Mapping[str, OnnxModule]) -> None:
        super().__init__()
        self.parts = dict(parts)


def layer_of(node: OnnxNode) -> Layer:
    """What a node computes, with its settings under torch's names."""
    own, op = node.attributes, node.proto.op_type
    kind, settings = KINDS.get(op, op.lower()), {}
    if kind == "conv":
        weight = node.constants.get(node.proto.input[1])
        ones = (1,) * ((weight.ndim if weight is not None else 4) - 2)
        settings = {"stride": tuple(own.get("strides", ones)), "padding": _padding(own, len(ones)), "padding_mode": "zeros",
                    "dilation": tuple(own.get("dilations", ones)), "groups": own.get("group", 1)}  # fmt: skip
    elif kind in ("max_pool", "avg_pool"):
        kernel = tuple(own["kernel_shape"])
        settings = {"kernel_size": kernel, "stride": tuple(own.get("strides", (1,) * len(kernel))),
                    "padding": _padding(own, len(kernel)), "ceil_mode": bool(own.get("ceil_mode", 0))}  # fmt: skip
        if kind == "avg_pool":
            settings["count_include_pad"] = bool(own.get("count_include_pad", 0))
    elif kind in ("adaptive_avg_pool", "adaptive_max_pool"):
        settings = {"output_size": (1, 1)}
    elif kind == "batch_norm":
        settings = {"eps": own.get("epsilon", 1e-5), "momentum": 1 - own.get("momentum", 0.9)}
    elif kind in ("layernorm", "instancenorm"):
        settings = {"eps": own.get("epsilon", 1e-5)}
    elif kind in ("softmax", "logsoftmax"):
        settings = {"dim": own.get("axis", -1)}
    elif kind in ("leaky_relu", "elu"):
        settings = {"slope" if kind == "leaky_relu" else "alpha": own.get("alpha", 0.01 if kind == "leaky_relu" else 1.0)}
    elif kind == "upsample":
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(name := own.get("mode", b"nearest").decode(), name)
        corners = own.get("coordinate_transformation_mode", b"half_pixel") == b"align_corners"
        settings = {"mode": mode, "align_corners": None} if mode == "nearest" else {"mode": mode, "align_corners": corners}
    elif kind == "pad" and (wide := _margins(node)) is not None:
        mode = {"edge": "replicate", "wrap": "circular"}.get(name := own.get("mode", b"constant").decode(), name)
        value = node.constants.get(node.proto.input[2]) if len(node.proto.input) > 2 else None
        settings = {"mode": mode, "padding": wide, "value": 0.0 if value is None or not value.size else float(value.ravel()[0])}
    elif kind == "dropout":
        settings = {"p": own.get("ratio", 0.5), "channels": False}
    return Layer(kind, settings, op)


def _margins(node: OnnxNode) -> tuple[int, ...] | None:
    """Of a padding, as torch has them: before and after, from the last dimension on; None where they vary."""
    pads = node.constants.get(node.proto.input[1]) if len(node.proto.input) > 1 else None
    if pads is None or (len(node.proto.input) > 3 and node.proto.input[3]):
        return None
    half = len(pads) // 2
    wide = [(int(pads[axis]), int(pads[axis + half])) for axis in range(half)]
    return tuple(n for pair in wide[:1:-1] for n in pair) if not any(map(any, wide[:2])) else None


def _padding(own: Mapping[str, Any], dimensions: int) -> Any:
    if own.get("auto_pad", b"NOTSET") not in (b"NOTSET", b""):
        return own["auto_pad"].decode().lower()
    pads = list(own.get("pads", [0] * (2 * dimensions)))
    pairs = list(zip(pads[:dimensions], pads[dimensions:], strict=True))
    return tuple(before for before, _ in pairs) if all(a == b for a, b in pairs) else tuple(pairs)
