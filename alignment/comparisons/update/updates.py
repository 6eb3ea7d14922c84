"""Updates of an optimizer without training code: each framework's own gradient descent moves both models side by side.

The loss is the sum of output * cotangent with fixed random cotangents. What gradients alone cannot show is seen here: a learning
rate or a weight decay that belongs to one parameter (``ParamAttr`` in Paddle), parameters that an optimizer does not reach, and, in
training mode, statistics that run on from update to update.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from alignment.compare import norm
from alignment.comparisons.comparison import Searched, measured
from alignment.comparisons.context import Context
from alignment.comparisons.model.dropouts import Dropouts
from alignment.comparisons.model.forward import NamedOutputs
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.gradients import cotangents_of, product
from alignment.comparisons.update.runs import SGD, Iteration, Run
from alignment.comparisons.update.tensors import PORT_LANES, REFERENCE_LANES, History, flips_of, judge_tensors
from alignment.finding import Finding
from alignment.frameworks.base import Wanted
from alignment.kinds import Kind
from alignment.localize.hypotheses.arrays import common_factor
from alignment.models.observe import traced_kinks
from alignment.models.tracing import Network
from alignment.tolerance import CLOSE, SAME, TINY
from mobilenetv3_common.weights import State

MOVE = 2.0**-8  # share of the weights' norm by which one update moves them
SAMPLES = 4


def run(context: Context) -> StepResult:
    """Make ``context.updates`` updates of both models, in evaluation and, where it is compared, in training mode."""
    start = time.perf_counter()
    result = StepResult(5, "updates", not_run=context.unshared_randomness)
    for training in (False,) if result.not_run else (False, True):
        _compare(context, result, training)
    if result.differs and not result.stored:
        result.compared = [measured(context, Dropouts())]
    result.cover(f"{context.updates} update{'s' if context.updates > 1 else ''} by gradient descent")
    result.seconds = time.perf_counter() - start
    return result


def _compare(context: Context, result: StepResult, training: bool) -> None:
    inputs = context.material.samples(SAMPLES, small=True)[0]
    lanes = {name: context.networks.of(name) for name in (*PORT_LANES, *REFERENCE_LANES)}
    cotangents = cotangents_of(context, lanes["reference64"], inputs, training)
    mode = Run(f"updates.{'train' if training else 'eval'}", SGD, training, iterations=context.updates, float32_iterations=1)
    rate = _rate(context, next(updated(lanes["reference64"], inputs, cotangents, mode, 1.0)).gradients)
    runs = {name: updated(lane, inputs, cotangents, mode, rate) for name, lane in lanes.items()}
    history, before, now = History(), context.material.weights.state, {}
    context.progress.expect(context.updates)
    for number in range(context.updates):
        context.progress.done()
        taking_part = [name for name in runs if number == 0 or name.partition("#")[0].endswith("64")]
        now = {name: next(runs[name]) for name in taking_part}
        count = len(result.quantities)
        judge_tensors(result, mode, number, now, "state", flips_of(now), history)
        if not result.stored and not all(row.passed for row in result.quantities[count:]):
            explain = partial(explained, now["port64"], now["reference64"], before)
            result.stored = explain() is not None  # then nothing of the models needs to be looked at
            result.compared = [Searched(explain)] if result.stored else []
        before = now["reference64"].state
    moved = {name: now["reference64"].state[name] - context.material.weights.state[name] for name in now["reference64"].gradients}
    share = _size(moved.values()) / max(_size(context.material.weights.state[name] for name in moved), TINY)
    result.require(f"{mode.name}.weights_moved_by", float(f"{share:.2g}"), share > CLOSE, "above 1e-6 of their norm")


def updated(lane: Network, inputs: tuple, cotangents: Sequence[np.ndarray | None], run: Run, rate: float) -> Iterator[Iteration]:
    """Update one lane from its starting weights, one update a step of the iterator.

    Args:
        lane: whose model is updated.
        inputs: of the model.
        cotangents: of its outputs.
        run: whose mode and number of updates it has; kinks are noted at the first update.
        rate: the learning rate, a power of two: exact in float32.
    """
    framework, network = lane.framework, lane.model
    lane.reset()
    lane.train_mode(run.training)
    framework.clear_gradients(network)
    with framework.default_dtype(lane.dtype):
        optimizer = framework.descent(network, rate)
    for number in range(run.iterations):
        lane.draws.iteration = number
        described = [(e, t) for e, t in framework.described(network) if e.role == "parameter"]
        trained = {e.canonical: (e, t) for e, t in described if framework.trainable(t)}
        wanted = Wanted(inputs=False, parameters={name: tensor for name, (_, tensor) in trained.items()})
        kinks: NamedOutputs = {}
        with traced_kinks(framework, network, kinks if number == 0 else {}):
            made = framework.vjp(network, lane.inputs(inputs), cotangents, wanted)
        gradients = {name: trained[name][0].to_canonical(g) for name, g in made.parameters.items() if g is not None}
        with framework.precision(lane.dtype):
            framework.add_gradients(network, gradients)
            optimizer.step()
            framework.clear_gradients(network)
        yield Iteration(np.array(product(made.outputs, cotangents), lane.dtype), rate, gradients, kinks, framework.state(network))


def _rate(context: Context, gradients: State) -> float:
    """The power of two at which the first update moves the weights by about ``MOVE`` of their norm."""
    weights, size = _size(context.material.weights.state[name] for name in gradients), _size(gradients.values())
    return 2.0 ** math.floor(math.log2(MOVE * weights / size)) if weights > 0 and 0 < size < np.inf else MOVE


def _size(arrays) -> float:  # type: ignore[no-untyped-def]
    return math.sqrt(sum(norm(array) ** 2 for array in arrays))


def explained(ours: Iteration, theirs: Iteration, before: State) -> Finding | None:
    """The first tensor that an update moved otherwise, from what both sides computed and the weights before, and by which factor: a
    learning rate or a weight decay of its own."""
    for name, gradient in theirs.gradients.items():
        own = ours.gradients.get(name)
        if own is None or name not in ours.state or own.shape != gradient.shape or norm(own - gradient) > SAME * norm(gradient):
            continue  # the gradient is another one already
        moved, right = ours.state[name] - before[name], theirs.state[name] - before[name]
        if norm(moved - right) <= SAME * norm(right):
            continue
        factor = common_factor(moved, right)
        if not moved.any():
            words, kind = "no update moves it in the port: does the optimizer get it?", Kind.FROZEN
        elif factor is not None:
            words = (
                f"the update moves it by {factor:.6g} times the reference's, with the same gradient: a learning rate of its own?"
            )
            kind = Kind.GRADIENT_SCALED
        else:
            decay = common_factor(moved - right, before[name])
            words, kind = "it is updated otherwise, with the same gradient", Kind.UNKNOWN
            if decay is not None:
                words = f"the update also takes {-decay / theirs.lr:.6g} x the weight away, times the learning rate: weight decay?"
        return Finding("backward", name, kind, words, f"relative L2 of the update {norm(moved - right) / norm(right):.1e}")
    return None
