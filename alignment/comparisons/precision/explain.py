"""Mixed precision around the kernels: what is cast, loss scaling, skipped updates, master weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, norm
from alignment.comparisons.context import Context, Lane
from alignment.comparisons.precision import low_precision, mixed_precision
from alignment.comparisons.precision.mixed_precision import DRAWS, SCALE, Experiment, UpdateTrace, fitting, joined, trace
from alignment.finding import NO_HINT, Finding, Hint
from alignment.kinds import Kind
from alignment.localize.search import random_cotangents, search
from alignment.low_precision import Error, Floor, bound

PLACES = {
    "scaling": "precision.unscale",
    "clipping": "precision.unscale",
    "skipping": "precision.step",
    "growth": "precision.step",
    "updates": "apply_update",
    "master_weights": "precision.prepare",
}


def in_low_precision(context: Context) -> Finding | None:
    """What the context's low precision alone has, if it has one: an overflow, an operator in another type than the reference's."""
    if not context.precision or low_precision.lacks(context):
        return None
    for training in (False,) if context.unshared_randomness else (False, True):
        made = low_precision.pair(context, training)
        made.cotangents = random_cotangents(made)
        if finding := search(made):
            finding.measured += f", in {context.precision}"
            return finding
    return None


def mixed(context: Context) -> Finding | None:
    """The first of step 5's experiments in mixed precision that shows a mistake."""
    if not context.precision or low_precision.lacks(context) or mixed_precision.lacks(context):
        return None
    for row in mixed_precision.lists(context, "autocast"):
        if not row.passed and ": " in row.name:
            return Finding("update", f"precision.autocast: {row.name.partition(': ')[2]}", Kind.AUTOCAST_LIST, row.reason, row.name)
    for experiment in mixed_precision.experiments(context):
        traces = mixed_precision.run(context, experiment)
        rows = mixed_precision.judge_experiment(experiment, experiment.name, traces, context.precision)
        failed = next((row for row in rows if not row.passed), None)
        if failed is not None:
            kind, words = explain(context, experiment, traces, failed)
            return Finding("update", PLACES[experiment.name], kind, words, f"{failed.name}: {failed.reason}")
    return None


def explain(context: Context, experiment: Experiment, traces: Mapping[str, UpdateTrace], failed: Quantity) -> Hint:
    """The known mistake that gives what the port gave; ``NO_HINT`` where none does."""
    port, truth = traces["port16"], traces["reference64"]
    for number in range(len(truth.moved)):
        if number == experiment.infinite and number < len(port.moved) and port.moved[number]:
            return Kind.UPDATE_NOT_SKIPPED, "an update whose gradients are not finite changes the weights"
    mine, right = joined(port.change, truth.change), joined(truth.change, truth.change)
    if experiment.level == "O2" and mine is not None and right is not None:
        lane = Lane(context, "reference64")
        lossy = joined(trace(lane, *fitting(context, experiment), lossy=True).change, truth.change)
        if lossy is not None and norm(mine - lossy) < 0.5 * min(norm(mine - right), norm(lossy - right)):
            share = float(mine @ right) / float(right @ right)
            words = (
                f"updates too small for {context.precision} are lost, as without float32 master weights: {share:.2f} of the change"
            )
            return Kind.MASTER_WEIGHTS_MISSING, words
    if mine is not None and right is not None and traces["reference16"].scalers:
        for kind, factor, words in (
            (Kind.UNSCALE_MISSING, SCALE, "the gradients are not divided by the loss scale"),
            (Kind.UNSCALE_AFTER_CLIPPING, 1 / SCALE, "the gradients are clipped before they are divided by the loss scale"),
        ):
            if agrees(mine / np.float64(factor), traces):
                return kind, f"{words}, {SCALE:g}"
    if ".scaler." in failed.name:
        return Kind.LOSS_SCALE, f"the loss scaler's {failed.name.rpartition('.')[2]}: {failed.reason}"
    return NO_HINT


def agrees(change: np.ndarray, traces: Mapping[str, UpdateTrace]) -> bool:
    """Whether a change of all weights is the right one, as far as the precision tells."""
    truth = traces["reference64"].change
    right, draws = joined(truth, truth), [joined(traces[name].change, truth) for name in DRAWS]
    if right is None or any(draw is None or not np.isfinite(draw).all() for draw in draws):
        return False
    real = [draw for draw in draws if draw is not None]
    floor = bound(Floor.of(real, right), real[0])
    return Error.of(change, right).l2 <= tolerance.LOW_FACTOR * floor.l2
