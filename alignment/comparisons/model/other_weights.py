"""Whether an exported graph has other weights than the model, in most of its layers: told from the tensors alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from alignment import tolerance
from alignment.finding import Finding
from alignment.frameworks._onnx_graph import OnnxGraph, OnnxNode
from alignment.kinds import Kind
from mobilenetv3_common.counted import counted

WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
SHOWN = 3  # names of layers
ROWS = 16  # channels of a weight that are looked at


def finding(graph: OnnxGraph, state: Mapping[str, np.ndarray]) -> Finding | None:
    """The one mistake that is to be said where more than half of a graph's layers have other weights than the model."""
    found = others(graph, state)
    if found is None or 2 * len(found[0]) <= found[1] or len(found[0]) < 2:
        return None
    apart, count = found
    named = ", ".join(one.title for one in apart[:SHOWN])
    more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
    words = (
        f"the weights are others in {len(apart)} of {counted(count, 'layer')}: give the model the weights of the file (--weights "
        "FILE, or load them where the callable makes it), or export the model again; until then nothing else can be said"
    )
    return Finding("weights", "(model)", Kind.WEIGHTS_NOT_LOADED, words, f"nodes {named}{more}")


def others(graph: OnnxGraph, state: Mapping[str, np.ndarray]) -> tuple[list[OnnxNode], int] | None:
    """The nodes whose weight no tensor of the model is, and the number of nodes with one.

    A weight may lie otherwise in the graph, and each of its channels may have a factor, as where a normalisation is folded into it.
    None where a weight has a shape that no tensor of the model has: it is another network.
    """
    left: dict[tuple[int, ...], list[np.ndarray]] = {}
    for array in state.values():
        left.setdefault(tuple(sorted(array.shape)), []).append(np.asarray(array, np.float64))
    apart, count = [], 0
    for node in graph.nodes:
        weight = _weight(node)
        if weight is None:
            continue
        alike = left.get(tuple(sorted(weight.shape)))
        if not alike:
            return None
        count += 1
        own = next((number for number, one in enumerate(alike) if _same(weight, one)), None)
        if own is None:
            apart.append(node)
        elif len(alike) > 1:
            alike.pop(own)  # it may be the weight of several nodes where it is the only one left
    return apart, count


def _weight(node: OnnxNode) -> np.ndarray | None:
    found = node.constants.get(node.proto.input[1]) if node.proto.op_type in WITH_WEIGHTS and len(node.proto.input) > 1 else None
    return found if found is not None and found.dtype.kind == "f" and found.ndim > 1 else None


def _same(weight: np.ndarray, other: np.ndarray) -> bool:
    """Whether one is the other in some layout, channel by channel and up to a factor of each."""
    return any(_apart(ours, theirs) <= tolerance.WEIGHTS_APART for ours, theirs in _channels(weight, other))


def _channels(weight: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The channels of both as rows, in each layout in which they may lie: channels first, last, or transposed."""
    turned = [other] if other.ndim == 2 else [other, np.moveaxis(other, 1, -1), np.transpose(other, (*range(2, other.ndim), 1, 0))]
    for array in (*turned, other.T) if other.ndim == 2 else turned:
        if array.shape == weight.shape:
            for axis in (0, -1, 1):
                yield tuple(np.moveaxis(one, axis, 0)[:ROWS].reshape(min(ROWS, one.shape[axis]), -1) for one in (weight, array))  # type: ignore[misc]


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The sine of the angle between the rows, in the median."""
    norms = np.maximum(np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1), tolerance.TINY)
    cosines = np.clip(np.abs((ours * theirs).sum(1)) / norms, 0.0, 1.0)
    return float(np.median(np.sqrt(1 - cosines**2)))
