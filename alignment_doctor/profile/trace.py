"""A Chrome trace of a framework's own profiler, summed up by operator."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Categories of the events that compute, by framework; Paddle's are the kernels, forward and backward.
COMPUTING = ("cpu_op", "DygraphKernelLaunch")


@dataclass(frozen=True)
class Operator:
    """One operator on inputs of one set of shapes and types.

    Attributes:
        name: the framework's own.
        shapes: of its inputs; empty where the profiler does not tell (Paddle, in eager mode).
        calls: how many.
        seconds: in itself, without the operators that it calls.
        types: of its inputs; empty where the profiler does not tell (Paddle in eager mode, MindSpore).
    """

    name: str
    shapes: str
    calls: int
    seconds: float
    types: str = ""


def operators(trace: Path) -> list[Operator]:
    """The operators of a trace, the longest first."""
    events = json.loads(trace.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    found = [event for event in events if event.get("ph") == "X" and event.get("cat") in COMPUTING]
    calls: dict[tuple[str, str, str], int] = defaultdict(int)
    seconds: dict[tuple[str, str, str], float] = defaultdict(float)
    for thread in {event["tid"] for event in found}:
        for event, own in own_times([event for event in found if event["tid"] == thread]):
            args = event.get("args", {})
            key = _name(event["name"]), _shapes(args), " ".join(filter(None, args.get("Input type") or []))
            calls[key] += 1
            seconds[key] += own / 1e6
    made = [Operator(key[0], key[1], calls[key], seconds[key], key[2]) for key in calls]
    return sorted(made, key=lambda one: -one.seconds)


def own_times(events: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Events of one thread, each with its duration less that of the events within it, microseconds."""
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    own = [float(event["dur"]) for event in ordered]
    open_events: list[int] = []
    for number, event in enumerate(ordered):
        while open_events and event["ts"] >= ordered[open_events[-1]]["ts"] + ordered[open_events[-1]]["dur"]:
            open_events.pop()
        if open_events:
            own[open_events[-1]] -= float(event["dur"])
        open_events.append(number)
    return [(event, max(time, 0.0)) for event, time in zip(ordered, own, strict=True)]


def _name(name: str) -> str:
    """Paddle writes the duration behind the name, and what kind of event it is."""
    return re.sub(r"( kernel launch)?(\[[\d.]+ [mnu]?s\])?$", "", name)


def _shapes(args: dict[str, Any]) -> str:
    shapes = [shape for shape in args.get("Input Dims") or [] if isinstance(shape, list) and shape]
    return " ".join("x".join(map(str, shape)) for shape in shapes)
