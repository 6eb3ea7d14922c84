"""Ranks that wait for the slowest: the time of each before they meet in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

WAITS = 0.1  # share of an update from which it is worth a line


def of_every_rank(ranks: Any, own: float) -> list[float]:
    """A number of every rank, on every rank; to be called by all of them."""
    mine = np.zeros(ranks.world_size)
    mine[ranks.rank] = own
    return [float(value) for value in ranks.sum(mine)]


def waiting(own: Sequence[float], whole: float) -> tuple[float, int]:
    """What share of an update a typical rank waits for the slowest one, and which that is.

    Args:
        own: seconds that each rank needs before it meets the others: waiting for data, and the forward pass.
        whole: seconds of an update.
    """
    slowest = int(np.argmax(own))
    return float((own[slowest] - np.median(own)) / whole), slowest


def line(own: Sequence[float], whole: float) -> str:
    """For people: how evenly the ranks are loaded; empty where there is one."""
    if len(own) < 2:
        return ""
    share, slowest = waiting(own, whole)
    times = ", ".join(f"{seconds * 1e3:.1f}" for seconds in own)
    said = f"ms of each rank before they meet: {times}; "
    if share < WAITS:
        return f"{said}no rank keeps the others waiting"
    return f"{said}rank {slowest} keeps the others waiting for {share:.0%} of an update: look at its pictures, disk and processors"
