"""Step 0, a converted file: the port's own file of weights against the original from which it was made, tensor by tensor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alignment.compare import Quantity, judge_equal
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.models.weights import ANY_FRAMEWORK, entries_of
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
    wanted, expected = entries(context), context.material.weights.state
    state = read_converted(context, wanted)
    for entry in wanted:
        given, right = in_file(entry, state), expected[entry.canonical]
        if given is None:
            found = Quantity(entry.canonical, list(entry.shape)).fail(f"the converted file has no tensor {entry.own}")
        elif given.shape != right.shape:
            found = Quantity(entry.canonical, list(entry.shape)).fail(f"shape {given.shape}, expected {right.shape}")
        else:
            found = judge_equal(entry.canonical, given.astype(right.dtype), right)
        result.quantities.append(found)
    for name in extra(context, state, wanted):
        result.quantities.append(Quantity(name, list(state[name].shape)).fail("the original has no such tensor"))
    result.cover("converted file")
    result.seconds = time.perf_counter() - start
    return result


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
    try:
        port = context.networks.fresh("port")
    except Exception:  # a port that cannot be built is a finding of the steps
        port = None
    return entries_of(context.port.framework, port, context.reference.framework, context.networks.fresh("reference"))


def in_file(entry: Entry, state: State) -> np.ndarray | None:
    """A tensor of the file in the canonical layout; None where it is not there."""
    given = state.get(entry.own)
    return None if given is None else entry.to_canonical(given)


def extra(context: Context, state: State, expected: Sequence[Entry]) -> list[str]:
    """Names in the file that the original has no tensor for; counters are left out."""
    counters, wanted = context.port.framework.layout.counters, {entry.own for entry in expected}
    return [name for name in state if name not in wanted and name.rpartition(".")[2] not in counters]
