"""From a failed step to the place of the mistake: each step's stages are looked at in the order in which data flows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from alignment.comparisons.context import Context
from alignment.comparisons.data import explain_draws as draws
from alignment.comparisons.model import explain as models
from alignment.comparisons.precision import low_precision as precision
from alignment.comparisons.result import StepResult
from alignment.comparisons.update.backward import lacks_updates
from alignment.finding import Finding, Localization
from alignment.kinds import Kind
from alignment.strangers import strangers

Look = Callable[[Context], Finding | None]


def what_was_measured(context: Context) -> Finding | None:
    """The place among the looks of a step at which its comparisons explain what they measured: see ``locate``."""
    raise NotImplementedError


def what_was_measured_late(context: Context) -> Finding | None:
    """The same of mixed precision, which a mistake of the model makes wrong, too."""
    raise NotImplementedError


MODEL: tuple[Look, ...] = (
    models.built,
    models.forward_and_backward,
    models.in_training,
    models.dropout,
    models.in_float32,
    precision.in_low_precision,
)
STAGES: dict[int, tuple[Look, ...]] = {
    0: (models.structure, what_was_measured, models.built),
    1: (
        models.built,
        models.forward_and_backward,
        models.in_training,
        what_was_measured,
        models.in_float32,
        precision.in_low_precision,
        what_was_measured_late,
    ),
    2: (what_was_measured, draws.drawn),
    3: (models.built, what_was_measured),
    4: (models.built, models.forward_and_backward, what_was_measured, precision.in_low_precision),
    5: (
        models.built,
        models.forward_and_backward,
        models.in_training,
        what_was_measured,
        models.in_float32,
        precision.in_low_precision,
        what_was_measured_late,
    ),
    6: (models.built, what_was_measured),
    7: (what_was_measured,),
    8: (models.built, what_was_measured),
}


def stages_of(context: Context, result: StepResult) -> tuple[Look, ...]:
    """What to look at for a failed step of a project.

    Without its losses or optimizers step 5 is about the model alone. A network whose random numbers cannot be shared is not
    looked at in training mode.
    """
    if result.stored:
        return (what_was_measured,)
    looks = MODEL if result.step == 5 and lacks_updates(context) else STAGES.get(result.step, ())
    if models.in_training in looks and context.unshared_randomness:
        return tuple(look for look in looks if look is not models.in_training)
    return looks


def locate(context: Context, results: Sequence[StepResult], always: bool = False, with_table: bool = True) -> Localization:
    """Find the first mistake behind the first step that failed.

    Args:
        context: the two sides.
        results: of the steps that were run.
        always: make the table over all modules where every step passed, too.
        with_table: make it where a module is to blame.
    """
    start = time.perf_counter()
    outcome = Localization(notes=context.notes())
    failed = next((result for result in results if result.failed and not result.only_blind), None)
    if failed is not None:
        broken: Finding | None = None
        for name, look in _looks(context, failed):
            with strangers("port") as raised:  # the port may raise anything; a later stage may still name the place
                outcome.first = look()
            if raised.error is not None:
                place = raised.place or name
                broken = broken or Finding(_stage(failed), place, Kind.RAISES, "the port cannot run", raised.words)
            if outcome.first is not None:
                break
        outcome.first = outcome.first or broken or failed.raised or quantity_finding(failed)
    if always or (with_table and outcome.first and outcome.first.stage in ("forward", "backward")):
        outcome.layers = models.layers(context)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _looks(context: Context, failed: StepResult) -> Iterator[tuple[str, Callable[[], Finding | None]]]:
    """Names and looks at a failed step; of those that read what was measured, one a comparison."""
    for look in stages_of(context, failed):
        if look in (what_was_measured, what_was_measured_late):
            late = look is what_was_measured_late
            yield from ((failed.name, one.explain) for one in failed.compared if one.late == late)
        else:
            yield look.__name__, partial(look, context)


def quantity_finding(result: StepResult) -> Finding:
    """Where no stage finds a mistake of its own: the first quantity that failed."""
    for quantity in result.quantities:
        if not quantity.passed:
            return Finding(_stage(result), quantity.name, measured=quantity.reason)
    return Finding(_stage(result), "evidence", measured=result.problems[0] if result.problems else "nothing was compared")


def _stage(result: StepResult):  # type: ignore[no-untyped-def]  # a step's name is a stage's
    return result.name
