"""What a whole run does besides its updates: moving average, divergence, frozen layers, resumption, evaluation.

A part of step 6. Everything starts from the same weights on a few digits, in exact mode, so that the two sides can be held
against each other tensor by tensor; and against arithmetic done here, so that a mistake that both share is seen too.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from alignment.comparisons.context import Context
from alignment.comparisons.result import StepResult
from alignment.comparisons.run.averages import Averages, averages, given_states, judge_averages
from alignment.comparisons.run.divergence import Stopped, judge_divergence, stopped
from alignment.comparisons.run.engine import Ground
from alignment.comparisons.run.evaluation import evaluated, judge_evaluation
from alignment.comparisons.run.freezing import Frozen, frozen, judge_freezing
from alignment.comparisons.run.fresh import fresh, judge_fresh, lacks_fresh
from alignment.comparisons.run.resumption import (
    LongRun,
    judge_long_run,
    judge_memory,
    judge_resumption,
    lacks_checkpoints,
    long_run,
    remembered,
    resumed,
)
from alignment.comparisons.run.run_options import judge_options, wrong_options
from alignment.comparisons.update.backward import beside
from mobilenetv3_common.weights import State

SHARE = 0.05  # of step 6's time, measured on MobileNetV3-small: for the time that is left


@dataclass
class Runs:
    """One side's runs; ``rest`` is the resumed one, why the side refuses to go on, or None where the project has no checkpoints."""

    averages: Averages
    stopped: dict[str, Stopped]
    frozen: Frozen
    whole: LongRun
    rest: LongRun | str | None


def compare(context: Context, result: StepResult) -> None:
    """Make the small runs on both sides, the reference beside the port where it can be, and judge them."""
    lacking = lacks_checkpoints(context)
    with tempfile.TemporaryDirectory() as folder, context.reference.framework.threads(1), beside(context) as submit:
        ground = Ground.of(context, folder)
        states = given_states(ground)

        def made(role: str) -> Runs:
            whole, rest = (long_run(ground, role, ground.weights), None) if lacking else resumed(ground, role)
            return Runs(averages(ground, role, states), stopped(ground, role), frozen(ground, role, ground.weights), whole, rest)

        def noise(weights: State) -> tuple[LongRun, Frozen]:
            return long_run(ground, "reference", weights), frozen(ground, "reference", weights)

        ahead = submit(lambda: (made("reference"), noise(ground.moved), evaluated(ground, "reference")))
        ours = made("port")
        memory = {} if lacking or isinstance(ours.rest, str) else remembered(ground, "port")
        theirs, (moved, moved_frozen), counted = ahead.result()
        judge_averages(result, ours.averages, theirs.averages, states)
        judge_divergence(result, ground, ours.stopped, theirs.stopped)
        judge_freezing(result, ground, ours.frozen, theirs.frozen, moved_frozen)
        if ours.rest is None or theirs.rest is None:
            judge_long_run(result, ground, ours.whole, theirs.whole, moved)
        else:
            judge_resumption(result, ground, (ours.whole, ours.rest), (theirs.whole, theirs.rest), moved)
            judge_memory(result, memory)
        judge_evaluation(result, evaluated(ground, "port", counted.labels), counted)
        judge_options(result, wrong_options(ground))
        if not lacks_fresh(context):
            judge_fresh(result, *(fresh(ground, role) for role in ("port", "reference")))
    result.not_run = "; ".join(filter(None, [result.not_run, lacking]))
