"""``.onnx`` files: what is read of them, and what is refused. Nothing in them is executed but operators of ONNX."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data
from onnx.reference import ReferenceEvaluator

from alignment.frameworks._onnx_exact import OPERATORS
from alignment.frameworks._onnx_graph import OnnxGraph, OnnxNode, widened
from alignment.frameworks._onnx_quantised import KNOWN, written_out
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError

FUSED = {(one.op_domain, one.__name__) for one in OPERATORS} | KNOWN
LARGEST = 2**31 - 1  # bytes of a file that ONNX Runtime takes from memory
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def read(flag: str, path: Path) -> OnnxGraph:
    """The model of an ``.onnx`` file. Nothing in it is executed but operators of ONNX, and no file but its own data is read.

    Raises:
        UserError: it is missing or cut short, has data in other files that are missing or lie elsewhere, or unknown operators.
    """
    named = f"{flag} {path}"
    if not path.is_file():
        raise UserError(f"{named}: there is no such file")
    with strangers("onnx", alone=True) as raised:
        model = onnx.load_model(str(path), load_external_data=False)
    if raised.error is not None:
        raise UserError(f"{named}: no ONNX model, or one that is cut short ({raised.words}): export it again")
    if not model.graph.node:
        raise UserError(f"{named}: no ONNX model, or one that is cut short: its graph has no nodes")
    _check_external(named, model, path.parent)
    _check_operators(named, model)
    with strangers("onnx", alone=True) as raised:
        load_external_data_for_model(model, str(path.parent.resolve()))
        if model.ByteSize() < LARGEST:
            onnx.checker.check_model(model)
    if raised.error is not None:
        raise UserError(f"{named}: damaged, or cut short: {raised.words}")
    if model.ByteSize() >= LARGEST:
        raise UserError(f"{named}: 2 GB or more; ONNX Runtime takes no such model from memory")
    return graph_of(model, named)


def graph_of(model: onnx.ModelProto, named: str = "the model") -> OnnxGraph:
    """A model in memory as a side.

    Raises:
        UserError: exact mode has no operator of it, or ONNX Runtime does not take it.
    """
    deployed, model = model, written_out(model)
    with strangers("onnx", alone=True) as raised:
        evaluator = ReferenceEvaluator(model, new_ops=list(OPERATORS))  # type: ignore[arg-type]
    if raised.error is not None:
        raise UserError(f"{named}: exact mode cannot compute it: {raised.words}")
    constants = {name: widened(np.array(value)) for name, value in evaluator.rt_inits_.items()}
    nodes: list[OnnxNode] = []
    folded: list[OnnxNode] = []
    for number, (proto, operator) in enumerate(zip(model.graph.node, evaluator.rt_nodes_, strict=True)):
        node = OnnxNode(proto, number, operator, constants)
        if not node.varying and proto.op_type not in RANDOM:
            with strangers("onnx", alone=True) as raised:
                constants |= dict(zip(proto.output, map(widened, node.computed(constants)), strict=False))
            folded.append(node)
            if raised.error is not None:
                raise UserError(f"{named}: node {node.title} cannot be computed: {raised.words}")
        else:
            nodes.append(node)
    given = [one.name for one in model.graph.input if one.name not in constants]
    made = OnnxGraph(nodes, given, [one.name for one in model.graph.output], constants, _session(model, nodes, named))
    made.inputs = {one.name: _sizes(one) for one in model.graph.input if one.name in given}
    made.deployed, made.folded = functools.partial(_deployed, deployed), folded
    return made


def _sizes(value: onnx.ValueInfoProto) -> tuple[str, list[int | None] | None]:
    """Type and shape of an input; None for a size that varies, and for a shape that is not given."""
    tensor = value.type.tensor_type
    dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else ""
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, [one.dim_value if one.HasField("dim_value") else None for one in tensor.shape.dim]


def _deployed(model: onnx.ModelProto, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs as ONNX Runtime gives them with all of its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([one.name for one in session.get_inputs()], arrays, strict=True)))


def _session(model: onnx.ModelProto, nodes: Sequence[OnnxNode], named: str) -> Callable:
    import onnxruntime

    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    known = {one.name for one in model.graph.output}
    for node in nodes:
        exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.proto.output if name and name not in known)

    @functools.cache
    def opened() -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        with strangers("ONNX Runtime", alone=True) as raised:
            return onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
        raise UserError(f"{named}: ONNX Runtime does not take it: {raised.words}")

    def computed(given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        session = opened()
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(given)), strict=True)) | dict(given)

    return computed


def _check_external(named: str, model: onnx.ModelProto, folder: Path) -> None:
    """See that tensors that lie in other files are there, in the model's own folder, and whole."""
    root = folder.resolve()
    for tensor in _tensors(model.graph):
        if not uses_external_data(tensor):
            continue
        info = ExternalDataInfo(tensor)
        file = (root / info.location).resolve()
        if not info.location or not file.is_relative_to(root):
            raise UserError(f"{named}: tensor {tensor.name} lies in {info.location!r}, outside of the model's folder: not read")
        if not file.is_file():
            raise UserError(f"{named}: its weights lie in {info.location}, which is missing: put that file beside the model")
        end = (info.offset or 0) + (info.length or 0)
        if file.stat().st_size < end:
            raise UserError(
                f"{named}: {info.location} is cut short: {file.stat().st_size} bytes, tensor {tensor.name} ends at {end}"
            )


def _tensors(graph: onnx.GraphProto) -> Iterable[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def _check_operators(named: str, model: onnx.ModelProto) -> None:
    """See that every operator is one of ONNX, a function of the file, or one that exact mode has."""
    versions = {one.domain: one.version for one in model.opset_import}
    local = {(one.domain, one.name) for one in model.functions}
    unknown: dict[str, str] = {}
    for node in model.graph.node:
        if (node.domain, node.op_type) in local | FUSED:
            continue
        domain = "" if node.domain == "ai.onnx" else node.domain
        if not onnx.defs.has(node.op_type, versions.get(domain, 1), domain):
            unknown.setdefault(f"{domain or 'ai.onnx'}::{node.op_type}", node.name or node.output[0])
    if unknown:
        listed = ", ".join(f"{name} (node {where})" for name, where in list(unknown.items())[:3])
        raise UserError(
            f"{named}: {'an operator' if len(unknown) == 1 else f'{len(unknown)} operators'} that ONNX does not have: {listed}; "
            "export without them (of ONNX Runtime's optimiser: level basic)"
        )
