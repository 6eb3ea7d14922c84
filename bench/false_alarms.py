"""Does a correct port ever fail? The steps that depend on the model, run from many random weights."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alignment.comparisons import NAMES, STEPS, guarded, lacks
from alignment.comparisons.comparison import explained
from alignment.comparisons.context import Context
from alignment.comparisons.explain import AFTER, BEFORE
from alignment.comparisons.model import forward
from alignment.comparisons.precision import low_precision
from alignment.comparisons.result import StepResult
from alignment.comparisons.update import backward
from alignment.finding import Finding
from alignment.localize import localize
from alignment.models.calibration import calibrated_state
from alignment.project import Project
from alignment.report.table import float32_ratio
from mobilenetv3_common.errors import UserError

PICTURE_SIZE = 96
BATCH_SIZES = range(1, 9)


def parse_option(text: str) -> tuple[str, Any]:
    """``"width_mult=0.5"`` as a name and a number (or text).

    Raises:
        UserError: there is no "=".
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--options {text}: expected KEY=VALUE, e.g. width_mult=0.5")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def context_of(project: Project, model: str, options: Mapping[str, Any], seed: int, precision: str = "") -> Context:
    """A context with calibrated weights of a seed, on small pictures, so that many seeds take minutes, not hours."""
    shape = project.models[model].input_shape
    size = min(PICTURE_SIZE, shape[-1]) if len(shape) == 3 else None
    state = calibrated_state(project, model, seed, size, **options)
    return Context(project, model, given_state=state, options=options, seed=seed, precision=precision)


def runs(context: Context, steps: Sequence[int]) -> Iterator[StepResult]:
    """Results of steps from a context's weights.

    Step 1 runs on small pictures in batches of 1 to 8, step 5 with four updates a run and a batch size of 1 to 8 that goes with
    the seed.
    """
    for number in steps:
        if lacks(number, context):
            continue
        if context.precision:
            yield guarded(number, lambda number=number: in_low_precision(context, number))  # type: ignore[misc]
        elif number == 1:
            yield guarded(1, lambda: forward.run(context, _cases(context)))
        elif number == 5:
            size = BATCH_SIZES[context.seed % len(BATCH_SIZES)]
            shortened = tuple(replace(run, iterations=4, float32_iterations=2, batch_size=size) for run in backward.RUNS)
            yield guarded(5, lambda shortened=shortened: backward.run(context, shortened))  # type: ignore[misc]
        else:
            yield guarded(number, lambda number=number: STEPS[number](context))  # type: ignore[misc]


def in_low_precision(context: Context, number: int) -> StepResult:
    """A step in the context's low precision alone, on small pictures; a batch of 1 to 8 goes with the seed.

    Training in mixed precision, half of the time and the same code whatever the weights, is part of every fifth seed's.
    """
    cases = None
    if context.material.has_pictures:
        count = BATCH_SIZES[context.seed % len(BATCH_SIZES)]
        photos, _ = context.material.photographs(16, min(PICTURE_SIZE, context.shape()[-1]))
        cases = [
            forward.PassCase(f"eval.b{count}", (photos[:count],), False),
            forward.PassCase("train.b8", (photos[:8],), True),
        ]
    return low_precision.add(context, StepResult(number, NAMES[number]), cases, training=context.seed % 5 == 0)


def _cases(context: Context) -> list[forward.PassCase] | None:
    if not context.material.has_pictures:
        return None
    size = min(PICTURE_SIZE, context.shape()[-1])
    photos, _ = context.material.photographs(16, size)  # all that calibration scaled the logits on
    cases = [forward.PassCase("eval.photos", (photos,), False), forward.PassCase("train.photos", (photos,), True)]
    for count in BATCH_SIZES:
        cases.append(forward.PassCase(f"eval.fake.b{count}", (context.fake_data(count, 3, size, size),), False))
        cases.append(forward.PassCase(f"train.photos.b{count}", (photos[:count],), True))
    return cases


def findings(context: Context) -> list[Finding]:
    """What localisation finds in the sound port: alone, in both modes, on a batch of 1 to 8 samples; and as after a failed
    step 1, float32 included."""
    count = BATCH_SIZES[context.seed % len(BATCH_SIZES)]
    if context.material.has_pictures:
        inputs: tuple = (context.material.photographs(count, min(PICTURE_SIZE, context.shape()[-1]))[0],)
    else:
        inputs = context.fake_inputs(count, small=True)
    port, reference = (context.networks.build(role) for role in context.sides)
    found = [localize(port, reference, inputs, training=training).first for training in (False, True)]
    found += [search(context) for search in (*BEFORE[1], *AFTER[1])]
    return [finding for finding in (*found, explained(STEPS[1](context))) if finding is not None]


def run_all(
    project: Project,
    models: Sequence[str] | None,
    options: Sequence[Mapping[str, Any]] | None,
    seeds: int,
    steps: Sequence[int],
    with_localisation: bool,
    precision: str = "",
) -> int:
    """Run and print; returns 1 where there was a false alarm.

    Args:
        project: sound.
        models: names; all where None.
        options: of the builders, to try in turn; each model's variants where None.
        seeds: 0 .. ``seeds`` - 1.
        steps: of the guide.
        with_localisation: look for what localisation finds, too.
        precision: the steps run in this low precision alone.

    Raises:
        UserError: there is no such model.
    """
    unknown = [name for name in models or () if name not in project.models]
    if unknown:
        raise UserError(f"unknown model {unknown[0]!r}: use one of {', '.join(project.models)}")
    alarms = total = 0
    start = time.perf_counter()
    for model in models or list(project.models):
        for chosen in options or project.models[model].variants:
            worst = 0.0
            title = " ".join([model, *itertools.starmap("{} {}".format, chosen.items())])
            for seed in range(seeds):
                context = context_of(project, model, chosen, seed, precision)
                if with_localisation:
                    total += 1
                    found = findings(context)
                    alarms += bool(found)
                    for finding in found:
                        print(f"  {title} seed {seed}: {finding.line()}", flush=True)
                for result in runs(context, steps):
                    total += 1
                    worst = max(worst, float32_ratio(result.quantities) or 0.0)
                    failed = [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
                    alarms += bool(failed)
                    for line in failed[:3]:
                        print(f"  {title} seed {seed} step {result.step}: {line}", flush=True)
            print(f"{title}: {seeds} seeds, {precision or 'float32'} error at most {worst:.1f} x its floor", flush=True)
    print(f"{alarms} false alarms in {total} runs, {time.perf_counter() - start:.0f} s")
    return 1 if alarms else 0
