"""How fast engines are, side by side, so that a slow phase of the machine meets them all."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

REPEATS, INNER = 7, 16
LONGEST_SPIN, STEP, WARM = 0.5, 0.01, 0.05  # seconds


def in_batches(engine: Callable[[np.ndarray], Any], images: np.ndarray, size: int = 32) -> np.ndarray:
    """An engine's logits of any number of pictures, float32 (N, 3, H, W) to (N, classes)."""
    return np.concatenate([engine(images[i : i + size]) for i in range(0, len(images), size)])


def settle() -> None:
    """Wait until this process computes nothing any more, half a second at most.

    Threads of an engine may wait for more work in a loop after a run (those of Intel's OpenMP for 0.2 s), and so slow down the
    engine that is measured next.
    """
    end = time.monotonic() + LONGEST_SPIN
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(STEP)
        if time.process_time() - before < STEP / 5:
            return


def warm_up(run: Callable[[], Any]) -> None:
    """Run for 50 ms: on cores that were idle, threads may share one of them for some runs."""
    end = time.monotonic() + WARM
    while time.monotonic() < end:
        run()


def side_by_side(engines: Mapping[str, Callable[[np.ndarray], Any]], image: np.ndarray) -> dict[str, float]:
    """Median milliseconds of each engine on one picture, all in turn."""
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(REPEATS):
        for name, engine in engines.items():
            settle()
            warm_up(functools.partial(engine, image))
            start = time.perf_counter()
            for _ in range(INNER):
                engine(image)
            found[name].append(1e3 * (time.perf_counter() - start) / INNER)
    return {name: statistics.median(times) for name, times in found.items()}
