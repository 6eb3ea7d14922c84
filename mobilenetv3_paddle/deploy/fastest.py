"""Which engine is the fastest on this machine, of those whose predictions hold: ``tools/export_model.py --engine auto``.

Every engine and precision that is installed runs the same pictures, one at a time, in turn. One holds where it names at least 99 %
of the pictures as the network in fp32 does, and in fp32 gives its probabilities. What was measured is kept in deploy.json,
where ``--engine auto`` of ``tools/infer.py`` and ``tools/serve.py`` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError
from mobilenetv3_paddle.deploy.bundle import ONNX_INT8, Bundle
from mobilenetv3_paddle.deploy.engines import OF_ENGINE, Engine, cpu_threads, create_engine
from mobilenetv3_paddle.deploy.predictor import Predictor, softmax
from mobilenetv3_paddle.deploy.report import processor_name
from mobilenetv3_paddle.deploy.timing import in_batches, side_by_side

AGREEMENT = 0.99
MAX_PROBABILITY_DIFF = 1e-5  # of engines in fp32
MIN_PICTURES = 8
MAX_PICTURES = 128


@dataclass
class Candidate:
    """One engine in one precision.

    Attributes:
        engine, precision: as the flags name them.
        milliseconds: median at batch 1.
        agreement: share of the pictures with the first engine's likeliest class, in fp32.
        max_probability_diff: from that engine's.
        holds: whether its predictions do.
    """

    engine: str
    precision: str
    milliseconds: float
    agreement: float
    max_probability_diff: float
    holds: bool

    def line(self) -> str:
        """For people."""
        words = "" if self.holds else "  its predictions do not hold"
        return f"{self.engine + ' ' + self.precision:17} {self.milliseconds:7.2f} ms  {self.agreement:7.1%} as fp32{words}"


def measure(bundle: Bundle, pictures: Sequence[Path], threads: int = 0) -> list[Candidate]:
    """Measure what is installed, keep the fastest that holds in deploy.json, and return all, the fastest that holds first.

    Args:
        bundle: the export.
        pictures: such as the model will see, which did not calibrate int8; 8 or more, of which at most 128 are used.
        threads: of each engine; 0 for every core this process may use.

    Raises:
        UserError: there are too few pictures, or one cannot be used.
    """
    if len(pictures) < MIN_PICTURES:
        raise UserError(f"--engine auto: {counted(len(pictures), 'picture')} to judge by; give {MIN_PICTURES} at least")
    engines = _installed(bundle, threads)
    first = next(iter(engines.values()))
    predictor = Predictor(first, bundle.preset, bundle.classes, bundle.image_backend)
    step = max(1, len(pictures) // MAX_PICTURES)
    images = np.stack([predictor.preprocess(predictor.decode(path)) for path in pictures[::step][:MAX_PICTURES]])
    truth = softmax(in_batches(first, images))
    times = side_by_side({f"{engine} {precision}": run for (engine, precision), run in engines.items()}, images[:1])
    found = []
    for (engine, precision), run in engines.items():
        got = softmax(in_batches(run, images))
        agreement, apart = float((got.argmax(1) == truth.argmax(1)).mean()), float(np.abs(got - truth).max())
        holds = agreement >= AGREEMENT and (precision != "fp32" or apart <= MAX_PROBABILITY_DIFF)
        found.append(Candidate(engine, precision, times[f"{engine} {precision}"], agreement, apart, holds))
    found.sort(key=lambda one: (not one.holds, one.milliseconds))
    bundle.fastest = {
        "engine": found[0].engine,
        "precision": found[0].precision,
        "processor": processor_name(),
        "threads": threads or cpu_threads(),
        "pictures": len(images),
        "tried": [asdict(one) for one in found],
    }
    bundle.write()
    return found


def _installed(bundle: Bundle, threads: int) -> dict[tuple[str, str], Engine]:
    """Every engine and precision that this export and machine have; ONNX Runtime or Paddle in fp32 first."""
    found: dict[tuple[str, str], Any] = {}
    for engine, precisions in OF_ENGINE.items():
        for precision in precisions:
            if precision == "int8" and ONNX_INT8 not in bundle.files:
                continue
            try:
                found[engine, precision] = create_engine(bundle, engine, precision, threads)
            except UserError:  # it is not installed, or the processor cannot do it
                continue
    return found
