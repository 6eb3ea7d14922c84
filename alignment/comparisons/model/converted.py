"""Step 0, a converted file: the port's own file of weights against the original from which it was made, tensor by tensor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.comparison import Measurement, compare
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.finding import Finding
from alignment.kinds import Kind
from alignment.localize.search import weights_finding
from alignment.models.weights import ANY_FRAMEWORK, entries_of
from alignment.strangers import strangers
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import Entry, State, read_state

FOREIGN = 0.5  # a file that has less than this share of the port's tensors belongs to another model


def run(context: Context) -> StepResult:
    """Compare every tensor of the converted file with its original's.

    Raises:
        UserError: the file cannot be read, or is of another model or framework.
    """
    start = time.perf_counter()
    result = StepResult(0, "weights")
    compare(context, result, ConvertedFile(entries(context)))
    result.cover("converted file")
    result.seconds = time.perf_counter() - start
    return result


class ConvertedFile:
    """The tensors of a converted file and of its original.

    Args:
        entries: the reference's tensors as a file of the port holds them.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = {entry.canonical: entry for entry in entries}

    def measure(self, context: Context, role: str) -> State:
        """The original's tensors by canonical names; those of the file by its own, without counters that the original has not."""
        if role == "reference":
            return {name: context.material.weights.state[name] for name in self.entries}
        counters, state = context.port.framework.layout.counters, read_converted(context, list(self.entries.values()))
        wanted = {entry.own for entry in self.entries.values()}
        return {name: array for name, array in state.items() if name in wanted or name.rpartition(".")[2] not in counters}

    def judge(self, port: Measurement, reference: Measurement) -> Sequence[Quantity]:
        rows = []
        for name, entry in self.entries.items():
            given, right, row = self._in_file(name, port), np.asarray(reference[name]), Quantity(name, list(entry.shape))
            if given is None:
                row.fail(f"the converted file has no tensor {entry.own}")
            elif given.shape != right.shape:
                row.fail(f"shape {given.shape}, expected {right.shape}")
            else:
                row = judge_equal(name, given.astype(right.dtype), right)
            rows.append(row)
        extra = {name: np.shape(port[name]) for name in self._extra(port)}  # type: ignore[arg-type]
        return rows + [Quantity(name, list(shape)).fail("the original has no such tensor") for name, shape in extra.items()]

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        """The first tensor of the file that is not its original's."""
        held = {name: self._in_file(name, port) for name in self.entries}
        right = {name: np.asarray(reference[name]) for name in held}
        wrong = [name for name, given in held.items() if given is None or given.shape != right[name].shape]
        others = self._extra(port)
        counts = f"{len(wrong)} of {len(held)} tensors missing or of another shape, {len(others)} extra"
        if not wrong and not others:
            ours = {name: given.astype(right[name].dtype) for name, given in held.items() if given is not None}
            return weights_finding(ours, right, [])
        if not wrong:
            return Finding("weights", others[0], Kind.WEIGHTS_EXTRA, "the original has no such tensor", counts)
        entry, given = self.entries[wrong[0]], held[wrong[0]]
        if given is None:
            words = f"the converted file has no tensor {entry.own}"
            return Finding("weights", wrong[0], Kind.WEIGHTS_MISSING, words, counts)
        words = f"shape {np.shape(port[entry.own])} in the file, expected {entry.own_shape}"  # type: ignore[arg-type]
        if given.ndim == 2 and given.shape == right[wrong[0]].shape[::-1]:
            return Finding("weights", wrong[0], Kind.WEIGHT_TRANSPOSED, f"weight transposed: {words}", counts)
        return Finding("weights", wrong[0], Kind.SHAPE, words, counts)

    def _in_file(self, name: str, port: Measurement) -> np.ndarray | None:
        """A tensor of the file in the canonical layout; None where it is not there."""
        entry = self.entries[name]
        return entry.to_canonical(np.asarray(port[entry.own])) if entry.own in port else None

    def _extra(self, port: Measurement) -> list[str]:
        """Names in the file that the original has no tensor for."""
        wanted = {entry.own for entry in self.entries.values()}
        return [name for name in port if name not in wanted]


def read_converted(context: Context, expected: Sequence[Entry]) -> State:
    """The converted file as it is, by the port's own names; ``expected`` are the tensors that it should have.

    Raises:
        UserError: as ``run``.
    """
    path, framework = str(context.port_weights), context.port.framework
    if Path(path).suffix not in (*framework.suffixes, ANY_FRAMEWORK):
        kinds = " or ".join((*framework.suffixes, ANY_FRAMEWORK))
        raise UserError(f"--port-weights {path}: a converted file for {framework.title} is {kinds}")
    state = read_state(path, context.take)
    wanted = {entry.own for entry in expected}
    known = len(wanted & state.keys())
    if known < FOREIGN * len(wanted):
        raise UserError(f"--port-weights {path} has {known} of the port's {len(wanted)} tensors: is it another model's?")
    return state


def entries(context: Context) -> list[Entry]:
    """The reference's tensors as a file of the port holds them; names are the port's own where its structure is right."""
    with strangers("port") as raised:  # a port that cannot be built is a finding of the steps
        port = context.networks.fresh("port")
    if raised.error is not None:
        port = None
    return entries_of(context.port.framework, port, context.reference.framework, context.networks.fresh("reference"))
