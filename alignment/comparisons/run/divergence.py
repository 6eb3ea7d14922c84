"""A run that diverges: it has to stop before its weights are spoilt, and to say where it broke."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alignment.compare import Quantity
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, cast, each_update, engine, start_run
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.weights import State

CASES = ("weight", "picture")  # what is not finite


@dataclass
class Stopped:
    """What one side did with an update that cannot be made.

    Attributes:
        words: of the error with which it stopped; ``""`` where it went on.
        spoilt: weights that the update has changed all the same.
    """

    words: str
    spoilt: list[str]


def stopped(ground: Ground, role: str) -> dict[str, Stopped]:
    """One update of one side in each case."""
    return {case: _stopped(ground, role, case) for case in CASES}


def _stopped(ground: Ground, role: str, case: str) -> Stopped:
    context, framework, train = ground.context, ground.context.sides[role].framework, engine(ground.context, role)
    run = start_run(context, role, ground.short, "64", ground.weights)
    parameters = [entry.canonical for entry in framework.entries(run.model) if entry.role == "parameter"]
    if case == "weight":
        context.networks.load(role, run.model, spoilt(ground.weights, parameters[0], np.nan))
    batch = cast(framework, next(each_update(train.micro_batches(run), 1))[0], "float64")
    if case == "picture":
        pixels = framework.array(batch[0][0])
        pixels.flat[0] = np.inf
        batch = (framework.tensor(pixels), batch[0][1]), batch[1]
    before = framework.state(run.model)
    words = ""
    try:
        with framework.precision("float64"):
            train.update(run, [batch])
    except UserError as error:
        words = error.line
    after = framework.state(run.model)
    return Stopped(words, [n for n in parameters if not np.array_equal(before[n], after[n], equal_nan=True)])


def spoilt(state: State, name: str, value: float) -> State:
    """A state with one element changed."""
    changed = state[name].copy()
    changed.flat[0] = value
    return {**state, name: changed}


def wrong_stops(ground: Ground, ours: dict[str, Stopped], theirs: dict[str, Stopped]) -> dict[str, str]:
    """What is wrong in each case, ``""`` for nothing; places are compared where both sides call their layers alike."""
    found = {}
    for case, expected in theirs.items():
        made, words = ours[case], ""
        if expected.words and not made.words:
            words = f"the port goes on with a {case} that is not finite, the reference stops"
        elif made.spoilt and not expected.spoilt:
            words = f"{len(made.spoilt)} weights are changed before the run stops, first {made.spoilt[0]}"
        elif ground.context.spec.load is None and made.words != expected.words:
            words = f"stops with {made.words!r}, expected {expected.words!r}"
        found[case] = words
    return found


def judge_divergence(result: StepResult, ground: Ground, ours: dict[str, Stopped], theirs: dict[str, Stopped]) -> None:
    """Hold the port's stops against the reference's."""
    for case, wrong in wrong_stops(ground, ours, theirs).items():
        quantity = Quantity(f"divergence.{case}", [])
        result.quantities.append(quantity.fail(wrong) if wrong else quantity)
        result.require(f"divergence.{case}.stops", bool(theirs[case].words), bool(theirs[case].words), "a reference that stops")
    result.cover("diverging run")
