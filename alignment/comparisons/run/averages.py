"""The moving average of the weights, given states far apart: what it keeps, and what a model has while it is applied."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alignment import tolerance
from alignment.compare import Quantity, judge_all_close
from alignment.comparisons.comparison import Measurement, Value
from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.engine import Ground, start_run
from alignment.comparisons.run.mistakes import AVERAGE, Averaged
from alignment.comparisons.run.states import part, shown, under, unlike
from alignment.finding import NO_HINT, Finding
from alignment.kinds import Kind
from mobilenetv3_common.weights import State

DECAY = 0.75
STATES = 4


def given_states(ground: Ground) -> list[State]:
    """States of the model far apart, statistics too: canonical, floating arrays in float32; variances stay positive."""
    rng = np.random.default_rng([ground.seed, 8])

    def drawn(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f":
            return array
        shift = rng.uniform(-0.125, 0.125, array.shape) if (array <= 0).any() else 0.0
        return (array * rng.uniform(0.75, 1.25, array.shape) + shift).astype(np.float32)

    return [{name: drawn(array) for name, array in ground.weights.items()} for _ in range(STATES)]


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


class Averages:
    """What a model has while the average of the first state is applied, or of all, and after the average was taken out."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.states = ground, given_states(ground)
        self.expected = {"first": self.states[0], "last": expected_average(self.states), "after": self.states[-1]}

    def measure(self, context: Context, role: str) -> dict[str, Value]:
        framework = context.sides[role].framework
        run = start_run(context, role, replace(self.ground.short, ema_decay=DECAY), "64", self.ground.weights)
        made = State()
        for number, state in enumerate(self.states):
            context.networks.load(role, run.model, state)
            run.average.update()
            if number in (0, STATES - 1):
                with run.average.applied():
                    made |= under("last" if number else "first", framework.state(run.model))
        none = type(run.average)(run.model, 0.0)
        none.update()
        return {**made, **under("after", framework.state(run.model)), "without_decay": np.array(len(none.arrays()))}

    def judge(self, port: Measurement, reference: Measurement) -> list[Quantity]:
        rows: list[Quantity] = []
        names = {"first": "average.after1", "last": f"average.after{STATES}", "after": "average.taken_out"}
        for what, name in names.items():
            made = part(port, what)
            rows += judge_all_close(name, made, self.expected[what], tolerance.RECOMPUTED_32)
            rows += judge_all_close(f"{name}.reference", made, part(reference, what), tolerance.RECOMPUTED_32)
        return rows

    def show(self, result: StepResult, port: Measurement, reference: Measurement) -> None:
        """Note what shows that there was something to compare."""
        ours, theirs = (int(np.asarray(side["without_decay"])) for side in (port, reference))
        result.require("average.kept_without_decay", ours, ours == theirs == 0, "0 arrays")
        result.cover("moving average")

    def explain(self, port: Measurement, reference: Measurement) -> Finding | None:
        made = {what: part(port, what) for what in self.expected}
        wrong = {what: unlike(made[what], right, tolerance.RECOMPUTED_32) for what, right in self.expected.items()}
        for what in ("last", "first"):
            if wrong[what]:
                hint = AVERAGE.hint(Averaged(self.states, DECAY, made["last"], self.expected["last"], wrong["last"]))
                return Finding("train", "MovingAverage", *hint, shown(wrong[what], made[what], self.expected[what]))
        if wrong["after"]:
            hint = NO_HINT
            if not unlike(made["after"], self.expected["last"], tolerance.RECOMPUTED_32):
                hint = Kind.AVERAGE_NOT_TAKEN_OUT, "the model keeps the averaged weights after the block, expected its own"
            return Finding("train", "MovingAverage.applied", *hint, shown(wrong["after"], made["after"], self.expected["after"]))
        if kept := int(np.asarray(port["without_decay"])):
            words = f"an average with decay 0 keeps {kept} arrays, expected none"
            return Finding("train", "MovingAverage", Kind.MOVING_AVERAGE, words, f"{kept} arrays")
        return None
