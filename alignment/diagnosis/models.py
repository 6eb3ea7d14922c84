"""Structure, weights, and the modules' own mistakes forward and backward."""

from __future__ import annotations

import numpy as np

from alignment.localize import Pair, compare_states, match_modules, random_cotangent
from alignment.localize.finding import Finding, LayerRow
from alignment.localize.modules import structure_finding, table
from alignment.localize.tracing import PaddleNetwork, TorchNetwork
from alignment.steps import forward
from alignment.steps.context import Context, Lane

PICTURES = 4
PICTURE_SIZE = 96


def built(context: Context) -> Finding | None:
    """The structure of the port, and the weights that it holds after loading."""
    with context.paddle.default_dtype("float32"):
        try:
            layer = context.paddle.models.MODELS[context.model](**context.options)
        except Exception as error:  # whatever the port raises
            return Finding("structure", context.model, "raises", "the model cannot be built", f"{type(error).__name__}: {error}")
    module = context.ref.build(context.model, context.state, **context.options)
    if finding := structure_finding(match_modules(layer, module)):
        return finding
    try:
        layer = context.paddle.build(context.model, context.state, **context.options)
    except Exception as error:
        return Finding("weights", "load", "raises", "the weights do not load", f"{type(error).__name__}: {error}")
    return compare_states(layer, module, match_modules(layer, module))


def pair(context: Context, training: bool, bits: str = "64") -> Pair:
    """Both models on photographs, dropout sharing its masks; in float32 with the float64 reference beside them."""
    ours, theirs = Lane(context, f"paddle{bits}"), Lane(context, f"ref{bits}")
    matching = match_modules(ours.network, theirs.network)
    images = context.photographs(PICTURES, PICTURE_SIZE)[0].astype(ours.dtype)
    made = Pair(PaddleNetwork(ours.network, matching.paths), TorchNetwork(theirs.network), matching, (images,), training=training)
    if bits == "32":
        made.truth = TorchNetwork(Lane(context, "ref64").network)
    return made


def forward_and_backward(context: Context) -> Finding | None:
    """Evaluation mode, in float64."""
    made = pair(context, training=False)
    made.cotangent = random_cotangent(made)
    return made.search()


def in_training(context: Context) -> Finding | None:
    """Training mode, in float64: batch statistics, running statistics, dropout."""
    made = pair(context, training=True)
    made.cotangent = random_cotangent(made)
    return made.search()


def in_float32(context: Context) -> Finding | None:
    """What float64 does not have: a kernel or a cast that is wrong in float32 alone."""
    for training in (False, True):
        if finding := pair(context, training, "32").search():
            finding.measured += ", in float32 alone"
            return finding
    return None


def dropout(context: Context) -> Finding | None:
    """The port's own dropout layers, without shared masks."""
    for row in forward.dropout_profile(context):
        if row.passed:
            continue
        path = row.name.removeprefix("dropout.").removesuffix(".share")
        layers = [
            side.named_modules(side.build(context.model, context.state, **context.options)).get(path)
            for side in (context.paddle, context.ref)
        ]
        if layers[0] is None or layers[1] is None or not context.paddle.is_dropout(layers[0]):
            return Finding("forward", path, "dropout_missing", "dropout is missing", row.reason)
        ours, theirs = layers[0].p, layers[1].p
        if ours != theirs:
            return Finding("forward", path, "dropout_rate", f"dropout rate {ours:g}, expected {theirs:g}", row.reason)
        return Finding("forward", path, "dropout_scale", "dropout scales in evaluation mode instead of in training", row.reason)
    return None


def layers(context: Context, training: bool = False) -> list[LayerRow]:
    """The table over all modules; empty where the two models cannot be traced."""
    try:
        made = pair(context, training)
        made.cotangent = random_cotangent(made)
        made.search()
        return table(made)
    except Exception:  # the finding has said what is wrong; without a running model there is no table
        return []


def reference_gradients(context: Context, count: int, batch: int = 4, size: int = 48) -> list[dict[str, np.ndarray]]:
    """Gradients of the reference's loss over ``count`` batches, float64, training mode, from the starting weights."""
    lane = Lane(context, "ref64")
    lane.network.train()
    images, labels = context.photographs(count * batch, size)
    criterion = context.ref.loss.CrossEntropyLoss(0.1)
    found = []
    for number in range(count):
        lane.reset()
        part = slice(number * batch, (number + 1) * batch)
        batches = [(lane.side.tensor(lane.images(images[part])), lane.side.tensor(labels[part]))]
        lane.network.zero_grad(set_to_none=True)
        context.ref.train.accumulate_gradients(lane.network, criterion, batches)
        found.append(context.ref.gradients(lane.network))
    return found
