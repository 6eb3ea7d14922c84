"""Structure, weights, and the modules' own mistakes forward and backward."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from alignment.comparisons.context import Context, Lane
from alignment.comparisons.model import embeddings, initialisation, variants
from alignment.comparisons.model import explain_converted as converted
from alignment.comparisons.model.dropouts import dropout_profile
from alignment.finding import Finding, LayerRow
from alignment.kinds import Kind
from alignment.localize import Pair, compare_states
from alignment.localize.search import random_cotangents, search, table
from alignment.localize.structure import structure_finding
from alignment.models.matching import order_of_use
from alignment.models.observe import dropout_probe
from alignment.models.tracing import Network
from alignment.raised import place_of, words_of

SAMPLES = 4
PICTURE_SIZE = 96


def built(context: Context) -> Finding | None:
    """The structure of the port, and the weights that it holds after loading."""
    try:
        port, matching = context.networks.fresh("port"), context.paired.matched.matching
    except Exception as error:  # whatever the port raises
        return Finding("structure", place_of(error) or context.model, Kind.RAISES, "the model cannot be built", words_of(error))
    reference = context.networks.build("reference")

    def used() -> list[str]:
        return order_of_use(context.reference.framework, reference, context.fake_inputs(2, small=True))

    if finding := structure_finding(port, reference, matching, context.frameworks, used, context.spec.last_layer):
        return finding
    try:
        loaded = context.networks.build("port")
    except Exception as error:
        if finding := converted.finding(context):
            return finding
        return Finding("weights", place_of(error) or "load", Kind.RAISES, "the weights do not load", words_of(error))
    return compare_states(loaded, reference, matching, context.frameworks)


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
    for row in dropout_profile(context):
        if row.passed:
            continue
        path = row.name.removeprefix("dropout.").removesuffix(".share")
        profiles = [_dropout_profile(context, role, path) for role in context.sides]
        ours, theirs = profiles
        kind, words = Kind.UNKNOWN, ""
        if ours is None and theirs is not None:
            kind, words = Kind.DROPOUT_MISSING, "dropout is missing"
        elif theirs is None:
            kind, words = Kind.LAYER_EXTRA, "the port drops values here, the reference does not"
        elif ours is not None and ours.p != theirs.p:
            kind, words = Kind.DROPOUT_RATE, f"dropout rate {ours.p:g}, expected {theirs.p:g}"
        elif ours is not None and abs(ours.share - ours.p) > 0.03 >= abs(theirs.share - theirs.p):
            kind, words = Kind.DROPOUT_RATE, f"dropout drops {ours.share:.0%} of the values, expected {theirs.p:.0%}"
        elif ours is not None and ours.kept == 1 != theirs.kept and abs(ours.mean - (1 - ours.p)) < 1e-6:
            kind, words = Kind.DROPOUT_SCALE, "dropout scales in evaluation mode instead of in training"
        elif ours is not None and ours.kept != theirs.kept:
            words = f"dropout multiplies what it keeps by {ours.kept:.4g} in training, expected {theirs.kept:.4g}"
            kind = Kind.DROPOUT_SCALE
        yield Finding("forward", path, kind, words, row.reason)


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
            yield Finding("initialisation", verdict.name, kind, verdict.words, verdict.measured)


class _Dropout(NamedTuple):
    """What a dropout layer does to ones: its p, the share that it drops and what it makes of a kept one in training, and the
    mean in evaluation mode."""

    p: float
    share: float
    kept: float
    mean: float


def _dropout_profile(context: Context, role: str, path: str) -> _Dropout | None:
    framework = context.sides[role].framework
    module = framework.modules(context.networks.build(role)).get(path)
    layer = None if module is None else framework.layer(module)
    if layer is None or layer.kind != "dropout":
        return None
    made = []
    for training in (True, False):
        framework.set_training(module, training)
        made.append(framework.call(module, (dropout_probe(layer.settings),)).outputs[0])
    return _Dropout(float(layer.settings["p"]), float((made[0] == 0).mean()), float(made[0].max()), float(made[1].mean()))


def layers(context: Context, training: bool = False) -> list[LayerRow]:
    """The table over all modules; empty where the two models cannot be traced."""
    try:
        made = pair(context, training)
        made.cotangents = random_cotangents(made)
        search(made)
        return table(made)
    except Exception:  # the finding has said what is wrong; without a running model there is no table
        return []
