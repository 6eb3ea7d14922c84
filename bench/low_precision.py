"""Which known faults of the model and its weights are found in bfloat16 or float16 alone?

Nothing is computed in float32 or float64 but the truth: a fault counts where steps 1, 4 and 5 find it in the low precision.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

from alignment.comparisons import NAMES, guarded, lacks
from alignment.comparisons.context import Context
from alignment.comparisons.model import explain as models
from alignment.comparisons.model import forward
from alignment.comparisons.precision import low_precision
from alignment.comparisons.result import StepResult
from alignment.faults import fault_named, faults_of, injected
from alignment.project import Project
from bench.false_alarms import PICTURE_SIZE

AREAS = ("models", "weights")
STEPS = (1, 4, 5)
ENOUGH = 0.9


def results(context: Context) -> Iterator[StepResult]:
    """Steps 1, 4 and 5 in the context's precision alone, on small pictures."""
    cases = None
    if context.material.has_pictures:
        photos, _ = context.material.photographs(8, min(PICTURE_SIZE, context.shape()[-1]))
        cases = [forward.PassCase("eval", (photos,), False), forward.PassCase("train", (photos,), True)]
    for number in STEPS:
        if not lacks(number, context):
            yield guarded(number, lambda n=number: low_precision.add(context, StepResult(n, NAMES[n]), cases, whole=False))  # type: ignore[misc]


def run_all(project: Project, precision: str, name: str | None = None) -> int:
    """Inject every fault of the model and its weights in turn and print what is found; 0 where 90 % are.

    Args:
        project: sound.
        precision: ``"bfloat16"`` or ``"float16"``.
        name: of one fault alone.

    Raises:
        UserError: there is no such fault.
    """
    sound = Context(project, precision=precision)
    known = [fault_named(project, name)] if name else [fault for fault in faults_of(project).values() if fault.area in AREAS]
    found = located = 0
    for number, fault in enumerate(known, start=1):
        with injected(project, fault.name) as broken:
            context = replace(sound, project=broken, given_state=sound.material.weights.state)
            failed = next((result for result in results(context) if result.failed), None)
            first = _located(context) if failed is not None else None
        rows = [f"{q.name}: {q.reason}" for q in failed.quantities if not q.passed] + failed.problems if failed else []
        found += failed is not None
        located += first == fault.location
        said = f"step {failed.step}, {rows[0]}; located at {first}" if failed else "not found"
        print(f"{number:3}/{len(known)} {fault.name}: {said}", flush=True)
        gc.collect()
    share = found / len(known) if known else 0.0
    print(f"{precision} alone: {found} of {len(known)} found ({100 * share:.0f} %), {located} located exactly")
    return 0 if share >= ENOUGH else 1


def _located(context: Context) -> str | None:
    """Where localisation in the low precision alone sees the mistake."""
    try:
        finding = models.built(context) or low_precision.in_low_precision(context)
    except Exception:  # a broken port may raise anything
        return None
    return finding.location if finding else None
