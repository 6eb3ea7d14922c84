"""Gradients of every parameter from random gradients of the outputs: what is compared of a network without training code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from alignment.compare import summation64, where_derived
from alignment.comparisons.context import Context
from alignment.comparisons.model.forward import NamedOutputs, unheld
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.runs import SGD, Iteration, Run
from alignment.comparisons.update.tensors import PORT_LANES, REFERENCE_LANES, History, flips_of, judge_tensors, norm_of, unsteady
from alignment.frameworks.base import Tensor, Wanted, leaves
from alignment.models.observe import traced_kinks
from alignment.models.tracing import Network
from mobilenetv3_common.weights import Entry


def compare_gradients(context: Context, result: StepResult, training: bool) -> None:
    """Gradients of every parameter from random gradients of the outputs, on all lanes; a lane at a time, for large networks."""
    inputs = context.material.samples(4, small=True)[0]
    cotangents = cotangents_of(context, context.networks.of("reference64"), inputs, training)
    names = ("reference64", *PORT_LANES, *(name for name in REFERENCE_LANES if name != "reference64"))
    context.progress.expect(len(names))
    found = {}
    for name in names:
        found[name] = gradients_of(context.networks.of(name), inputs, cotangents, training)
        context.progress.done()
    _leave_out_nothing(context, found)
    judge_gradients(result, found, training, [array.shape for array in leaves(inputs, np.ndarray)])


def _leave_out_nothing(context: Context, found: Mapping[str, Iteration]) -> None:
    """In place: a gradient that is exactly zero is none where the other side has none for a tensor that is trained, too.

    PyTorch ends the graph at a cast to whole numbers, through which Paddle passes a gradient: behind a rounding, zeros. A part of a
    packed tensor is trained with it, where the other side does not use its own tensor for it. Nor is there a gradient of a tensor
    that a side is known to lack.
    """
    lacking = unheld(context)
    for lane in found.values():
        lane.gradients = {name: array for name, array in lane.gradients.items() if name not in lacking}
    trained = set.intersection(*(set(trained_in(context.networks.of(f"{role}64"))) for role in context.sides))
    for of_port, forms in zip((True, False), context.paired.matched.forms, strict=True):
        parts = {piece.canonical for pieces in forms.values() if len(pieces) > 1 for piece in pieces}
        mine = [one.gradients for name, one in found.items() if name.startswith("port") == of_port]
        others = [one.gradients for name, one in found.items() if name.startswith("port") != of_port]
        for name in parts | trained:
            if not any(name in one for one in others) and not any(one[name].any() for one in mine if name in one):
                for one in mine:
                    one.pop(name, None)


def cotangents_of(context: Context, lane: Network, inputs: tuple[np.ndarray, ...], training: bool) -> list[np.ndarray | None]:
    """Random gradients of a network's outputs, a pure function of the seed and the outputs' shapes; None for whole numbers."""
    lane.reset()
    lane.train_mode(training)
    rng = np.random.default_rng([context.seed, 6])
    shapes = [output.shape if output.dtype.kind == "f" else None for output in lane.outputs(inputs)]
    lane.reset()
    return [None if shape is None else rng.standard_normal(shape) / max(math.prod(shape), 1) for shape in shapes]


def gradients_of(
    lane: Network, inputs: tuple[np.ndarray, ...], cotangents: Sequence[np.ndarray | None], training: bool
) -> Iteration:
    """The gradients of every parameter on one lane, and the sum of output * cotangent as its loss."""
    lane.reset()
    lane.train_mode(training)
    trained = trained_in(lane)
    kinks: NamedOutputs = {}
    with traced_kinks(lane.framework, lane.model, kinks):
        wanted = Wanted(inputs=False, parameters={n: tensor for n, (_, tensor) in trained.items()})
        made = lane.framework.vjp(lane.model, lane.inputs(inputs), cotangents, wanted)
    gradients = {n: trained[n][0].to_canonical(g) for n, g in made.parameters.items() if g is not None}
    lane.reset()
    return Iteration(np.array(product(made.outputs, cotangents), lane.dtype), 0.0, gradients, kinks, {})


def trained_in(lane: Network) -> dict[str, tuple[Entry, Tensor]]:
    """The parameters of one lane that are trained, by canonical name."""
    known = {entry.canonical: name for name, entry in lane.entries.items()}
    described = [(e, t) for e, t in lane.framework.described(lane.model) if e.role == "parameter"]
    return {known.get(e.canonical, e.canonical): (e, t) for e, t in described if lane.framework.trainable(t)}


def product(outputs: Sequence[np.ndarray], cotangents: Sequence[np.ndarray | None]) -> float:
    """The sum of output * cotangent; what is masked with -inf has no part in it."""
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=False) if c is not None]
    return sum(float((np.where(np.isneginf(o), 0, o) * c).sum()) for o, c in pairs)


def judge_gradients(result: StepResult, now: dict[str, Iteration], training: bool, given: Sequence[tuple[int, ...]]) -> None:
    """Compare the gradients that all lanes computed, but for those that the reference itself does not have.

    Args:
        result: of the step.
        now: by lane.
        training: the mode.
        given: shapes of the inputs, samples first: a gradient is a sum over samples and places.
    """
    run = Run("train" if training else "eval", SGD, training)
    now, words = _where_derived(now)
    if words:
        result.not_run = "; ".join(filter(None, [result.not_run, f"{run.name}.{words}"]))
    if words := unsteady(run, now, "gradients"):
        result.not_run = "; ".join(filter(None, [result.not_run, words]))
        return
    judge_tensors(result, run, 0, now, "gradients", flips_of(now), History(summation64=summation64(given)))
    size = norm_of(now["reference64"].gradients.values())
    result.require(f"{run.name}.gradient_norm", float(f"{size:.4g}"), size > 1e-9, "above 1e-9")


def _where_derived(now: dict[str, Iteration]) -> tuple[dict[str, Iteration], str]:
    """All lanes' gradients without those that the reference does not have in exact mode; and what that leaves out."""
    right = now["reference64"].gradients
    lost = [name for name, array in right.items() if not np.isfinite(array).all()]
    if not lost:
        return now, ""
    words = (
        f"gradients of {len(lost)} of {len(right)} parameters, first {lost[0]}: the reference's own are NaN or infinite, since "
        "the input hits a point without a derivative (a root or a norm of exactly 0, for example); give another --input"
    )
    return {lane: replace(one, gradients=where_derived(one.gradients, right)) for lane, one in now.items()}, words
