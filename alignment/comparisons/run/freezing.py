"""A run whose normalisation layers are frozen, with a schedule by epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alignment.compare import judge_all_close, judge_equal
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, start_run, updates_of
from alignment.comparisons.run.recipe import topics
from alignment.comparisons.run.resumption import judge_states
from alignment.comparisons.update.rates import expected_rates, judge_rates
from mobilenetv3_common.weights import State

UPDATES = 5  # two an epoch: the learning rate moves twice


@dataclass
class Frozen:
    """What one side's run with frozen layers did.

    Attributes:
        trainable: canonical names of the parameters that the run trains, sorted.
        last: weights and statistics after the last update, canonical, float64.
        rates: learning rate of each update.
        updates_per_epoch: of the run.
    """

    trainable: list[str]
    last: State
    rates: np.ndarray
    updates_per_epoch: int


def frozen(ground: Ground, role: str, weights: State) -> Frozen:
    """Train one side by the short recipe."""
    context, framework = ground.context, ground.context.sides[role].framework
    run = start_run(context, role, ground.short, "64", weights)
    described = framework.described(run.model)
    trainable = sorted(entry.canonical for entry, t in described if entry.role == "parameter" and framework.trainable(t))
    made = list(updates_of(context, role, run, UPDATES))
    return Frozen(trainable, made[-1].state, np.array([update.rate for update in made]), run.updates_per_epoch)


def kept(theirs: Frozen, weights: State) -> list[str]:
    """Tensors that stay as they were in the reference's run."""
    return [n for n, array in weights.items() if array.dtype.kind == "f" and np.array_equal(theirs.last[n], array)]


def judge_freezing(result: StepResult, ground: Ground, ours: Frozen, theirs: Frozen, moved: Frozen) -> None:
    """Hold the port's run against the reference's: what is trained, what stays to the last bit, what the rest became."""
    names = kept(theirs, ground.weights)
    result.evidence["freezing.kept"] = f"{len(names)} of {len(ground.weights)} tensors"
    result.quantities.append(judge_equal("freezing.trainable", np.array(ours.trainable), np.array(theirs.trainable)))
    if names:
        last, start = ({n: state[n] for n in names if n in state} for state in (ours.last, ground.weights))
        result.extend(judge_all_close("freezing.kept", last, start, 0.0))
        result.cover("freezing")
    rest = [{n: a for n, a in run.last.items() if n not in names} for run in (ours, theirs, moved)]
    judge_states(result, "freezing.weights", *rest)
    pictures = ground.short.batch_size * ground.short.accumulate
    formula = expected_rates(ground.short, theirs.updates_per_epoch, pictures)[: len(theirs.rates)]
    result.quantities.append(judge_rates("freezing.learning_rates", ours.rates, theirs.rates, formula))
    result.cover(*(topic for topic in topics(ground.short) if topic != "freezing"))
