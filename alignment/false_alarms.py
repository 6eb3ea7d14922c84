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


def runs(model: str, width: float, seed: int, steps: tuple[int, ...]) -> Iterator[Any]:
    """Results of the model-dependent steps from calibrated weights of a seed and width.

    Step 1 runs on pictures of 96 pixels, step 5 with four updates a run, so that many seeds take minutes, not hours.
    """
    from dataclasses import replace

    from alignment.reference_weights import calibrated_state
    from alignment.steps import backward, forward, loss
    from alignment.steps.context import Context

    options = {"width_mult": width}
    context = Context(model=model, given_state=calibrated_state(model, seed, PICTURE_SIZE, **options), options=options, seed=seed)
    if 1 in steps:
        photos, _ = context.photographs(16, PICTURE_SIZE)  # all that calibration scaled the logits on
        fake = context.fake_data(3, PICTURE_SIZE)
        cases = [("eval.photos", photos, False), ("eval.fake", fake, False), ("train.photos", photos, True)]
        yield forward.run(context, [forward.Case(*case) for case in cases])
    if 4 in steps:
        yield loss.run(context)
    if 5 in steps:
        yield backward.run(context, tuple(replace(run, iterations=4, float32_iterations=2) for run in backward.RUNS))


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--widths", nargs="+", type=float, default=list(WIDTHS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", nargs="+", type=int, choices=(1, 4, 5), default=[1, 4, 5])
    args = parser.parse_args(argv)
    from alignment.report import float32_ratio

    alarms = total = 0
    start = time.perf_counter()
    for model in args.models:
        for width in args.widths:
            worst = 0.0
            for seed in range(args.seeds):
                for result in runs(model, width, seed, tuple(args.steps)):
                    total += 1
                    worst = max(worst, float32_ratio(result.quantities) or 0.0)
                    failed = [f"{q.name}: {q.reason}" for q in result.quantities if not q.passed] + result.problems
                    alarms += bool(failed)
                    for line in failed[:3]:
                        print(f"  {model} width {width} seed {seed} step {result.step}: {line}", flush=True)
            print(f"{model} width {width}: {args.seeds} seeds, float32 error at most {worst:.1f} x its floor", flush=True)
    print(f"{alarms} false alarms in {total} step runs, {time.perf_counter() - start:.0f} s")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
