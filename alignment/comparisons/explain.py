"""From a failed step to the place of the mistake: by what it measured, and by a search of modules where values cannot say it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from alignment.comparisons.comparison import Compared
from alignment.comparisons.context import Context
from alignment.comparisons.model import explain as models
from alignment.comparisons.precision import low_precision as precision
from alignment.comparisons.result import StepResult
from alignment.comparisons.rows import in_words, place_of
from alignment.comparisons.witnessed import Testimony, of_all_steps
from alignment.finding import Finding, Localization
from alignment.kinds import Kind
from alignment.strangers import strangers

ModuleSearch = Callable[[Context], Finding | None]
# By step, searches for a module that is wrong, which values alone cannot say: before what the step's comparisons explain from what
# they measured, and after it.
WITH_GRADIENTS: tuple[ModuleSearch, ...] = (models.built, models.forward_and_backward, models.in_training)
BEFORE: dict[int, tuple[ModuleSearch, ...]] = {
    0: (models.structure,),
    1: WITH_GRADIENTS,
    3: (models.built,),
    4: (models.built, models.forward_and_backward),
    5: WITH_GRADIENTS,
    6: (models.built,),
    8: (models.built,),
}
AFTER: dict[int, tuple[ModuleSearch, ...]] = {
    0: (models.built,),
    1: (models.in_float32, precision.in_low_precision),
    4: (precision.in_low_precision,),
    5: (models.in_float32, precision.in_low_precision),
}


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
            with strangers("port") as raised:  # the port may raise anything; a later look may still name the place
                outcome.first = look()
            if raised.error is not None:
                place = raised.place or name
                broken = broken or Finding(_stage(failed), place, Kind.RAISES, "the port cannot run", raised.words)
            if outcome.first is not None:
                break
        outcome.first = outcome.first or broken or failed.raised or quantity_finding(context, failed)
        if outcome.first.kind is Kind.UNKNOWN:  # what a value from outside says of shared code says more
            outcome.first = next(_of_shared_code(failed), outcome.first)
        if outcome.first.shared:
            outcome.first = of_all_steps(context, results) or outcome.first
    if always or (with_table and outcome.first and outcome.first.stage in ("forward", "backward")):
        outcome.layers = models.layers(context)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _looks(context: Context, failed: StepResult) -> Iterator[tuple[str, Callable[[], Finding | None]]]:
    """Names and looks at a failed step, in the order in which data flows."""

    def searches(step: dict[int, tuple[ModuleSearch, ...]]) -> Iterator[tuple[str, Callable[[], Finding | None]]]:
        for search in () if failed.stored else step.get(failed.step, ()):
            if search is not models.in_training or not context.unshared_randomness:
                yield search.__name__, partial(search, context)

    yield from searches(BEFORE)
    yield from ((failed.name, one.explain) for one in failed.compared if not one.late)
    yield from searches(AFTER)
    yield from ((failed.name, one.explain) for one in failed.compared if one.late)


def _of_shared_code(failed: StepResult) -> Iterator[Finding]:
    """What the witnesses of a step tell (``alignment.comparisons.witnessed``), where they tell a cause."""
    told = (one.explain() for one in failed.compared if isinstance(one, Compared) and isinstance(one.comparison, Testimony))
    return (finding for finding in told if finding is not None)


def quantity_finding(context: Context, result: StepResult) -> Finding:
    """Where nothing explains it: the first quantity that failed, by the layer that it is of."""
    for quantity in result.quantities:
        if not quantity.passed:
            place, case = in_words(context)(quantity.name)
            said = f"{place}, {case}: " if case else ""
            return Finding(_stage(result), place_of(quantity.name), measured=f"{said}{quantity.reason}")
    return Finding(_stage(result), "evidence", measured=result.problems[0] if result.problems else "nothing was compared")


def _stage(result: StepResult):  # type: ignore[no-untyped-def]  # a step's name is a stage's
    return result.name
