"""The moving average of the weights, given states far apart: what it keeps, and what a model has while it is applied."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alignment import tolerance
from alignment.compare import judge_all_close
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, start_run
from mobilenetv3_common.weights import State

DECAY = 0.75
STATES = 4


@dataclass
class Averages:
    """What one side's moving average made of the given states.

    Attributes:
        first, last: canonical state of the model while the average of the first state, or of all, is applied.
        after: the same after the average was taken out.
        without: arrays that an average with decay 0 keeps.
    """

    first: State
    last: State
    after: State
    without: int


def given_states(ground: Ground) -> list[State]:
    """States of the model far apart, statistics too: canonical, floating arrays in float32; variances stay positive."""
    rng = np.random.default_rng([ground.context.seed, 8])

    def drawn(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f":
            return array
        shift = rng.uniform(-0.125, 0.125, array.shape) if (array <= 0).any() else 0.0
        return (array * rng.uniform(0.75, 1.25, array.shape) + shift).astype(np.float32)

    return [{name: drawn(array) for name, array in ground.weights.items()} for _ in range(STATES)]


def averages(ground: Ground, role: str, states: list[State]) -> Averages:
    """Take the states in one after another, and apply the average after the first and the last."""
    context, framework = ground.context, ground.context.sides[role].framework
    run = start_run(context, role, replace(ground.short, ema_decay=DECAY), "64", ground.weights)
    applied = []
    for number, state in enumerate(states):
        context.networks.load(role, run.model, state)
        run.average.update()
        if number in (0, len(states) - 1):
            with run.average.applied():
                applied.append(framework.state(run.model))
    after = framework.state(run.model)
    none = type(run.average)(run.model, 0.0)
    none.update()
    return Averages(applied[0], applied[1], after, len(none.arrays()))


def averaged(average: State, state: State, decay: float) -> State:
    """A moving average with one more state, in float32: the first is copied. Arrays that are not floating are the last state's."""
    if not average:
        return {name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in state.items()}
    old, new = np.float32(decay), np.float32(1.0 - decay)
    return {
        name: average[name] * old + array.astype(np.float32) * new if array.dtype.kind == "f" else array
        for name, array in state.items()
    }


def expected_average(states: Sequence[State], decay: float = DECAY) -> State:
    """The moving average of several states."""
    return functools.reduce(lambda average, state: averaged(average, state, decay), states, State())


def judge_averages(result: StepResult, ours: Averages, theirs: Averages, states: list[State]) -> None:
    """Hold the port's average against the formula, and against the reference's."""
    for name, made, expected, other in (
        ("average.after1", ours.first, states[0], theirs.first),
        (f"average.after{len(states)}", ours.last, expected_average(states), theirs.last),
        ("average.taken_out", ours.after, states[-1], theirs.after),
    ):
        result.extend(judge_all_close(name, made, expected, tolerance.RECOMPUTED_32))
        result.extend(judge_all_close(f"{name}.reference", made, other, tolerance.RECOMPUTED_32))
    result.require("average.kept_without_decay", ours.without, ours.without == theirs.without == 0, "0 arrays")
    result.cover("moving average")
