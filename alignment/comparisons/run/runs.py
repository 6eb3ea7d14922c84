"""What a whole run does besides its updates: moving average, divergence, frozen layers, resumption, evaluation.

A part of step 6. Everything starts from the same weights on a few digits, in exact mode, so that the two sides can be held
against each other tensor by tensor; and against arithmetic done here, so that a mistake that both share is seen too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

from alignment.comparisons.comparison import Compared, Comparison, Measurement, judged, measure
from alignment.comparisons.context import Context
from alignment.comparisons.result import Enough, StepResult
from alignment.comparisons.run.averages import Averages
from alignment.comparisons.run.checkpoints import lacks_checkpoints
from alignment.comparisons.run.divergence import Divergence
from alignment.comparisons.run.engine import Ground
from alignment.comparisons.run.evaluation import RunEvaluation
from alignment.comparisons.run.freezing import Freezing
from alignment.comparisons.run.fresh import Fresh, lacks_fresh
from alignment.comparisons.run.long_run import LongRun
from alignment.comparisons.run.resumption import Resumption
from alignment.comparisons.run.run_options import REFUSED, Option, Views, options
from alignment.comparisons.update.backward import beside
from mobilenetv3_common.errors import UserError

SHARE = 0.05  # of step 6's time, measured on MobileNetV3-small: for the time that is left


def small_runs(context: Context, ground: Ground) -> list[Comparison]:
    """Everything that is compared of a project, in the order of its rows."""
    long = LongRun(ground) if lacks_checkpoints(context) else Resumption(ground)
    runs: list[Comparison] = [
        Averages(ground),
        Divergence(ground, context.spec.load is None),
        Freezing(ground),
        long,
        RunEvaluation(ground),
    ]
    return [*runs, *options(context, ground), *([] if lacks_fresh(context) else [Fresh(ground)])]


def compare(context: Context, result: StepResult, comparisons: Sequence[type[Comparison]] | None = None) -> None:
    """Make the small runs on both sides, the reference beside the port where it can be, and judge them.

    Args:
        context: the two sides.
        result: gets the rows, and what was measured.
        comparisons: of which classes; all where None.
    """
    with tempfile.TemporaryDirectory() as folder, context.reference.framework.threads(1), beside(context) as submit:
        ground = Ground.of(context, folder)
        chosen = [one for one in small_runs(context, ground) if comparisons is None or type(one) in comparisons]
        ahead = submit(lambda: [measured(context, one, "reference") for one in chosen])
        ours = [None if isinstance(one, RunEvaluation | Views) else measured(context, one, "port") for one in chosen]
        for one, own, theirs in zip(chosen, ours, ahead.result(), strict=True):
            if theirs is not None and isinstance(one, RunEvaluation | Views):
                one = one.after(theirs)
                own = measured(context, one, "port")
            if own is not None and theirs is not None:
                before = len(result.quantities)
                add(result, one, own, theirs)
                if (earlier := getattr(context, "earlier", None)) and earlier.judged(one, result.quantities[before:]):
                    raise Enough(result)
    # A network whose seed is forgotten begins with other weights than a file's, too.
    result.compared.sort(key=lambda one: isinstance(one, Compared) and isinstance(one.comparison, Option))
    result.not_run = "; ".join(filter(None, [result.not_run, lacks_checkpoints(context)]))


def measured(context: Context, comparison: Comparison, role: str) -> Measurement | None:
    """What one side gives; None for an option that the reference refuses, or that the project says the port is without."""
    try:
        return measure(context, comparison, role)
    except UserError as error:
        if not isinstance(comparison, Option):
            raise
        known = role == "reference" or comparison.topic in context.project.without
        return None if known else {REFUSED: error.line}


def add(result: StepResult, comparison: Any, port: Measurement, reference: Measurement) -> None:
    """Judge what was measured, and note what shows that there was something to compare."""
    judged(result, comparison, port, reference)
    comparison.show(result, port, reference)
