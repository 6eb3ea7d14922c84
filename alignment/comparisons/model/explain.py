"""Structure, weights, and the modules' own mistakes forward and backward."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from alignment.comparisons.context import Context, Lane
from alignment.comparisons.model import embeddings, initialisation, variants
from alignment.comparisons.model import known as known_differences
from alignment.comparisons.model.dropouts import profiles_of, rows_of
from alignment.finding import Finding, LayerRow
from alignment.kinds import Kind
from alignment.localize import Pair, compare_states
from alignment.localize.search import random_cotangents, search, table
from alignment.localize.structure import structure_finding
from alignment.models.matching import order_of_use
from alignment.models.tracing import Network
from alignment.strangers import strangers

SAMPLES = 4
PICTURE_SIZE = 96


def structure(context: Context) -> Finding | None:
    """The first module or tensor that one side alone has."""
    with strangers("port") as raised:  # whatever the port raises
        port, matching = context.networks.fresh("port"), context.paired.matched.matching
    if raised.error is not None:
        return Finding("structure", raised.place or context.model, Kind.RAISES, "the model cannot be built", raised.words)
    reference = context.networks.build("reference")

    def used() -> list[str]:
        return order_of_use(context.reference.framework, reference, context.fake_inputs(2, small=True))

    return structure_finding(port, reference, matching, context.frameworks, used, context.spec.last_layer)


def built(context: Context) -> Finding | None:
    """The structure of the port, and the weights that it holds after loading."""
    if finding := structure(context):
        return finding
    with strangers("port") as raised:
        loaded = context.networks.build("port")
    if raised.error is not None:
        return Finding("weights", raised.place or "load", Kind.RAISES, "the weights do not load", raised.words)
    return compare_states(loaded, context.networks.build("reference"), context.paired.matched.matching, context.frameworks)


def pair(context: Context, training: bool, bits: str = "64") -> Pair:
    """Both models on a few samples, dropout sharing its masks; in float32 with the float64 reference beside them."""
    ours, theirs = Lane(context, f"port{bits}"), Lane(context, f"reference{bits}")
    matching = context.paired.matched.matching
    if context.material.has_pictures:
        inputs: tuple = (context.material.photographs(SAMPLES, min(PICTURE_SIZE, context.shape()[-1]))[0],)
    else:
        inputs = context.fake_inputs(SAMPLES, small=True)
    networks = Network(ours.framework, ours.network, matching.paths), Network(theirs.framework, theirs.network)
    made = Pair(*networks, matching, ours.inputs(inputs), training=training)
    if bits == "32":
        truth = Lane(context, "reference64")
        made.truth = Network(truth.framework, truth.network)
    return made


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
    """The first of ``dropouts``."""
    return next(dropouts(context), None)


def dropouts(context: Context) -> Iterator[Finding]:
    """The port's own dropout layers that are wrong, without shared masks."""
    profiles = profiles_of(context)
    for row in rows_of(context, profiles):
        if row.passed:
            continue
        path = row.name.removeprefix("dropout.").removesuffix(".share")
        kind, words = _wrong_dropout(*(profiles[role].get(path) for role in context.sides))
        yield Finding("forward", path, kind, words, row.reason)


def _wrong_dropout(ours: np.ndarray | None, theirs: np.ndarray | None) -> tuple[Kind, str]:
    """What is wrong with a layer of the port, by the profiles of both sides (``alignment.comparisons.model.dropouts``)."""
    if theirs is None:
        return Kind.LAYER_EXTRA, "the port drops values here, the reference does not"
    if ours is None:
        return Kind.DROPOUT_MISSING, "dropout is missing"
    (p, kept, mean, share), (right, right_kept, _, right_share) = ours.tolist(), theirs.tolist()
    if p != right:
        return Kind.DROPOUT_RATE, f"dropout rate {p:g}, expected {right:g}"
    if abs(share - p) > 0.03 >= abs(right_share - right):
        return Kind.DROPOUT_RATE, f"dropout drops {share:.0%} of the values, expected {right:.0%}"
    if kept == 1 != right_kept and abs(mean - (1 - p)) < 1e-6:
        return Kind.DROPOUT_SCALE, "dropout scales in evaluation mode instead of in training"
    if kept != right_kept:
        return Kind.DROPOUT_SCALE, f"dropout multiplies what it keeps by {kept:.4g} in training, expected {right_kept:.4g}"
    return Kind.UNKNOWN, ""


