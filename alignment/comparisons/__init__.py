"""The steps of the reproduction guide, each run on both sides and judged."""

from __future__ import annotations

import time
from collections.abc import Callable

from alignment.comparisons.context import Context
from alignment.comparisons.data import data
from alignment.comparisons.deploy import deployed
from alignment.comparisons.loss import step as loss
from alignment.comparisons.metric import step as metric
from alignment.comparisons.model import forward
from alignment.comparisons.precision import low_precision
from alignment.comparisons.result import NAMES, StepResult, guarded
from alignment.comparisons.run import train
from alignment.comparisons.update import backward
from alignment.comparisons.witnessed import WITNESS, listen

__all__ = ["NAMES", "PARTS", "STEPS", "guarded", "lacks", "run_step"]

STEPS: dict[int, Callable[[Context], StepResult]] = {
    1: forward.run,
    2: data.run,
    3: metric.run,
    4: loss.run,
    5: backward.run,
    6: train.run,
}
BY_WEIGHTS = (1, 3, 4, 5)  # steps whose evidence depends on the weights
PARTS: dict[int, str] = {2: "data", 3: "metric", 4: "loss"}  # what a step cannot do without


def run_step(number: int, context: Context) -> StepResult:
    """Run one step and time it; a step whose part the project lacks is not run, and says so."""
    start = time.perf_counter()
    lacking = lacks(number, context)
    if lacking:
        return StepResult(number, NAMES[number], not_run=lacking)
    if context.in_haste and context.suspect.startswith(f"{WITNESS}."):
        heard = listen(context, number, StepResult(number, NAMES[number]))
        if heard.differs:
            return heard
    step = deployed.run if number == deployed.NUMBER else STEPS[number]
    result = guarded(number, lambda: step(context))
    if not (context.in_haste and (result.differs or (context.earlier is not None and context.earlier.alone))):
        result = listen(context, number, result)
    if context.precision and not result.failed:
        result = guarded(number, lambda: low_precision.add(context, result))
    if result.lacking and number in BY_WEIGHTS:
        weights = context.material.weights
        cure = (
            "give --weights of a trained model"
            if weights.calibrated
            else "so it is under fresh weights: calibrate, or use --calibrate"
        )
        result.blind = f"{weights.name}: {result.problems[0].rpartition(': ')[0]}; {cure}"
    result.seconds = time.perf_counter() - start
    return result


def lacks(number: int, context: Context) -> str:
    """Why a step cannot run on a project at all; ``""`` where it can."""
    project = context.project
    if number == 6:
        return project.lacks_runs() or project.lacks("data") or project.lacks("loss")
    if number == deployed.NUMBER:
        return deployed.lacks(context)
    if number in PARTS:
        return project.lacks(PARTS[number])
    return ""
