"""Structure, weights, and the modules' own mistakes forward and backward."""

from __future__ import annotations

from alignment.frameworks.base import Framework
from alignment.localize import Pair, compare_states, match_modules
from alignment.localize.finding import Finding, LayerRow
from alignment.localize.kinds import Kind
from alignment.localize.search import random_cotangents, search, structure_finding, table
from alignment.localize.tracing import Network
from alignment.steps import forward
from alignment.steps.context import Context, Lane
from mobilenetv3_common.weights import State

SAMPLES = 4
PICTURE_SIZE = 96


def frameworks(context: Context) -> tuple[Framework, Framework]:
    """Of the port and of the reference."""
    return context.port.framework, context.reference.framework


def built(context: Context) -> Finding | None:
    """The structure of the port, and the weights that it holds after loading."""
    try:
        port = context.fresh("port")
    except Exception as error:  # whatever the port raises
        words = f"{type(error).__name__}: {error}"
        return Finding("structure", context.model, Kind.RAISES, "the model cannot be built", words)
    reference = context.build("reference")
    matching = match_modules(port, reference, frameworks=frameworks(context))
    if finding := structure_finding(matching):
        return finding
    try:
        loaded = context.build("port")
    except Exception as error:
        finding = compare_states(port, reference, matching, frameworks(context))
        if finding is not None and finding.stage == "structure":
            return finding
        return Finding("weights", "load", Kind.RAISES, "the weights do not load", f"{type(error).__name__}: {error}")
    return compare_states(loaded, reference, matching, frameworks(context))


def pair(context: Context, training: bool, bits: str = "64") -> Pair:
    """Both models on a few samples, dropout sharing its masks; in float32 with the float64 reference beside them."""
    ours, theirs = Lane(context, f"port{bits}"), Lane(context, f"reference{bits}")
    matching = match_modules(ours.network, theirs.network, frameworks=frameworks(context))
    if context.has_pictures:
        inputs: tuple = (context.photographs(SAMPLES, min(PICTURE_SIZE, context.shape()[-1]))[0],)
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
    for row in forward.dropout_profile(context):
        if row.passed:
            continue
        path = row.name.removeprefix("dropout.").removesuffix(".share")
        rates = []
        for role, side in context.sides.items():
            module = side.framework.modules(context.build(role)).get(path)
            layer = None if module is None else side.framework.layer(module)
            rates.append(layer.settings["p"] if layer is not None and layer.kind == "dropout" else None)
        if rates[0] is None or rates[1] is None:
            return Finding("forward", path, Kind.DROPOUT_MISSING, "dropout is missing", row.reason)
        if rates[0] != rates[1]:
            return Finding("forward", path, Kind.DROPOUT_RATE, f"dropout rate {rates[0]:g}, expected {rates[1]:g}", row.reason)
        words = "dropout scales in evaluation mode instead of in training"
        return Finding("forward", path, Kind.DROPOUT_SCALE, words, row.reason)
    return None


def layers(context: Context, training: bool = False) -> list[LayerRow]:
    """The table over all modules; empty where the two models cannot be traced."""
    try:
        made = pair(context, training)
        made.cotangents = random_cotangents(made)
        search(made)
        return table(made)
    except Exception:  # the finding has said what is wrong; without a running model there is no table
        return []


def reference_gradients(context: Context, count: int, batch: int = 4) -> list[State]:
    """Gradients of the reference's loss over ``count`` batches, float64, training mode, from the starting weights."""
    lane = Lane(context, "reference64")
    train, loss, framework = lane.side.train, lane.side.loss, lane.framework
    assert train is not None and loss is not None
    lane.train_mode(True)
    inputs, labels = context.samples(count * batch, small=True)
    criterion = loss.CrossEntropyLoss(0.1)
    found = []
    for number in range(count):
        lane.reset()
        part = slice(number * batch, (number + 1) * batch)
        (images,) = lane.inputs((inputs[0][part],))
        framework.clear_gradients(lane.network)
        with framework.precision(lane.dtype):
            train.accumulate_gradients(lane.network, criterion, [(framework.tensor(images), framework.tensor(labels[part]))])
        found.append(framework.gradients(lane.network))
    return found