def padding(context: Context) -> Finding | None:
    """The first of ``paddings``."""
    return next(paddings(context), None)


def paddings(context: Context) -> Iterator[Finding]:
    """Embeddings with another padding number, which the input does not hold."""
    for path, own, expected in embeddings.paddings(context):
        words = f"{embeddings.words(own, expected)}: only the gradient of that number's row differs"
        yield Finding("backward", path, Kind.PADDING_INDEX, words, "by the layers' settings: the input does not hold the number")


def with_other_options(context: Context) -> Finding | None:
    """The first variant that differs, looked at as the model itself is."""
    for options in variants.compared(context):
        failed = [row for row in variants.rows_of(context, options) if not row.passed]
        if not failed:
            continue
        other, _ = variants.of(context, options)
        found = next((f for look in (built, in_evaluation, dropout) if (f := look(other)) is not None), None)
        found = found or Finding("forward", failed[0].name, measured=failed[0].reason)
        found.hint = f"{variants.title(options)}: {found.hint or 'no known mistake matches'}"
        return found
    return _in_structure_alone(context)


def _in_structure_alone(context: Context) -> Finding | None:
    """The first of the variants that are not run whose tensors differ."""
    for options in context.spec.compared_structures:
        row = variants.structure_of(context, options)
        if row.passed:
            continue
        found = None
        with contextlib.suppress(Exception):  # what the port raises, the row says
            port, reference = (context.paired.unfilled(role, options) for role in ("port", "reference"))
            found = structure_finding(
                port, reference, context.paired.matched.matching, context.frameworks, list, context.spec.last_layer
            )
        found = found or Finding("structure", row.name, measured=row.reason)
        found.hint = f"{variants.title(options)}: {found.hint or 'no known mistake matches'}"
        return found
    return None


def on_other_inputs(context: Context) -> Finding | None:
    """What is right on inputs of the model's own size alone, or of the usual values."""
    for _, words, other in variants.on_other_inputs(context):
        if finding := in_evaluation(other):
            finding.hint = f"on {words}: {finding.hint or 'no known mistake matches'}"
            return finding
    return None


def fresh_weights(context: Context) -> Finding | None:
    """The first tensor that is not initialised as the reference's."""
    wrong = list(fresh_mistakes(context))
    if not wrong:
        return None
    wrong[0].measured += f"; {len(wrong)} tensor(s) differ"
    return wrong[0]


def fresh_mistakes(context: Context) -> Iterator[Finding]:
    """All of them: constants first, then what is drawn, where fresh weights are compared.

    Raises:
        Exception: what the port raises when it is built.
    """
    every = [(Kind.CONSTANT, verdict) for verdict in initialisation.constants_of(context)]
    if initialisation.wanted(context):
        every += [(Kind.INITIALISATION, verdict) for verdict in initialisation.verdicts_of(context)[0]]
    for kind, verdict in every:
        if verdict.words:
            known = kind is Kind.INITIALISATION and known_differences.of_fresh_weights(context, verdict)
            yield Finding("initialisation", verdict.name, kind, verdict.words, verdict.measured, known=known)


def layers(context: Context, training: bool = False) -> list[LayerRow]:
    """The table over all modules; empty where the two models cannot be traced."""
    with strangers("port"):  # the finding has said what is wrong; without a running model there is no table
        made = pair(context, training)
        made.cotangents = random_cotangents(made)
        search(made)
        return table(made)
    return []
