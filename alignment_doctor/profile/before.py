"""A profile beside an earlier one: an update's phases, the operators, the loader's queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from alignment_doctor.profile.subject import PHASES, TRACED, Profile

MOST = 5  # operators that changed


def earlier_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a profile's facts: phases, seconds of each operator, queue. An older file has phases alone.

    Raises:
        KeyError, TypeError, ValueError: they are no profile's.
    """
    queue = facts.get("loader_queue", {"ready": [], "room": 0})
    return {
        "phases": {name: float(facts["phases"][name]) for name in PHASES},
        "loader_queue": {"ready": [int(number) for number in queue["ready"]], "room": int(queue["room"])},
        "operators": by_name((one["name"], float(one["seconds"])) for one in facts.get("operators", [])),
    }


def by_name(operators: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of each operator, whatever its shapes."""
    together: dict[str, float] = {}
    for name, seconds in operators:
        together[name] = together.get(name, 0.0) + seconds
    return together


def against(profile: Profile, before: dict[str, Any]) -> list[str]:
    """The three parts of a profile beside those of an earlier one: an update's phases, the operators, the loader's queue."""
    then, phases = sum(before["phases"].values()), before["phases"]
    told = ", ".join(f"{name} {phases[name] * 1e3:.1f} -> {profile.typical(name) * 1e3:.1f}" for name in PHASES)
    notes = [f"before: {then * 1e3:.1f} ms an update; now {profile.whole / then:.2f} of it", f"ms before -> now: {told}"]
    if was := before["operators"]:
        now = by_name((one.name, one.seconds) for one in profile.operators)
        changed = sorted({**was, **now}, key=lambda name: -abs(now.get(name, 0.0) - was.get(name, 0.0)))[:MOST]
        milli = 1e3 / TRACED
        told = ", ".join(f"{name} {was.get(name, 0.0) * milli:.1f} -> {now.get(name, 0.0) * milli:.1f}" for name in changed)
        notes.append(f"operators that changed most, ms an update before -> now: {told}")
    if before["loader_queue"]["ready"] or profile.ready:
        notes.append(f"batches ready before -> now: {_queue(**before['loader_queue'])} -> {_queue(profile.ready, profile.room)}")
    return notes


def _queue(ready: Sequence[int], room: int) -> str:
    return f"{np.median(ready):g} of {room}" if ready else "no queue"
