"""The report of an inference run: environment, times with percentiles, memory."""

from __future__ import annotations

import platform
import resource
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobilenetv3_paddle.deploy.bundle import Bundle
from mobilenetv3_paddle.deploy.engines import Engine, cpu_threads
from mobilenetv3_paddle.deploy.predictor import Times

PERCENTILES = (50, 90, 95, 99)


def environment(engine: Engine, bundle: Bundle, threads: int, device: str) -> dict[str, Any]:
    """What ran on what."""
    return {
        "model": bundle.model,
        "weights": f"{bundle.weights}, SHA-256 {bundle.weights_sha256[:12]}",
        "engine": engine.name,
        "engine version": engine.version,
        "device": device,
        "threads": threads or cpu_threads(),
        "processor": processor_name(),
        "python": platform.python_version(),
    }


def processor_name() -> str:
    """The processor as Linux names it, or the platform's word for it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def inference_report(times: Sequence[Times], batch_size: int, pictures: int) -> dict[str, dict[str, Any]]:
    """Milliseconds a batch of each stage: mean and percentiles; pictures a second; largest resident memory.

    Args:
        times: of each batch.
        batch_size: pictures in a full batch.
        pictures: in all batches together.
    """
    report: dict[str, dict[str, Any]] = {"data": {"pictures": pictures, "batch size": batch_size, "batches": len(times)}}
    total = 0.0
    for stage in ("preprocess", "inference", "postprocess"):
        seconds = np.array([getattr(t, stage) for t in times])
        total += float(seconds.sum())
        figures = {"mean": seconds.mean(), **{f"p{p}": np.percentile(seconds, p) for p in PERCENTILES}}
        report[f"{stage} (ms a batch)"] = {name: round(1e3 * float(value), 3) for name, value in figures.items()}
    report["together"] = {
        "pictures/s": round(pictures / total, 1),
        "memory (MiB)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return report
