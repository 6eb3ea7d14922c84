"""Structure, weights, and the modules' own mistakes forward and backward."""

from __future__ import annotations

import contextlib

from alignment.compare import Quantity
from alignment.comparisons.comparison import measured
from alignment.comparisons.context import Context
from alignment.comparisons.model import variants
from alignment.comparisons.model.dropouts import Dropouts
from alignment.finding import Finding, LayerRow
from alignment.frameworks.base import Module
from alignment.kinds import Kind
from alignment.localize import Pair, compare_states
from alignment.localize.search import random_cotangents, search, table
from alignment.localize.structure import structure_finding
from alignment.models.matching import order_of_use
from alignment.strangers import strangers

SAMPLES = 4
PICTURE_SIZE = 96


def structure(context: Context) -> Finding | None:
    """The first module or tensor that one side alone has."""
    return _structure(context, context.networks.build("reference"))


def _structure(context: Context, reference: Module) -> Finding | None:
    with strangers("port") as raised:  # whatever the port raises
        port, matching = context.networks.fresh("port"), context.paired.matched.matching
    if raised.error is not None:
        return Finding("structure", raised.place or context.model, Kind.RAISES, "the model cannot be built", raised.words)

    def used() -> list[str]:
        return order_of_use(context.reference.framework, reference, context.fake_inputs(2, small=True))

    return structure_finding(port, reference, matching, context.frameworks, used, context.spec.last_layer)


def built(context: Context) -> Finding | None:
    """The structure of the port, and the weights that it holds after loading."""
    reference = context.networks.build("reference")
    if finding := _structure(context, reference):
        return finding
    with strangers("port") as raised:
        loaded = context.networks.build("port")
    if raised.error is not None:
        return Finding("weights", raised.place or "load", Kind.RAISES, "the weights do not load", raised.words)
    return compare_states(loaded, reference, context.paired.matched.matching, context.frameworks)


def pair(context: Context, training: bool, bits: str = "64") -> Pair:
    """Both models on a few samples, dropout sharing its masks; in float32 with the float64 reference beside them."""
    ours, theirs = context.networks.of(f"port{bits}"), context.networks.of(f"reference{bits}")
    if context.material.has_pictures:
        inputs: tuple = (context.material.photographs(SAMPLES, min(PICTURE_SIZE, context.shape()[-1]))[0],)
    else:
        inputs = context.fake_inputs(SAMPLES, small=True)
    truth = context.networks.of("reference64") if bits == "32" else None
    made = Pair(ours, theirs, context.paired.matched.matching, ours.inputs(inputs), training=training, truth=truth)
    made.reduced = _reduced(context, inputs)
    return made


def _reduced(context: Context, inputs: tuple) -> tuple[int, ...]:
    """The shape of a sample, where it is a smaller one than was asked for."""
    shape = tuple(inputs[0].shape[1:]) if context.material.has_pictures else context.shape(small=True)
    return () if shape == tuple(context.shape()) else shape


def forward_and_backward(context: Context) -> Finding | None:
    """Evaluation mode, in float64."""
    made = pair(context, training=False)
    made.cotangents = random_cotangents(made)
    return search(made)


def in_evaluation(context: Context) -> Finding | None:
    """The same, forward alone."""
    return search(pair(context, training=False))


def in_training(context: Context) -> Finding | None:
    """Training mode, in float64: batch statistics, running statistics, dropout."""
    made = pair(context, training=True)
    made.cotangents = random_cotangents(made)
    return search(made)


def in_float32(context: Context) -> Finding | None:
    """What float64 does not have: a kernel or a cast that is wrong in float32 alone."""
    for training in (False,) if context.unshared_randomness else (False, True):
        if finding := search(pair(context, training, "32")):
            finding.measured += ", in float32 alone"
            return finding
    return None


def dropout(context: Context) -> Finding | None:
    """The port's own dropout layers, without shared masks."""
    return measured(context, Dropouts()).explain()


def in_variant(context: Context, options: variants.Options, row: Quantity) -> Finding:
    """What is wrong in a variant, looked at as the model itself is; its tensors alone where it is not run.

    Args:
        context: of the model.
        options: of the variant.
        row: the first that failed.
    """
    found: Finding | None = None
    if options in variants.compared(context):
        other, _ = variants.of(context, options)
        found = next((f for look in (built, in_evaluation, dropout) if (f := look(other)) is not None), None)
        found = found or Finding("forward", row.name, measured=row.reason)
    else:
        with contextlib.suppress(Exception):  # what the port raises, the row says
            port, reference = (context.paired.unfilled(role, options) for role in ("port", "reference"))
            matching, last = context.paired.matched.matching, context.spec.last_layer
            found = structure_finding(port, reference, matching, context.frameworks, list, last)
        found = found or Finding("structure", row.name, measured=row.reason)
    found.hint = f"{variants.title(options)}: {found.hint or 'no known mistake matches'}"
    return found


def on_other_inputs(words: str, context: Context) -> Finding | None:
    """What is right on inputs of the model's own size alone, or of the usual values."""
    if finding := in_evaluation(context):
        finding.hint = f"on {words}: {finding.hint or 'no known mistake matches'}"
    return finding


def layers(context: Context, training: bool = False) -> list[LayerRow]:
    """The table over all modules; empty where the two models cannot be traced."""
    with strangers("port"):  # the finding has said what is wrong; without a running model there is no table
        made = pair(context, training)
        made.cotangents = random_cotangents(made)
        search(made)
        return table(made)
    return []
