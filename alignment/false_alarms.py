"""Does a correct port ever fail? Run the steps from many random weights and widths: python -m alignment.false_alarms."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from mobilenetv3_common.errors import exit_on_user_error

MODELS = ("mobilenet_v3_small", "mobilenet_v3_large")
WIDTHS = (0.35, 0.5, 0.75, 1.0)
PICTURE_SIZE = 96
BATCH_SIZES = range(1, 9)


def runs(model: str, width: float, seed: int, steps: tuple[int, ...]) -> Iterator[Any]:
    """Results of the model-dependent steps from calibrated weights of a seed and width.

    Step 1 runs on pictures of 96 pixels in batches of 1 to 8, step 5 with four updates a run and a batch size of 1 to 8 that
    goes with the seed, so that many seeds take minutes, not hours.
    """
    from alignment.reference_weights import calibrated_state
    from alignment.steps import backward, forward, loss
    from alignment.steps.context import Context

    options = {"width_mult": width}
    context = Context(model=model, given_state=calibrated_state(model, seed, PICTURE_SIZE, **options), options=options, seed=seed)
    if 1 in steps:
        photos, _ = context.photographs(16, PICTURE_SIZE)  # all that calibration scaled the logits on
        cases = [forward.Case("eval.photos", photos, False), forward.Case("train.photos", photos, True)]
        for size in BATCH_SIZES:
            cases.append(forward.Case(f"eval.fake.b{size}", context.fake_data(size, PICTURE_SIZE), False))
            cases.append(forward.Case(f"train.photos.b{size}", photos[:size], True))
        yield forward.run(context, cases)
    if 4 in steps:
        yield loss.run(context)
    if 5 in steps:
        size = BATCH_SIZES[seed % len(BATCH_SIZES)]
        yield backward.run(context, tuple(_shortened(run, size) for run in backward.RUNS))


def findings(model: str, width: float, seed: int) -> list[Any]:
    """What localisation finds in the sound port: alone, in both modes, on a batch of 1 to 8 photographs; and as after a failed
    step 1, float32 included."""
    from alignment.diagnosis import STAGES
    from alignment.localize import localize
    from alignment.reference_weights import calibrated_state
    from alignment.steps.context import Context

    options: dict[str, Any] = {"width_mult": width}
    context = Context(model=model, given_state=calibrated_state(model, seed, PICTURE_SIZE, **options), options=options, seed=seed)
    photos, _ = context.photographs(BATCH_SIZES[seed % len(BATCH_SIZES)], PICTURE_SIZE)
    pair = [side.build(model, context.state, **options) for side in (context.paddle, context.ref)]
    found = [localize(pair[0], pair[1], photos, training=training).first for training in (False, True)]
    return [finding for finding in (*found, *(stage(context) for stage in STAGES[1])) if finding is not None]


def _shortened(run: Any, batch_size: int) -> Any:
    from dataclasses import replace

    run = replace(run, iterations=4, float32_iterations=2, batch_size=batch_size)
    if run.clip_norm is None:
        return run
    # The gradients of a batch of one are smaller: clip at a norm that they too exceed, and still move the weights.
    return replace(run, clip_norm=1.0, optimizer=replace(run.optimizer, lr=1e-4))


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--widths", nargs="+", type=float, default=list(WIDTHS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", nargs="*", type=int, choices=(1, 4, 5), default=[1, 4, 5])
    parser.add_argument("--localize", action="store_true", help="look for what localisation finds in the sound port, too")
    args = parser.parse_args(argv)
    from alignment.report import float32_ratio

    alarms = total = 0
    start = time.perf_counter()
    for model in args.models:
        for width in args.widths:
            worst = 0.0
            for seed in range(args.seeds):
                if args.localize:
                    total += 1
                    found = findings(model, width, seed)
                    alarms += bool(found)
                    for finding in found:
                        print(f"  {model} width {width} seed {seed}: {finding.line()}", flush=True)
                for result in runs(model, width, seed, tuple(args.steps)):
                    total += 1
                    worst = max(worst, float32_ratio(result.quantities) or 0.0)
                    failed = [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
                    alarms += bool(failed)
                    for line in failed[:3]:
                        print(f"  {model} width {width} seed {seed} step {result.step}: {line}", flush=True)
            print(f"{model} width {width}: {args.seeds} seeds, float32 error at most {worst:.1f} x its floor", flush=True)
    print(f"{alarms} false alarms in {total} runs, {time.perf_counter() - start:.0f} s")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
