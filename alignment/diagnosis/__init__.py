"""From a failed step to the place of the mistake: each step's stages are looked at in the order in which data flows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from alignment.diagnosis import data, loss, metric, models, training, updates
from alignment.localize.finding import Finding, Localization
from alignment.steps.context import Context, StepResult

Stage = Callable[[Context], Finding | None]

STAGES: dict[int, tuple[Stage, ...]] = {
    1: (models.built, models.forward_and_backward, models.in_training, models.dropout, models.in_float32),
    2: (data.decoding, data.evaluation, data.training, data.samples, data.batches, data.ranks, data.mixing),
    3: (models.built, metric.right_answers, metric.counting),
    4: (models.built, models.forward_and_backward, loss.values),
    5: (
        models.built,
        models.forward_and_backward,
        models.in_training,
        loss.values,
        updates.accumulation,
        updates.schedule,
        updates.optimizers,
        models.in_float32,
    ),
    6: (training.configuration, training.batches, training.schedule, training.updates, training.in_float32, training.evaluation),
}


def diagnose(context: Context, results: Sequence[StepResult], always: bool = False, with_table: bool = True) -> Localization:
    """Find the first mistake behind the first step that failed.

    Args:
        context: the two sides.
        results: of the steps that were run.
        always: make the table over all modules where every step passed, too.
        with_table: make it where a module is to blame.
    """
    start = time.perf_counter()
    outcome = Localization()
    failed = next((result for result in results if not result.passed), None)
    if failed is not None:
        broken: Finding | None = None
        for stage in STAGES[failed.step]:
            try:
                outcome.first = stage(context)
            except Exception as error:  # the port may raise anything; a later stage may still name the place
                words = f"{type(error).__name__}: {error}".strip()
                broken = broken or Finding(failed.name, stage.__name__, "raises", "the port cannot run", words)
            if outcome.first is not None:
                break
        outcome.first = outcome.first or broken or _quantity(failed)
    if always or (with_table and outcome.first and outcome.first.stage in ("forward", "backward")):
        outcome.layers = models.layers(context)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _quantity(result: StepResult) -> Finding:
    """Where no stage finds a mistake of its own: the first quantity that failed."""
    for quantity in result.quantities:
        if not quantity.passed:
            return Finding(result.name, quantity.name, "", "", quantity.reason)
    return Finding(result.name, "evidence", "", "", result.problems[0] if result.problems else "nothing was compared")
