"""An update of the engine, watched and not, and the alignment steps."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.benchmarks.models import ROOT, mobilenetv3
from tools.benchmarks.turns import print_table, side_by_side


def _of(framework: str, model: str, batch_size: int, size: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds an update: the engine's, the bare loop's on the same network and batch, and the watched engine's."""
    from alignment_doctor.watch.training import Watching
    from mobilenetv3_common.train_config import TrainConfig
    from mobilenetv3_common.train_log import TrainLog

    package = importlib.import_module(f"mobilenetv3_{framework}.train")
    root = str(ROOT / "lite_data")
    config = TrainConfig(
        framework=framework, model=model, data_path=root, batch_size=min(batch_size, 16), crop_size=size, workers=0
    )
    config = replace(config, resize_size=max(size, 256), epochs=10_000)
    run = package.build_run(config, package.Ranks())
    batch, _ = next(package.micro_batches(run))
    clear = run.optimizer.clear_grad if framework == "paddle" else run.optimizer.zero_grad
    run.train_mode()
    watched = package.build_run(config, package.Ranks())
    watched.observer = Watching()
    watched.train_mode()

    def engine(run: Any) -> float:
        start = time.perf_counter()
        package.update(run, [(batch, ())])
        passed = 1e3 * (time.perf_counter() - start)
        if run.iteration == run.updates_per_epoch:
            run.epoch, run.iteration = run.epoch + 1, 0
        return passed

    def bare() -> float:
        start = time.perf_counter()
        loss = run.criterion(run.model(batch[0]), batch[1])
        loss.backward()
        run.optimizer.step()
        clear()
        float(loss.detach())
        return 1e3 * (time.perf_counter() - start)

    cases: dict[str, Callable[[], float]] = {
        "engine": functools.partial(engine, run),
        "bare loop": bare,
        "engine, watched": functools.partial(engine, watched),
    }
    with watched.observer.observing(watched, TrainLog(None, config.epochs, watched.updates_per_epoch)):
        for case in cases.values():
            case()
        measured = side_by_side({f"{framework} {name}": case for name, case in cases.items()}, repeats)
    return measured


def train(folder: Path, args: Any) -> dict[str, list[float]]:
    """Milliseconds an update in each framework."""
    found: dict[str, list[float]] = {}
    for framework in ("ref", "paddle"):
        measured = _of(framework, args.model, args.batch_size, args.size or 224, args.repeats)
        print_table(measured, "ms", f"{framework} bare loop")
        found |= measured
    return found


def align(folder: Path, args: Any) -> dict[str, list[float]]:
    """Seconds of each alignment step."""
    from alignment.comparisons import NAMES, run_step
    from alignment.comparisons.context import Context

    context = Context(mobilenetv3(), args.model)

    def seconds(number: int) -> float:
        return run_step(number, context).seconds

    cases: dict[str, Callable[[], float]] = {
        f"step {number} {name}": functools.partial(seconds, number) for number, name in NAMES.items()
    }
    found = side_by_side(cases, args.repeats)
    print_table(found, "s", "step 1 forward")
    return found
