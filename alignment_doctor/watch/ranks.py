"""Figures of all ranks side by side, and events brought to rank 0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from alignment_doctor.watch.look import Look, Samples
from mobilenetv3_common.parts import Ranks


def gathered(ranks: Ranks, values: np.ndarray) -> np.ndarray:
    """The vectors of all ranks, float64 (world_size, count). Every rank has to call it with as many values."""
    rows = np.zeros((ranks.world_size, len(values)))
    rows[ranks.rank] = values
    return np.asarray(ranks.sum(rows.ravel())).reshape(rows.shape)


def print_of(sample: np.ndarray) -> float:
    """One number that is equal where the samples are."""
    return float(sample @ np.cos(np.arange(len(sample))))


def figures(look: Look, data: Sequence[float]) -> dict[str, dict[str, float]]:
    """What is compared between ranks: figure -> what it belongs to -> number.

    Args:
        look: of this rank.
        data: numbers of its pictures; NaN where they were not seen.
    """

    def prints(samples: Samples, statistics: bool) -> dict[str, float]:
        return {name: print_of(sample) for name, sample in samples.items() if (name in look.statistics) is statistics}

    return {
        "rate": {"learning rate": look.rate},
        "data": {str(number): value for number, value in enumerate(data)},
        "gradients": {name: look.gradients.get(name, -1.0) for name in look.trainable},
        "before": prints(look.before, False),
        "after": prints(look.after, False),
        "statistics": prints(look.after, True),
    }


def share(look: Look, ranks: Ranks, data: Sequence[float]) -> None:
    """Put the figures of all ranks into a look. Every rank has to call it, with the same model."""
    own = figures(look, data)
    look.names = {figure: list(numbers) for figure, numbers in own.items()}
    rows = gathered(ranks, np.array([value for numbers in own.values() for value in numbers.values()]))
    ends = np.cumsum([len(numbers) for numbers in own.values()])[:-1]
    look.ranks = [dict(zip(own, np.split(row, ends), strict=True)) for row in rows]


def brought_together(ranks: Ranks, values: list[Any]) -> list[list[Any]]:
    """JSON values of every rank, on every rank. Every rank has to call it."""
    text = np.frombuffer(json.dumps(values).encode(), dtype=np.uint8) if values else np.zeros(0)
    lengths = gathered(ranks, np.array([len(text)]))[:, 0].astype(int)
    if not lengths.any():
        return [[] for _ in lengths]
    padded = np.zeros(lengths.max())
    padded[: len(text)] = text
    rows = gathered(ranks, padded).astype(np.uint8)
    return [json.loads(row[:length].tobytes()) if length else [] for row, length in zip(rows, lengths, strict=True)]
